// readers THREADS PAGES TIMES: threads read pages of noise anywhere, and check them.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { WORDS = 512 };
static uint64_t *memory;
static long pages, times;

static uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9, x ^= x >> 27, x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static void *reader(void *argument) {
    uint64_t drawn = (uint64_t)argument * 7919 + 1, wrong = 0;
    for (long at = 0; at < times; at++) {
        drawn = mix(drawn + at);
        long page = drawn % pages, word = drawn >> 40 & (WORDS - 1);
        wrong += memory[page * WORDS + word] != mix(page * WORDS + word + 1);
    }
    return (void *)wrong;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    long threads = atol(words[1]);
    pages = atol(words[2]), times = atol(words[3]) / threads;
    memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (long word = 0; word < pages * WORDS; word++) memory[word] = mix(word + 1);
    pthread_t running[64];
    for (long at = 0; at < threads; at++)
        if (pthread_create(running + at, 0, reader, (void *)at)) return 4;
    uint64_t wrong = 0;
    for (long at = 0; at < threads; at++) {
        void *mine;
        pthread_join(running[at], &mine);
        wrong += (uint64_t)mine;
    }
    printf("%ld pages, %lu wrong\n", pages, (unsigned long)wrong);
    return wrong != 0;
}
