// One process fills memory and then only waits; its child works all over its own, so many times. Prints what both find.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t *filled(size_t pages) {
  volatile uint64_t *words = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) exit(1);
  for (size_t page = 0; page < pages; page++) words[page * 512] = page + 1;
  return words;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  size_t held = strtoul(argv[1], NULL, 10), worked_on = strtoul(argv[2], NULL, 10), times = strtoul(argv[3], NULL, 10);
  volatile uint64_t *words = filled(held);
  pid_t child = fork();
  if (child < 0) return 1;
  uint64_t sum = 0;
  if (child == 0) {
    words = filled(worked_on);
    for (uint64_t at = 1; times > 0; times--) {
      at = at * 6364136223846793005u + 1442695040888963407u;
      sum += words[(at >> 33) % worked_on * 512];
    }
  } else {
    waitpid(child, NULL, 0);
    for (size_t page = 0; page < held; page++) sum += words[page * 512];
  }
  printf("%llu\n", (unsigned long long)sum);
  return 0;
}
