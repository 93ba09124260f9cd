// A debugger: starts itself traced, by fork and by vfork as gdb does, with calls between PTRACE_TRACEME and exec, and with strings
// for that in cold memory. Prints what stops the new program before it ends, and how it ends.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "cold.h"

static char **arguments;

// In the child, which behind vfork has our memory.
static void be_traced_and_execute(int calls) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(2);
    // A debugger puts the signals back that it has changed for itself.
    for (int signal = 1; calls && signal < 32; signal++) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(signal, &action, 0);
    }
    execv(arguments[0], arguments);
    _exit(3);
}

static void follow(const char *what, pid_t child) {
    int status = 0, stops = 0;
    check("child", child > 0, 1);
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        if (stops++ < 8) printf("%s: stopped by %s\n", what, strsignal(signal));
        ptrace(PTRACE_CONT, child, 0, (void *)(long)(signal == SIGTRAP ? 0 : signal));
    }
    printf("%s: status %x\n", what, status);
}

static void make_cold(const char *path) {
    arguments = (char **)buffer(0);
    arguments[0] = strcpy((char *)buffer(1), path);
    arguments[1] = strcpy((char *)buffer(2), "traced");
    arguments[2] = 0;
    chill();
}

int main(int count, char **words) {
    if (count > 1) return 7;
    begin();
    for (int round = 0; round < 3; round++) {
        make_cold("/proc/self/exe");
        pid_t child = fork();
        if (child == 0) be_traced_and_execute(0);
        follow("fork", child);
        make_cold("/proc/self/exe");
        child = vfork();
        if (child == 0) be_traced_and_execute(1);
        follow("vfork", child);
    }
    for (int number = 3; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    return 0;
}
