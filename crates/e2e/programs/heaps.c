/* Threads that fill their heaps as fast as they can, keep all of it, for some seconds more if that is asked for, and read it
   back. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t blocks, words;
static unsigned seconds;

static void *fill(void *number) {
    unsigned long sum = 0, **block = malloc(blocks * sizeof *block);
    for (size_t i = 0; i < blocks; i++) {
        block[i] = malloc(words * sizeof **block);
        for (size_t at = 0; at < words; at += 8) block[i][at] = i * 77 + at / 512 + (unsigned long)number;
    }
    sleep(seconds);
    for (size_t i = 0; i < blocks; i++)
        for (size_t at = 0; at < words; at += 8) sum = sum * 31 + block[i][at];
    return (void *)sum;
}

int main(int count, char **options) {
    unsigned long threads = strtoul(options[1], 0, 10), bytes = strtoul(options[2], 0, 10) << 20;
    if (count == 5) seconds = strtoul(options[4], 0, 10);
    words = strtoul(options[3], 0, 10) / sizeof(long);
    blocks = bytes / sizeof(long) / words;
    pthread_t thread[threads];
    /* The first one's heap is that of brk. */
    for (unsigned long i = 1; i < threads; i++)
        if (pthread_create(thread + i, 0, fill, (void *)i)) return 1;
    void *sum = fill(0);
    printf("%lu\n", (unsigned long)sum);
    for (unsigned long i = 1; i < threads; i++) {
        pthread_join(thread[i], &sum);
        printf("%lu\n", (unsigned long)sum);
    }
    return 0;
}
