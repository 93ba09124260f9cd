/* An mmap that is to replace memory, and more than the limits allow, is refused: what was there stays. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 64 << 20, LIMIT = 100 << 20, ROUNDS = 3 };

static uint64_t word(size_t at) { return at % 512 < 64 ? at * 0x9e3779b97f4a7c15u | 1 : at | 1; }

int main(void) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // So that nothing lies behind the memory.
    char *room = mmap(0, 8UL * BYTES, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
    munmap(room, 8UL * BYTES);
    uint64_t *memory = mmap(room, BYTES, protection, flags, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (size_t at = 0; at < BYTES / 8; at++) memory[at] = word(at);
    usleep(300000);
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = LIMIT;
    setrlimit(RLIMIT_DATA, &limit);
    for (int round = 0; round < ROUNDS; round++) {
        void *more = mmap(memory, 4UL * BYTES, protection, flags | MAP_FIXED, -1, 0);
        printf("%s\n", more == MAP_FAILED ? strerror(errno) : "mapped");
        size_t wrong = 0;
        for (size_t at = 0; at < BYTES / 8; at++) wrong += memory[at] != word(at);
        printf("%zu words are wrong\n", wrong);
    }
    // What fits takes its place.
    void *again = mmap(memory, BYTES, protection, flags | MAP_FIXED, -1, 0);
    printf("%d %llu\n", again == memory, (unsigned long long)memory[77]);
    return 0;
}
