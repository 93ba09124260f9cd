// One thread forks children in a loop, each of which looks at its memory; another executes after a while: this program once
// more, which waits for the children and says how they have fared. A letter behind the number of rounds says how it is executed,
// or how the program ends instead: then another process waits for the children.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 20 * 256, WORDS = 512 };
static uint64_t *memory;
// Between two forks: who has none may keep libc's locks, without which exit does not end, from all others.
static int pause_us;

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

static int differs(void) {
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) return 1;
    return 0;
}

static void *fork_on(void *unused) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) _exit(differs());
        if (child < 0) usleep(1000);
        if (child > 0) waitpid(child, 0, WNOHANG);
        if (pause_us) usleep(pause_us);
    }
    return unused;
}

// Reaps what the program before has left.
static int reap(void) {
    int status, bad = 0, count = 0;
    while (wait(&status) > 0) bad += status != 0, count++;
    if (bad) printf("%d of %d children have fared badly\n", bad, count);
    return bad != 0;
}

// Leaves children that are being forked behind.
static void fork_beside(int round) {
    memory = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    pthread_t thread;
    if (pthread_create(&thread, 0, fork_on, 0)) _exit(2);
    usleep(30000 + round * 7919 % 40000);
}

static int execute(char **arguments, char how) {
    const char *path = "/proc/self/exe";
    if (how == 'f') return fexecve(open(path, O_RDONLY | O_CLOEXEC), arguments, environ);
    if (how == 'a') return execveat(AT_FDCWD, path, arguments, environ, 0);
    return execv(path, arguments);
}

static int end_often(int rounds, char how) {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (; rounds > 0; rounds--) {
        pid_t child = fork();
        if (child == 0) {
            pause_us = 500;
            fork_beside(rounds);
            if (how == 'e') exit(0);
            _exit(0);
        }
        if (reap()) return 1;
    }
    return puts("all well") < 0;
}

int main(int count, char **arguments) {
    char *how = "";
    int rounds = count > 1 ? strtol(arguments[1], &how, 10) : 0;
    if (*how == 'e' || *how == 'u') return end_often(rounds, *how);
    if (count > 2 && reap()) return 1;
    if (rounds == 0) return puts("all well") < 0;
    fork_beside(rounds);
    char rest[16];
    snprintf(rest, sizeof rest, "%d%s", rounds - 1, how);
    return execute((char *[]){arguments[0], rest, "on", 0}, *how);
}
