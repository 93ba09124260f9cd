// Changes the pages of a privately mapped file, as a loader does with those of libraries, and looks at pages of
// other memory, which do not fold, for so many seconds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t *map(size_t bytes, int kind, int file) {
    uint64_t *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | kind, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t noise(uint64_t at) {
    uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    size_t changed = strtoull(arguments[1], 0, 10) << 20, pages = strtoull(arguments[2], 0, 10) << 8;
    time_t end = time(0) + atoi(arguments[3]);
    FILE *file = tmpfile();
    if (!file || ftruncate(fileno(file), changed) != 0) return perror("a file"), 2;
    uint64_t *mapped = map(changed, 0, fileno(file)), *walked = map(pages * 4096, MAP_ANONYMOUS, -1);
    if (!mapped || !walked) return 2;
    memset(mapped, 7, changed);
    for (size_t at = 0; at < pages * WORDS; at++) walked[at] = noise(at);
    uint64_t rounds = 0, wrong = 0;
    for (; time(0) < end; rounds++)
        for (size_t step = 0; step < 256; step++) {
            size_t at = noise(rounds * 256 + step) % pages * WORDS;
            wrong += walked[at] != noise(at);
        }
    printf("%llu wrong\n", (unsigned long long)wrong);
    return rounds == 0 || mapped[changed / 8 - 1] != 0x0707070707070707u;
}
