/* Reads and writes of 48 MiB in one call: files, devices, pipes and streams, with signals in their course. Prints what each has said.
   Its argument is a path for a file. With "forks" behind it: reads of a file only, with forks in their course. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL ((size_t)48 << 20)
#define ODD ((size_t)20 << 20 | 0x1235)

static unsigned char *buffer;
static volatile sig_atomic_t alarms, broken, forks, bad_children;
static unsigned char first;
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
    if (child == 0) _exit(buffer[8] != first);
    int status;
    if (waitpid(child, &status, 0) != child || status) bad_children++;
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

/* Each of 2 KiB and more, one after the other, and every second left out. */
static void many_buffers(int file) {
    enum { BUFFERS = 1024 };
    static struct iovec parts[BUFFERS];
    for (size_t at = 0; at < BUFFERS; at++) parts[at] = (struct iovec){buffer + at * 9000, 2048 + at * 5 % 997};
    fill(20), tell("many buffers", pwritev(file, parts, BUFFERS, 99));
    fill(21), tell("many buffers back", preadv(file, parts, BUFFERS, 99));
}

/* What a limit leaves is written, and no signal comes. */
static void limited(int file) {
    struct rlimit limit, before;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before, limit.rlim_cur = 4 << 20;
    on(SIGXFSZ, on_pipe, 0), broken = 0;
    setrlimit(RLIMIT_FSIZE, &limit);
    tell("limited", pwrite(file, buffer, ODD / 2, 0));
    printf("told %d\n", broken);
    setrlimit(RLIMIT_FSIZE, &before);
}

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
    long end = lseek(file, 0, SEEK_CUR);
    printf("at %ld\n", end);
    fill(7), tell("what was appended", pread(file, buffer, ALL, end - ODD / 2));
    fcntl(file, F_SETFL, 0);
    on(SIGALRM, on_alarm, 0), every(500);
    fill(7), tell("write in alarms", pwrite(file, buffer, ALL, 0));
    fill(8), tell("read in alarms", pread(file, buffer, ALL, 0));
    every(0);
    printf("alarms %d\n", alarms > 0);
    many_buffers(file);
    limited(file);
    int zero = open("/dev/zero", O_RDONLY);
    fill(9), tell("zero", read(zero, buffer, ODD));
    close(zero), close(file);
}

static void read_in_forks(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(path);
    fill(7), tell("write", write(file, buffer, ALL));
    on(SIGALRM, on_fork, SA_RESTART);
    first = buffer[8];
    for (int again = 0; again < 3; again++) {
        long result;
        forks = 0;
        do after(3000, 0), result = pread(file, buffer, ALL, 0); while (!forks);
        after(0, 0);
        tell("read in forks", result);
    }
    printf("bad children %d\n", bad_children);
    close(file);
}

/* Pipes and streams. What comes out at the other end. */

struct end { int file; size_t bytes; unsigned long sum; useconds_t pause, pauses; size_t stop; int gate; };

static void *drain(void *argument) {
    struct end *end = argument;
    unsigned char part[65536];
    ssize_t got;
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, 0);
    usleep(end->pause);
    while ((got = read(end->file, part, sizeof part)) > 0) {
        if (end->pauses) usleep(end->pauses);
        for (ssize_t at = 0; at < got; at++) end->sum = end->sum * 31 + part[at];
        end->bytes += (size_t)got;
        /* Until the other side has been interrupted. */
        if (end->stop && end->bytes >= end->stop) end->stop = 0, read(end->gate, part, 1);
    }
    return 0;
}

/* The same of what was written. */
static unsigned long sum_of_bytes(size_t bytes) {
    unsigned long sum = 0;
    for (size_t at = 0; at < bytes; at++) sum = sum * 31 + buffer[at];
    return sum;
}

enum { PIPE, LOCAL, TCP, TYPES };

static void connect_over_tcp(int *pair) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, bytes) || listen(listener, 1) || getsockname(listener, (void *)&address, &bytes)) exit(2);
    if (connect(pair[0], (void *)&address, bytes)) exit(2);
    pair[1] = accept(listener, 0, 0);
    close(listener);
}

static void ends(int type, int *pair) {
    if (type == TCP) return connect_over_tcp(pair);
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
    /* How much room there is for more is a matter of its own. */
    if (!flags && type != TCP) {
        result = write(pair[0], buffer, ALL);
        printf("nothing %d %s\n", result > 0 ? 1 : (int)result, strerror(errno));
    }
    every(0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    result = write(pair[0], buffer, ALL);
    if (type != TCP) printf("no room %ld %s\n", result, strerror(errno));
    result = read(pair[1], buffer, ALL);
    printf("what there is %d\n", result > 0 && result < (long)ALL);
    close(pair[1]), close(pair[0]);
}

/* Who reads stops at some place, and one signal comes before that or after. One that is not noticed is followed by another only a second later; that
   happens where the machine is so busy that the first comes before the call. */
static void once(int type, int flags) {
    int is_right = 1, late = 0;
    fill(11);
    for (int round = 0; round < 40; round++) {
        int pair[2], gate[2];
        pthread_t thread;
        ends(type, pair);
        if (pipe(gate)) exit(2);
        /* A pipe is full then at the end of a piece. */
        struct end end = {.file = pair[1], .stop = ((size_t)(1 + round % 4) << 20) - (1 << 16), .gate = gate[0], .pauses = round % 3 * 50};
        on(SIGALRM, on_alarm, flags);
        pthread_create(&thread, 0, drain, &end);
        alarms = 0, after(4000 + round * 317, 999999);
        long result = write(pair[0], buffer, ALL);
        after(0, 0);
        late += alarms > 1;
        write(gate[1], "", 1);
        close(pair[0]);
        pthread_join(thread, 0);
        is_right &= result > 0 && result < (long)ALL && end.bytes == (size_t)result && end.sum == sum_of_bytes(end.bytes);
        close(pair[1]), close(gate[0]), close(gate[1]);
    }
    printf("once %d %d\n", is_right, late < 5);
}

/* Many signals, and all that each write says it has written comes. */
static void stormy(int type) {
    int pair[2];
    pthread_t thread;
    size_t done = 0;
    ends(type, pair);
    struct end end = {.file = pair[1]};
    pthread_create(&thread, 0, drain, &end);
    on(SIGALRM, on_alarm, 0), fill(12), every(60);
    while (done < ALL) {
        long result = write(pair[0], buffer + done, ALL - done);
        if (result < 0 && errno != EINTR) break;
        done += result > 0 ? (size_t)result : 0;
    }
    every(0);
    close(pair[0]);
    pthread_join(thread, 0);
    printf("in a storm %d\n", done == ALL && end.bytes == ALL && end.sum == sum_of_bytes(ALL));
    close(pair[1]);
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

/* The other side is reset when this one is closed. */
static void refuse_at_the_end(int file) {
    struct linger none = {1, 0};
    setsockopt(file, SOL_SOCKET, SO_LINGER, &none, sizeof none);
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
    if (type == TCP) refuse_at_the_end(pair[1]);
    pthread_create(&thread, 0, go_away, &pair[1]);
    long result = write(pair[0], buffer, ALL);
    printf("until it went %d, told %d\n", result > (long)4 << 20 && result < (long)ALL, broken);
    result = write(pair[0], buffer, ALL);
    /* A reset that comes just before a piece of a write is told to that, and the next call has a signal. */
    if (type == TCP) printf("after it %ld\n", result);
    else printf("after it %ld %s, told %d\n", result, strerror(errno), broken);
    pthread_join(thread, 0);
    close(pair[0]);
}

/* Who reads takes no more, and stays: who writes is told, though nothing of him has gone. */
static void *take_no_more(void *argument) {
    static unsigned char part[100000];
    int file = *(int *)argument;
    for (int at = 0; at < 11; at++) recv(file, part, sizeof part, MSG_WAITALL);
    usleep(20000);
    shutdown(file, SHUT_RD);
    return 0;
}

static void half_closed(void) {
    int pair[2];
    pthread_t thread;
    ends(LOCAL, pair);
    on(SIGPIPE, on_pipe, 0), broken = 0;
    pthread_create(&thread, 0, take_no_more, &pair[1]);
    long result = write(pair[0], buffer, ALL);
    printf("until no more is taken %d, told %d\n", result > 1000000 && result < (long)ALL, broken);
    pthread_join(thread, 0);
    close(pair[0]), close(pair[1]);
}

/* Who has sent something is not told that it was refused; the next call is. And who reads all that there is finds all of it. */
static void reset(void) {
    int pair[2];
    ends(TCP, pair);
    refuse_at_the_end(pair[1]);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    long result = write(pair[0], buffer, ALL);
    printf("sent some %d\n", result > 0);
    usleep(50000);
    long there = read(pair[1], buffer, ALL);
    printf("all that there is %d\n", there == result || (there > 1 << 20 && there < result));
    close(pair[1]);
    result = recv(pair[0], buffer, ALL, 0);
    printf("reset %ld %s\n", result, strerror(errno));
    close(pair[0]);
}

int main(int count, char **words) {
    if (count < 2) return 2;
    buffer = mmap(0, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) return 2;
    if (count > 2) return read_in_forks(words[1]), 0;
    files(words[1]);
    for (int type = PIPE; type < TYPES; type++) {
        printf("%s\n", (const char *[]){"a pipe", "a stream", "TCP"}[type]);
        whole(type);
        interrupted(type, 0), interrupted(type, SA_RESTART);
        once(type, 0), once(type, SA_RESTART), stormy(type);
        left(type), cancelled(type), gone(type);
        if (type == LOCAL) half_closed();
        if (type == TCP) reset();
    }
    return 0;
}
