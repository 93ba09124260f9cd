// Allows itself and its threads the calls that it makes and no other, on pain of death, and goes on: with memory that has been
// swapped out, threads, and every way to ask for more. strict all|one: by seccomp for all threads, or by prctl.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MEMORY = 48 << 20, PIECE = 4 << 20, PART = 256 << 10, ROUNDS = 12 };

// What this program and its libc call, memory apart: threads, the table of standard output, signals round a new thread.
static const int allowed[] = {
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_write, SYS_exit, SYS_exit_group, SYS_futex,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq,
};

static int confine(int are_all) {
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter filter[COUNT + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int at = 0; at < COUNT; at++)
        filter[1 + at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], COUNT - at, 0);
    filter[1 + COUNT] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[2 + COUNT] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {COUNT + 3, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
    if (are_all) return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

static void fill(uint64_t *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++) memory[at] = at % 8 ? key + at / 512 : (at + key) * 0x9e3779b97f4a7c15u;
}

static int differs(const uint64_t *memory, size_t bytes, uint64_t key) {
    for (size_t at = 0; at < bytes / 8; at++)
        if (memory[at] != (at % 8 ? key + at / 512 : (at + key) * 0x9e3779b97f4a7c15u)) return 1;
    return 0;
}

// In a heap of its own, which grows by mprotect.
static void *work(void *key) {
    uint64_t bad = 0, *pieces[64];
    for (int at = 0; at < 64; at++) fill(pieces[at] = malloc(64 << 10), 64 << 10, (uintptr_t)key + at);
    for (int at = 0; at < 64; at++) bad |= differs(pieces[at], 64 << 10, (uintptr_t)key + at), free(pieces[at]);
    return (void *)(uintptr_t)bad;
}

static int one_round(int round) {
    int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *mapped = mmap(0, PIECE, access, flags, -1, 0), *grown = sbrk(PIECE);
    if (mapped == MAP_FAILED || grown == (void *)-1) return 1;
    fill(mapped, PIECE, round), fill(grown, PIECE, round + 50);
    mapped = mremap(mapped, PIECE, 2 * PIECE, MREMAP_MAYMOVE);
    if (mapped == MAP_FAILED || differs(mapped, PIECE, round) || mapped[PIECE / 8 + 7]) return 2;
    if (mmap(mapped, PIECE, access, flags | MAP_FIXED, -1, 0) != mapped || mapped[9]) return 3;
    fill(mapped, PIECE, round + 70);
    if (mprotect(mapped, PIECE, PROT_READ) || differs(mapped, PIECE, round + 70) || mprotect(mapped, PIECE, access)) return 4;
    if (madvise(mapped, PIECE / 2, MADV_DONTNEED) || mapped[3] || differs(grown, PIECE, round + 50)) return 5;
    return munmap(mapped, 2 * PIECE) || sbrk(-PIECE) == (void *)-1 ? 6 : 0;
}

// Half of it has been swapped out, and half is new: one mapping to us, and several to the kernel where something knows of the first
// half only.
static int move_whole(uint64_t *old) {
    int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *second = (char *)old + PART;
    if (mmap(second, PART, access, flags, -1, 0) != second) return 1;
    second[5] = 7;
    char *moved = mremap(old, 2 * PART, 3 * PART, MREMAP_MAYMOVE);
    return moved == MAP_FAILED || moved[PART + 5] != 7 || differs((uint64_t *)moved, PART, 6);
}

static int work_together(void) {
    pthread_t threads[3];
    void *answer = 0;
    int bad = 0;
    for (uintptr_t at = 0; at < 3; at++)
        if (pthread_create(&threads[at], 0, work, (void *)(at * 1000))) return 8;
    for (int at = 0; at < 3; at++)
        if (pthread_join(threads[at], &answer) || answer) bad = 7;
    return bad;
}

int main(int count, char **words) {
    static char line[] = "equal\n", wrong[] = "differs 0\n";
    uint64_t *wholes[ROUNDS], *memory = malloc(MEMORY);
    for (int round = 0; round < ROUNDS; round++) {
        wholes[round] = mmap(0, 2 * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(wholes[round], PART, 6);
    }
    fill(memory, MEMORY, 5);
    usleep(100000);
    // The first of them have libc ask for more.
    if (work_together()) return 10;
    if (count < 2 || confine(!strcmp(words[1], "all"))) return 9;
    for (int round = 0; round < ROUNDS; round++) {
        int bad = one_round(round);
        if (!bad) bad = work_together();
        if (!bad && move_whole(wholes[round])) bad = 8;
        if (differs(memory, MEMORY, 5)) bad = 9;
        if (bad) return wrong[8] += bad, write(1, wrong, sizeof wrong - 1) != sizeof wrong - 1;
    }
    return write(1, line, sizeof line - 1) != sizeof line - 1;
}
