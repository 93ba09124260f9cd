/* Pieces too small to be worth much each, and many of them: words[1] of one to words[2] pages, each a mapping of its own. Fills them,
   reads them back, gives some away, makes them anew and lets some be read only for a while, and reads all back. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static unsigned long pages_max;

static size_t bytes_of(size_t number) { return (1 + number % pages_max) * PAGE; }

static unsigned long word(size_t number, size_t round, size_t at) {
    return (number * 31 + round + 1) * 0x9e3779b97f4a7c15 + at / 64;
}

static int is_done(int failed) { return failed ? perror("small"), exit(1), 0 : 1; }

static void fill(unsigned char *piece, size_t number, size_t round) {
    for (size_t at = 0; at < bytes_of(number); at += 8) {
        unsigned long value = word(number, round, at);
        memcpy(piece + at, &value, 8);
    }
}

static void check(const unsigned char *piece, size_t number, size_t round) {
    for (size_t at = 0; at < bytes_of(number); at += 8) {
        unsigned long value = round ? word(number, round, at) : 0;
        if (memcmp(piece + at, &value, 8)) printf("piece %zu is damaged at %zu\n", number, at), exit(1);
    }
}

static int move(unsigned char *from, size_t bytes, unsigned char *to) {
    return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to;
}

int main(int count, char **words) {
    if (count != 3) return 1;
    size_t pieces = strtoul(words[1], 0, 10), *rounds = calloc(pieces, sizeof *rounds);
    pages_max = strtoul(words[2], 0, 10);
    size_t stride = (pages_max + 1) * PAGE;
    /* What is not open keeps them apart. */
    unsigned char *all = mmap(0, pieces * stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    is_done(all == MAP_FAILED);
    for (size_t number = 0; number < pieces; number++) {
        is_done(mprotect(all + number * stride, bytes_of(number), PROT_READ | PROT_WRITE));
        fill(all + number * stride, number, rounds[number] = 1);
    }
    for (size_t round = 2; round < 5; round++) {
        for (size_t number = 0; number < pieces; number++) {
            unsigned char *piece = all + number * stride;
            check(piece, number, rounds[number]);
            size_t draw = (number + round) % 7;
            if (draw == 0) {
                is_done(mprotect(piece, bytes_of(number), PROT_READ));
                check(piece, number, rounds[number]);
                is_done(mprotect(piece, bytes_of(number), PROT_READ | PROT_WRITE));
            } else if (draw == 1) {
                is_done(munmap(piece, bytes_of(number)));
                is_done(mmap(piece, bytes_of(number), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != piece);
                check(piece, number, 0);
            } else if (draw == 2) {
                is_done(madvise(piece, bytes_of(number), MADV_DONTNEED));
                check(piece, number, 0);
            } else if (draw == 3) {
                /* Away and back. */
                unsigned char *away = mmap(0, bytes_of(number), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                is_done(away == MAP_FAILED || move(piece, bytes_of(number), away));
                check(away, number, rounds[number]);
                is_done(move(away, bytes_of(number), piece));
                check(piece, number, rounds[number]);
            }
            if (draw < 6) fill(piece, number, rounds[number] = round);
        }
    }
    for (size_t number = 0; number < pieces; number++) check(all + number * stride, number, rounds[number]);
    puts("equal");
    return 0;
}
