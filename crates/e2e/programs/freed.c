// Memory that the program gives back lazily (MADV_FREE) and uses again, and advice for a range in which something is not mapped.
#define _GNU_SOURCE
#include "cold.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

enum { LAZY = 16 << 20, PART = 4 << 20 };

// What is in memory stays there until the kernel needs it, and is written without a fault.
static void lazily(void) {
    unsigned char *memory = mmap(0, LAZY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 4; round++) {
        fill(memory, LAZY, 700 + round);
        check("MADV_FREE", madvise(memory, LAZY, MADV_FREE), 0);
        fill(memory, LAZY, 800 + round);
        chill();
        expect("used again", memory, LAZY, 800 + round);
    }
}

static void guarded(void) {
    unsigned char *memory = mmap(0, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, PART, 900);
    check("munmap", munmap(memory + PART / 2, PAGE), 0);
    chill();
    int result = madvise(memory, PART, MADV_GUARD_INSTALL);
    if (result && errno == EINVAL) return (void)printf("no guard regions\n");
    check("with a hole", result, -1), check("its reason", errno, ENOMEM);
    chill();
    madvise(memory, PART, MADV_GUARD_REMOVE);
    for (size_t at = 0; at < PART; at += PAGE)
        if (at != PART / 2 && memory[at]) check("what was guarded", memory[at], 0);
}

int main(void) {
    begin();
    lazily(), guarded();
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
