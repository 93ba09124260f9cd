// Threads that end while what the kernel then uses has left memory: the words of their robust mutexes, and the one that tells
// who joins them. And a process whose last thread ends.
#define _GNU_SOURCE
#include "cold.h"
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { MUTEXES = BUFFERS, DEEP = 64 << 10, THREADS = 32 };
static sem_t are_locked, may_end;
static pid_t numbers[THREADS];

static pthread_mutex_t *mutex(int number) { return (pthread_mutex_t *)buffer(number); }

static struct timespec soon(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return until;
}

static void raw_exit(int signal) {
    (void)signal;
    for (;;) syscall(SYS_exit, 0);
}

// One in a buffer, all of them locked.
static void lock_all(void) {
    for (int number = 0; number < MUTEXES; number++) check("lock", pthread_mutex_lock(mutex(number)), 0);
    sem_post(&are_locked);
    while (sem_wait(&may_end)) {}
}

static void *return_with_all(void *unused) { return lock_all(), unused; }

static void robust(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind), pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    for (int number = 0; number < MUTEXES; number++) check("init", pthread_mutex_init(mutex(number), &kind), 0);
    pthread_t owner;
    sem_init(&are_locked, 0, 0), sem_init(&may_end, 0, 0);
    check("create", pthread_create(&owner, 0, return_with_all, 0), 0);
    while (sem_wait(&are_locked)) {}
    chill();
    sem_post(&may_end);
    check("join", pthread_join(owner, 0), 0);
    for (int number = 0; number < MUTEXES; number++) {
        struct timespec until = soon();
        check("a mutex of a dead owner", pthread_mutex_timedlock(mutex(number), &until), EOWNERDEAD);
    }
}

static void *robust_alone(void *unused) {
    usleep(100000);
    robust();
    printf("all well\n");
    end();
    exit(0);
    return unused;
}

static __attribute__((noinline)) void wait_deep(void) {
    volatile char frame[DEEP];
    frame[0] = frame[DEEP - 1] = 1;
    sem_post(&are_locked);
    for (;;) syscall(SYS_pause);
}

static void *wait_to_end(void *number) { return *(pid_t *)number = gettid(), wait_deep(), number; }

// Far from their thread blocks.
static void joined(void) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = raw_exit};
    sigaction(SIGUSR1, &action, 0);
    sem_init(&are_locked, 0, 0);
    for (int at = 0; at < THREADS; at++) check("create", pthread_create(&threads[at], 0, wait_to_end, &numbers[at]), 0);
    for (int at = 0; at < THREADS; at++)
        while (sem_wait(&are_locked)) {}
    chill();
    // pthread_kill would look into the thread block.
    for (int at = 0; at < THREADS; at++) check("tgkill", syscall(SYS_tgkill, getpid(), numbers[at], SIGUSR1), 0);
    for (int at = 0; at < THREADS; at++) {
        struct timespec until = soon();
        check("a thread that has ended", pthread_timedjoin_np(threads[at], 0, &until), 0);
    }
}

static void *end_last(void *unused) {
    usleep(300000);
    for (int number = 0; number < BUFFERS; number++) expect("buffer", buffer(number), BUFFER, number);
    printf("all well\n"), fflush(stdout);
    raw_exit(0);
    return unused;
}

static void *go_on(void *unused) {
    usleep(300000);
    check("went on", write(1, "went on\n", 8), 8);
    raw_exit(0);
    return unused;
}

// What a copy returns it ends with, as its threads do one by one.
static int return_it(void *status) { return *(int *)status; }

static int return_first(void *status) {
    pthread_t thread;
    check("create", pthread_create(&thread, 0, go_on, 0), 0);
    return *(int *)status;
}

static int end_by_a_call(void *status) { return (int)syscall(SYS_exit, *(int *)status); }

static void statuses(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    int (*const ways[])(void *) = {return_it, return_first, end_by_a_call};
    chill();
    for (int way = 0; way < 3; way++) {
        int given = 3 + way, status = 0;
        pid_t child = clone(ways[way], stack + sizeof stack, SIGCHLD, &given);
        check("a copy", waitpid(child, &status, 0), child);
        printf("ended with %x\n", status), fflush(stdout);
        if ((child = fork()) == 0) end_by_a_call(&given);
        check("a child", waitpid(child, &status, 0), child);
        printf("ended with %x\n", status), fflush(stdout);
    }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *kind = arguments[1];
    begin();
    if (!strcmp(kind, "robust")) robust();
    if (!strcmp(kind, "robust-alone")) {
        pthread_t thread;
        check("create", pthread_create(&thread, 0, robust_alone, 0), 0);
        pthread_exit(0);
    }
    if (!strcmp(kind, "joined")) joined();
    if (!strcmp(kind, "statuses")) statuses();
    if (!strcmp(kind, "last")) {
        pthread_t thread;
        check("create", pthread_create(&thread, 0, end_last, 0), 0);
        // The status of the whole.
        syscall(SYS_exit, 7);
    }
    printf("all well\n");
    end();
    return 0;
}
