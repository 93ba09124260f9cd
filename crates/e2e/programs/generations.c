/* Thousands of threads one after the other, that end in each way, beside memory that is used again and again. Prints its sum. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 10000, MEMORY = 40 << 20, STRIDE = 1000 };

static int started[2], ended[2];

static void tell(int pipe) {
    if (write(pipe, "x", 1) != 1) abort();
}

static void await(int pipe) {
    char byte;
    if (read(pipe, &byte, 1) != 1) abort();
}

static void *return_at_once(void *memory) { return memory; }

static void *exit_detached(void *memory) {
    tell(ended[1]);
    pthread_exit(memory);
}

static void *wait_to_be_cancelled(void *memory) {
    tell(started[1]);
    for (;;) pause();
    return memory;
}

int main(void) {
    unsigned char *memory = calloc(1, MEMORY);
    unsigned long sum = 0;
    if (pipe(started) || pipe(ended)) return 1;
    for (int number = 0; number < THREADS; number++) {
        void *(*const ways[])(void *) = {return_at_once, exit_detached, wait_to_be_cancelled};
        pthread_t thread;
        if (pthread_create(&thread, 0, ways[number % 3], memory)) return 2;
        if (number % 3 == 1) pthread_detach(thread), await(ended[0]);
        if (number % 3 == 2) await(started[0]), pthread_cancel(thread);
        if (number % 3 != 1 && pthread_join(thread, 0)) return 3;
        if (number % STRIDE == 0)
            for (size_t at = 0; at < MEMORY; at += 256) sum = sum * 31 + (memory[at] = (unsigned char)(memory[at] * number + at / 4096));
    }
    printf("%lu\n", sum);
    return 0;
}
