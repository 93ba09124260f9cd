// A parent, two children and a grandchild that go on together: each rewrites pages of what it inherited, at random, and looks at
// all of its own, until the time is over and each has done it a few times. Every word says whose page it is, which, and how
// often it was written. longfork MIB SECONDS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, PROCESSES = 4, ROUNDS_MIN = 3, PATIENCE = 60 };

// Who wrote a page last, and how often that one had written until then.
struct origin {
    uint32_t process, generation;
};

// What all of them share: how many rounds each has done since all were there, and who has found something wrong.
static struct {
    volatile uint32_t begun, failed, rounds[PROCESSES];
} *common;

static uint64_t *memory, pages, state;
static struct origin *origins;
static uint32_t self, generation;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

// A third of the pages are noise, the others fold well.
static uint64_t word(struct origin origin, uint64_t page, uint64_t at) {
    uint64_t x = ((uint64_t)origin.process << 32 | origin.generation) * 0xd6e8feb86659fd93u + page * 0x9e3779b97f4a7c15u;
    if (page % 3 == 0) x += at * 0x94d049bb133111ebu;
    x ^= x >> 31, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 29;
    return page % 3 ? x + at % 4 : x;
}

static void rewrite(uint64_t page) {
    struct origin origin = {self, ++generation};
    for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = word(origin, page, at);
    origins[page] = origin;
}

static void check(uint64_t page) {
    struct origin origin = origins[page];
    for (uint64_t at = 0; at < WORDS; at++) {
        uint64_t found = memory[page * WORDS + at], expected = word(origin, page, at);
        if (found == expected) continue;
        printf("process %u, generation %u: word %llu of page %llu, by %u in %u, is %llx, not %llx\n", self, generation,
               (unsigned long long)at, (unsigned long long)page, origin.process, origin.generation,
               (unsigned long long)found, (unsigned long long)expected);
        fflush(stdout);
        common->failed = 1;
        _exit(3);
    }
}

static void round_over_all(void) {
    for (uint64_t count = pages / 8; count > 0; count--) rewrite(draw(pages));
    uint64_t first = draw(pages);
    for (uint64_t page = 0; page < pages; page++) check((first + page) % pages);
}

// A child that goes on by itself from here: 0 in the child.
static pid_t branch(uint32_t process) {
    pid_t child = fork();
    if (child < 0) perror("fork"), _exit(2);
    if (child == 0) self = process, state += process * 0x9e3779b97f4a7c15u;
    return child;
}

static uint32_t slowest(void) {
    uint32_t least = common->rounds[0];
    for (int process = 1; process < PROCESSES; process++)
        if (common->rounds[process] < least) least = common->rounds[process];
    return least;
}

// Until the time is over and nobody is behind.
static void go_on(double end) {
    __atomic_add_fetch(&common->begun, 1, __ATOMIC_SEQ_CST);
    while (!common->failed && (now() < end || slowest() < ROUNDS_MIN)) {
        if (now() > end + PATIENCE) {
            printf("process %u: somebody is behind\n", self);
            fflush(stdout);
            _exit(5);
        }
        round_over_all();
        common->rounds[self] += common->begun == PROCESSES;
    }
}

static int ended_well(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) == child && status == 0) return 1;
    printf("process %u: a child ended with %#x\n", self, status);
    fflush(stdout);
    return 0;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    pages = strtoull(arguments[1], 0, 10) * 256, state = 88172645463325252u;
    double end = now() + strtod(arguments[2], 0);
    size_t bytes = pages * WORDS * sizeof *memory;
    common = mmap(0, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    origins = calloc(pages, sizeof *origins);
    if (common == MAP_FAILED || memory == MAP_FAILED || !origins) return 2;
    for (uint64_t page = 0; page < pages; page++) rewrite(page);
    pid_t first = branch(1), second = 0, third = 0;
    if (first) {
        round_over_all();
        second = branch(2);
        if (second == 0) round_over_all(), third = branch(3);
    }
    go_on(end);
    if (first == 0 || (second == 0 && third == 0)) _exit(0);
    if (second == 0) _exit(ended_well(third) ? 0 : 4);
    if (!ended_well(first) || !ended_well(second)) return 4;
    printf("%d processes over %llu pages each\n", PROCESSES, (unsigned long long)pages);
    return 0;
}
