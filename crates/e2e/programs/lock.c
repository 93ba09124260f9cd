// Locks all of its memory, now and for the future, while some of it is folded; lets go of it, and checks every page.
// lock BYTES: mlockall by libc. lock BYTES raw: the same past libc.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t word(size_t page, size_t at, uint64_t key) {
    uint64_t x = page * WORDS + at + key;
    return at % 8 ? page + key : x * 0x9e3779b97f4a7c15u;
}

static uint64_t *fill(size_t pages, uint64_t key) {
    uint64_t *memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at, key);
    return memory;
}

static void check(const uint64_t *memory, size_t pages, uint64_t key, const char *when) {
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at, key)) {
                printf("page %zu, word %zu differs %s\n", page, at, when);
                exit(1);
            }
}

static int is_locked(size_t bytes) {
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %zu kB", &kib);
    fclose(status);
    return kib >= bytes / 1024;
}

int main(int count, char **words) {
    size_t pages = strtoul(words[1], 0, 0) / 4096;
    uint64_t *first = fill(pages, 1);
    uint64_t *second = fill(pages, 2);
    usleep(100000);
    int flags = MCL_CURRENT | MCL_FUTURE;
    int failed = count > 2 ? (int)syscall(SYS_mlockall, flags) : mlockall(flags);
    int locked = is_locked(2 * pages * 4096);
    check(first, pages, 1, "while it is locked");
    uint64_t *third = fill(256, 3);
    check(second, pages, 2, "while it is locked");
    munlockall();
    uint64_t *fourth = fill(pages, 4);
    usleep(100000);
    check(first, pages, 1, "after it was locked");
    check(second, pages, 2, "after it was locked");
    check(third, 256, 3, "after it was locked");
    check(fourth, pages, 4, "after it was locked");
    printf("mlockall %d, %s, equal\n", failed, locked ? "locked" : "not locked");
    return 0;
}
