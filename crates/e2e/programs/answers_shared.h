// What processes share, in answers.c: semaphores, messages, queues, keys, futexes, and memory.
#include <linux/futex.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wake
#define SYS_futex_wake 454
#define SYS_futex_wait 455
#define SYS_futex_requeue 456
#endif

static int semaphores, messages_of, shared, own;
static char queue_name[40];

static void begin_shared(void) {
    semaphores = semget(IPC_PRIVATE, 300, 0600), messages_of = msgget(IPC_PRIVATE, 0600), shared = shmget(IPC_PRIVATE, PAGE, 0600);
    own = CALL(pidfd_open, getpid(), 0);
    snprintf(queue_name, sizeof queue_name, "answers.%d", getpid());
}

static void end_shared(void) { semctl(semaphores, 0, IPC_RMID), msgctl(messages_of, IPC_RMID, 0), shmctl(shared, IPC_RMID, 0), close(own); }

static void semaphore_calls(void) {
    unsigned short first[300];
    for (int at = 0; at < 300; at++) first[at] = at;
    unsigned short *all = with(first, sizeof first), *back = cold(sizeof first);
    struct sembuf(*steps)[3] = (void *)GIVEN(struct { struct sembuf of[3]; }, {{{1, 1, 0}, {2, 2, 0}, {299, -1, 0}}});
    struct sembuf(*waits)[2] = (void *)GIVEN(struct { struct sembuf of[2]; }, {{{3, 1, 0}, {0, -1, 0}}});
    struct timespec *soon = GIVEN(struct timespec, {0, 1000});
    struct semid_ds *about = ROOM(struct semid_ds), *set = GIVEN(struct semid_ds, {.sem_perm = {.uid = getuid(), .gid = getgid(), .mode = 0600}});
    struct seminfo *limits = ROOM(struct seminfo);
    if (!ready()) return;
    said("SETALL", CALL(semctl, semaphores, 0, SETALL, all));
    said("semop", CALL(semop, semaphores, steps, 3));
    said("semtimedop", CALL(semtimedop, semaphores, waits, 2, soon));
    told("GETALL", CALL(semctl, semaphores, 0, GETALL, back), back, sizeof first);
    likely("semctl IPC_STAT", CALL(semctl, semaphores, 0, IPC_STAT, about), about->sem_nsems == 300);
    said("semctl IPC_SET", CALL(semctl, semaphores, 0, IPC_SET, set));
    likely("IPC_INFO", CALL(semctl, 0, 0, IPC_INFO, limits), limits->semmsl > 0);
}

static void message_calls(void) {
    enum { BYTES = 4000 };
    struct { long type; char text[BYTES]; } first = {3, "a message"}, *sent = with(&first, sizeof first), *got = cold(sizeof first);
    struct ipc_perm mine = {.uid = getuid(), .gid = getgid(), .mode = 0600};
    struct msqid_ds *about = ROOM(struct msqid_ds), *set = GIVEN(struct msqid_ds, {.msg_perm = mine, .msg_qbytes = 10000});
    struct shmid_ds *segment = ROOM(struct shmid_ds), *changed = GIVEN(struct shmid_ds, {.shm_perm = mine});
    struct shminfo *limits = ROOM(struct shminfo);
    if (!ready()) return;
    said("msgsnd", CALL(msgsnd, messages_of, sent, BYTES, 0));
    told("msgrcv", CALL(msgrcv, messages_of, got, BYTES, 3L, 0), got, sizeof first);
    likely("msgctl IPC_STAT", CALL(msgctl, messages_of, IPC_STAT, about), about->msg_lspid == getpid());
    said("msgctl IPC_SET", CALL(msgctl, messages_of, IPC_SET, set));
    likely("shmctl IPC_STAT", CALL(shmctl, shared, IPC_STAT, segment), segment->shm_segsz == PAGE);
    said("shmctl IPC_SET", CALL(shmctl, shared, IPC_SET, changed));
    likely("shmctl IPC_INFO", CALL(shmctl, 0, IPC_INFO, limits), limits->shmmni > 0);
}

static void queues(void) {
    char *name = text(queue_name), *gone = text(queue_name), *sent = cold(300), *got = cold(300), *cookie = cold(32);
    struct mq_attr *wanted = GIVEN(struct mq_attr, {.mq_maxmsg = 3, .mq_msgsize = 300});
    struct mq_attr *set = GIVEN(struct mq_attr, {.mq_flags = O_NONBLOCK}), *before = ROOM(struct mq_attr);
    struct timespec *until = GIVEN(struct timespec, {4000000000, 0}), *till = GIVEN(struct timespec, {4000000000, 0});
    unsigned *priority = ROOM(unsigned);
    static int woken;
    if (!is_out) woken = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sigevent *event = GIVEN(struct sigevent, {.sigev_notify = SIGEV_THREAD, .sigev_signo = woken, .sigev_value.sival_ptr = cookie});
    if (!ready()) return;
    long queue = CALL(mq_open, name, O_RDWR | O_CREAT | O_EXCL, 0600, wanted);
    said("mq_open", queue < 0 ? queue : 0);
    said("mq_notify", CALL(mq_notify, queue, event));
    said("mq_timedsend", CALL(mq_timedsend, queue, sent, 300, 5, until));
    char told_by[64] = {0};
    told("the cookie", recv(woken, told_by, sizeof told_by, MSG_DONTWAIT), told_by, sizeof told_by);
    told("mq_timedreceive", CALL(mq_timedreceive, queue, got, 300, priority, till), got, 300);
    told("its priority", 0, priority, 4);
    told("mq_getsetattr", CALL(mq_getsetattr, queue, set, before), before, 32);
    said("mq_unlink", CALL(mq_unlink, gone));
    close(queue), close(woken);
}

// Of the process's own keyring, which ends with it.
static void keys(void) {
    char *types[5], *names[5], *payload = text("the payload of a key"), *other = text("another of the same kind"), *ring = text("keyring");
    for (int at = 0; at < 4; at++) types[at] = text("user"), names[at] = text("answers of a key");
    char *read = cold(25), *described = cold(100), *label = cold(1), *info = text("to nobody"), *can = cold(2), *session = text("answers.session");
    char *ring_name = text("answers.ring");
    if (!ready()) return;
    long ring_key = CALL(add_key, ring, ring_name, 0, 0, -2);
    said("add_key of a ring", ring_key < 0 ? -1 : 0);
    long key = CALL(add_key, types[0], names[0], payload, 21, -2);
    said("add_key", key < 0 ? key : 0);
    likely("request_key", CALL(request_key, types[1], names[1], info, 0), 1);
    said("KEYCTL_UPDATE", CALL(keyctl, KEYCTL_UPDATE, key, other, 25));
    told("KEYCTL_READ", CALL(keyctl, KEYCTL_READ, key, read, 25), read, 25);
    likely("KEYCTL_DESCRIBE", CALL(keyctl, KEYCTL_DESCRIBE, key, described, 100), key < 0 || strncmp(described, "user;", 5) == 0);
    likely("KEYCTL_SEARCH", CALL(keyctl, KEYCTL_SEARCH, -2, types[2], names[2], 0), 1);
    likely("KEYCTL_GET_SECURITY", CALL(keyctl, KEYCTL_GET_SECURITY, key, label, 1), 1);
    told("KEYCTL_CAPABILITIES", CALL(keyctl, KEYCTL_CAPABILITIES, can, 2), can, 2);
    likely("KEYCTL_JOIN_SESSION_KEYRING", CALL(keyctl, KEYCTL_JOIN_SESSION_KEYRING, session), 1);
}

static void words(void) {
    uint32_t *word[20];
    for (int at = 0; at < 20; at++) word[at] = aligned(at);
    struct timespec *soon[3];
    for (int at = 0; at < 3; at++) soon[at] = GIVEN(struct timespec, {0, 1000});
    if (!ready()) return;
    said("FUTEX_WAIT", CALL(futex, word[0], FUTEX_WAIT, 1, soon[0], 0, 0));
    said("FUTEX_WAIT", CALL(futex, word[1], FUTEX_WAIT_PRIVATE, 1, soon[1], 0, 0));
    said("FUTEX_WAIT_BITSET", CALL(futex, word[2], FUTEX_WAIT_BITSET, 2, soon[2], 0, 1));
    said("FUTEX_WAKE_OP", CALL(futex, word[3], FUTEX_WAKE_OP, 1, 1L, word[4], FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 4)));
    said("added", *word[4]);
    said("FUTEX_CMP_REQUEUE", CALL(futex, word[5], FUTEX_CMP_REQUEUE, 1, 1L, word[6], 5));
    said("FUTEX_WAKE", CALL(futex, word[7], FUTEX_WAKE, 1));
    said("FUTEX_LOCK_PI", CALL(futex, word[0], FUTEX_LOCK_PI, 0, 0, 0, 0)), likely("locked", 0, *word[0] == (uint32_t)getpid());
    said("FUTEX_UNLOCK_PI", CALL(futex, word[0], FUTEX_UNLOCK_PI, 0, 0, 0, 0)), said("unlocked", *word[0]);
    said("FUTEX_WAIT_REQUEUE_PI", CALL(futex, word[8], FUTEX_WAIT_REQUEUE_PI, 0, 0, word[9], 0));
    said("futex_wake", CALL(futex_wake, word[10], 1L, 1, 2));
}

struct waiter { uint64_t value, word; uint32_t flags, spare; };

static void vectors_of_words(void) {
    uint32_t *word[6];
    for (int at = 0; at < 6; at++) word[at] = aligned(at);
    struct waiter of[2] = {{0, (uintptr_t)word[0], 2, 0}, {1, (uintptr_t)word[1], 2, 0}}, *both = with(of, sizeof of);
    struct waiter to[2] = {{2, (uintptr_t)word[2], 2, 0}, {3, (uintptr_t)word[3], 2, 0}}, *queued = with(to, sizeof to);
    struct waiter *late = (of[1].value = 7, with(of, sizeof of));
    struct timespec *soon = GIVEN(struct timespec, {0, 1000}), *past = GIVEN(struct timespec, {0, 1000});
    if (!ready()) return;
    said("futex_waitv", CALL(futex_waitv, both, 2, 0, soon, CLOCK_REALTIME));
    said("futex_waitv", CALL(futex_waitv, late, 2, 0, 0, 0));
    said("futex_requeue", CALL(futex_requeue, queued, 0, 1, 1));
    said("futex_wait", CALL(futex_wait, word[4], 4L, 1L, 2, past, CLOCK_REALTIME));
}

static void memory_of_processes(void) {
    char *here[2] = {cold(50), cold(60)}, *there[2] = {text("a line that is read from here"), text("and another one")};
    struct iovec *local = parts(here[0], 30, here[1], 16), *remote = parts(there[0], 30, there[1], 16);
    struct iovec *from = parts(there[1], 16, there[0], 30), *to = parts(here[0] + 20, 30, here[1] + 44, 16);
    struct iovec *advised = parts(buffer(0), PAGE, buffer(9), PAGE);
    if (!ready()) return;
    told("process_vm_readv", CALL(process_vm_readv, getpid(), local, 2L, remote, 2L, 0L), here[0], 30);
    told("the other part", 0, here[1], 16);
    told("process_vm_writev", CALL(process_vm_writev, getpid(), from, 2L, to, 2L, 0L), here[0], 50);
    told("the other part", 0, here[1], 60);
    said("process_madvise", CALL(process_madvise, own, advised, 2L, 20, 0));
}

static void nodes(void) {
    enum { BITS = 4096 };
    char *mapped = mmap(0, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, 5 * PAGE);
    static void *these;
    if (!is_out) these = mapped;
    void *asked = GIVEN(struct { void *at[3]; }, {{these, (char *)these + PAGE, (char *)these + 2 * PAGE}});
    int *status = cold(12), *moved = cold(12), *to = with(&(int[3]){0}, 12), *mode = ROOM(int);
    uint64_t one[BITS / 64] = {1}, *wanted = with(one, BITS / 8), *bound = with(one, BITS / 8);
    uint64_t *from = with(one, BITS / 8), *into = with(one, BITS / 8), *now = cold(BITS / 8);
    unsigned char *resident = cold(5);
    if (!ready()) return;
    told("move_pages", CALL(move_pages, 0, 3L, asked, 0, status, 0), status, 12);
    told("move_pages", CALL(move_pages, 0, 3L, asked, to, moved, 2), moved, 12);
    said("set_mempolicy", CALL(set_mempolicy, 2, wanted, (long)BITS));
    told("get_mempolicy", CALL(get_mempolicy, mode, now, (long)BITS, 0, 0L), now, BITS / 8), told("its mode", 0, mode, 4);
    said("set_mempolicy", CALL(set_mempolicy, 0, 0, 0L));
    said("mbind", CALL(mbind, these, 2L * PAGE, 2, bound, (long)BITS, 0));
    reached("migrate_pages", CALL(migrate_pages, getpid(), (long)BITS, from, into));
    told("mincore", CALL(mincore, these, 5L * PAGE, resident), resident, 5);
}

static void (*const shared_steps[])(void) = {message_calls, queues, words, vectors_of_words, memory_of_processes, nodes, keys, semaphore_calls, 0};
