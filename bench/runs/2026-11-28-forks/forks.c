// Forks that run on for long. A parent and two children write and check what they inherited until the end, each beside one grandchild
// after another that does so for ten minutes. A page is known by who wrote it, and for which time.
//
//   cc -O2 -o forks forks.c && pleat run --ram 40M -- ./forks MINUTES
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 24 << 8, WORDS = 512, INHERITED = 0, OWN = 1 };

static uint64_t *memory, salts[2] = {1, 1}, seed = 3, checked;
static uint32_t *times;
static uint8_t *writer;
static const char *name = "parent";
static const struct timespec pause_ = {0, 300000000};

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

// Words that repeat their high bits, as those of heaps do, so that pages shrink.
static uint64_t word(int page, int at) {
    uint64_t noise = mix(salts[writer[page]] ^ (uint64_t)page << 32 ^ times[page]);
    return at % 8 == 0 ? noise + at : (noise >> 40) + at;
}

static void write_page(int page, int by) {
    writer[page] = by;
    times[page]++;
    for (int at = 0; at < WORDS; at++) memory[page * (long)WORDS + at] = word(page, at);
}

static void check_page(int page) {
    for (int at = 0; at < WORDS; at++)
        if (memory[page * (long)WORDS + at] != word(page, at)) {
            printf("%s: WRONG page %d word %d\n", name, page, at);
            fflush(stdout);
            _exit(9);
        }
    checked++;
}

static uint32_t draw(void) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return seed >> 33;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void some_work(int pages, int one_in, int keeps_writer) {
    while (pages-- > 0) {
        int page = draw() % PAGES;
        check_page(page);
        if (draw() % one_in == 0) write_page(page, keeps_writer ? writer[page] : OWN);
    }
    nanosleep(&pause_, NULL);
}

static void grandchild(double end) {
    double own_end = now() + 600;
    seed ^= getpid();
    while (now() < own_end && now() < end) some_work(100, 4, 1);
    _exit(0);
}

int main(int count, char **words) {
    double begun = now(), said = begun, end = begun + 60 * atof(words[count - 1]);
    memory = mmap(NULL, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    times = calloc(PAGES, sizeof *times);
    writer = calloc(PAGES, sizeof *writer);
    for (int page = 0; page < PAGES; page++) write_page(page, INHERITED);
    salts[OWN] = 50;
    for (int child = 0; child < 2 && !strcmp(name, "parent"); child++)
        if (fork() == 0) name = child ? "child 2" : "child 1", salts[OWN] = 100 + child, seed = 5 + child;
    pid_t running = 0;
    int grandchildren = 0, bad = 0, status;
    while (now() < end) {
        some_work(200, 3, 0);
        if (now() - said > 300) {
            said = now();
            printf("%s: %.0f min, %lu pages, %d forks\n", name, (said - begun) / 60, (unsigned long)checked, grandchildren);
            fflush(stdout);
        }
        if (running == 0) {
            grandchildren++;
            if ((running = fork()) == 0) grandchild(end);
        } else if (waitpid(running, &status, WNOHANG) == running) {
            bad |= status;
            running = 0;
        }
    }
    for (int page = 0; page < PAGES; page++) check_page(page);
    while (wait(&status) > 0) bad |= status;
    printf("%s: ends, %lu pages, %d forks, %s\n", name, (unsigned long)checked, grandchildren, bad ? "BAD" : "well");
    return bad ? 7 : 0;
}
