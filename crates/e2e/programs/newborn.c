// Who attaches to a process as soon as he knows its number, as strace -f -p does it: stops its threads at every call, and reads what is written.
// newborn forked: to the children of a process whose memory is cold, each of which writes of it at once, and ends.
// newborn begins: to processes that fill more memory than there is, at some time between before and after.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "traced.h"

enum { CHILDREN = 80, WRITES = 8, PROCESSES = 4, LOADS = 500 };
// Shared with those that are attached to.
static volatile struct { int is_ready, is_enough; } *both;

static void write_some(int file, int number) {
    check("pwrite", pwrite(file, buffer(number % BUFFERS), BUFFER, (off_t)(number % BUFFERS) * BUFFER), BUFFER);
}

static void fork_many(void) {
    int file = memfd_create("written", 0), status;
    begin();
    for (int child = 0; child < CHILDREN; child++) {
        if (child % 8 == 0) chill();
        pid_t forked = fork();
        if (forked == 0) {
            for (int number = 0; number < WRITES; number++) write_some(file, child * 7 + number * 31);
            _exit(0);
        }
        check("waitpid", waitpid(forked, &status, 0), forked), check("a child's status", status, 0);
    }
}

static void write_many(void) {
    pthread_t presser;
    int file = memfd_create("written", 0);
    map_all();
    both->is_ready = 1;
    fill_all(), chill();
    pthread_create(&presser, 0, press_on, 0);
    for (int number = 0; !both->is_enough; number += 7) write_some(file, number);
    is_over = 1;
    pthread_join(presser, 0);
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
}

// Until all that we trace of it has ended. Says how many writes have been read.
static int follow(pid_t process, int enough) {
    int status, seen = 0;
    count = 0;
    take_threads(process, PTRACE_SEIZE, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE);
    for (int at = 0; at < count; at++) ptrace(PTRACE_INTERRUPT, threads[at], 0, 0);
    while (count > 0) {
        pid_t stopped = waitpid(-1, &status, __WALL);
        if (WIFSTOPPED(status)) {
            if ((seen += look(process, stopped)) >= enough) both->is_enough = 1;
            // Signals are the program's, as far as they are no stops that we have asked for.
            int signal = status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
            ptrace(PTRACE_SYSCALL, stopped, 0, (void *)(long)signal);
            continue;
        }
        for (int at = 0; at < count; at++)
            if (threads[at] == stopped) threads[at] = threads[--count];
        if (stopped == process) check("a status", status, 0);
    }
    return seen;
}

// The child that a process has now, or 0.
static pid_t child_of(pid_t process) {
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", process, process);
    FILE *children = fopen(path, "r");
    if (children && fscanf(children, "%d", &child) != 1) child = 0;
    if (children) fclose(children);
    return child;
}

static int is_over_with(pid_t process) {
    int status;
    if (waitpid(process, &status, WNOHANG) != process) return 0;
    check("its status", status, 0);
    return 1;
}

int main(int words, char **word) {
    int is_forked = words > 1 && strcmp(word[1], "forked") == 0, followed = 0;
    both = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < (is_forked ? 1 : PROCESSES); round++) {
        both->is_ready = both->is_enough = 0;
        pid_t process = fork(), last = 0;
        if (process == 0) {
            is_forked ? fork_many() : write_many();
            end();
            exit(0);
        }
        if (!is_forked) {
            while (!both->is_ready) usleep(100);
            usleep(round * 15000);
            followed += follow(process, LOADS) > 0;
            check("enough writes", both->is_enough, 1);
        }
        for (pid_t child; is_forked && !is_over_with(process);) {
            if ((child = child_of(process)) == 0 || child == last) continue;
            last = child;
            usleep(rand() % 1000);
            followed += follow(child, WRITES) > 0;
        }
    }
    fprintf(stderr, "%d were followed\n", followed);
    puts("done");
    return 0;
}
