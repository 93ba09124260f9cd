/* Processes of which each maps a piece of memory; once all have theirs each fills it at once, and reads it back some time later.
   Prints the sum. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *map(size_t bytes, int flags) {
    void *start = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    if (start == MAP_FAILED) exit(1);
    return start;
}

int main(int count, char **words) {
    unsigned long processes = strtoul(words[1], 0, 10), bytes = strtoul(words[2], 0, 10) << 20;
    atomic_ulong *mapped = map(4096, MAP_SHARED), *sums = mapped + 1;
    for (unsigned long number = 0; number < processes; number++) {
        if (fork()) continue;
        unsigned char *piece = map(bytes, MAP_PRIVATE);
        atomic_fetch_add(mapped, 1);
        while (atomic_load(mapped) < processes) usleep(100);
        unsigned long sum = 0;
        /* Nothing fills it faster. */
        madvise(piece, bytes, MADV_POPULATE_WRITE);
        for (size_t at = 0; at < bytes; at += 64) piece[at] = (unsigned char)(number + at / 4096);
        usleep(200000);
        for (size_t at = 0; at < bytes; at += 64) sum = sum * 31 + piece[at];
        atomic_fetch_add(sums, sum);
        return 0;
    }
    int status, failed = count != 3;
    while (wait(&status) > 0) failed |= status != 0;
    printf("%lu\n", atomic_load(sums));
    return failed;
}
