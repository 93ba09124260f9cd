// So many processes with so many KiB each: each fills its memory, then touches a page here and there for some seconds, half of the
// time not at all, or without a pause. Prints one sum. herd PROCESSES KIB ROUNDS [busy]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t live(size_t pages, uint64_t number, long rounds, int busy) {
  volatile uint64_t *words = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) _exit(1);
  // Words that are near to each other, as pointers and counts are.
  for (size_t at = 0; at < pages * 512; at++) words[at] = number << 32 | at * (at & 7);
  uint64_t sum = 0, random = number;
  for (long round = 0; round < rounds; round++) {
    for (int times = 0; times < 40; times++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      sum += words[(random >> 33) % (pages * 512)];
    }
    if (!busy && round % 20 < 10) usleep(2000);
  }
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  long processes = atol(argv[1]), rounds = atol(argv[3]);
  int ends[2];
  if (pipe(ends)) return 1;
  for (long number = 1; number <= processes; number++) {
    if (fork()) continue;
    uint64_t sum = live(strtoul(argv[2], NULL, 10) / 4, (uint64_t)number, rounds, argc > 4);
    _exit(write(ends[1], &sum, sizeof sum) != sizeof sum);
  }
  close(ends[1]);
  uint64_t all = 0, sum;
  while (read(ends[0], &sum, sizeof sum) == sizeof sum) all += sum;
  while (wait(NULL) > 0) {}
  printf("%llu\n", (unsigned long long)all);
  return 0;
}
