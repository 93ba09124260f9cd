// Fills as much memory as a limit on data allows, half of it by mmap and half by brk, and checks all of it.
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PIECE = 1 << 20, PIECES_MAX = 1024, WORDS = PIECE / 8 };
static uint64_t *pieces[PIECES_MAX];

// A third is noise, the rest folds.
static uint64_t word(size_t piece, size_t at) {
    uint64_t x = (piece * WORDS + at + 1) * 0x9e3779b97f4a7c15u;
    return at / 512 % 3 == 0 || at % 16 == 0 ? x ^ x >> 29 : piece;
}

static uint64_t *mapped(void) {
    void *piece = mmap(0, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return piece == MAP_FAILED ? 0 : piece;
}

static uint64_t *grown(void) {
    void *piece = sbrk(PIECE);
    return piece == (void *)-1 ? 0 : piece;
}

int main(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    size_t count = 0, wrong = 0;
    for (; count < PIECES_MAX; count++) {
        uint64_t *piece = pieces[count] = count % 2 ? grown() : mapped();
        if (!piece) break;
        for (size_t at = 0; at < WORDS; at++) piece[at] = word(count, at);
    }
    for (size_t piece = 0; piece < count; piece++)
        for (size_t at = 0; at < WORDS; at++) wrong += pieces[piece][at] != word(piece, at);
    printf("%llu bytes allowed, %zu words wrong\n", (unsigned long long)limit.rlim_cur, wrong);
    fprintf(stderr, "%zu pieces\n", count);
    return wrong != 0;
}
