// One thread gives back what is free among blocks that are in use (malloc_trim), over and over, with the lock of malloc's arena
// held for thousands of discards and of faults; another forks, for which libc takes that lock. Parent and children look at
// what is in use. trims MIB FORKS
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 8200, WORDS = BYTES / 8 };

static uint64_t **blocks, count;
static volatile int are_done;

static uint64_t word(uint64_t block, uint64_t at) {
    uint64_t x = block * 0x9e3779b97f4a7c15u + at / 4 * 0xd6e8feb86659fd93u;
    return x ^ x >> 29;
}

static void *trim(void *unused) {
    // The lock goes to who is there first: without a pause that is this thread again, for minutes.
    while (!are_done) malloc_trim(0), usleep(100);
    return unused;
}

// Looks at every `step`th block in use, from `first` on.
static int is_right(uint64_t first, uint64_t step) {
    for (uint64_t block = first; block < count; block += step)
        for (uint64_t at = 0; at < WORDS; at++)
            if (blocks[block][at] != word(block, at)) {
                printf("word %llu of block %llu\n", (unsigned long long)at, (unsigned long long)block);
                fflush(stdout);
                return 0;
            }
    return 1;
}

int main(int arguments_count, char **arguments) {
    if (arguments_count < 3) return 2;
    count = strtoull(arguments[1], 0, 10) * (1 << 20) / 2 / BYTES;
    uint64_t **free_blocks = calloc(count, sizeof *free_blocks);
    blocks = calloc(count, sizeof *blocks);
    if (!blocks || !free_blocks) return 2;
    for (uint64_t block = 0; block < count; block++) {
        blocks[block] = malloc(BYTES), free_blocks[block] = malloc(BYTES);
        if (!blocks[block] || !free_blocks[block]) return 2;
        for (uint64_t at = 0; at < WORDS; at++) blocks[block][at] = free_blocks[block][at] = word(block, at);
    }
    for (uint64_t block = 0; block < count; block++) free(free_blocks[block]);
    pthread_t thread;
    if (pthread_create(&thread, 0, trim, 0)) return 2;
    for (uint64_t forks = strtoull(arguments[2], 0, 10); forks > 0; forks--) {
        usleep(20000);
        pid_t child = fork();
        if (child < 0) return perror("fork"), 2;
        if (child == 0) {
            uint64_t *more = malloc(BYTES);
            _exit(more && is_right(forks, 7) ? 0 : 3);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) return printf("a child ended with %#x\n", status), 4;
    }
    are_done = 1;
    pthread_join(thread, 0);
    if (!is_right(0, 1)) return 5;
    printf("%llu blocks\n", (unsigned long long)count);
    return 0;
}
