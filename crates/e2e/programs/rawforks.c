// Forks by raw system calls, of which libc and its handlers know nothing, beside forks of libc's. A child of a raw call may
// be killed, but never find other content than there was; one of libc's must find all of it, and so must one by libc's functions
// `syscall` and `clone`. rawforks KIND MIB ROUNDS [known]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

enum { WORDS = 512 };

static uint64_t *memory, pages, rounds;
static volatile int is_over;

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

// 0 if every `step`th page is as it was.
static int check(uint64_t from, uint64_t step) {
    for (uint64_t page = from; page < pages; page += step)
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) return 3;
    return 0;
}

static _Thread_local jmp_buf before;

static int go_back(void *unused) {
    (void)unused;
    longjmp(before, 1);
}

// As sandboxes have it, on a stack in the frame of who makes it.
static pid_t clone_and_go_back(int flags) {
    char stack[16 << 10] __attribute__((aligned(16)));
    if (setjmp(before)) return 0;
    return clone(go_back, stack + sizeof stack, flags | SIGCHLD, 0);
}

// By libc's functions `syscall` and `clone`: the agent knows of those.
static int are_known;

static const uint64_t CLEAR_HANDLERS = 1ull << 32;  // CLONE_CLEAR_SIGHAND

// clone3 by the former.
static pid_t clone3_by_syscall(uint64_t flags) {
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } asked = {.flags = flags, .exit_signal = SIGCHLD};
    if (syscall(SYS_clone3, 8, sizeof asked) != -1 || errno != EFAULT) return -1;
    pid_t child = syscall(SYS_clone3, &asked, sizeof asked);
    // In user mode that is refused as old kernels do.
    return child < 0 && errno == EINVAL && flags & CLEAR_HANDLERS ? clone3_by_syscall(0) : child;
}

static pid_t fork_raw(void) {
    static int kind;
    if (!are_known) return clone_raw(SIGCHLD);
    switch (kind++ % 5) {
#ifdef SYS_fork
    case 0: return syscall(SYS_fork);
#endif
    case 1: return clone_and_go_back(0);
    case 2: return clone3_by_syscall(0);
    case 3: return clone3_by_syscall(CLEAR_HANDLERS);
    default: return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    }
}

static void fail(const char *what) {
    write(1, what, strlen(what));
    write(1, "\n", 1);
    _exit(4);
}

// A child of a raw call has seen what was there, or has been killed.
static void wait_for_raw(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) fail("no child to wait for");
    int may_be_killed = !are_known && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (status != 0 && !may_be_killed) fail("a child of a raw call went wrong");
}

static void fork_by_libc(uint64_t from, uint64_t step) {
    pid_t child = fork();
    if (child < 0) fail("no fork");
    if (child == 0) _exit(check(from, step));
    int status;
    if (waitpid(child, &status, 0) == child && status == 0) return;
    printf("process %d, status %#x: ", (int)child, status);
    fflush(stdout);
    fail("a child of libc's fork did not end well");
}

// A child of a raw call that sleeps, and looks at its memory when it is told to.
static pid_t fork_sleeper(int *to) {
    int ends[2];
    if (pipe(ends)) fail("no pipe");
    pid_t child = fork_raw();
    if (child < 0) fail("no raw fork");
    if (child == 0) {
        char byte;
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1) _exit(5);
        _exit(check(0, 1));
    }
    close(ends[0]);
    *to = ends[1];
    return child;
}

// The second before the first is over in its parent's agent.
static void fork_twice(void) {
    for (uint64_t round = 0; round < rounds; round++) {
        pid_t children[2];
        for (int at = 0; at < 2; at++) {
            children[at] = fork_raw();
            if (children[at] == 0) _exit(check(at, 31));
        }
        for (int at = 0; at < 2; at++) wait_for_raw(children[at]);
    }
}

// Others fork while it lives.
static void sleep_beside(void) {
    int to[2];
    pid_t children[2] = {fork_sleeper(&to[0]), fork_sleeper(&to[1])};
    for (uint64_t round = 0; round < rounds; round++) {
        fork_by_libc(0, 1);
        if (check(0, 1)) fail("the parent's memory has changed");
    }
    for (int at = 0; at < 2; at++) {
        if (write(to[at], "", 1) != 1) fail("a child of a raw call is gone");
        wait_for_raw(children[at]);
    }
}

// A child of a raw call that forks by libc.
static void fork_again(void) {
    pid_t child = fork_raw();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(check(0, 1));
        int status;
        _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 6);
    }
    wait_for_raw(child);
    fork_by_libc(0, 1);
}

// A child of a raw call whose PID namespace is its own: to its parent its number is that of another process.
static void fork_apart(void) {
    int status;
    pid_t child = clone_raw(CLONE_NEWPID | SIGCHLD);
    if (child < 0) return;
    if (child == 0) _exit(check(0, 1));
    if (waitpid(child, &status, 0) != child) fail("no child to wait for");
    // By SIGBUS where it is not the only relative with such a number.
    int is_ended = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGBUS);
    if (status != 0 && !is_ended) fail("a child of a raw call went wrong");
    fork_by_libc(0, 1);
}

// In namespaces of their own: users, numbers, networks.
static void fork_into_namespaces(void) {
    const int kinds[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC};
    for (uint64_t round = 0; round < 3 * sizeof kinds / sizeof *kinds; round++) {
        int flags = kinds[round / 3];
        char before[64] = "", after[64] = "";
        if (readlink("/proc/thread-self/ns/net", before, 63) < 0) fail("no /proc");
        pid_t child = round % 3 == 0 ? (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0)
                      : round % 3 == 1 ? clone_and_go_back(flags) : clone3_by_syscall(flags);
        if (child < 0) fail("no namespace");
        if (child == 0) {
            if (readlink("/proc/thread-self/ns/net", after, 63) < 0 && !(flags & CLONE_NEWPID)) fail("no /proc");
            int is_apart = strcmp(before, after) != 0;
            if (!(flags & CLONE_NEWPID) && is_apart != !!(flags & CLONE_NEWNET)) fail("the wrong network");
            _exit(check(0, 1));
        }
        wait_for_raw(child);
    }
}

static void *unshare_and_fork(void *unused) {
    if (unshare(CLONE_NEWNET)) fail("no network of its own");
    for (uint64_t round = 0; round < rounds; round++) fork_by_libc(0, 1);
    return unused;
}

// By libc's fork, from threads in networks of their own and back; and a child of such a one forks again.
static void fork_in_networks(void) {
    pthread_t thread;
    int first = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    fork_by_libc(0, 1);
    unshare_and_fork(0);
    if (setns(first, CLONE_NEWNET)) fail("no way back");
    fork_by_libc(0, 1);
    if (pthread_create(&thread, 0, unshare_and_fork, 0) || pthread_join(thread, 0)) fail("no thread");
    fork_by_libc(0, 1);
    for (int apart = 0; apart < 2; apart++) {
        pid_t child = clone_and_go_back(apart ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET);
        if (child == 0) {
            fork_by_libc(0, 1);
            _exit(check(0, 1));
        }
        wait_for_raw(child);
    }
}

static void *fork_raw_often(void *unused) {
    (void)unused;
    for (uint64_t round = 0; !is_over; round++) {
        pid_t child = fork_raw();
        if (child == 0) {
            // Some end at once, some look first, some live for a while and look then.
            if (round % 4 == 3) usleep(20000);
            _exit(round % 4 ? check(round * 31 % pages, 97) : 0);
        }
        if (child > 0) wait_for_raw(child);
    }
    return 0;
}

static void fork_both(void) {
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        if (pthread_create(&threads[at], 0, fork_raw_often, 0)) fail("no thread");
    for (uint64_t round = 0; round < rounds; round++) fork_by_libc(round * 31 % pages, 53);
    is_over = 1;
    for (int at = 0; at < 2; at++) pthread_join(threads[at], 0);
    if (check(0, 1)) fail("the parent's memory has changed");
}

static void *fork_by_libc_often(void *unused) {
    (void)unused;
    while (!is_over) fork_by_libc(0, pages);
    return 0;
}

// Children of raw calls that fork by libc, made while another thread is in the middle of a fork of its own. That thread may hold
// one of libc's own locks, for ever in the child: this is seldom.
static void fork_again_amid(void) {
    pthread_t thread;
    uint64_t stuck = 0;
    if (pthread_create(&thread, 0, fork_by_libc_often, 0)) fail("no thread");
    for (uint64_t round = 0; round < rounds; round++) {
        usleep(round * 7919 % 10000);
        pid_t child = fork_raw();
        if (child == 0) {
            alarm(2);
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(check(0, 1));
            int status;
            _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 6);
        }
        int status;
        if (waitpid(child, &status, 0) != child) fail("no child to wait for");
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) stuck++;
        else if (status != 0) fail("a child of a raw call went wrong");
    }
    is_over = 1;
    pthread_join(thread, 0);
    if (stuck > rounds / 4) fail("children of raw calls hang");
}

static volatile int is_flushing;

// Called while the thread holds the lock on libc's streams, for which a fork of libc's waits. A raw fork is the first that comes
// about; what follows is more than can be noted while a fork lasts.
static ssize_t fork_raw_and_move(void *unused, const char *bytes, size_t count) {
    (void)unused, (void)bytes;
    enum { BYTES = 1 << 16, MOVES = 3000 };
    char *places[2] = {(char *)memory, mmap(0, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    is_flushing = 1;
    usleep(300000);
    pid_t child = fork_raw();
    if (child == 0) _exit(0);
    for (int move = 0; move < MOVES; move++) {
        void *to = places[(move + 1) % 2];
        if (mremap(places[move % 2], BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) fail("no move");
    }
    wait_for_raw(child);
    return count;
}

static void *flush_all(void *unused) {
    FILE *stream = fopencookie(0, "w", (cookie_io_functions_t){.write = fork_raw_and_move});
    if (!stream || fputc('x', stream) == EOF) fail("no stream");
    fflush(0);
    return unused;
}

// Another thread, for which this one's fork waits, forks by a raw call and does not come to an end.
static void fork_behind(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, flush_all, 0)) fail("no thread");
    while (!is_flushing) usleep(1000);
    fork_by_libc(0, 1);
    pthread_join(thread, 0);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    pages = strtoull(arguments[2], 0, 10) * 256, rounds = strtoull(arguments[3], 0, 10);
    memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    are_known = count > 4;
    if (strcmp(arguments[1], "twice") == 0) fork_twice();
    if (strcmp(arguments[1], "beside") == 0) sleep_beside();
    if (strcmp(arguments[1], "namespaces") == 0) fork_into_namespaces();
    if (strcmp(arguments[1], "networks") == 0) fork_in_networks();
    if (strcmp(arguments[1], "again") == 0) fork_again();
    if (strcmp(arguments[1], "apart") == 0) fork_apart();
    if (strcmp(arguments[1], "both") == 0) fork_both();
    if (strcmp(arguments[1], "amid") == 0) fork_again_amid();
    if (strcmp(arguments[1], "behind") == 0) fork_behind();
    printf("all well\n");
    return 0;
}
