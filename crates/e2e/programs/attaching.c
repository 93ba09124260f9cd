// A process attaches to all threads of another that has run for a while, whose system calls miss pages all the time.
// attaching calls: as strace -f -p does it: stops the threads at every call, and reads what a write is made from.
// attaching debugger: as gdb 13 does it: tries every thread again until all are its own, waits until each has stopped, and goes again; three times.
// attaching stops: the same, and then lets them run and stops them again, many times, before it leaves.
// attaching soon [DIRECTORY ROUNDS]: the same, but stops them again at once, or next to it.
// attaching forks: as "soon"; one thread of the program forks all the time.
// attaching filtered: the same; all threads of the program have a filter of system calls, which ends who makes a process.
// attaching executes, ends, killed: as "stops"; the program executes another, ends or is killed while it is debugged.
// attaching abandoned: as "ends"; if somebody goes on for threads of it, one of those is killed instead.
// attaching first: as "calls", before there is any memory to reclaim.
// attaching left: as "calls", when who has started it has ended, and `pleat run` with him.
// attaching late: the same, and only then there is memory to reclaim.
// attaching lost: as "left", when `pleat run` has been killed.
// attaching once: as lldb does it: tries every thread once, stops it, and leaves; and comes again.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "traced.h"

enum { WRITERS = 3, READS = 2000, ROUNDS = 3, STOPS = 60 };
// Shared with the process that is attached to.
static volatile struct { int is_ready, is_awaited, is_enough, is_to_leave; } *both;
static int most_stand_ins;
static const char *how;

static int is(const char *name) { return strcmp(how, name) == 0; }

static void *write_on(void *from) {
    int file = memfd_create("written", 0);
    for (int number = (int)(intptr_t)from; !both->is_enough; number = (number + 7) % BUFFERS)
        check("pwrite", pwrite(file, buffer(number), BUFFER, (off_t)number * BUFFER), BUFFER);
    return 0;
}

static void *fork_on(void *unused) {
    for (int number = 0; !both->is_enough; number = (number + 3) % BUFFERS) {
        pid_t child = fork();
        if (child == 0) expect("a child's", buffer(number), BUFFER, number), _exit(0);
        int status;
        check("waitpid", waitpid(child, &status, 0), child), check("a child's status", status, 0);
    }
    return unused;
}

static void *leave(void *unused) {
    while (!both->is_to_leave) usleep(1000);
    if (!is("executes")) exit(0);
    execl("/bin/true", "true", (char *)0);
    return unused;
}

static void make_no_processes(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    check("PR_SET_NO_NEW_PRIVS", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    check("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

// What is attached to.
static int work(void) {
    pthread_t writers[WRITERS], presser, other;
    while (both->is_awaited) usleep(1000);
    begin();
    chill();
    for (int number = 0; number < WRITERS; number++)
        pthread_create(&writers[number], 0, write_on, (void *)(intptr_t)number);
    pthread_create(&presser, 0, press_on, 0);
    if (is("filtered")) make_no_processes();
    if (is("forks")) pthread_create(&other, 0, fork_on, 0);
    if (is("executes") || is("ends") || is("abandoned")) pthread_create(&other, 0, leave, 0);
    both->is_ready = 1;
    for (int number = 0; number < WRITERS; number++) pthread_join(writers[number], 0);
    if (is("forks")) pthread_join(other, 0);
    is_over = 1;
    pthread_join(presser, 0);
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    return 0;
}

// The processes that a process has made: how many, and one of them.
static int stand_ins(pid_t process, pid_t *one) {
    char path[64], task[280];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    int seen = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        snprintf(task, sizeof task, "%s/%s/children", path, entry->d_name);
        FILE *children = fopen(task, "r");
        for (int child; children && fscanf(children, "%d", &child) == 1; seen++) *one = child;
        if (children) fclose(children);
    }
    if (tasks) closedir(tasks);
    return seen;
}

// Says whether it has stopped, and not ended. Other signals that come first are not of interest to it.
static int wait_until_stopped(pid_t thread) {
    int status;
    while (1) {
        check("waitpid", waitpid(thread, &status, __WALL), thread);
        if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP) return WIFSTOPPED(status);
        ptrace(PTRACE_CONT, thread, 0, 0);
    }
}

// Threads that have ended are not ours any more.
static void stop_all_again(pid_t process) {
    for (int at = 0; at < count; at++) syscall(SYS_tgkill, process, threads[at], SIGSTOP);
    for (int at = 0; at < count; at++)
        if (!wait_until_stopped(threads[at])) threads[at--] = threads[--count];
}

static void let_all_go_on(void) {
    for (int at = 0; at < count; at++) check("PTRACE_CONT", ptrace(PTRACE_CONT, threads[at], 0, 0), 0);
}

static void debug(pid_t process, int stops, int pause, int is_to_end) {
    check("PTRACE_ATTACH", ptrace(PTRACE_ATTACH, process, 0, 0), 0);
    threads[0] = process, count = 1;
    check("stopped", wait_until_stopped(process), 1);
    for (int passes = 0; passes < 2; passes++)
        if (take_threads(process, PTRACE_ATTACH, 0)) passes = -1;
    for (int at = 1; at < count; at++) check("stopped", wait_until_stopped(threads[at]), 1);
    pid_t one;
    int seen = stand_ins(process, &one);
    if (seen > most_stand_ins) most_stand_ins = seen;
    while (stops-- > 0) {
        let_all_go_on();
        if (pause) usleep(pause);
        stop_all_again(process);
    }
    if (is_to_end) return;
    for (int at = 0; at < count; at++) check("PTRACE_DETACH", ptrace(PTRACE_DETACH, threads[at], 0, 0), 0);
}

static void come_and_leave(pid_t process) {
    int status;
    count = 0;
    take_threads(process, PTRACE_SEIZE, 0);
    for (int at = 0; at < count; at++) {
        ptrace(PTRACE_INTERRUPT, threads[at], 0, 0);
        check("waitpid", waitpid(threads[at], &status, __WALL), threads[at]);
        // One that goes on as another has ended.
        if (WIFSTOPPED(status)) check("PTRACE_DETACH", ptrace(PTRACE_DETACH, threads[at], 0, 0), 0);
    }
}

// What is stopped by us is killed, or goes on and leaves.
static void end_it(pid_t process) {
    pid_t one;
    int is_killed = is("killed");
    if (is("abandoned") && stand_ins(process, &one)) kill(one, SIGKILL), is_killed = 1;
    else both->is_to_leave = 1;
    if (is("killed")) check("kill", kill(process, SIGKILL), 0);
    for (int at = 0; at < count && !is("killed"); at++) ptrace(PTRACE_CONT, threads[at], 0, 0);
    int status;
    for (pid_t stopped; (stopped = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFSTOPPED(status)) ptrace(PTRACE_CONT, stopped, 0, 0);
        else if (stopped == process) check("its status", status, is_killed ? SIGKILL : 0);
    }
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

// We go on when who waits for us has ended, `pleat run` with him, and what that brings about is over: at the latest after five seconds.
// Says how many processes go on for threads of the process then.
static int outlive_the_run(pid_t process) {
    const char *run = getenv("PLEAT_LEDGER");
    pid_t started_us = getpid();
    int seen = -1;
    if (is("lost")) {
        if (run) check("kill", kill(atoi(run + strlen("/proc/")), SIGKILL), 0);
    } else if (fork() != 0) {
        while (!both->is_ready && !is("late")) usleep(1000);
        exit(0);
    }
    while (!is("lost") && getppid() == started_us) usleep(1000);
    usleep(is("late") ? 2000000 : 700000);
    both->is_awaited = 0;
    while (!both->is_ready) usleep(1000);
    for (int wait = 0; wait < 100 && seen != 0; wait++) seen = stand_ins(process, &(pid_t){0}), usleep(50000);
    return seen;
}

int main(int words, char **word) {
    if (words < 2) return 2;
    how = word[1];
    both = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int is_once = is("once"), is_first = is("first"), is_late = is("late");
    both->is_awaited = is_first || is_late;
    pid_t process = fork();
    if (process == 0) return work();
    while (!is_first && !is_late && !both->is_ready) usleep(1000);
    usleep(is_first ? 100000 : 300000);
    int is_outliving = is("left") || is_late || is("lost"), seen = is_outliving ? outlive_the_run(process) : 0;
    if (is_first || is_outliving || is("calls")) {
        follow_calls(process);
    } else {
        int is_soon = is("soon") || is("forks") || is("filtered");
        int is_to_end = is("executes") || is("ends") || is("killed") || is("abandoned");
        int stops = is("debugger") || is_once ? 0 : STOPS;
        int rounds = is_to_end ? 1 : words > 3 ? atoi(word[3]) : ROUNDS;
        for (int round = 0; round < rounds && !is_once; round++)
            debug(process, stops, is_soon ? round % 5 * 50 : 10000, is_to_end), usleep(300000);
        if (is_to_end) end_it(process);
        for (int time = 0; time < 2 && is_once; time++) come_and_leave(process), usleep(800000);
        both->is_enough = 1;
        // The threads that are ours end for us first.
        int status, ended;
        while ((ended = waitpid(-1, &status, __WALL)) > 0)
            if (ended == process) check("its status", status, 0);
    }
    fprintf(stderr, "%d threads were refused\n%d processes went on\n", refused, seen + most_stand_ins);
    puts("done");
    return 0;
}
