/* Reads and writes of 48 MiB in one call: files, devices, pipes and streams, with signals in their course. Prints what each has said.
   Its argument is a path for a file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL ((size_t)48 << 20)
#define ODD ((size_t)20 << 20 | 0x1235)

static unsigned char *buffer;
static volatile sig_atomic_t alarms, broken, forks;
static sigjmp_buf out;

/* Whatever has left is in place. */
static void fill(unsigned seed) {
    for (size_t at = 0; at < ALL; at += 8) {
        unsigned long word = (at / 512) * 2654435761u + seed;
        memcpy(buffer + at, &word, 8);
    }
}

static unsigned long sum_of(size_t bytes) {
    unsigned long sum = 0;
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        unsigned long word;
        memcpy(&word, buffer + at, 8);
        sum = sum * 31 + word;
    }
    return sum;
}

static void tell(const char *what, long result) {
    int error = errno;
    printf("%s %ld %s %lx\n", what, result, result < 0 ? strerror(error) : "", sum_of(ALL));
}

static void on_alarm(int signal) { (void)signal; alarms++; }
static void on_pipe(int signal) { (void)signal; broken++; }
static void on_jump(int signal) { (void)signal; siglongjmp(out, 1); }
static void on_fork(int signal) {
    (void)signal;
    pid_t child = fork();
    if (child == 0) _exit(buffer[ALL - 1] == 0);
    int status;
    waitpid(child, &status, 0);
    forks++;
}

static void on(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, 0);
}

static void after(long microseconds, long interval) {
    struct itimerval timer = {.it_value.tv_usec = microseconds, .it_interval.tv_usec = interval};
    setitimer(ITIMER_REAL, &timer, 0);
}

static void every(long microseconds) { after(microseconds, microseconds); }

/* Files. */

static void files(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(path);
    fill(1), tell("write", write(file, buffer, ALL));
    printf("at %ld\n", (long)lseek(file, 0, SEEK_CUR));
    lseek(file, 12345, SEEK_SET);
    fill(2), tell("read to the end", read(file, buffer, ALL));
    fill(3), tell("pwrite", pwrite(file, buffer, ODD, 7777));
    fill(4), tell("pread", pread(file, buffer + 4096, ALL - 4096, 4097));
    lseek(file, 0, SEEK_SET);
    volatile int vectors = -1;
    struct iovec parts[] = {{buffer, 11}, {buffer + 100, 0}, {buffer + 4096, ODD}, {buffer + ODD + 8192, 3}, {buffer + ODD + 9000, ODD}};
    fill(5), tell("readv", readv(file, parts, 5));
    tell("pwritev", pwritev(file, parts, 5, 333));
    tell("preadv", preadv(file, parts, 5, 444));
    tell("writev", writev(file, parts, 5));
    tell("a bad vector", writev(file, parts, vectors));
    parts[2].iov_len = -1;
    tell("a bad length", writev(file, parts, 5));
    tell("beyond what is mapped", pread(file, buffer + ALL - ODD, ALL, 0));
    tell("at a bad place", pread(file, buffer, ALL, -5));
    fcntl(file, F_SETFL, O_APPEND);
    fill(6), tell("append", write(file, buffer, ODD / 2));
    printf("at %ld\n", (long)lseek(file, 0, SEEK_CUR));
    fcntl(file, F_SETFL, 0);
    on(SIGALRM, on_alarm, 0), every(500);
    fill(7), tell("write in alarms", pwrite(file, buffer, ALL, 0));
    fill(8), tell("read in alarms", pread(file, buffer, ALL, 0));
    every(0);
    on(SIGALRM, on_fork, SA_RESTART);
    long result;
    do after(3000, 0), result = pread(file, buffer, ALL, 5); while (!forks);
    after(0, 0);
    tell("read in forks", result);
    printf("alarms %d\n", alarms > 0);
    int zero = open("/dev/zero", O_RDONLY);
    fill(9), tell("zero", read(zero, buffer, ODD));
    close(zero), close(file);
}

/* Pipes and streams. What comes out at the other end. */

struct end { int file; size_t bytes; unsigned long sum; useconds_t pause; };

static void *drain(void *argument) {
    struct end *end = argument;
    unsigned char part[65536];
    ssize_t got;
    usleep(end->pause);
    while ((got = read(end->file, part, sizeof part)) > 0) {
        for (ssize_t at = 0; at < got; at++) end->sum = end->sum * 31 + part[at];
        end->bytes += (size_t)got;
    }
    return 0;
}

static void ends(int type, int *pair) {
    if (type ? socketpair(AF_UNIX, SOCK_STREAM, 0, pair) : pipe(pair)) exit(2);
    if (!type) { int from = pair[0]; pair[0] = pair[1], pair[1] = from; }
}

static void whole(int type) {
    int pair[2];
    pthread_t thread;
    ends(type, pair);
    struct end end = {.file = pair[1], .pause = 20000};
    pthread_create(&thread, 0, drain, &end);
    fill(10), tell("all", write(pair[0], buffer, ALL));
    struct iovec parts[] = {{buffer, 5}, {buffer + 4096, ODD}};
    tell("a vector", writev(pair[0], parts, 2));
    if (type) tell("sent", send(pair[0], buffer + 1, ODD, MSG_NOSIGNAL));
    close(pair[0]);
    pthread_join(thread, 0);
    printf("came %zu %lx\n", end.bytes, end.sum);
    close(pair[1]);
}

/* Nobody reads: a signal comes when there is no more room. */
static void interrupted(int type, int flags) {
    int pair[2];
    ends(type, pair);
    on(SIGALRM, on_alarm, flags);
    alarms = 0, every(30000);
    long result = write(pair[0], buffer, ALL);
    printf("part %d %d\n", result > 0 && result < (long)ALL, alarms > 0);
    if (!flags) {
        result = write(pair[0], buffer, ALL);
        printf("nothing %d %s\n", result > 0 ? 1 : (int)result, strerror(errno));
    }
    every(0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    result = write(pair[0], buffer, ALL);
    printf("no room %ld %s\n", result, strerror(errno));
    result = read(pair[1], buffer, ALL);
    printf("what there is %d\n", result > 0 && result < (long)ALL);
    close(pair[1]), close(pair[0]);
}

/* By a signal's handler that does not come back, and then as before. */
static void left(int type) {
    int pair[2];
    ends(type, pair);
    on(SIGALRM, on_jump, 0), every(30000);
    if (!sigsetjmp(out, 1)) {
        write(pair[0], buffer, ALL);
        printf("it ended\n");
    }
    every(0);
    close(pair[1]), close(pair[0]);
    whole(type);
}

static void *blocked(void *argument) {
    write(*(int *)argument, buffer, ALL);
    return 0;
}

static void cancelled(int type) {
    int pair[2];
    pthread_t thread;
    void *value;
    ends(type, pair);
    pthread_create(&thread, 0, blocked, pair);
    usleep(30000);
    unsigned char part[1 << 16];
    for (int at = 0; at < 40; at++) read(pair[1], part, sizeof part);
    pthread_cancel(thread);
    pthread_join(thread, &value);
    printf("cancelled %d\n", value == PTHREAD_CANCELED);
    close(pair[1]), close(pair[0]);
}

static void *go_away(void *argument) {
    int file = *(int *)argument;
    unsigned char part[1 << 16];
    for (int at = 0; at < 100; at++) read(file, part, sizeof part);
    close(file);
    return 0;
}

static void gone(int type) {
    int pair[2];
    pthread_t thread;
    ends(type, pair);
    on(SIGPIPE, on_pipe, 0), broken = 0;
    pthread_create(&thread, 0, go_away, &pair[1]);
    long result = write(pair[0], buffer, ALL);
    printf("until it went %d, told %d\n", result > (long)4 << 20 && result < (long)ALL, broken);
    result = write(pair[0], buffer, ALL);
    printf("after it %ld %s, told %d\n", result, strerror(errno), broken);
    pthread_join(thread, 0);
    close(pair[0]);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    buffer = mmap(0, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) return 2;
    files(words[1]);
    for (int type = 0; type < 2; type++) {
        printf("%s\n", type ? "a stream" : "a pipe");
        whole(type);
        interrupted(type, 0), interrupted(type, SA_RESTART);
        left(type), cancelled(type), gone(type);
    }
    return 0;
}
