// Fills memory with noise, and forks once a line comes. The child looks at all of it in a fork handler that was registered
// before the agent's (lost_first.c), while its parent's agent serves it. Says how the child has ended.
//   lost MIB          it looks at all of it
//   lost MIB change   it moves a third, discards another and unmaps a part of the last, and looks for what must be where then
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t *memory, *first, pages, changes;

static void say(const char *text, size_t length) {
    if (write(1, text, length) != (ssize_t)length) _exit(2);
}

// Every page begins with a word of its own.
static uint64_t word(uint64_t page) { return page * 0x9e3779b97f4a7c15u + 1; }

static void expect(const uint64_t *at, uint64_t count, uint64_t from, int is_zero) {
    for (uint64_t page = 0; page < count; page++)
        if (at[page * WORDS] != (is_zero ? 0 : word(from + page))) _exit(3);
}

static void change(void) {
    uint64_t third = pages / 3, bytes = third * 4096;
    uint64_t *gone = memory + third * WORDS, *last = memory + 2 * third * WORDS;
    void *place = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    first = mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    if (first == MAP_FAILED || madvise(gone, bytes, MADV_DONTNEED) != 0) _exit(2);
    uint64_t half = third / 2;
    if (munmap(last + half * WORDS, (pages - 2 * third - half) * 4096) != 0) _exit(2);
    expect(first, third / 2, 0, 0);
    expect(gone, third / 2, 0, 1);
    expect(last, half, 2 * third, 0);
}

// What has not been looked at before its agent was there.
static void look_again(void) {
    uint64_t third = pages / 3;
    expect(first, third, 0, 0);
    expect(memory + third * WORDS, third, 0, 1);
    expect(memory + 2 * third * WORDS, third / 2, 2 * third, 0);
}

static void look(void) {
    if (changes) return change();
    uint64_t sum = 0;
    for (uint64_t page = 0; page < pages; page++) sum += memory[page * WORDS];
    if (sum == 0) _exit(2);
}

void begin(void) { pthread_atfork(0, 0, look); }

int main(int count, char **arguments) {
    if (count < 2) return 2;
    uint64_t all = strtoull(arguments[1], 0, 10) * 256, state = 88172645463325252u;
    memory = mmap(0, all * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t at = 0; at < all * WORDS; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memory[at] = at % WORDS ? state : word(at / WORDS);
    }
    changes = count > 2;
    pages = all;
    char byte;
    int status;
    say("ready\n", 6);
    if (read(0, &byte, 1) != 1) return 2;
    pid_t child = fork();
    if (child == 0) {
        if (changes) look_again();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    if (WIFSIGNALED(status) && WTERMSIG(status) == 9) say("the child was killed\n", 21);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 3) say("the child has seen something else\n", 34);
    else if (status == 0) say("the child has seen all\n", 23);
    _exit(0);
}
