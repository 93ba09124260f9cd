// Memory that a forked child does not have (MADV_DONTFORK): where it was the child finds room, and so does its agent. What
// the child maps there holds zeros, and so it does for the children of the child. Memory that it has empty (MADV_WIPEONFORK)
// holds zeros for each of them, whatever its parent had there, folded or not; so does what the kernel may drop (MAP_DROPPABLE,
// where glibc's random numbers come from). leftout [raw]: advised past libc.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

enum { PAGE = 4096, AREAS = 48, PAGES = 64, WIPED = 4 << 20, BULK = 40 << 20, DEPTH = 3, ROUNDS = 3 };

static uint64_t word(uint64_t key, size_t at) {
    uint64_t x = (key << 32 | at) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u;
    return at % 4 == 0 ? x ^ x >> 32 : key;
}

static void fill(uint64_t *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++) memory[at] = word(key, at);
}

static void wrong(const char *what, int depth, size_t at, uint64_t found) {
    printf("depth %d: %s: word %zu is %llx\n", depth, what, at, (unsigned long long)found);
    fflush(stdout);
    _exit(1);
}

static void expect(const char *what, int depth, const uint64_t *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++)
        if (memory[at] != word(key, at)) wrong(what, depth, at, memory[at]);
}

static int (*advise)(void *, size_t, int) = madvise;

static uint64_t *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) perror("mmap"), _exit(1);
    return memory;
}

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8 // Linux 6.11
#endif

static uint64_t *bulk, *wiped, *droppable;

static void expect_zeros(const char *what, int depth, const uint64_t *memory, size_t bytes) {
    for (size_t at = 0; at < bytes / 8; at++)
        if (memory[at] != 0) wrong(what, depth, at, memory[at]);
}

// Maps new areas, leaves them to itself, moves them out by going through the bulk, and forks; the child does the same.
static void go_on(int depth) {
    // A half of it: the rest the child has not touched when it forks.
    expect_zeros("what was wiped", depth, wiped, depth == DEPTH ? WIPED : WIPED / 2);
    if (droppable) expect_zeros("what may be dropped", depth, droppable, depth == DEPTH ? WIPED : WIPED / 2);
    if (depth == DEPTH) return;
    if (droppable) fill(droppable, WIPED / 4, 3000 + depth);
    fill(wiped, WIPED / 4, 2000 + depth);
    uint64_t *areas[AREAS];
    for (int number = 0; number < AREAS; number++) {
        areas[number] = map(PAGES * PAGE);
        expect_zeros("new memory", depth, areas[number], PAGES * PAGE);
        fill(areas[number], PAGES * PAGE, depth * AREAS + number);
        if (advise(areas[number], PAGES * PAGE, MADV_DONTFORK) != 0) perror("madvise"), _exit(1);
    }
    expect("the bulk", depth, bulk, BULK, 1000);
    for (int round = 0; round < (depth == 0 ? ROUNDS : 1); round++) {
        pid_t child = fork();
        if (child == 0) {
            go_on(depth + 1);
            _exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("depth %d: a child ended with %x\n", depth, status);
            fflush(stdout);
            _exit(1);
        }
    }
    expect("what its children have empty", depth, wiped, WIPED / 4, 2000 + depth);
    for (int number = 0; number < AREAS; number++)
        expect("what was left out", depth, areas[number], PAGES * PAGE, depth * AREAS + number);
    for (int number = 0; number < AREAS; number++) munmap(areas[number], PAGES * PAGE);
}

int main(int count, char **words) {
    (void)words;
    if (count > 1) advise = advise_raw;
    bulk = map(BULK);
    fill(bulk, BULK, 1000);
    wiped = map(WIPED);
    if (advise(wiped, WIPED, MADV_WIPEONFORK) != 0) perror("madvise"), _exit(1);
    droppable = mmap(NULL, WIPED, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (droppable == MAP_FAILED) droppable = NULL;
    go_on(0);
    printf("all as it should be\n");
    return 0;
}
