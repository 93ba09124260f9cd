// Memory that has left, and that the program then may not touch: by mprotect, munmap, and guard regions. Each fault is the
// program's own, with its code and its place; a call that meets such a page answers as it does without pleat; and what was
// there is there as soon as it may be touched again. Prints what it gets.
#define _GNU_SOURCE
#include "cold.h"
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

enum way { NONE, READ_ONLY, UNMAPPED, GUARDED, WAYS };
enum { WRITABLE = PROT_READ | PROT_WRITE, EACH = 16, THREADS = 4, DATA = 9999 };
static const char *const NAMES[] = {"PROT_NONE", "PROT_READ", "munmap", "guard"};

static void deny(enum way way, unsigned char *start, size_t bytes) {
    if (way == NONE) check("PROT_NONE", mprotect(start, bytes, PROT_NONE), 0);
    if (way == READ_ONLY) check("PROT_READ", mprotect(start, bytes, PROT_READ), 0);
    if (way == UNMAPPED) check("munmap", munmap(start, bytes), 0);
    if (way == GUARDED) check("MADV_GUARD_INSTALL", madvise(start, bytes, MADV_GUARD_INSTALL), 0);
}

static void allow(enum way way, unsigned char *start, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (way == NONE || way == READ_ONLY) check("mprotect", mprotect(start, bytes, WRITABLE), 0);
    if (way == UNMAPPED) check("mmap", mmap(start, bytes, WRITABLE, flags, -1, 0) == start, 1);
    if (way == GUARDED) check("MADV_GUARD_REMOVE", madvise(start, bytes, MADV_GUARD_REMOVE), 0);
}

static int keeps(enum way way) { return way == NONE || way == READ_ONLY; }

static void expect_zeros(const char *what, const unsigned char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at++) check(what, memory[at], 0);
}

static __thread sigjmp_buf jump;
static __thread volatile int code;
static __thread void *volatile place;

static void on_fault(int signal, siginfo_t *about, void *context) {
    code = about->si_code, place = about->si_addr;
    siglongjmp(jump, 1);
    (void)signal, (void)context;
}

// The fault's code, or zero. A write that is let through changes a byte.
static int touch(volatile unsigned char *address, int writes) {
    code = 0;
    if (sigsetjmp(jump, 1)) {
        check("the fault's place", (long)place, (long)address);
        return code;
    }
    if (writes) *address ^= 1;
    else (void)*address;
    return 0;
}

// In turns: a read may bring the page in, and the write then finds it.
static void touch_page(unsigned char *page, int number, int faults[2][3]) {
    for (int turn = 0; turn < 3; turn++) {
        int writes = (turn + number) % 2, got = touch(page + number * 1237 % PAGE, writes);
        check("the fault's code", got == 0 || got == SEGV_MAPERR || got == SEGV_ACCERR, 1);
        faults[writes][got]++;
    }
}

static void touches(enum way way, const char *when) {
    int faults[2][3] = {{0}};
    for (int number = 0; number < EACH; number++)
        for (int page = 1; page < 3; page++) touch_page(buffer(number) + page * PAGE, 2 * number + page, faults);
    for (int writes = 0; writes < 2; writes++)
        printf("%s, %s, %s: %d pass, %d SEGV_MAPERR, %d SEGV_ACCERR\n", NAMES[way], when, writes ? "writes" : "reads",
               faults[writes][0], faults[writes][SEGV_MAPERR], faults[writes][SEGV_ACCERR]);
}

static void restore(enum way way) {
    for (int number = 0; number < EACH; number++) {
        unsigned char *middle = buffer(number) + PAGE;
        allow(way, middle, 2 * PAGE);
        if (!keeps(way)) {
            expect_zeros(NAMES[way], middle, 2 * PAGE);
            unsigned char whole[BUFFER];
            fill(whole, BUFFER, number);
            memcpy(middle, whole + PAGE, 2 * PAGE);
        }
        expect(NAMES[way], buffer(number), BUFFER, number);
    }
}

// What is out is denied; and what is denied stays so while everything leaves.
static void fault_in(enum way way) {
    chill();
    for (int number = 0; number < EACH; number++) deny(way, buffer(number) + PAGE, 2 * PAGE);
    touches(way, "cold");
    chill();
    touches(way, "colder");
    restore(way);
    for (int number = 0; number < EACH; number++) deny(way, buffer(number) + PAGE, 2 * PAGE);
    chill();
    touches(way, "denied first");
    chill();
    restore(way);
}

static unsigned char data[BUFFER];
static int ends[2], file;

static void new_ends(int is_socket) {
    check("two ends", is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
}

static long put(unsigned char *start, size_t bytes) { return write(ends[1], start, bytes); }

static long get(unsigned char *start, size_t bytes) {
    check("write", write(ends[1], data, bytes), bytes);
    return read(ends[0], start, bytes);
}

static long put_vectors(unsigned char *start, size_t bytes) {
    struct iovec vectors[] = {{start, 100}, {start + 100, bytes - 100}};
    return writev(ends[1], vectors, 2);
}

static long get_vectors(unsigned char *start, size_t bytes) {
    struct iovec vectors[] = {{start, 100}, {start + 100, bytes - 100}};
    check("write", write(ends[1], data, bytes), bytes);
    return readv(ends[0], vectors, 2);
}

static long put_file(unsigned char *start, size_t bytes) { return pwrite(file, start, bytes, BUFFER); }
static long get_file(unsigned char *start, size_t bytes) { return pread(file, start, bytes, 0); }
static long path(unsigned char *start, size_t bytes) { return bytes ? open((char *)start, O_RDONLY) : 0; }
static long state(unsigned char *start, size_t bytes) { return bytes ? stat("/", (struct stat *)start) : 0; }

static long wait_for_word(unsigned char *start, size_t bytes) {
    return bytes ? syscall(SYS_futex, start, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0) : 0;
}

static const struct call {
    const char *name;
    long (*make)(unsigned char *start, size_t bytes);
    int is_socket;
} CALLS[] = {
    {"write to a pipe", put, 0},        {"read from a pipe", get, 0},   {"write to a socket", put, 1},
    {"read from a socket", get, 1},     {"writev", put_vectors, 0},     {"readv", get_vectors, 1},
    {"pwrite to a file", put_file, 0},  {"pread from a file", get_file, 0},
    {"open", path, 0},                  {"stat", state, 0},             {"futex", wait_for_word, 0},
};
enum { COUNT = sizeof CALLS / sizeof *CALLS, PLACES = 4 };

// The middle pages may not be touched; a call begins before them, at their start, inside, or between them and what follows.
static void call_at(const struct call *call, int place, unsigned char *start) {
    static const struct { size_t at, bytes; } PARTS[PLACES] = {{0, 2 * PAGE}, {1000, 3 * PAGE}, {PAGE, PAGE}, {2 * PAGE, 2 * PAGE}};
    new_ends(call->is_socket);
    errno = 0;
    long got = call->make(start + PARTS[place].at, PARTS[place].bytes);
    printf("%s at %zu: %ld, %s\n", call->name, PARTS[place].at, got, strerror(errno));
    close(ends[0]), close(ends[1]);
}

static uint64_t sum(const unsigned char *memory) {
    uint64_t sum = 5381;
    for (size_t at = 0; at < BUFFER; at++) sum = sum * 33 + memory[at];
    return sum;
}

static void calls_in(enum way way) {
    printf("%s\n", NAMES[way]);
    chill();
    for (int number = 0; number < COUNT * PLACES; number++) {
        unsigned char *start = buffer(number);
        deny(way, start + PAGE, 2 * PAGE);
        call_at(&CALLS[number / PLACES], number % PLACES, start);
        allow(way, start + PAGE, 2 * PAGE);
        if (CALLS[number / PLACES].make != state) printf("%llx\n", (unsigned long long)sum(start));
        fill(start, BUFFER, number);
    }
}

// Nobody handles its fault.
static void dies(enum way way) {
    chill();
    deny(way, buffer(0), BUFFER);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile unsigned char *)buffer(0) = 1;
        _exit(0);
    }
    int status = 0;
    check("waitpid", waitpid(child, &status, 0), child);
    printf("%s: a child ends by signal %d\n", NAMES[way], WTERMSIG(status));
    allow(way, buffer(0), BUFFER);
    if (keeps(way)) expect("behind a child", buffer(0), BUFFER, 0);
    fill(buffer(0), BUFFER, 0);
}

// What is denied is moved, taken away, and inherited.
static void changes(enum way way) {
    unsigned char *away = mmap(0, BUFFER, WRITABLE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    chill();
    for (int number = 0; number < 3; number++) deny(way, buffer(number), BUFFER);
    check("mremap", mremap(buffer(0), BUFFER, BUFFER, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away, 1);
    check("MADV_DONTNEED", madvise(buffer(1), BUFFER, MADV_DONTNEED), 0);
    press();
    pid_t child = fork();
    allow(way, away, BUFFER), allow(way, buffer(1), 2 * BUFFER);
    expect("moved", away, BUFFER, 0);
    expect_zeros("taken away", buffer(1), BUFFER);
    expect("inherited", buffer(2), BUFFER, 2);
    if (child == 0) _exit(0);
    int status = 1;
    check("waitpid", waitpid(child, &status, 0), child);
    check("a child", status, 0);
    check("mremap", mremap(away, BUFFER, BUFFER, MREMAP_MAYMOVE | MREMAP_FIXED, buffer(0)) == buffer(0), 1);
    fill(buffer(1), BUFFER, 1);
    printf("%s: moved, taken away, inherited\n", NAMES[way]);
}

// Each thread has buffers of its own.
static void *deny_and_touch(void *argument) {
    for (int number = (int)(long)argument; number < BUFFERS; number += THREADS) {
        enum way way = number / THREADS % 2 ? NONE : READ_ONLY;
        unsigned char *middle = buffer(number) + PAGE;
        deny(way, middle, 2 * PAGE);
        for (int writes = 0; writes < 2; writes++)
            for (int page = 0; page < 2; page++)
                check("a thread's fault", touch(middle + page * PAGE + number, writes), writes || way == NONE ? SEGV_ACCERR : 0);
        allow(way, middle, 2 * PAGE);
        expect("a thread's", buffer(number), BUFFER, number);
    }
    return 0;
}

static void in_threads(void *(*step)(void *), int rounds) {
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[THREADS];
        for (long at = 0; at < THREADS; at++) check("a thread", pthread_create(&threads[at], 0, step, (void *)at), 0);
        for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
    }
}

static void own_buffers(void) { in_threads(deny_and_touch, 3); }

// One thread denies and allows what the others read: they find what is there, or a fault, and nothing else.
static void *deny_or_read(void *argument) {
    for (int number = 0; number < BUFFERS; number++) {
        unsigned char *start = buffer(number);
        if (argument) {
            uint64_t found[4] = {0};
            for (volatile int page = 0; page < 4; page++)
                if (touch(start + page * PAGE, 0) == 0 && !sigsetjmp(jump, 1)) found[page] = *(volatile uint64_t *)(start + page * PAGE);
            for (int page = 0; page < 4; page++)
                check("a word in dispute", found[page] == 0 || found[page] == word(number, page * PAGE / 8), 1);
        } else {
            for (int turn = 0; turn < 4; turn++) deny(turn % 2, start, BUFFER), allow(turn % 2, start, BUFFER);
        }
    }
    return 0;
}

static void same_buffers(void) { in_threads(deny_or_read, 3); }

static int has_guards(void) {
    unsigned char *page = mmap(0, PAGE, WRITABLE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int result = madvise(page, PAGE, MADV_GUARD_INSTALL);
    check("munmap", munmap(page, PAGE), 0);
    return result == 0;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    check("sigaction", sigaction(SIGSEGV, &action, 0), 0);
    for (int at = 0; at < BUFFER; at++) data[at] = (unsigned char)(at * 7 + at / 256);
    FILE *stream = tmpfile();
    file = fileno(stream);
    check("pwrite", pwrite(file, data, BUFFER, 0), BUFFER);
    begin();
    int ways = has_guards() ? WAYS : GUARDED;
    if (ways < WAYS) printf("no guard regions\n");
    for (int way = 0; way < ways; way++) fault_in(way), calls_in(way), dies(way);
    changes(NONE), changes(READ_ONLY);
    chill();
    under_pressure(own_buffers);
    chill();
    under_pressure(same_buffers);
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
