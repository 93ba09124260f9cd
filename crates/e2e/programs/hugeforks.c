// Forks with memory for huge pages, most of it out. khugepaged makes huge pages of small ones at times of its own and puts zeros
// where one is missing: each child looks whether what it has inherited is still there.
// Stderr says whether khugepaged has come by.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE_PAGE (2UL << 20)
#define BYTES (64UL << 20)
#define PAGES (BYTES / PAGE)
#define CHILDREN 60

static char *aligned(size_t bytes, int flags) {
    char *memory = mmap(0, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    return (char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
}

static uint64_t *first_word(char *memory, size_t page) { return (uint64_t *)(memory + page * PAGE); }

// Half of each page compresses.
static void fill(char *memory) {
    uint64_t state = 88172645463325252;
    for (size_t page = 0; page < PAGES; page++) {
        *first_word(memory, page) = page + 1;
        for (size_t word = 1; word < PAGE / 16; word++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            first_word(memory, page)[word] = state;
        }
    }
}

static int sees_all(char *memory) {
    int wrong = 0;
    for (size_t look = 0; look < PAGES / 32; look++) {
        size_t page = look * 32 + rand() % 32;
        wrong += *first_word(memory, page) != page + 1;
    }
    return wrong == 0;
}

int main(void) {
    char *memory = aligned(BYTES, 0), *stack = aligned(HUGE_PAGE, MAP_STACK);
    madvise(memory, BYTES, MADV_HUGEPAGE);
    fill(memory);
    // Nobody manages a stack: khugepaged completes it as in any program.
    stack[0] = 1;
    madvise(stack, HUGE_PAGE, MADV_HUGEPAGE);
    int wrong = 0;
    for (int child = 0; child < CHILDREN; child++) {
        for (int touched = 0; touched < 64; touched++) memory[rand() % PAGES * PAGE + PAGE - 8] = 1;
        pid_t pid = fork();
        if (pid == 0) _exit(!sees_all(memory));
        int status = 1;
        waitpid(pid, &status, 0);
        wrong += status != 0;
    }
    printf("%d of %d children found something else\n", wrong, CHILDREN);
    unsigned char present = 0;
    mincore(stack + HUGE_PAGE / 2, PAGE, &present);
    fprintf(stderr, "khugepaged has %scome by\n", present & 1 ? "" : "not ");
    return wrong != 0;
}
