// Fills memory far beyond a budget under limits that leave an agent little: so many KiB more than what counts for them when the
// memory is there, not yet filled. Goes over it, forks, the child goes over it too, and both check each word.
// tight MIB [as|data KIB]
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };
static uint64_t *memory;
static size_t pages;

// A third is noise, the rest folds.
static uint64_t word(size_t page, size_t at) {
    uint64_t x = (page * WORDS + at + 1) * 0x9e3779b97f4a7c15u;
    return page % 3 == 0 || at % 16 == 0 ? x ^ x >> 29 : page;
}

static int differs(void) {
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != word(page, at)) return 1;
    return 0;
}

// By the kernel's own call: libc's is the agent's, which adds to a limit on addresses what it takes itself.
static int limit(const char *what, size_t kib) {
    int is_data = !strcmp(what, "data");
    const char *key = is_data ? "VmData: %zu kB" : "VmSize: %zu kB";
    size_t counted = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, key, &counted);
    fclose(status);
    struct rlimit both = {(counted + kib) << 10, (counted + kib) << 10};
    return (int)syscall(SYS_prlimit64, 0, is_data ? RLIMIT_DATA : RLIMIT_AS, &both, 0);
}

int main(int count, char **words) {
    if (count < 2) return 2;
    pages = strtoull(words[1], 0, 0) * 256;
    memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return puts("no memory"), 3;
    if (count > 3 && limit(words[2], strtoull(words[3], 0, 0))) return perror("prlimit"), 2;
    for (size_t page = 0; page < pages; page++)
        for (size_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(page, at);
    int bad = differs() | differs(), status = -1;
    pid_t child = fork();
    if (child == 0) _exit(differs() ? 3 : 0);
    if (child < 0) return printf("no fork: %s\n", strerror(errno)), 4;
    waitpid(child, &status, 0);
    printf("%s, child %d\n", bad | differs() ? "differs" : "equal", status);
    return 0;
}
