/* A worker that allows itself to read, to write and to end, and nothing else, before it looks at memory that has been swapped out. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 64 << 20 };

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// By prctl; by seccomp, for all threads; and by prctl once more in a filter of a call more.
enum { BY_PRCTL, FOR_ALL, TWICE, WAYS };

static int enter_sandbox(int way) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(way == TWICE ? SYS_prctl : SYS_read),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
    if (way == FOR_ALL) return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
    for (int times = way == TWICE ? 2 : 1; times > 0; times--)
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    return 0;
}

static void work(const uint64_t *memory, int way) {
    uint64_t sum = 0;
    char line[32] = {0};
    if (enter_sandbox(way)) _exit(2);
    for (size_t at = 0; at < MEMORY / 8; at++) sum = sum * 31 + memory[at];
    for (size_t digit = 16; digit-- > 0; sum /= 16) line[digit] = "0123456789abcdef"[sum % 16];
    line[16] = '\n';
    if (write(1, line, 17) != 17) _exit(3);
    _exit(7);
}

int main(void) {
    uint64_t *memory = malloc(MEMORY);
    for (size_t at = 0; at < MEMORY / 8; at++) memory[at] = at % 16 ? at / 512 : at * 0x9e3779b97f4a7c15u;
    for (int workers = 0; workers < WAYS; workers++) {
        int status = -1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) work(memory, workers);
        waitpid(child, &status, 0);
        printf("status %x\n", status);
    }
    return 0;
}
