// A process attaches to all threads of another that has run for a while, whose system calls miss pages all the time.
// attaching calls: as strace -f -p does it: stops the threads at every call, and reads what a write is made from.
// attaching debugger: as gdb 13 does it: tries every thread again until all are its own, waits until each has stopped, and goes again; three times.
// attaching stops: the same, and then lets them run and stops them again, many times, before it leaves.
// attaching first: as "calls", before there is any memory to reclaim.
// attaching once: as lldb does it: tries every thread once.
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "traced.h"

enum { WRITERS = 3, THREADS_MAX = 64, READS = 2000, ROUNDS = 3, STOPS = 60 };
// Shared with the process that is attached to.
static volatile struct { int is_ready, is_awaited, is_enough; } *both;
static pid_t threads[THREADS_MAX];
static int count, refused;

static void *write_on(void *from) {
    int file = memfd_create("written", 0);
    for (int number = (int)(intptr_t)from; !both->is_enough; number = (number + 7) % BUFFERS)
        check("pwrite", pwrite(file, buffer(number), BUFFER, (off_t)number * BUFFER), BUFFER);
    return 0;
}

// What is attached to.
static int work(void) {
    pthread_t writers[WRITERS], presser;
    while (both->is_awaited) usleep(1000);
    begin();
    chill();
    for (int number = 0; number < WRITERS; number++)
        pthread_create(&writers[number], 0, write_on, (void *)(intptr_t)number);
    pthread_create(&presser, 0, press_on, 0);
    both->is_ready = 1;
    for (int number = 0; number < WRITERS; number++) pthread_join(writers[number], 0);
    is_over = 1;
    pthread_join(presser, 0);
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    return 0;
}

static int is_ours(pid_t thread) {
    for (int at = 0; at < count; at++)
        if (threads[at] == thread) return 1;
    return 0;
}

// One look at the threads of a process: how many were there that are not ours, whether we could take them or not.
static int take_threads(pid_t process, long how, long options) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    int seen = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        pid_t thread = atoi(task->d_name);
        if (thread == 0 || is_ours(thread)) continue;
        seen++;
        if (ptrace(how, thread, 0, options) == 0) threads[count++] = thread;
        else refused++;
    }
    closedir(tasks);
    return seen;
}

static void wait_until_stopped(pid_t thread) {
    int status;
    check("waitpid", waitpid(thread, &status, __WALL), thread);
    check("stopped", WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, 1);
}

// Threads that have ended are not ours any more.
static void stop_all_again(pid_t process) {
    for (int at = 0; at < count; at++) syscall(SYS_tgkill, process, threads[at], SIGSTOP);
    for (int at = 0; at < count; at++) {
        int status;
        check("waitpid", waitpid(threads[at], &status, __WALL), threads[at]);
        if (!WIFSTOPPED(status)) threads[at--] = threads[--count];
    }
}

static void let_all_go_on(void) {
    for (int at = 0; at < count; at++) check("PTRACE_CONT", ptrace(PTRACE_CONT, threads[at], 0, 0), 0);
}

static void debug(pid_t process, int stops) {
    check("PTRACE_ATTACH", ptrace(PTRACE_ATTACH, process, 0, 0), 0);
    threads[0] = process, count = 1;
    wait_until_stopped(process);
    for (int passes = 0; passes < 2; passes++)
        if (take_threads(process, PTRACE_ATTACH, 0)) passes = -1;
    for (int at = 1; at < count; at++) wait_until_stopped(threads[at]);
    while (stops-- > 0) let_all_go_on(), usleep(10000), stop_all_again(process);
    for (int at = 0; at < count; at++) check("PTRACE_DETACH", ptrace(PTRACE_DETACH, threads[at], 0, 0), 0);
}

static void follow_calls(pid_t process) {
    int status, seen = 0;
    take_threads(process, PTRACE_SEIZE, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE);
    both->is_awaited = 0;
    for (int at = 0; at < count; at++) ptrace(PTRACE_INTERRUPT, threads[at], 0, 0);
    for (pid_t stopped; (stopped = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) continue;
        if ((seen += look(process, stopped)) >= READS) both->is_enough = 1;
        ptrace(PTRACE_SYSCALL, stopped, 0, 0);
    }
    check("enough writes", seen >= READS, 1);
}

int main(int words, char **word) {
    if (words < 2) return 2;
    both = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int is_once = strcmp(word[1], "once") == 0, is_first = strcmp(word[1], "first") == 0;
    both->is_awaited = is_first;
    pid_t process = fork();
    if (process == 0) return work();
    while (!is_first && !both->is_ready) usleep(1000);
    usleep(is_first ? 100000 : 1500000);
    if (is_first || strcmp(word[1], "calls") == 0) {
        follow_calls(process);
    } else {
        int stops = strcmp(word[1], "stops") == 0 ? STOPS : 0;
        for (int round = 0; round < ROUNDS && !is_once; round++) debug(process, stops), usleep(300000);
        if (is_once) take_threads(process, PTRACE_SEIZE, 0);
        both->is_enough = 1;
        // The threads that are ours end for us first.
        int status, ended;
        while ((ended = waitpid(-1, &status, __WALL)) > 0)
            if (ended == process) check("its status", status, 0);
    }
    fprintf(stderr, "%d threads were refused\n", refused);
    puts("done");
    return 0;
}
