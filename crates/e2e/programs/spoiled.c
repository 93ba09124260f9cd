// Noise in two parts. Only what is in the first one can be in the swap file before the second is filled, and so far down that file
// as the budget is passed by. Two children look, each at one part, then the parent at the second: says who found what it was.
//   spoiled child    one of the children looks at the first part
//   spoiled nobody   both look at the second
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 512, FIRST = 72 * 256, SECOND = 24 * 256 };

static uint64_t *memory;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

// Every page has a seed of its own.
static uint64_t seed(uint64_t page) { return page * 0x9e3779b97f4a7c15u + 1; }

static void fill(uint64_t page) {
    uint64_t state = seed(page);
    for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = next(&state);
}

static int is_equal(uint64_t from, uint64_t to) {
    for (uint64_t page = from; page < to; page++) {
        uint64_t state = seed(page);
        for (uint64_t at = 0; at < WORDS; at++)
            if (memory[page * WORDS + at] != next(&state)) return 0;
    }
    return 1;
}

static const char *look_in_a_child(uint64_t from, uint64_t to) {
    pid_t child = fork();
    if (child == 0) _exit(is_equal(from, to) ? 0 : 3);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return "lost";
    if (WIFSIGNALED(status)) return WTERMSIG(status) == 9 ? "killed" : "another signal";
    return status == 0 ? "equal" : "differs";
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    uint64_t all = FIRST + SECOND;
    memory = mmap(0, all * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    for (uint64_t page = 0; page < all; page++) fill(page);
    // What is on its way to the file arrives.
    usleep(500000);
    int touches = strcmp(arguments[1], "child") == 0;
    const char *sound = look_in_a_child(FIRST, all);
    const char *other = touches ? look_in_a_child(0, FIRST) : look_in_a_child(FIRST, all);
    printf("%s, %s, %s\n", sound, other, is_equal(FIRST, all) ? "equal" : "differs");
    return 0;
}
