// Forks out of several threads at once, or out of a signal's handler too; each child checks some of the memory and leaves.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512, THREADS = 4, CHECKED = 16 };

static uint64_t *memory, pages, rounds;
static volatile sig_atomic_t from_handler;

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

static void fork_once(uint64_t from) {
    pid_t child = fork();
    if (child < 0) _exit(2);
    if (child == 0) {
        for (uint64_t k = 0; k < CHECKED; k++) {
            uint64_t page = (from + k * 97) % pages;
            for (uint64_t at = 0; at < WORDS; at++)
                if (memory[page * WORDS + at] != word(page, at)) _exit(3);
        }
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        static const char wrong[] = "a child did not end well\n";
        write(1, wrong, sizeof wrong - 1);
        _exit(4);
    }
}

static void *fork_often(void *number) {
    for (uint64_t round = 0; round < rounds; round++) fork_once((uintptr_t)number * 1009 + round * 31);
    return 0;
}

// One signal a round, at another moment of it each time. A timer that goes on by itself would come again before its handler has ended,
// where a fork takes as long, and nothing else would ever run.
static void fork_under_signals(void) {
    for (uint64_t round = 0; round < rounds; round++) {
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1 + round * 613 % 7000}, 0);
        fork_once(round * 31);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
}

static void handle(int signal) {
    (void)signal;
    from_handler++;
    fork_once(from_handler * 57);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    pages = strtoull(arguments[2], 0, 10) * 256, rounds = strtoull(arguments[3], 0, 10);
    memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    if (strcmp(arguments[1], "threads") == 0) {
        pthread_t threads[THREADS];
        for (uintptr_t at = 0; at < THREADS; at++)
            if (pthread_create(&threads[at], 0, fork_often, (void *)at)) return 2;
        for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
    } else {
        struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, 0);
        fork_under_signals();
        if (from_handler == 0) return printf("no signal came\n"), 5;
    }
    printf("%llu rounds over %llu pages\n", (unsigned long long)rounds, (unsigned long long)pages);
    return 0;
}
