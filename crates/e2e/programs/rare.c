// Calls that few programs make, on memory that has left: locks that wait for the first use, mappings that are filled or locked at
// once, protection keys, memory that is only executed, mutexes that pass their priority on, pipes of libc's, and blocks at
// large alignments. What it prints is the same with and without pleat.
#define _GNU_SOURCE
#include "cold.h"
#include <linux/futex.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WRITABLE = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS, PART = 1 << 20, LARGE = 32 << 20 };
enum { THREADS = 4, TURNS = 1500 };

static int are_out(const unsigned char *memory, size_t bytes) {
    int out = 0;
    for (size_t at = 0; at < bytes; at += PAGE) {
        uint64_t entry = 0;
        check("pagemap", pread(pagemap, &entry, 8, (uintptr_t)(memory + at) / PAGE * 8), 8);
        out += !(entry >> 63);
    }
    return out;
}

// A whole lock brings in what is out, and holds it; one on first use holds what is used.
static void locks(void) {
    size_t bytes = PART;
    chill();
    check("mlock", mlock(buffers, bytes), 0);
    printf("%d out behind mlock\n", are_out(buffers, bytes));
    check("mlock2", mlock2(buffers + bytes, bytes, MLOCK_ONFAULT), 0);
    for (int number = PART / BUFFER; number < 2 * PART / BUFFER; number += 2) expect("used", buffer(number), BUFFER, number);
    chill();
    int out = are_out(buffers, bytes);
    for (int number = PART / BUFFER; number < 2 * PART / BUFFER; number += 2) out += are_out(buffer(number), BUFFER);
    printf("%d out of what is locked\n", out);
    for (int number = 0; number < 2 * PART / BUFFER; number++) expect("locked", buffer(number), BUFFER, number);
    check("munlock", munlock(buffers, 2 * bytes), 0);
    chill();
    for (int number = 0; number < 2 * PART / BUFFER; number++) expect("unlocked", buffer(number), BUFFER, number);
}

static void new_mapping(const char *what, int flags, size_t bytes) {
    unsigned char *memory = mmap(0, bytes, WRITABLE, PRIVATE | flags, -1, 0);
    check(what, memory == MAP_FAILED, 0);
    for (size_t at = 0; at < bytes; at += PAGE / 4) check(what, memory[at], 0);
    fill(memory, bytes, 77);
    chill();
    expect(what, memory, bytes, 77);
    // The same where something is out.
    check(what, mmap(memory, bytes / 2, WRITABLE, PRIVATE | MAP_FIXED | flags, -1, 0) == memory, 1);
    for (size_t at = 0; at < bytes / 2; at++) check(what, memory[at], 0);
    check("munmap", munmap(memory, bytes), 0);
    printf("%s\n", what);
}

static void keys(void) {
    int key = pkey_alloc(0, 0);
    if (key < 0) return (void)printf("no protection keys\n");
    chill();
    check("pkey_mprotect", pkey_mprotect(buffers, PART, PROT_READ, key), 0);
    for (int number = 0; number < PART / BUFFER; number++) expect("with a key", buffer(number), BUFFER, number);
    chill();
    // A system call meets what this thread may not touch.
    check("pkey_set", pkey_set(key, PKEY_DISABLE_ACCESS), 0);
    int ends[2];
    check("pipe", pipe(ends), 0);
    check("write", write(ends[1], buffers, PAGE), -1), check("its reason", errno, EFAULT);
    close(ends[0]), close(ends[1]);
    check("pkey_set", pkey_set(key, 0), 0);
    check("mprotect", pkey_mprotect(buffers, PART, WRITABLE, 0), 0);
    for (int number = 0; number < PART / BUFFER; number++) expect("without it", buffer(number), BUFFER, number);
    pkey_free(key);
}

static void executed(void) {
#if defined(__x86_64__)
    unsigned char *code = mmap(0, PART, WRITABLE, PRIVATE, -1, 0);
    fill(code, PART, 88);
    for (size_t at = 0; at < PART; at += PAGE) {
        unsigned char function[6] = {0xb8, at >> 12, 0, 0, 0, 0xc3}; // mov eax, value; ret
        memcpy(code + at, function, sizeof function);
    }
    chill();
    check("PROT_EXEC", mprotect(code, PART, PROT_EXEC), 0);
    for (size_t at = 0; at < PART / 2; at += PAGE) check("a function", ((int (*)(void))(code + at))(), at >> 12);
    chill();
    for (size_t at = 0; at < PART; at += PAGE) check("a function", ((int (*)(void))(code + at))(), at >> 12);
    check("mprotect", mprotect(code, PART, WRITABLE), 0);
    fill(code, 8, 88);
    for (size_t at = 0; at < PART; at += PAGE) check("behind a function", *(uint64_t *)(code + at + 8), word(88, at / 8 + 1));
    check("munmap", munmap(code, PART), 0);
#endif
    printf("executed\n");
}

static pthread_mutex_t *mutex(int number) { return (pthread_mutex_t *)buffer(number); }
static long *count(int number) { return (long *)(buffer(number) + 2 * PAGE); }

static void *take_turns(void *unused) {
    for (int turn = 0; turn < TURNS; turn++) {
        int number = turn / 8 * 37 % BUFFERS;
        check("lock", pthread_mutex_lock(mutex(number)), 0);
        *count(number) += 1;
        if (turn % 64 == 0) usleep(2000);
        check("unlock", pthread_mutex_unlock(mutex(number)), 0);
    }
    return unused;
}

static void threads_take_turns(void) {
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) check("a thread", pthread_create(&threads[at], 0, take_turns, 0), 0);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
}

static void *wait_for_all(void *unused) {
    for (int number = 0; number < 64; number++) {
        check("lock", pthread_mutex_lock(mutex(number)), 0);
        check("unlock", pthread_mutex_unlock(mutex(number)), 0);
    }
    return unused;
}

// The kernel writes the mutex's word for who waits, long after that one has come.
static void passed_on(void) {
    pthread_t waiter;
    for (int number = 0; number < 64; number++) check("lock", pthread_mutex_lock(mutex(number)), 0);
    check("a thread", pthread_create(&waiter, 0, wait_for_all, 0), 0);
    for (int number = 0; number < 64; number++) {
        if (number % 16 == 0) chill();
        check("unlock", pthread_mutex_unlock(mutex(number)), 0);
    }
    check("join", pthread_join(waiter, 0), 0);
}

// The kernel writes a word that is out: by libc's function, and past libc where a mutex is known to be.
static long futex(uint32_t *word, int operation, uint32_t *other) {
    // FUTEX_WAKE_OP adds 1 to the other word, and compares what was there with 0.
    return syscall(SYS_futex, word, operation, 1L, 1L, other, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
}

static long futex_past_libc(uint32_t *word, int operation) {
#if defined(__x86_64__)
    long result;
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result)
                     : "0"(SYS_futex), "D"(word), "S"(operation), "d"(0L), "r"(timeout)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(SYS_futex, word, operation, 0, 0);
#endif
}

static void written_by_the_kernel(void) {
    static const int locks[] = {FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, FUTEX_TRYLOCK_PI | FUTEX_PRIVATE_FLAG};
    uint32_t self = (uint32_t)syscall(SYS_gettid);
    for (int at = 0; at < 4; at++) {
        uint32_t *word = (uint32_t *)buffer(at), *past = (uint32_t *)mutex(16 + at), *other = word + PAGE / 4;
        *word = *other = 0;
        chill();
        check("a lock", syscall(SYS_futex, word, locks[at], 0, 0, 0, 0), 0), check("its word", *word, self);
        chill();
        check("an operation", futex(word, FUTEX_WAKE_OP | (locks[at] & FUTEX_PRIVATE_FLAG), other), 0), check("its word", *other, 1);
        chill();
        check("an unlock", syscall(SYS_futex, word, FUTEX_UNLOCK_PI | (locks[at] & FUTEX_PRIVATE_FLAG), 0, 0, 0, 0), 0);
        check("its word", *word, 0), fill(buffer(at), BUFFER, at);
        chill();
        check("a lock past libc", futex_past_libc(past, locks[at]), 0), check("its word", *past, self);
        chill();
        check("an unlock past libc", futex_past_libc(past, FUTEX_UNLOCK_PI | (locks[at] & FUTEX_PRIVATE_FLAG)), 0);
        check("its word", *past, 0);
    }
}

static void inheriting(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind), pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    for (int number = 0; number < BUFFERS; number++) {
        check("init", pthread_mutex_init(mutex(number), &kind), 0);
        *count(number) = 0;
    }
    pages_held = 1;
    written_by_the_kernel();
    for (int number = 0; number < 4; number++) check("init", pthread_mutex_init(mutex(number), &kind), 0), *count(number) = 0;
    passed_on();
    under_pressure(threads_take_turns);
    long all = 0;
    for (int number = 0; number < BUFFERS; number++) all += *count(number), pthread_mutex_destroy(mutex(number)), fill(buffer(number), BUFFER, number);
    pages_held = 0;
    printf("%ld turns\n", all);
}

static void pipes_of_libc(void) {
    chill();
    FILE *stream = popen("head -c 1048576 /dev/zero | tr '\\0' x", "r");
    check("popen", stream != 0, 1);
    check("fread", fread(buffers, 1, PART, stream), PART);
    check("pclose", pclose(stream), 0);
    for (int at = 0; at < PART; at++) check("what was read", buffers[at], 'x');
    for (int number = 0; number < PART / BUFFER; number++) fill(buffer(number), BUFFER, number);
    chill();
    fflush(stdout);
    stream = popen("cksum; exit 3", "w");
    check("popen", stream != 0, 1);
    check("fwrite", fwrite(buffers, 1, PART, stream), PART);
    chill();
    check("pclose", WEXITSTATUS(pclose(stream)), 3);
}

static void aligned(void) {
    for (size_t alignment = PAGE; alignment <= 256 << 20; alignment *= 16) {
        void *blocks[8];
        for (int at = 0; at < 8; at++) {
            check("posix_memalign", posix_memalign(&blocks[at], alignment, PART / 2 + at * 1000), 0);
            check("an alignment", (uintptr_t)blocks[at] % alignment, 0);
            fill(blocks[at], PART / 2, at);
        }
        chill();
        for (int at = 0; at < 8; at++) expect("a block", blocks[at], PART / 2, at), free(blocks[at]);
        malloc_trim(0);
        printf("aligned at %zu\n", alignment);
    }
}

int main(void) {
    begin();
    locks();
    new_mapping("MAP_LOCKED", MAP_LOCKED, PART);
    new_mapping("MAP_POPULATE", MAP_POPULATE, LARGE);
    new_mapping("MAP_POPULATE for one page", MAP_POPULATE, 2 * PAGE);
    keys(), executed(), inheriting(), pipes_of_libc(), aligned();
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
