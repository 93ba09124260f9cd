/* A limit below what there is already: an mmap over memory of the same size is refused, and what was there stays. Once the limit is
 * above it again, it takes its place. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 64 << 20, LIMIT = 16 << 20 };

static uint64_t word(size_t at) { return at % 512 < 64 ? at * 0x9e3779b97f4a7c15u | 1 : at | 1; }

static void limit(int resource, rlim_t current) {
    struct rlimit limit;
    getrlimit(resource, &limit);
    limit.rlim_cur = current;
    setrlimit(resource, &limit);
}

int main(void) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *memory = mmap(0, BYTES, protection, flags, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (size_t at = 0; at < BYTES / 8; at++) memory[at] = word(at);
    usleep(300000);
    int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int turn = 0; turn < 2; turn++) {
        limit(resources[turn], LIMIT);
        void *again = mmap(memory, BYTES, protection, flags | MAP_FIXED, -1, 0);
        int error = errno;
        limit(resources[turn], RLIM_INFINITY);
        printf("%s\n", again == MAP_FAILED ? strerror(error) : "mapped");
        size_t wrong = 0;
        for (size_t at = 0; at < BYTES / 8; at++) wrong += memory[at] != word(at);
        printf("%zu words are wrong\n", wrong);
        if (wrong > 0) return 1;
    }
    void *again = mmap(memory, BYTES, protection, flags | MAP_FIXED, -1, 0);
    printf("%d %llu\n", again == memory, (unsigned long long)memory[77]);
    return 0;
}
