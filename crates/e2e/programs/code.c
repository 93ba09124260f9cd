// Writes a function into each page of so many MiB of memory that is writable and executable, between as much data, and
// calls all of them; a part is made read-only in between, and a child looks, too. code MIB ROUNDS
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void write_function(char *at, uint32_t value) {
#if defined(__x86_64__)
    const unsigned char code[6] = {0xb8, value, value >> 8, value >> 16, value >> 24, 0xc3};  // mov eax, value; ret
    memcpy(at, code, sizeof code);
#elif defined(__aarch64__)
    const uint32_t code[3] = {0x52800000 | (value & 0xffff) << 5, 0x72a00000 | value >> 16 << 5, 0xd65f03c0};
    memcpy(at, code, sizeof code);
    __builtin___clear_cache(at, at + sizeof code);
#endif
}

static int check(char *code, char *data, size_t pages, uint32_t round) {
    for (size_t page = 0; page < pages; page++) {
        uint32_t wanted = (uint32_t)page * 2654435761u + round;
        uint32_t (*function)(void) = (uint32_t (*)(void))(code + page * PAGE + page % 64 * 16);
        uint32_t called = function(), read;
        memcpy(&read, data + page * PAGE, sizeof read);
        if (called != wanted || read != wanted) return printf("page %zu: %u %u, not %u\n", page, called, read, wanted), 1;
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t bytes = (size_t)atoi(words[1]) << 20, pages = bytes / PAGE;
    char *code = mmap(0, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *data = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || data == MAP_FAILED) return perror("mmap"), 1;
    for (int round = 0; round < atoi(words[2]); round++) {
        for (size_t page = 0; page < pages; page++) {
            uint32_t value = (uint32_t)page * 2654435761u + (uint32_t)round;
            write_function(code + page * PAGE + page % 64 * 16, value);
            memcpy(data + page * PAGE, &value, sizeof value);
        }
        if (check(code, data, pages, round)) return 1;
        if (mprotect(code, bytes / 2, PROT_READ | PROT_EXEC)) return perror("mprotect"), 1;
        if (check(code, data, pages, round)) return 1;
        pid_t child = fork();
        if (child == 0) _exit(check(code, data, pages, round));
        int status;
        if (waitpid(child, &status, 0) != child || status) return printf("the child's status is %x\n", status), 1;
        if (mprotect(code, bytes / 2, PROT_READ | PROT_WRITE | PROT_EXEC)) return perror("mprotect"), 1;
    }
    puts("equal");
    return 0;
}
