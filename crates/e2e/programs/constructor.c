/* Uses the memory and the thread of constructor_library.c. Prints a sum. */
#include <stdio.h>

enum { BYTES = 64 << 20 };
extern unsigned char *arena;
int ask(char byte);

int main(void) {
    unsigned long sum = 0;
    for (int round = 0; round < 5; round++) {
        for (size_t at = 0; at < BYTES; at += 256) sum = sum * 31 + (arena[at] = (unsigned char)(arena[at] * round + at / 4096));
        if (ask(3)) return 1;
    }
    printf("%lu %d\n", sum, arena[BYTES - 1]);
    return 0;
}
