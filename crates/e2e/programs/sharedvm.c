// A process that shares another's memory (CLONE_VM), or has a copy of it by a raw system call, looks at it when that one has
// ended. It may be ended, but must not find other content.
//   sharedvm MIB clone        shares it; the other one is killed
//   sharedvm MIB fork         has a copy; the other one is killed
//   sharedvm MIB refork       shares it, and forks when the other one has been killed
//   sharedvm MIB leave FILE   shares it; the other one is the first process and exits; what was found is written to FILE
//   sharedvm MIB lose FILE    the same, when it has killed `pleat run`
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

enum { WORDS = 512 };

static uint64_t *memory, pages;
static pid_t parent;
static int file = -1, forks_again;
static char stack[1 << 16];

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

static void fill(void) {
    memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(2);
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    parent = getpid();
}

static int outlive(void *unused) {
    (void)unused;
    while (syscall(SYS_getppid) == parent) usleep(1000);
    usleep(50000);
    if (forks_again) fork();
    int status = 0;
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) status = 3;
    if (file >= 0 && write(file, status ? "other" : "same", 5) < 0) status = 4;
    _exit(status);
}

static void share(void) {
    if (clone(outlive, stack + sizeof stack, CLONE_VM | SIGCHLD, 0) < 0) _exit(2);
    usleep(100000);
}

static void copy(void) {
    pid_t child = clone_raw(SIGCHLD);
    if (child < 0) _exit(2);
    if (child == 0) outlive(0);
    usleep(100000);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    pages = strtoull(arguments[1], 0, 10) * 256;
    forks_again = strcmp(arguments[2], "refork") == 0;
    if (count > 3) {
        file = open(arguments[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        fill();
        share();
        const char *run = getenv("PLEAT_LEDGER");
        if (strcmp(arguments[2], "lose") == 0 && run) kill(atoi(run + strlen("/proc/")), SIGKILL);
        return 0;
    }
    // The first process waits for the second one's child, of which it becomes the parent.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) {
        fill();
        strcmp(arguments[2], "fork") == 0 ? copy() : share();
        kill(parent, SIGKILL);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 2;
    if (wait(&status) < 0) return 2;
    printf(WIFEXITED(status) && WEXITSTATUS(status) == 3 ? "other content\n" : "no other content\n");
    return 0;
}
