/* Maps many stacks, as runtimes do for fibers, and uses some pages of each: words[1] of them of words[2] MiB, with a guard page
   at the low end. Then reads all back, unmaps every second and maps it anew, and reads all back again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, USED = 8 * PAGE };

static unsigned char *map(size_t bytes) {
    unsigned char *stack = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE, PROT_NONE)) exit(1);
    return stack;
}

static unsigned long word(size_t number, size_t at) { return (number + 1) * 0x9e3779b97f4a7c15 + at * at; }

static void fill(unsigned char *top, size_t number) {
    for (size_t at = 0; at < USED; at += 8) {
        unsigned long value = word(number, at);
        memcpy(top - USED + at, &value, 8);
    }
}

static int is_filled(const unsigned char *top, size_t number) {
    for (size_t at = 0; at < USED; at += 8) {
        unsigned long value = word(number, at);
        if (memcmp(top - USED + at, &value, 8)) return 0;
    }
    return 1;
}

int main(int count, char **words) {
    if (count != 3) return 1;
    size_t stacks = strtoul(words[1], 0, 10), bytes = strtoul(words[2], 0, 10) << 20;
    unsigned char **all = malloc(stacks * sizeof *all);
    for (size_t number = 0; number < stacks; number++) fill((all[number] = map(bytes)) + bytes, number);
    for (int round = 0; round < 2; round++) {
        for (size_t number = 0; number < stacks; number++) {
            if (!is_filled(all[number] + bytes, number)) return printf("stack %zu is damaged\n", number), 1;
        }
        for (size_t number = round; number < stacks; number += 2) {
            munmap(all[number], bytes);
            unsigned char *top = (all[number] = map(bytes)) + bytes;
            for (size_t at = 0; at < USED; at++) {
                if (top[at - USED]) return printf("stack %zu is not new\n", number), 1;
            }
            fill(top, number);
        }
    }
    puts("equal");
    return 0;
}
