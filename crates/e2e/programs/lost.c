// Fills memory with noise, and forks once a line comes. The child looks at all of it in a fork handler that was registered
// before any library's, while its parent's agent serves it. Says how the child has ended.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t *memory, pages;

static void say(const char *text, size_t length) {
    if (write(1, text, length) != (ssize_t)length) _exit(2);
}

static void look(void) {
    uint64_t sum = 0;
    for (uint64_t page = 0; page < pages; page++) sum += memory[page * WORDS];
    if (sum == 0) _exit(2);
}

static void begin(void) { pthread_atfork(0, 0, look); }

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = begin;

int main(int count, char **arguments) {
    if (count < 2) return 2;
    uint64_t all = strtoull(arguments[1], 0, 10) * 256, state = 88172645463325252u;
    memory = mmap(0, all * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t at = 0; at < all * WORDS; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memory[at] = state;
    }
    pages = all;
    char byte;
    int status;
    say("ready\n", 6);
    if (read(0, &byte, 1) != 1) return 2;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    if (WIFSIGNALED(status) && WTERMSIG(status) == 9) say("the child was killed\n", 21);
    else if (status == 0) say("the child has seen all\n", 23);
    _exit(0);
}
