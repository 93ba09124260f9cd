// One thread forks children in a loop, each of which looks at its memory; another executes after a while: this program once
// more, which waits for the children and says how they have fared.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 20 * 256, WORDS = 512 };
static uint64_t *memory;

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

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 0;
    if (count > 2 && reap()) return 1;
    if (rounds == 0) return puts("all well") < 0;
    memory = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    pthread_t thread;
    if (pthread_create(&thread, 0, fork_on, 0)) return 2;
    usleep(30000 + rounds * 7919 % 40000);
    char rest[16];
    snprintf(rest, sizeof rest, "%d", rounds - 1);
    execl("/proc/self/exe", arguments[0], rest, "on", (char *)0);
    return 3;
}
