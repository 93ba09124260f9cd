// Buffers that have left memory when the kernel meets them: far more than the budget is touched in between. How many of
// their pages were out is said on standard error ("N of M pages were out"), for it is none without pleat.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BUFFER = 4 * PAGE, BUFFERS = 256, BULK = 40 << 20 };
static unsigned char *buffers, *bulk;
static int pagemap;
static size_t pages_out, pages_seen;
// So many pages at the start of each buffer are held in memory by what the program does, and are not looked at.
static int pages_held;

static unsigned char *buffer(int number) { return buffers + (size_t)number * BUFFER; }

static void check(const char *what, long got, long expected) {
    if (got == expected) return;
    printf("%s: %ld instead of %ld, %s\n", what, got, expected, strerror(errno));
    fflush(stdout);
    _exit(1);
}

// A third is noise, which goes to the swap file first; the rest folds well.
static uint64_t word(uint64_t key, size_t at) {
    uint64_t x = (key << 32 | at) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u;
    return key % 3 == 0 || at % 16 == 0 ? x ^ x >> 32 : key << 8 | at % 5;
}

static void fill(void *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++) ((uint64_t *)memory)[at] = word(key, at);
}

__attribute__((unused)) static void expect(const char *what, const void *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++)
        if (((const uint64_t *)memory)[at] != word(key, at)) {
            printf("%s: word %zu of %zu is %llx, not %llx\n", what, at, bytes / 8,
                   (unsigned long long)((const uint64_t *)memory)[at], (unsigned long long)word(key, at));
            fflush(stdout);
            _exit(1);
        }
}

static void press_at(size_t at) {
    uint64_t *words = (uint64_t *)(bulk + at);
    words[0] += 1, words[1] = at * 0x9e3779b97f4a7c15u;
}

// One pass over far more than the budget.
static void press(void) {
    for (size_t at = 0; at < BULK; at += PAGE) press_at(at);
}

// The same in pieces here and there: behind a walk, its own pages go first.
static void press_apart(void) {
    enum { PIECE = 4 * PAGE, PIECES = BULK / PIECE, STEP = 1601 };
    for (size_t piece = 0; piece < PIECES; piece++)
        for (size_t at = 0; at < PIECE; at += PAGE) press_at(piece * STEP % PIECES * PIECE + at);
}

static size_t looked_at_out(void) {
    size_t out = 0;
    for (int number = 0; number < BUFFERS; number++) {
        uint64_t entries[BUFFER / PAGE];
        size_t at = (uintptr_t)buffer(number) / PAGE * sizeof *entries;
        check("pagemap", pread(pagemap, entries, sizeof entries, at), sizeof entries);
        for (int page = pages_held; page < BUFFER / PAGE; page++) out += !(entries[page] >> 63);
    }
    return out;
}

// What was not touched since is out after this: where a walk leaves it in memory, it goes when the walk has ended. Counts what is
// out of the buffers.
static void chill(void) {
    press(), press();
    size_t out = looked_at_out(), looked_at = BUFFERS * (BUFFER / PAGE - pages_held);
    for (int pass = 0; pass < 4 && out < looked_at * 3 / 4; pass++) press_apart(), out = looked_at_out();
    pages_out += out, pages_seen += looked_at;
}

static volatile int is_over;

static void *press_on(void *nothing) {
    while (!is_over) press();
    return nothing;
}

// Presses from another thread while `step` runs.
__attribute__((unused)) static void under_pressure(void (*step)(void)) {
    pthread_t thread;
    is_over = 0;
    check("pthread_create", pthread_create(&thread, 0, press_on, 0), 0);
    step();
    is_over = 1;
    pthread_join(thread, 0);
}

static void map_all(void) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    buffers = mmap(0, (size_t)BUFFERS * BUFFER, protection, flags, -1, 0);
    bulk = mmap(0, BULK, protection, flags, -1, 0);
}

static void fill_all(void) {
    for (int number = 0; number < BUFFERS; number++) fill(buffer(number), BUFFER, number);
    for (size_t at = 0; at < BULK; at += 4 * PAGE) fill(bulk + at, PAGE, at);
    chill();
    usleep(100000);
    pages_out = pages_seen = 0;
}

__attribute__((unused)) static void begin(void) { map_all(), fill_all(); }

static void end(void) { fprintf(stderr, "%zu of %zu pages were out\n", pages_out, pages_seen); }
