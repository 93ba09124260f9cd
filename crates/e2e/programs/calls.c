// Calls whose buffers are cold: what the kernel reads and writes must be in place. Prints what it has found, which is the
// same with and without pleat. Touches far more than its budget in between, so that everything else leaves.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BULK (48UL << 20)
static unsigned char *bulk;
static char **cold; // Many small buffers, a page each.
static char **work; // The same, for what differs from run to run.
enum { COLD = 512 };
static volatile sig_atomic_t alarms;
static volatile sig_atomic_t wants_jump;
static sigjmp_buf jump;

// Everything that was not touched since is out after this.
static void chill(void) {
    for (int round = 0; round < 2; round++)
        for (size_t at = 0; at < BULK; at += 4096) {
            unsigned *word = (unsigned *)(bulk + at);
            word[0] += 1;
            word[1] = (unsigned)at * 2654435761u;
        }
}

static unsigned long sum(const char *bytes, size_t length) {
    unsigned long sum = 5381;
    for (size_t at = 0; at < length; at++) sum = sum * 33 + (unsigned char)bytes[at];
    return sum;
}

static void check(const char *what, long got, long expected) {
    if (got != expected) {
        printf("%s: %ld instead of %ld, %s\n", what, got, expected, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

static void pipes(void) {
    int ends[2];
    check("pipe", pipe(ends), 0);
    unsigned long total = 0;
    for (int at = 0; at + 1 < COLD; at += 2) {
        check("write", write(ends[1], cold[at], 4000), 4000);
        check("read", read(ends[0], cold[at + 1], 4000), 4000);
        total += sum(cold[at + 1], 4000);
    }
    printf("pipes %lx\n", total);
    close(ends[0]), close(ends[1]);
}

static void vectors(void) {
    int ends[2];
    check("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct iovec *out = (void *)work[0], *in = (void *)work[1];
    unsigned long total = 0;
    for (int at = 0; at < 40; at++) {
        out[at] = (struct iovec){work[2 + at] + 100, 1000};
        in[at] = (struct iovec){work[50 + at] + 2000, 1000};
    }
    struct msghdr *message = (void *)work[100];
    memset(message, 0, sizeof *message);
    message->msg_iov = out, message->msg_iovlen = 40;
    chill();
    check("sendmsg", sendmsg(ends[0], message, 0), 40000);
    chill();
    check("readv", readv(ends[1], in, 40), 40000);
    for (int at = 0; at < 40; at++) total += sum(work[50 + at] + 2000, 1000);
    printf("vectors %lx\n", total);
    close(ends[0]), close(ends[1]);
}

static void paths(const char *self) {
    strcpy(work[200], self);
    strcpy(work[201], "/proc/self/status");
    struct stat *found = (void *)work[202];
    struct timespec *nap = (void *)work[203];
    *nap = (struct timespec){0, 1000};
    chill();
    check("stat", stat(work[200], found), 0);
    check("access", access(work[201], R_OK), 0);
    check("nanosleep", nanosleep(nap, nap + 1), 0);
    check("bad pointer", write(1, (void *)0x10000, 4), -1);
    check("bad pointer's reason", errno, EFAULT);
    void *guard = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("guarded", open(guard, O_RDONLY), -1);
    check("guarded reason", errno, EFAULT);
    printf("paths %d\n", S_ISREG(found->st_mode));
}

// An array behind a structure that says how long it is. Many small extents: every second page is a hole.
static void extents(void) {
    enum { COUNT = 400 };
    unsigned bytes = sizeof(struct fiemap) + COUNT * sizeof(struct fiemap_extent);
    FILE *file = tmpfile();
    struct fiemap *map = malloc(bytes);
    for (int at = 0; at < COUNT; at++) check("pwrite", pwrite(fileno(file), "page", 4, at * 8192L), 4);
    fsync(fileno(file));
    memset(map, 7, bytes); // The kernel fills what was not empty.
    memset(map, 0, sizeof *map);
    map->fm_length = ~0UL, map->fm_extent_count = COUNT;
    chill();
    int answer = ioctl(fileno(file), FS_IOC_FIEMAP, map);
    if (answer && errno == EOPNOTSUPP)
        printf("no extents here\n");
    else
        printf("extents %d, %s, %d\n", answer, answer ? strerror(errno) : "", (int)map->fm_mapped_extents);
    memset(map, 0, bytes); // They lie elsewhere each time.
    free(map), fclose(file);
}

// What ptrace answers in an array: the pending signals of a child, some pages of them.
static void pending_signals(void) {
    enum { COUNT = 100 };
    struct __ptrace_peeksiginfo_args from = {.off = 0, .flags = 0, .nr = COUNT};
    sigset_t blocked, before;
    sigemptyset(&blocked), sigaddset(&blocked, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    pid_t child = fork();
    if (!child)
        for (;;) pause();
    sigprocmask(SIG_SETMASK, &before, NULL);
    // Not before the fork: what the child holds, too, stays.
    siginfo_t *signals = malloc(COUNT * sizeof *signals);
    memset(signals, 7, COUNT * sizeof *signals);
    for (int at = 0; at < COUNT; at++) check("sigqueue", sigqueue(child, SIGRTMIN + 3, (union sigval){.sival_int = at}), 0);
    check("seize", ptrace(PTRACE_SEIZE, child, 0, 0), 0);
    check("interrupt", ptrace(PTRACE_INTERRUPT, child, 0, 0), 0);
    check("stopped", waitpid(child, NULL, __WALL), child);
    from.flags = PTRACE_PEEKSIGINFO_SHARED;
    chill();
    long answer = ptrace(PTRACE_PEEKSIGINFO, child, &from, signals);
    int right = 0;
    for (int at = 0; at < answer; at++) right += signals[at].si_value.sival_int == at;
    printf("pending signals %ld, %s, %d right\n", answer, answer < 0 ? strerror(errno) : "", right);
    kill(child, SIGKILL);
    check("killed", waitpid(child, NULL, __WALL), child);
    free(signals);
}

static void stream(void) {
    FILE *file = tmpfile();
    for (int at = 0; at < COLD; at++) {
        fwrite(cold[at] + 64, 1, 3000, file);
        if (at == COLD / 2) chill();
    }
    rewind(file);
    chill();
    unsigned long total = 0;
    for (int at = 0; at < COLD; at++) {
        check("fread", (long)fread(cold[at] + 64, 1, 3000, file), 3000);
        total += sum(cold[at] + 64, 3000);
    }
    fclose(file);
    printf("stream %lx\n", total);
}

static pthread_mutex_t *mutex;
static pthread_cond_t *condition;
static int *turns;

static void *blocked_reader(void *end) {
    long got = read((int)(long)end, work[300], 4096);
    return (void *)(long)(got == 4096 ? sum(work[300], 4096) & 0xffff : (unsigned long)-1);
}

static void *turn_taker(void *me) {
    for (int turn = 0; turn < 200; turn++) {
        pthread_mutex_lock(mutex);
        while (*turns % 4 != (int)(long)me) pthread_cond_wait(condition, mutex);
        *turns += 1;
        pthread_cond_broadcast(condition);
        pthread_mutex_unlock(mutex);
    }
    return 0;
}

static void threads(void) {
    int ends[2];
    pthread_t reader, takers[4];
    void *answer;
    check("pipe", pipe(ends), 0);
    pthread_create(&reader, 0, blocked_reader, (void *)(long)ends[0]);
    usleep(20000);
    chill(); // Its buffer stays, for the reader waits in the kernel.
    memset(work[301], 'x', 4096);
    check("write", write(ends[1], work[301], 4096), 4096);
    pthread_join(reader, &answer);
    printf("blocked reader %ld\n", (long)answer);
    mutex = (void *)work[310], condition = (void *)work[311], turns = (void *)work[312];
    pthread_mutex_init(mutex, 0), pthread_cond_init(condition, 0);
    *turns = 0;
    for (long at = 0; at < 4; at++) pthread_create(&takers[at], 0, turn_taker, (void *)at);
    for (int at = 0; at < 6; at++) chill();
    for (int at = 0; at < 4; at++) pthread_join(takers[at], 0);
    printf("turns %d\n", *turns);
    for (int at = 0; at < 300; at++) {
        pthread_t thread;
        pthread_create(&thread, 0, turn_taker, (void *)(long)(at % 4));
        *turns = at % 4; // It waits for nobody once.
        pthread_cancel(thread);
        pthread_join(thread, 0);
        pthread_mutex_init(mutex, 0), pthread_cond_init(condition, 0);
    }
    printf("cancelled\n");
}

static void on_alarm(int signal) {
    (void)signal;
    alarms += 1;
    if (wants_jump) siglongjmp(jump, 1);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigset_t all, before;
    sigfillset(&action.sa_mask);
    sigaction(SIGALRM, &action, 0);
    int ends[2];
    check("pipe", pipe(ends), 0);
    volatile int interrupted = 0, jumped = 0;
    for (int at = 0; at < 20; at++) {
        // Again and again: the first one may come before the call.
        struct itimerval soon = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
        if (sigsetjmp(jump, 1)) {
            setitimer(ITIMER_REAL, &never, 0);
            jumped++;
            continue;
        }
        wants_jump = at % 2;
        setitimer(ITIMER_REAL, &soon, 0);
        long got = read(ends[0], work[400 + at], 100);
        setitimer(ITIMER_REAL, &never, 0);
        interrupted += got == -1 && errno == EINTR;
    }
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    write(ends[1], "blocked", 7); // Not even SIGSYS would get through.
    struct pollfd *poll_for = (void *)work[420];
    *poll_for = (struct pollfd){ends[0], POLLIN, 0};
    check("ppoll", ppoll(poll_for, 1, 0, &all), 1);
    sigprocmask(SIG_SETMASK, &before, 0);
    stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
    check("sigaltstack", sigaltstack(&stack, 0), 0);
    action.sa_flags = SA_ONSTACK;
    alarms = 0, wants_jump = 0;
    sigaction(SIGALRM, &action, 0);
    chill();
    raise(SIGALRM);
    printf("signals %d %d %d\n", interrupted, jumped, (int)alarms);
    close(ends[0]), close(ends[1]);
}

static unsigned long everything(void) {
    unsigned long total = 0;
    for (int at = 0; at < COLD; at++) total += sum(cold[at], 4096);
    for (size_t at = 0; at < BULK; at += 4096) total += ((unsigned *)(bulk + at))[1];
    return total;
}

// CLONE_VFORK with a copy of the memory.
static void suspended(void) {
    unsigned long before = everything();
    for (int is_new = 0; is_new < 2; is_new++) {
        uint64_t how[11] = {CLONE_VFORK, 0, 0, 0, SIGCHLD};
        long child = is_new ? syscall(SYS_clone3, how, sizeof how)
                            : syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0L, 0L, 0L, 0L);
        if (child == 0) _exit(everything() != before);
        int status = -1;
        check("waitpid", waitpid((pid_t)child, &status, 0), child);
        check("a child by CLONE_VFORK", status, 0);
    }
}

// As many as a shell makes of a pattern, sorted: not in the order of their places.
static void arguments(void) {
    enum { COUNT = 60000, STRING_BYTES = 16 };
    char **words = malloc((COUNT + 5) * sizeof *words), *strings = malloc(COUNT * STRING_BYTES);
    words[0] = "sh", words[1] = "-c", words[2] = "test $# -eq 60000 && echo $1 ${60000}";
    words[3] = "sh", words[COUNT + 4] = 0;
    for (int at = 0; at < COUNT; at++) {
        words[at + 4] = strings + (size_t)at * 7919 % COUNT * STRING_BYTES;
        sprintf(words[at + 4], "%d", at);
    }
    chill();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        chill();
        execv("/bin/sh", words);
        _exit(126);
    }
    int status = -1;
    check("waitpid", waitpid(child, &status, 0), child);
    check("many arguments", status, 0);
    free(words), free(strings);
}

static void processes(int rounds) {
    for (int at = 0; at < rounds; at++) {
        int *status = (void *)work[500];
        *status = 0; // As it will be: the sums are of everything.
        unsigned long before = everything();
        pid_t child = fork();
        check("fork", child < 0, 0);
        if (child == 0) {
            unsigned long after = everything();
            memset(cold[at], at, 4096);
            chill();
            pid_t grandchild = fork();
            if (grandchild == 0) {
                chill();
                _exit(cold[at][17] == (char)at ? 0 : 3);
            }
            int status = 4;
            waitpid(grandchild, &status, 0);
            _exit(after == before && status == 0 ? 0 : 5);
        }
        chill();
        check("waitpid", waitpid(child, status, 0), child);
        check("child", *status, 0);
        check("memory after a fork", everything() == before, 1);
    }
    strcpy(work[501], "echo spawned");
    chill();
    fflush(stdout);
    check("system", system(work[501]), 0);
    printf("processes %d\n", rounds);
}

static void on_fault(int signal) {
    static const char text[] = "a fault of nobody's\n";
    write(2, text, sizeof text - 1);
    _exit(128 + signal);
}

static volatile sig_atomic_t faults_seen;

static void on_fault_once(int signal) {
    (void)signal;
    faults_seen += 1;
    siglongjmp(jump, 1);
}

static int is_refused(int end) {
    return write(end, (void *)0x20000, 1) == -1 && errno == EFAULT;
}

// A handler for one fault is there until that comes, and not longer.
static void one_fault(int end) {
    struct sigaction action = {.sa_handler = on_fault_once, .sa_flags = SA_RESETHAND | SA_NODEFER}, seen;
    check("sigaction", sigaction(SIGSEGV, &action, 0), 0);
    check("writes from nowhere", is_refused(end) && is_refused(end), 1);
    check("sigaction", sigaction(SIGSEGV, 0, &seen), 0);
    check("the handler stays", seen.sa_handler == on_fault_once && seen.sa_flags & SA_RESETHAND, 1);
    if (!sigsetjmp(jump, 1)) *(volatile char *)0x20000 = 1;
    check("faults", faults_seen, 1);
    check("sigaction", sigaction(SIGSEGV, 0, &seen), 0);
    check("the handler is gone", seen.sa_handler == SIG_DFL && seen.sa_flags & SA_RESETHAND, 1);
    check("a write from nowhere then", is_refused(end), 1);
}

// Children that share this memory, and have actions of their own.
static void spawned(int end) {
    struct sigaction seen;
    posix_spawnattr_t how;
    int status = -1;
    check("posix_spawnattr_init", posix_spawnattr_init(&how), 0);
    check("posix_spawnattr_setflags", posix_spawnattr_setflags(&how, POSIX_SPAWN_RESETIDS), 0);
    char *command[] = {"true", 0};
    pid_t child = -1;
    check("posix_spawn", posix_spawnp(&child, "true", 0, &how, command, environ), 0);
    check("waitpid", waitpid(child, &status, 0), child);
    check("a spawned program", status, 0);
    child = vfork();
    if (child == 0) {
        sigaction(SIGSEGV, 0, &seen);
        int bad = seen.sa_handler != on_fault;
        signal(SIGSEGV, SIG_DFL);
        sigaction(SIGSEGV, 0, &seen);
        _exit(bad || seen.sa_handler != SIG_DFL || !is_refused(end));
    }
    check("waitpid", waitpid(child, &status, 0), child);
    check("a child by vfork", status, 0);
    check("sigaction", sigaction(SIGSEGV, 0, &seen), 0);
    check("the parent's handler", seen.sa_handler == on_fault, 1);
}

static volatile sig_atomic_t spoiled;

// On an alternate stack, which a child by posix_spawn shares.
static void on_spawn(int signal) {
    volatile unsigned char local[2048];
    char *command[] = {"true", 0};
    int status = -1;
    pid_t child = -1;
    (void)signal;
    for (int at = 0; at < (int)sizeof local; at++) local[at] = (unsigned char)(at * 7);
    spoiled = posix_spawn(&child, "/bin/true", 0, 0, command, environ) || waitpid(child, &status, 0) != child || status;
    for (int at = 0; at < (int)sizeof local; at++) spoiled |= local[at] != (unsigned char)(at * 7);
}

static void spawned_from_handlers(void) {
    stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10}, before;
    struct sigaction action = {.sa_handler = on_spawn, .sa_flags = SA_ONSTACK};
    check("sigaltstack", sigaltstack(&stack, &before), 0);
    check("sigaction", sigaction(SIGUSR1, &action, 0), 0);
    for (int round = 0; round < 20; round++) {
        raise(SIGUSR1);
        check("a handler's stack", spoiled, 0);
    }
    check("sigaltstack", sigaltstack(&before, &stack), 0);
    check("the signal stack", stack.ss_size == 64 << 10 && !(stack.ss_flags & SS_DISABLE), 1);
    free(stack.ss_sp);
}

// One mapping for the program, whatever the pager has made of it.
static void moves(void) {
    enum { PAGES = 64 };
    // As small an alternate stack as Rust's threads have: calls are made safe on it.
    unsigned long least = getauxval(AT_MINSIGSTKSZ) + 4096, bytes = least > 8192 ? (least + 4095) & ~4095UL : 8192;
    char *low = mmap(0, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(low, 4096, PROT_NONE);
    stack_t stack = {.ss_sp = low + 4096, .ss_size = bytes};
    check("sigaltstack", sigaltstack(&stack, 0), 0);
    for (int round = 0; round < 6; round++) {
        char *from = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int page = 0; page < PAGES; page++) from[page * 4096] = (char)(page + 1);
        chill();
        char *new = from + round % 3 * 16 * 4096;
        mmap(new, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int page = 0; page < 16; page++) new[page * 4096] = (char)(round % 3 * 16 + page + 1);
        char *to = mmap(0, PAGES * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int flags = round < 3 ? MREMAP_MAYMOVE | MREMAP_FIXED : MREMAP_MAYMOVE;
        size_t pages = round < 3 ? PAGES : 2 * PAGES;
        char *there = mremap(from, PAGES * 4096, pages * 4096, flags, to);
        check("mremap", there == MAP_FAILED || (round < 3 && there != to), 0);
        for (int page = 0; page < PAGES; page++) check("a moved page", there[page * 4096], (char)(page + 1));
        munmap(there, pages * 4096);
    }
    printf("moves\n");
}

// Who touches a call's memory first must not be caught by the program's handler.
static void faults(void) {
    struct sigaction action = {.sa_handler = on_fault};
    check("sigaction", sigaction(SIGSEGV, &action, 0), 0);
    int ends[2];
    check("pipe", pipe(ends), 0);
    check("a write from nowhere", is_refused(ends[1]), 1);
    spawned(ends[1]);
    one_fault(ends[1]);
    spawned_from_handlers();
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **words) {
    bulk = mmap(0, BULK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cold = malloc(2 * COLD * sizeof *cold);
    work = cold + COLD;
    char *pages = mmap(0, 2 * COLD * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int at = 0; at < 2 * COLD; at++) {
        cold[at] = pages + at * 4096;
        for (int byte = 0; byte < 4096; byte++) cold[at][byte] = (char)(at * 31 + byte * 7);
    }
    int has_forks = count > 1 && strcmp(words[1], "forks") == 0, is_suspended = count > 1 && strcmp(words[1], "suspended") == 0;
    chill();
    usleep(100000);
    faults();
    if (is_suspended) {
        suspended();
        return 0;
    }
    if (has_forks) {
        processes(6);
        pending_signals();
        arguments();
        return 0;
    }
    moves();
    for (int round = 0; round < 3; round++) {
        chill();
        pipes();
        vectors();
        paths(words[0]);
        extents();
        stream();
        threads();
        signals();
    }
    printf("%lx\n", everything());
    return 0;
}
