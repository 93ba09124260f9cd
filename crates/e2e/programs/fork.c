// Forks with dirty memory, again and again; parent and child both write, and both check every page.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t word(uint64_t page, uint64_t version, uint64_t at) {
    uint64_t x = page * 0x9e3779b97f4a7c15u + version * 0xd6e8feb86659fd93u + (at % 4 ? at : 0) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return at % 2 ? x * 0xbf58476d1ce4e5b9u : x;
}

static void fill(uint64_t *memory, uint64_t page, uint64_t version) {
    for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, version, at);
}

static void check(const char *who, uint64_t *memory, uint64_t page, uint64_t version) {
    for (uint64_t at = 0; at < WORDS; at++) {
        if (memory[page * WORDS + at] != word(page, version, at)) {
            printf("%s: page %llu word %llu is wrong\n", who, (unsigned long long)page, (unsigned long long)at);
            fflush(stdout);
            _exit(3);
        }
    }
}

int main(int count, char **arguments) {
    uint64_t pages = count > 1 ? strtoull(arguments[1], 0, 10) * 256 : 0, rounds = count > 2 ? strtoull(arguments[2], 0, 10) : 0;
    uint64_t *memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t page = 0; page < pages; page++) fill(memory, page, 0);
    for (uint64_t round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child < 0) return perror("fork"), 2;
        // The child rewrites every third page, the parent every other; each must see its own and the old ones.
        uint64_t step = child ? 2 : 3, version = child ? round + 1 : 1000 + round;
        for (uint64_t page = 0; page < pages; page++) {
            check(child ? "parent" : "child", memory, page, page % 2 == 0 ? round : 0);
            if (page % step == 0) fill(memory, page, version);
        }
        for (uint64_t page = 0; page < pages; page++)
            check(child ? "parent, again" : "child, again", memory, page, page % step == 0 ? version : page % 2 == 0 ? round : 0);
        if (!child) _exit(0);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) return printf("child of round %d: status %d\n", (int)round, status), 4;
    }
    printf("%d rounds over %d pages\n", (int)rounds, (int)pages);
    return 0;
}
