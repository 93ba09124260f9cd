// 4096 pages, each a quarter of a gigabyte from the next, and other memory that drives them out; a fork; half of them
// discarded. Every page is checked.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 4096, OTHERS = 16384 };
static const size_t STRIDE = 1ul << 28;

static void write_page(char *page, uint64_t key) {
    for (int at = 0; at < 4096; at += 8) {
        uint64_t word = at % 64 ? key : (key + at) * 0x9e3779b97f4a7c15u;
        memcpy(page + at, &word, 8);
    }
}

static int differs(const char *page, uint64_t key) {
    char expected[4096];
    write_page(expected, key);
    return memcmp(page, expected, sizeof expected) != 0;
}

int main(void) {
    char *far = mmap(0, PAGES * STRIDE * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *near = mmap(0, OTHERS * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (far == MAP_FAILED || near == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    for (size_t page = 0; page < PAGES; page++) write_page(far + page * STRIDE, page);
    for (int round = 0; round < 2; round++) {
        for (size_t page = 0; page < OTHERS; page++) write_page(near + page * 4096, page + round);
        usleep(20000);
    }
    long bad = 0;
    for (size_t page = 0; page < PAGES; page++) bad += differs(far + page * STRIDE, page);
    pid_t child = fork();
    if (child == 0) {
        for (size_t page = 0; page < PAGES; page++) bad += differs(far + page * STRIDE, page);
        _exit(bad != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    madvise(far, PAGES / 2 * STRIDE, MADV_DONTNEED);
    for (size_t page = 0; page < PAGES; page += 512) {
        if (page >= PAGES / 2) bad += differs(far + page * STRIDE, page);
        else bad += far[page * STRIDE + 100] != 0;
    }
    munmap(far, PAGES * STRIDE * 2);
    printf("%ld pages differ, child %#x\n", bad, status);
    return 0;
}
