// As strace -f does it: executes itself, traces it from there, stops all its threads at every call, and reads what a write is made from.
// tracer calls|filter: "filter" also has a filter of calls that asks the tracer for some (strace --seccomp-bpf).
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "traced.h"

static int others;

// What is traced: writes its buffers to nowhere, at places that say which they are.
static int work(void) {
    int nowhere = open("/dev/null", O_WRONLY);
    begin();
    chill();
    for (int number = 0; number < BUFFERS; number++)
        check("pwrite", pwrite(nowhere, buffer(number), BUFFER, (off_t)number * BUFFER), BUFFER);
    end();
    return 0;
}

static void follow(pid_t child) {
    int status, seen = 0;
    pid_t stopped;
    while ((stopped = waitpid(-1, &status, __WALL)) > 0) {
        if (!WIFSTOPPED(status)) {
            if (stopped == child) printf("status %x, %d writes\n", status, seen);
            continue;
        }
        int signal = WSTOPSIG(status), is_call = signal == (SIGTRAP | 0x80);
        if (stopped != child && others++ == 0) puts("a thread that the program has not made");
        if (stopped == child && is_call) seen += look(child, stopped);
        // A new thread begins with this one; behind execve and clone there is another.
        int is_ours = is_call || signal == SIGTRAP || signal == SIGSTOP;
        ptrace(PTRACE_SYSCALL, stopped, 0, (void *)(long)(is_ours ? 0 : signal));
    }
}

// Without a tracer the kernel answers ENOSYS for these.
static void ask_the_tracer(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    check("PR_SET_NO_NEW_PRIVS", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    check("PR_SET_SECCOMP", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

int main(int count, char **words) {
    if (count < 2) return 2;
    if (strcmp(words[1], "traced") == 0) return work();
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        if (strcmp(words[1], "filter") == 0) ask_the_tracer();
        execl("/proc/self/exe", words[0], "traced", (char *)0);
        _exit(3);
    }
    int status;
    check("waitpid", waitpid(child, &status, 0), child);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
    check("PTRACE_SETOPTIONS", ptrace(PTRACE_SETOPTIONS, child, 0, options), 0);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    follow(child);
    return 0;
}
