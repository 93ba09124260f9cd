// Gives up a right or lowers a limit while some of its memory is folded, goes on, forks, and the child forks again. Every
// process checks every page, and what it makes new. rights WHAT [NUMBER]. What makes it one of several threads, or asks for
// namespaces or limits, is in surroundings.h.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 8192, WORDS = 512 };

static uint64_t word(size_t page, size_t at, uint64_t key) {
    return at % 8 ? page + key : (page * WORDS + at + key) * 0x9e3779b97f4a7c15u;
}

static uint64_t *fill(size_t pages, uint64_t key) {
    uint64_t *memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at, key);
    return memory;
}

static int differs(const uint64_t *memory, size_t pages, uint64_t key) {
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at, key)) return 1;
    return 0;
}

// Other memory, so that the first is driven out; and time.
static int press(void) {
    static uint64_t *other;
    if (!other) other = fill(2 * PAGES, 9);
    usleep(50000);
    return !other || differs(other, 2 * PAGES, 9);
}

static int forbid(uint32_t answer, unsigned flags) {
    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_openat},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_ioctl},
        {BPF_RET | BPF_K, 0, 0, answer},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

#include "surroundings.h"

#include "crowd.h"

static int give_up(const char *what, const char *number) {
    if (!strcmp(what, "user")) return setgid(65534) || setuid(65534);
    if (!strcmp(what, "capabilities")) {
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
        return (int)syscall(SYS_capset, &header, none);
    }
    if (!strcmp(what, "root")) return chroot(number) || chdir("/");
    if (!strcmp(what, "calls")) return forbid(SECCOMP_RET_ERRNO | EPERM, 0);
    if (!strcmp(what, "together")) return forbid(SECCOMP_RET_ERRNO | EPERM, SECCOMP_FILTER_FLAG_TSYNC);
    if (!strcmp(what, "crowd")) return confine_crowd();
    if (!strcmp(what, "deaf")) return confine_deaf();
    if (!strcmp(what, "deadly")) return forbid(SECCOMP_RET_KILL_PROCESS, 0);
    if (!strcmp(what, "inside")) return execute_inside(number);
    int answer = change_surroundings(what);
    if (answer != UNKNOWN) return answer;
    // The soft limit: the agent may have no right to raise a hard one.
    struct rlimit limit;
    if (strcmp(what, "descriptors") || getrlimit(RLIMIT_NOFILE, &limit)) return 1;
    limit.rlim_cur = strtoul(number, 0, 0);
    return setrlimit(RLIMIT_NOFILE, &limit);
}

// The limit on descriptors before the first fork.
static rlim_t descriptors;

static int forks(const uint64_t *first, int depth) {
    pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
        uint64_t *own = fill(PAGES / 4, 20 + depth);
        int bad = differs(first, PAGES, 1) || press() || differs(own, PAGES / 4, 20 + depth);
        _exit(bad ? 1 : depth ? forks(first, depth - 1) : 0);
    }
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) || now.rlim_cur != descriptors) return 3;
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + status;
}

int main(int count, char **words) {
    // While the program is small.
    int is_later = !strcmp(words[1], "later");
    if (is_later) usleep(50000);
    int early = is_later || !strcmp(words[1], "early") ? unshare(CLONE_NEWUSER) : 0;
    if (!strcmp(words[1], "entered")) early = enter_user_namespace();
    uint64_t *first = fill(PAGES, 1);
    int bad = press();
    int given_up = give_up(words[1], count > 2 ? words[2] : "");
    bad |= differs(first, PAGES, 1) | press();
    uint64_t *second = fill(PAGES, 2);
    bad |= press() || differs(first, PAGES, 1) || differs(second, PAGES, 2);
    bad |= end_threads();
    struct rlimit limit;
    descriptors = getrlimit(RLIMIT_NOFILE, &limit) ? 0 : limit.rlim_cur;
    printf("%d, %s, child %d\n", given_up | early, bad ? "differs" : "equal", forks(first, 1));
    return 0;
}
