// Writes the first word of each page of a mapping, in order, then reads them so, twice. Prints where the mapping is.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
  (void)argc;
  size_t pages = strtoul(argv[1], NULL, 10);
  volatile uint64_t *words = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) return 1;
  for (size_t page = 0; page < pages; page++) words[page * 512] = page * 0x9e3779b97f4a7c15;
  uint64_t sum = 0;
  for (int pass = 0; pass < 2; pass++)
    for (size_t page = 0; page < pages; page++) sum += words[page * 512];
  printf("%zu %zu\n", (size_t)words / 4096, (size_t)(sum & 0xff));
  return 0;
}
