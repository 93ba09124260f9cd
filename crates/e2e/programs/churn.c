// Threads that map, unmap, move, grow, discard and check memory, each by its own seeded plan, for some seconds.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, AREAS = 24, THREADS = 4 };

struct area { uint64_t *memory; uint64_t pages; uint64_t key; uint8_t *zero; };
struct worker { uint64_t state, steps, mib; struct area areas[AREAS]; };

static volatile int stop;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(struct worker *w, uint64_t end) { return mix(w->state += 0x9e3779b97f4a7c15u) % end; }

static uint64_t word(uint64_t key, uint64_t page, uint64_t at) { return at % 64 < 32 ? mix(key + page * WORDS + at) : key + page; }

static void wrong(const char *what, uint64_t page, uint64_t at) {
    printf("%s: page %llu word %llu is wrong\n", what, (unsigned long long)page, (unsigned long long)at);
    fflush(stdout);
    _exit(3);
}

static void must(int good, const char *what) {
    if (good) return;
    perror(what);
    _exit(2);
}

static void fill(struct area *a, uint64_t page) {
    for (uint64_t at = 0; at < WORDS; at++) a->memory[page * WORDS + at] = word(a->key, page, at);
    a->zero[page] = 0;
}

static void check(struct area *a, uint64_t page, const char *what) {
    for (uint64_t at = 0; at < WORDS; at++)
        if (a->memory[page * WORDS + at] != (a->zero[page] ? 0 : word(a->key, page, at))) wrong(what, page, at);
}

static void map(struct worker *w, struct area *a) {
    a->pages = 1 + draw(w, w->mib * 256 / AREAS * 2);
    a->key = draw(w, UINT64_MAX);
    a->memory = mmap(0, a->pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(a->memory != MAP_FAILED, "mmap");
    a->zero = malloc(a->pages);
    memset(a->zero, 1, a->pages);
    for (uint64_t page = 0; page < a->pages; page++) if (draw(w, 8)) fill(a, page);
}

static void unmap(struct area *a) {
    must(munmap(a->memory, a->pages * 4096) == 0, "munmap");
    free(a->zero);
    memset(a, 0, sizeof *a);
}

static void resize(struct worker *w, struct area *a) {
    uint64_t pages = 1 + draw(w, a->pages * 2);
    uint64_t *memory = mremap(a->memory, a->pages * 4096, pages * 4096, MREMAP_MAYMOVE);
    must(memory != MAP_FAILED, "mremap");
    a->memory = memory;
    a->zero = realloc(a->zero, pages);
    if (pages > a->pages) memset(a->zero + a->pages, 1, pages - a->pages);
    a->pages = pages;
}

static void move(struct area *a) {
    void *to = mmap(0, a->pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(to != MAP_FAILED, "mmap");
    uint64_t *memory = mremap(a->memory, a->pages * 4096, a->pages * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    must(memory == to, "mremap to a place");
    a->memory = memory;
}

static void discard(struct worker *w, struct area *a) {
    uint64_t first = draw(w, a->pages), count = 1 + draw(w, a->pages - first);
    must(madvise(a->memory + first * WORDS, count * 4096, MADV_DONTNEED) == 0, "madvise");
    memset(a->zero + first, 1, count);
}

// The middle of an area is unmapped and mapped anew in place: what was there must not come back.
static void replace(struct worker *w, struct area *a) {
    uint64_t first = draw(w, a->pages), count = 1 + draw(w, a->pages - first);
    void *at = a->memory + first * WORDS;
    must(mmap(at, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at, "mmap fixed");
    memset(a->zero + first, 1, count);
}

static void protect(struct worker *w, struct area *a) {
    uint64_t page = draw(w, a->pages);
    must(mprotect(a->memory + page * WORDS, 4096, PROT_READ) == 0, "mprotect");
    check(a, page, "read-only");
    must(mprotect(a->memory + page * WORDS, 4096, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

static void *work(void *argument) {
    struct worker *w = argument;
    for (; !stop; w->steps++) {
        struct area *a = &w->areas[draw(w, AREAS)];
        if (!a->memory) { map(w, a); continue; }
        switch (draw(w, 12)) {
        case 0: unmap(a); break;
        // A piece of an area that was mapped anew is a mapping of its own: the kernel refuses to resize two at once.
        case 1: unmap(a); map(w, a); resize(w, a); break;
        case 2: unmap(a); map(w, a); move(a); break;
        case 3: discard(w, a); break;
        case 4: replace(w, a); break;
        case 5: protect(w, a); break;
        case 6: case 7: for (int n = 0; n < 64; n++) fill(a, draw(w, a->pages)); break;
        default: for (int n = 0; n < 256; n++) { uint64_t page = draw(w, a->pages); check(a, page, "area"); }
        }
    }
    for (int n = 0; n < AREAS; n++)
        for (uint64_t page = 0; page < w->areas[n].pages; page++) check(&w->areas[n], page, "at the end");
    return 0;
}

// The heap's end moves up and down; what is given back must read as zero when it comes again.
static void *heap(void *argument) {
    struct worker *w = argument;
    uint64_t *start = 0, pages = 0, key = draw(w, UINT64_MAX);
    for (; !stop; w->steps++) {
        if (pages < 2000 && draw(w, 2)) {
            uint64_t more = 1 + draw(w, 200);
            uint64_t *at = sbrk(more * 4096);
            must(at != (void *)-1, "sbrk");
            if (!start) start = at;
            // Somebody else (malloc) has moved it: begin anew.
            if (at != start + pages * WORDS) { start = at; pages = 0; }
            for (uint64_t page = pages; page < pages + more; page++)
                for (uint64_t n = 0; n < WORDS; n++) {
                    if (at[(page - pages) * WORDS + n]) wrong("heap, new", page, n);
                    start[page * WORDS + n] = word(key, page, n);
                }
            pages += more;
        } else if (pages) {
            uint64_t less = 1 + draw(w, pages);
            if (sbrk(0) == (void *)(start + pages * WORDS)) { sbrk(-(intptr_t)(less * 4096)); pages -= less; } else { start = 0; pages = 0; }
        }
        for (int n = 0; pages && n < 64; n++) {
            uint64_t page = draw(w, pages), at = draw(w, WORDS);
            if (start[page * WORDS + at] != word(key, page, at)) wrong("heap", page, at);
        }
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count < 4) return 64;
    uint64_t seed = strtoull(arguments[1], 0, 10), mib = strtoull(arguments[2], 0, 10);
    static struct worker workers[THREADS + 1];
    pthread_t threads[THREADS + 1];
    // malloc keeps to mmap and its arenas: the heap belongs to the thread that tests it.
    for (int n = 0; n <= THREADS; n++) {
        workers[n].state = seed * 1000 + n;
        workers[n].mib = mib / THREADS;
        must(pthread_create(&threads[n], 0, n < THREADS ? work : heap, &workers[n]) == 0, "pthread_create");
    }
    struct timespec pause = {strtol(arguments[3], 0, 10), 0};
    nanosleep(&pause, 0);
    stop = 1;
    uint64_t least = UINT64_MAX;
    for (int n = 0; n <= THREADS; n++) {
        pthread_join(threads[n], 0);
        fprintf(stderr, "thread %d: %llu steps\n", n, (unsigned long long)workers[n].steps);
        if (workers[n].steps < least) least = workers[n].steps;
    }
    // Steps differ from run to run; what must be equal is that all is well.
    printf("%s\n", least > 20 ? "all well" : "too slow");
    return 0;
}
