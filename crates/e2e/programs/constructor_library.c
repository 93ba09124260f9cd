/* A library that maps memory for its program, and starts a thread, before the program's own code runs. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 64 << 20 };
unsigned char *arena;
static int lines[2];

/* Answers each byte. */
static void *answer(void *nothing) {
    char byte;
    while (read(lines[0], &byte, 1) == 1) arena[BYTES - 1] += byte;
    return nothing;
}

int ask(char byte) {
    unsigned char before = arena[BYTES - 1];
    if (write(lines[1], &byte, 1) != 1) return 1;
    while (*(volatile unsigned char *)&arena[BYTES - 1] == before) usleep(1000);
    return 0;
}

__attribute__((constructor)) static void construct(void) {
    pthread_t thread;
    arena = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED || pipe(lines) || pthread_create(&thread, 0, answer, 0)) abort();
}
