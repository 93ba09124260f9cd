// Threads that use the same memory and change its mappings at the same time, each by its own seeded plan, for some seconds:
// contended SEED SECONDS. Each thread has a word of its own in each page, and knows what it holds. Calls that take contents away
// (a mapping over it, MADV_DONTNEED, a move to elsewhere) are made while nobody else uses that part; all others in the middle.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6, PARTS = 24, PART_PAGES = 512, PAGES = PARTS * PART_PAGES, PAGE = 4096, WORDS = PAGE / 8 };

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static char *memory;
static pthread_rwlock_t in_use[PARTS];
// What each thread's words hold.
static uint64_t (*expected)[PAGES];
static _Atomic int stop;
static _Atomic uint64_t steps[THREADS], barriers;

struct worker { int number; uint64_t state; int pipe[2]; };

static uint64_t below(struct worker *worker, uint64_t bound) {
    worker->state ^= worker->state << 13, worker->state ^= worker->state >> 7, worker->state ^= worker->state << 17;
    return (worker->state >> 11) % bound;
}

// A word's place in a page differs from page to page, so that no huge page of zeros is left out.
static volatile uint64_t *own_word(int worker, long page) {
    return (volatile uint64_t *)(memory + page * PAGE) + (worker + page * 7) % WORDS;
}

static void fail(const char *what, int worker, long page, uint64_t found) {
    printf("%s: thread %d, page %ld: %llx instead of %llx\n", what, worker, page, (unsigned long long)found,
           (unsigned long long)expected[worker][page]);
    fflush(stdout);
    _exit(1);
}

static void check(const char *what, int worker, long page) {
    uint64_t found = *own_word(worker, page);
    if (found != expected[worker][page]) fail(what, worker, page, found);
}

// As write barriers of collectors do it: the page may be written to from now on.
static void lift(int signal, siginfo_t *about, void *context) {
    char *page = (char *)((uintptr_t)about->si_addr & ~(uintptr_t)(PAGE - 1));
    if (page < memory || page >= memory + (long)PAGES * PAGE || mprotect(page, PAGE, PROT_READ | PROT_WRITE)) _exit(3);
    barriers++;
    (void)signal, (void)context;
}

static void use(struct worker *worker, int part) {
    pthread_rwlock_rdlock(&in_use[part]);
    for (int turn = 0; turn < 40; turn++) {
        long page = (long)part * PART_PAGES + below(worker, PART_PAGES);
        check("before a write", worker->number, page);
        if (below(worker, 3) == 0) continue;
        *own_word(worker->number, page) = expected[worker->number][page] = below(worker, 1ull << 50) << 3 | 1;
    }
    pthread_rwlock_unlock(&in_use[part]);
}

// Through the kernel, there and back.
static void pass_on(struct worker *worker, int part) {
    pthread_rwlock_rdlock(&in_use[part]);
    long page = (long)part * PART_PAGES + below(worker, PART_PAGES);
    uint64_t read_back = 0;
    ssize_t wrote = write(worker->pipe[1], (void *)own_word(worker->number, page), 8);
    ssize_t got = read(worker->pipe[0], &read_back, 8);
    if (wrote != 8 || got != 8 || read_back != expected[worker->number][page]) {
        fail("what write took", worker->number, page, read_back);
    }
    pthread_rwlock_unlock(&in_use[part]);
}

// Calls after which all is as before, while others are in the middle of it.
static void disturb(struct worker *worker, int part) {
    static const int ADVICE[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE,
                                 MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_DONTFORK, MADV_DOFORK};
    enum { KINDS = sizeof ADVICE / sizeof *ADVICE };
    pthread_rwlock_rdlock(&in_use[part]);
    long first = below(worker, PART_PAGES), count = 1 + below(worker, PART_PAGES - first);
    char *start = memory + ((long)part * PART_PAGES + first) * PAGE;
    int kind = below(worker, KINDS + 3);
    if (kind < KINDS - 2) {
        madvise(start, count * PAGE, ADVICE[kind]);
    } else if (kind == KINDS) {
        mprotect(start, count * PAGE, PROT_READ);
    } else if (kind == KINDS + 1) {
        mprotect(start, count * PAGE, PROT_READ | PROT_WRITE);
    } else if (kind == KINDS + 2) {
        mlock(start, PAGE), munlock(start, PAGE);
    }
    pthread_rwlock_unlock(&in_use[part]);
}

static void forget(int part, long first, long count) {
    for (int worker = 0; worker < THREADS; worker++) {
        memset(&expected[worker][(long)part * PART_PAGES + first], 0, count * sizeof(uint64_t));
    }
}

// Takes contents away, while the parts beside it are in use.
static void change(struct worker *worker, int part) {
    pthread_rwlock_wrlock(&in_use[part]);
    long first = below(worker, PART_PAGES), count = 1 + below(worker, PART_PAGES - first);
    char *start = memory + ((long)part * PART_PAGES + first) * PAGE;
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    void *done = start;
    switch (below(worker, 4)) {
    case 0: done = mmap(start, count * PAGE, rights, flags, -1, 0); break;
    case 1: done = madvise(start, count * PAGE, MADV_DONTNEED) ? MAP_FAILED : start; break;
    case 2: // There and back, and nothing is lost.
        mprotect(start, count * PAGE, rights);
        void *away = mremap(start, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
        // Of several mappings it takes none.
        if (away != MAP_FAILED) done = mremap(away, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, start);
        for (long page = first; page < first + count; page++) {
            for (int other = 0; other < THREADS; other++) check("after a move", other, (long)part * PART_PAGES + page);
        }
        count = 0;
        break;
    default: // A hole that is read as zeros again.
        done = mmap(start, count * PAGE, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
        if (done == start) done = mprotect(start, count * PAGE, rights) ? MAP_FAILED : start;
    }
    if (done != start) printf("errno %d\n", errno), fflush(stdout), _exit(2);
    forget(part, first, count);
    pthread_rwlock_unlock(&in_use[part]);
}

// The child has all that its parent has; nobody takes anything away meanwhile.
static void fork_and_look(struct worker *worker) {
    for (int part = 0; part < PARTS; part++) pthread_rwlock_rdlock(&in_use[part]);
    pid_t child = fork();
    if (child == 0) {
        for (int look = 0; look < 500; look++) check("in a child", worker->number, below(worker, PAGES));
        _exit(0);
    }
    for (int part = 0; part < PARTS; part++) pthread_rwlock_unlock(&in_use[part]);
    int status = 1;
    if (child > 0) waitpid(child, &status, 0);
    if (child < 0 || status != 0) printf("a child: status %x, errno %d\n", status, errno), fflush(stdout), _exit(1);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    while (!stop) {
        int part = below(worker, PARTS), kind = below(worker, 1000);
        if (kind < 600) use(worker, part);
        else if (kind < 700) pass_on(worker, part);
        else if (kind < 900) disturb(worker, part);
        else if (kind < 997) change(worker, part);
        else fork_and_look(worker);
        steps[worker->number]++;
    }
    return 0;
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], 0, 10) : 1;
    int seconds = count > 2 ? atoi(arguments[2]) : 5;
    memory = mmap(0, (long)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expected = calloc(THREADS, sizeof *expected);
    struct sigaction action = {.sa_sigaction = lift, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    // Noise, so that it must leave.
    for (long word = 0; word < (long)PAGES * WORDS; word++) ((uint64_t *)memory)[word] = word * 0x9e3779b97f4a7c15u >> 9;
    for (long page = 0; page < PAGES; page++) {
        for (int worker = 0; worker < THREADS; worker++) expected[worker][page] = *own_word(worker, page);
    }
    for (int part = 0; part < PARTS; part++) pthread_rwlock_init(&in_use[part], 0);
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int number = 0; number < THREADS; number++) {
        workers[number] = (struct worker){number, (seed * THREADS + number + 1) * 0x9e3779b97f4a7c15u, {0}};
        if (pipe(workers[number].pipe) || pthread_create(&threads[number], 0, work, &workers[number])) return 2;
    }
    sleep(seconds);
    stop = 1;
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], 0);
    for (int part = 0; part < PARTS; part++) {
        for (long page = (long)part * PART_PAGES; page < (part + 1L) * PART_PAGES; page++) {
            for (int worker = 0; worker < THREADS; worker++) check("at the end", worker, page);
        }
    }
    uint64_t all = 0;
    for (int number = 0; number < THREADS; number++) all += steps[number];
    fprintf(stderr, "%llu steps, %llu write barriers\n", (unsigned long long)all, (unsigned long long)barriers);
    printf("all well\n");
    return barriers == 0;
}
