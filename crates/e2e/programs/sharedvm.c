// A process that shares another's memory (CLONE_VM) looks at it when that one has been killed. It may be ended, but must
// not find other content.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t *memory, pages;
static pid_t parent;
static char stack[1 << 16];

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

static int outlive(void *unused) {
    (void)unused;
    while (getppid() == parent) usleep(1000);
    usleep(50000);
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) _exit(3);
    _exit(0);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    pages = strtoull(arguments[1], 0, 10) * 256;
    // The first process waits for the second one's child, of which it becomes the parent.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) {
        memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) _exit(2);
        for (uint64_t page = 0; page < pages; page++)
            for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
        parent = getpid();
        if (clone(outlive, stack + sizeof stack, CLONE_VM | SIGCHLD, 0) < 0) _exit(2);
        usleep(100000);
        kill(parent, SIGKILL);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 2;
    if (wait(&status) < 0) return 2;
    printf(WIFEXITED(status) && WEXITSTATUS(status) == 3 ? "other content\n" : "no other content\n");
    return 0;
}
