/* Threads on stacks of the program's own, of which they use little, beside memory that is used again and again. Prints its sum. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 24, STACK = 2 << 20, MEMORY = 40 << 20, ROUNDS = 4 };

static void *wait_on(void *nothing) {
    pause();
    return nothing;
}

int main(void) {
    unsigned char *memory = calloc(1, MEMORY);
    unsigned long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < MEMORY; at += 256) sum = sum * 31 + (memory[at] = (unsigned char)(memory[at] * round + at / 4096));
        for (int number = 0; number < THREADS / ROUNDS; number++) {
            pthread_attr_t attributes;
            pthread_t thread;
            void *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            pthread_attr_init(&attributes);
            if (pthread_attr_setstack(&attributes, stack, STACK) || pthread_create(&thread, &attributes, wait_on, 0)) return 1;
        }
        usleep(200000);
    }
    printf("%lu\n", sum);
    return 0;
}
