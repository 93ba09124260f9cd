// 60 MiB in the program's own zero-filled data: filled, summed twice, and kept for longer than who runs beside the budget is not
// told of.
#include <stdio.h>
#include <unistd.h>

enum { COUNT = 60 << 20, STEP = 64 };
static unsigned char all[COUNT];

int main(void) {
    unsigned long sum = 0;
    for (unsigned long at = 0; at < COUNT; at += STEP) all[at] = at / STEP * 7919 + at / 4096;
    usleep(700000);
    for (int round = 0; round < 2; round++)
        for (unsigned long at = 0; at < COUNT; at += STEP) sum = sum * 31 + all[at];
    printf("%lu\n", sum);
    return 0;
}
