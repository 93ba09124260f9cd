// A debugger that holds one thread of another process for so many seconds, then lets it go. hold THREAD SECONDS
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    pid_t thread = atoi(words[1]);
    // Whoever has it already may let it go.
    for (int tries = 0; ptrace(PTRACE_SEIZE, thread, 0, 0); tries++)
        if (errno != EPERM || usleep(1000) || tries == 5000) return perror("PTRACE_SEIZE"), 1;
    if (ptrace(PTRACE_INTERRUPT, thread, 0, 0)) return perror("PTRACE_INTERRUPT"), 1;
    int status;
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) return perror("waitpid"), 1;
    sleep(atoi(words[2]));
    if (ptrace(PTRACE_DETACH, thread, 0, 0)) return perror("ptrace"), 1;
    return 0;
}
