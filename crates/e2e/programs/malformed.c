/* Calls that the kernel refuses for what they name, of all there is, while threads are there. Memory between their stacks is used again and
   again behind that. Prints what was refused, and a sum. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY = 64 << 20, ROUNDS = 8 };

static void *wait_on(void *nothing) {
    pause();
    return nothing;
}

static void start_two(void) {
    pthread_t thread;
    pthread_create(&thread, 0, wait_on, 0), pthread_create(&thread, 0, wait_on, 0);
}

static void say(const char *what, int has_failed) { printf("%s: %s\n", what, has_failed ? strerror(errno) : "done"); }

int main(void) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    const size_t all = ~0UL, page = 4096;
    start_two();
    unsigned char *memory = mmap(0, MEMORY, protection, flags, -1, 0);
    unsigned long sum = 0;
    start_two();
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 1) {
            say("munmap of everything", munmap(0, all));
            say("munmap of half", munmap(0, 1UL << 63));
            say("munmap of nothing", munmap(memory, 0));
            say("munmap within a page", munmap(memory + 1, page));
            say("mmap over everything", mmap(0, all - page, protection, flags | MAP_FIXED, -1, 0) == MAP_FAILED);
            say("mmap within a page", mmap(memory + 1, MEMORY, protection, flags | MAP_FIXED, -1, 0) == MAP_FAILED);
            say("stack over everything", mmap(0, all - page, protection, flags | MAP_FIXED | MAP_STACK, -1, 0) == MAP_FAILED);
            say("mremap to nowhere", mremap(memory, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, all - page + 1) == MAP_FAILED);
        }
        for (size_t at = 0; at < MEMORY; at += 256) sum = sum * 31 + (memory[at] = (unsigned char)(memory[at] * round + at / 4096));
    }
    printf("%lu\n", sum);
    return 0;
}
