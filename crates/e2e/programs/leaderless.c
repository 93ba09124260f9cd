// The main thread ends by pthread_exit before memory is short; another one fills memory, and says whether it has stayed
// inside a budget, and whether all of it is there.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t pages, budget, peak;

static uint64_t word(uint64_t page, uint64_t at) { return page * 0x9e3779b97f4a7c15u ^ at % 7; }

// The leader's own file says nothing any more.
static void look(void) {
    unsigned long size, resident, of_files;
    FILE *file = fopen("/proc/thread-self/statm", "r");
    if (!file || fscanf(file, "%lu %lu %lu", &size, &resident, &of_files) != 3) exit(2);
    fclose(file);
    uint64_t now = (resident - of_files) * 4096;
    if (now > peak) peak = now;
}

static void *live_on(void *unused) {
    (void)unused;
    char state = 0;
    while (state != 'Z') {
        FILE *file = fopen("/proc/self/stat", "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) exit(2);
        fclose(file);
        usleep(1000);
    }
    uint64_t *memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    for (uint64_t page = 0; page < pages; page++) {
        for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
        if (page % 1024 == 0) look();
        // As a program that does some work.
        if (page % 256 == 0) usleep(2000);
    }
    for (int second = 0; second < 20; second++) usleep(100000), look();
    for (uint64_t page = 0; page < pages; page++) {
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) exit(3);
        if (page % 1024 == 0) look();
    }
    look();
    printf("%s the budget\n", peak > budget ? "outside" : "inside");
    fprintf(stderr, "peak %lu MiB\n", peak >> 20);
    exit(0);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    pages = strtoull(arguments[1], 0, 10) * 256, budget = strtoull(arguments[2], 0, 10) << 20;
    pthread_t thread;
    if (pthread_create(&thread, 0, live_on, 0)) return 2;
    pthread_exit(0);
}
