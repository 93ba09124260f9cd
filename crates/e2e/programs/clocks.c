// Children whose clocks are others than their parent's (unshare(CLONE_NEWTIME)) while memory leaves: one that is forked, with clocks
// that are behind, and one that executes this program once more, with clocks that are ahead. Each lives for longer than it takes
// `pleat run` to look at it, and keeps what that says then.
//   clocks STATISTICS COPIES     COPIES is the first part of the copies' names
#define _GNU_SOURCE
#include "cold.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

static void all_as_it_was(const char *whose) {
    for (int number = 0; number < BUFFERS; number++) expect(whose, buffer(number), BUFFER, number);
}

static void keep(const char *statistics, const char *copies, const char *name) {
    char text[1 << 16], path[4096];
    FILE *from = fopen(statistics, "r");
    if (!from) return; // Without pleat.
    snprintf(path, sizeof path, "%s-%s", copies, name);
    FILE *to = fopen(path, "w");
    for (size_t bytes; (bytes = fread(text, 1, sizeof text, from)) > 0;) fwrite(text, 1, bytes, to);
    fclose(from), fclose(to);
}

static void live(const char *whose, const char *statistics) {
    chill(), all_as_it_was(whose);
    if (access(statistics, F_OK) == 0) usleep(1700000);
    chill(), all_as_it_was(whose);
}

static int give_other_clocks(long by) {
    if (unshare(CLONE_NEWTIME)) return -1;
    char text[99];
    int length = snprintf(text, sizeof text, "monotonic %ld 0\nboottime %ld 0\n", by, by);
    int file = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    int written = file >= 0 && write(file, text, length) == length;
    close(file);
    return written ? 0 : -1;
}

static void child(long by, const char *name, char **words) {
    if (give_other_clocks(by)) return (void)printf("no namespace: %s\n", strerror(errno));
    long before = now();
    fflush(stdout);
    pid_t pid = fork();
    check("fork", pid < 0, 0);
    if (pid == 0) {
        check("the clock", labs(now() - before - by) < 60, 1);
        all_as_it_was(name);
        if (by > 0) execl("/proc/self/exe", "clocks", words[1], words[2], name, (char *)0);
        live(name, words[1]);
        keep(words[1], words[2], name);
        pid_t own = fork();
        if (own == 0) all_as_it_was("a grandchild's"), _exit(0);
        int status;
        check("waitpid", waitpid(own, &status, 0), own);
        _exit(status != 0);
    }
    int status;
    check("waitpid", waitpid(pid, &status, 0), pid);
    check(name, status, 0);
    all_as_it_was("the parent's");
}

int main(int count, char **words) {
    if (count < 3) return 2;
    begin();
    if (count > 3) {
        live(words[3], words[1]);
        keep(words[1], words[2], words[3]);
        return 0;
    }
    child(5 - now(), "behind", words);
    child(3000000, "ahead", words);
    end();
    puts("all as it was");
    return 0;
}
