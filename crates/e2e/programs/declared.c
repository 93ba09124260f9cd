/* Fills an array that its file declares, 200 MiB, and reads it back. */
#include <stdio.h>

static unsigned char array[200 << 20];

int main(void) {
    unsigned long sum = 0;
    for (unsigned long at = 0; at < sizeof array; at += 64) array[at] = (unsigned char)(at / 4096);
    for (unsigned long at = 0; at < sizeof array; at += 64) sum = sum * 31 + array[at];
    printf("%lu\n", sum);
    return 0;
}
