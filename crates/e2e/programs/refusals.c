// Asks for what user mode refuses, and for nothing that a kernel would refuse by itself: in the main thread, in another one, and in a
// child, while memory is folded. Prints each answer; what is wrong in memory ends it with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 5 << 20, DISPATCH = 59, USER_MODE_ONLY = 1 };

static uint64_t *memory;

static uint64_t word(size_t at) {
    return at % 4 ? at / 512 : at * 0x9e3779b97f4a7c15u;
}

static void check(void) {
    for (size_t at = 0; at < WORDS; at++)
        if (memory[at] != word(at)) printf("word %zu is wrong\n", at), exit(1);
}

static void show(const char *what, long answer) {
    const char *error = errno == ENOSYS ? "ENOSYS" : errno == EINVAL ? "EINVAL" : errno == EFAULT ? "EFAULT" : "another";
    printf("%s: %s\n", what, answer == -1 ? error : "works");
}

// As posix_spawn of glibc 2.38 and later asks for its child; here it would be a copy.
static long clone_without_handlers(void) {
    uint64_t how[11] = {1UL << 32 /* CLONE_CLEAR_SIGHAND */, 0, 0, 0, SIGCHLD};
    long child = syscall(SYS_clone3, how, sizeof how);
    if (child == 0) _exit(0);
    return child;
}

static int spawn(void) {
    char *command[] = {"true", 0};
    pid_t child;
    int status = -1;
    return posix_spawnp(&child, "true", 0, 0, command, environ) || waitpid(child, &status, 0) != child || status ? -1 : 0;
}

static void *ask(void *who) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog filter = {1, &allow};
    uint64_t room[64] = {0};
    uint32_t action = SECCOMP_RET_ERRNO;
    printf("%s\n", (const char *)who);
    show("io_uring_setup", syscall(SYS_io_uring_setup, 4, room));
    show("io_pgetevents", syscall(SYS_io_pgetevents, 0, 0, 0, 0, 0, 0));
    show("userfaultfd", syscall(SYS_userfaultfd, USER_MODE_ONLY));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    show("filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    show("filter of all threads", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter));
    show("filter by prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0));
    show("no filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0));
    show("strict with flags", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, 0));
    show("strict", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0));
    show("strict by prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
    show("dispatch off", prctl(DISPATCH, 0, 0, 0, 0));
    show("dispatch on", prctl(DISPATCH, 1, 0, 0, 0));
    show("clone3 without handlers", clone_without_handlers());
    show("posix_spawn", spawn());
    // What only asks is answered.
    printf("mode: %d\n", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    show("is an action known", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    check();
    return 0;
}

// More stacks than anybody has: beyond some number they are refused as if there were no memory.
static int reserve_stacks(void) {
    enum { COUNT = 9000, BYTES = 16 << 10 };
    static void *stacks[COUNT];
    int count = 0;
    for (; count < COUNT; count++) {
        stacks[count] = mmap(0, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (stacks[count] == MAP_FAILED) break;
    }
    int is_refused = count < COUNT && errno == ENOMEM;
    // Nor does it replace anything then.
    void *middle = memory + WORDS / 2;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_STACK;
    is_refused &= mmap(middle, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED && errno == ENOMEM;
    while (count--) munmap(stacks[count], BYTES);
    pthread_t thread;
    return is_refused && !pthread_create(&thread, 0, ask, "again") && !pthread_join(thread, 0);
}

int main(void) {
    setbuf(stdout, 0);
    memory = mmap(0, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (size_t at = 0; at < WORDS; at++) memory[at] = word(at);
    ask("main");
    pthread_t thread;
    if (pthread_create(&thread, 0, ask, "thread") || pthread_join(thread, 0)) return 2;
    pid_t child = fork();
    if (child == 0) ask("child"), exit(0);
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status) return 1;
    return printf("stacks without end: %s\n", reserve_stacks() ? "ENOMEM" : "work") < 0;
}
