/* Maps blocks and fills each at once, keeps them all, and reads them back. With a third word the kernel is to fill them first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int count, char **words) {
    size_t blocks = strtoul(words[1], 0, 10), bytes = strtoul(words[2], 0, 10) << 20;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (count > 3 ? MAP_POPULATE : 0);
    unsigned long sum = 0;
    unsigned char **block = malloc(blocks * sizeof *block);
    for (size_t i = 0; i < blocks; i++) {
        block[i] = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (block[i] == MAP_FAILED) return 1;
        for (size_t at = 0; at < bytes; at += 64) block[i][at] = (unsigned char)(i + at / 4096);
    }
    for (size_t i = 0; i < blocks; i++)
        for (size_t at = 0; at < bytes; at += 64) sum = sum * 31 + block[i][at];
    printf("%lu\n", sum);
    return 0;
}
