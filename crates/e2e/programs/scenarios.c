// The kernel's own scenarios of userfaultfd (tools/testing/selftests/mm), without pleat: what it builds on must hold on this
// kernel. scenarios fork|remap|remove|unmap|protect|split|poison
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Of Linux 6.8 and 6.6; the headers may be older.
#define FEATURE_MOVE (1 << 16)
#define FEATURE_POISON (1 << 14)
#define DO_MOVE _IOWR(UFFDIO, 5, struct move)
#define DO_POISON _IOWR(UFFDIO, 8, struct poison)
struct move { uint64_t to, from, bytes, mode; int64_t moved; };
struct poison { uint64_t start, bytes, mode; int64_t updated; };

enum { PAGE = 4096, PAGES = 64, HUGE = 2 << 20 };
static int uffd, child_uffd = -1;
static char *area;
// What the handler has seen.
static volatile int faults, child_faults, protected_faults, child_protected, removes, unmaps, remaps;
static struct uffd_msg last_layout;

static void check(const char *what, long got, long expected) {
    if (got == expected) return;
    printf("%s: %ld instead of %ld, %s\n", what, got, expected, strerror(errno));
    fflush(stdout);
    _exit(1);
}

static void skip(const char *why) {
    printf("no %s: %s\n", why, strerror(errno));
    fflush(stdout);
    _exit(0);
}

static void open_with(uint64_t features) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0) skip("userfaultfd");
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    if (ioctl(uffd, UFFDIO_API, &api)) skip("feature");
}

static char *map(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("mmap", memory == MAP_FAILED, 0);
    return memory;
}

static void take(void *memory, size_t bytes, uint64_t mode) {
    struct uffdio_register range = {.range = {(uintptr_t)memory, bytes}, .mode = mode};
    check("UFFDIO_REGISTER", ioctl(uffd, UFFDIO_REGISTER, &range), 0);
}

static void protect(int file, uintptr_t page, uint64_t mode) {
    struct uffdio_writeprotect what = {.range = {page, PAGE}, .mode = mode};
    check("UFFDIO_WRITEPROTECT", ioctl(file, UFFDIO_WRITEPROTECT, &what), 0);
}

static void serve_fault(int file, struct uffd_msg *message, char content) {
    static char page[PAGE] __attribute__((aligned(4096)));
    uintptr_t at = message->arg.pagefault.address & ~(PAGE - 1UL);
    if (message->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
        if (file == uffd) protected_faults++;
        else child_protected++;
        return protect(file, at, 0);
    }
    memset(page, content, PAGE);
    struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
    // Counted first: the thread goes on with the copy. EAGAIN: a layout message is on its way.
    if (file == uffd) faults++;
    else child_faults++;
    while (ioctl(file, UFFDIO_COPY, &copy) && errno == EAGAIN) {}
}

// A message comes to be read some time after what it tells of.
static void told(const char *what, volatile int *count) {
    for (int waited = 0; !*count && waited < 1000; waited++) usleep(1000);
    check(what, *count, 1);
}

// Pages of ours hold P, those of a child C.
static void *serve(void *nothing) {
    for (;;) {
        struct pollfd wait[2] = {{uffd, POLLIN, 0}, {child_uffd, POLLIN, 0}};
        poll(wait, 2, -1);
        for (int which = 0; which < 2; which++) {
            struct uffd_msg message;
            if (wait[which].fd < 0 || read(wait[which].fd, &message, sizeof message) != sizeof message) continue;
            if (message.event == UFFD_EVENT_PAGEFAULT) serve_fault(wait[which].fd, &message, which ? 'C' : 'P');
            if (message.event == UFFD_EVENT_FORK) child_uffd = (int)message.arg.fork.ufd;
            if (message.event == UFFD_EVENT_REMAP) last_layout = message, remaps++;
            if (message.event == UFFD_EVENT_REMOVE) last_layout = message, removes++;
            if (message.event == UFFD_EVENT_UNMAP) last_layout = message, unmaps++;
        }
    }
    return nothing;
}

static void begin(uint64_t features, uint64_t mode) {
    pthread_t thread;
    open_with(features);
    area = map(PAGES * PAGE);
    take(area, PAGES * PAGE, mode);
    check("pthread_create", pthread_create(&thread, 0, serve, 0), 0);
}

static int child_ends(int (*run)(void)) {
    pid_t pid = fork();
    if (pid == 0) _exit(run());
    int status = -1;
    check("waitpid", waitpid(pid, &status, 0), pid);
    return status;
}

static int child_reads(void) {
    for (int page = 0; page < PAGES; page++)
        if (area[page * PAGE] != (page < PAGES / 2 ? 'P' : 'C')) return 1;
    return 0;
}

// The child has what was there, and its own faults come to a userfaultfd of its own.
static void forks(void) {
    begin(UFFD_FEATURE_EVENT_FORK, UFFDIO_REGISTER_MODE_MISSING);
    for (int page = 0; page < PAGES / 2; page++) check("filled", area[page * PAGE], 'P');
    check("the child", child_ends(child_reads), 0);
    check("its faults", child_faults, PAGES / 2);
    for (int page = 0; page < PAGES; page++) check("the parent's", area[page * PAGE], 'P');
    check("our faults", faults, PAGES);
}

static void moves(void) {
    begin(UFFD_FEATURE_EVENT_REMAP, UFFDIO_REGISTER_MODE_MISSING);
    for (int page = 0; page < PAGES / 2; page++) area[page * PAGE] = 'W';
    char *to = map(PAGES * PAGE);
    check("mremap", mremap(area, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, 1);
    told("its message", &remaps);
    check("from there", last_layout.arg.remap.from == (uintptr_t)area && last_layout.arg.remap.len == PAGES * PAGE, 1);
    check("to there", last_layout.arg.remap.to == (uintptr_t)to, 1);
    for (int page = 0; page < PAGES; page++) check("moved, or missing there", to[page * PAGE], page < PAGES / 2 ? 'W' : 'P');
}

// The message comes before the pages go, and madvise returns when it has been read.
static void discards(void) {
    begin(UFFD_FEATURE_EVENT_REMOVE, UFFDIO_REGISTER_MODE_MISSING);
    memset(area, 'W', PAGES * PAGE);
    check("madvise", madvise(area + PAGE, 8 * PAGE, MADV_DONTNEED), 0);
    told("its message", &removes);
    check("which range", last_layout.arg.remove.end - last_layout.arg.remove.start, 8 * PAGE);
    for (int page = 0; page < PAGES; page++)
        check("kept, or missing", area[page * PAGE], page >= 1 && page < 9 ? 'P' : 'W');
}

// The message comes after the fact; what is mapped there anew is registered with nobody.
static void unmapped(void) {
    begin(UFFD_FEATURE_EVENT_UNMAP, UFFDIO_REGISTER_MODE_MISSING);
    memset(area, 'W', PAGES * PAGE);
    check("munmap", munmap(area + 8 * PAGE, 8 * PAGE), 0);
    told("its message", &unmaps);
    check("which range", last_layout.arg.remove.start == (uintptr_t)area + 8 * PAGE, 1);
    char *again = mmap(area, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("zeros without a fault", again[PAGE], 0);
    check("faults", faults, PAGES);
    check("kept", area[7 * PAGE], 'W');
}

static int child_writes(void) {
    *(volatile char *)area = 'c', *(volatile char *)(area + PAGE) = 'c';
    return area[0] != 'c' || area[2 * PAGE] != 'W';
}

// Protection goes over to the child, and so do its faults.
static void protects(void) {
    begin(UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_PAGEFAULT_FLAG_WP,
          UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
    memset(area, 'W', PAGES * PAGE);
    protect(uffd, (uintptr_t)area, UFFDIO_WRITEPROTECT_MODE_WP);
    check("the child", child_ends(child_writes), 0);
    check("its faults", child_protected, 1);
    check("unwritten", area[0], 'W');
    *(volatile char *)area = 'w';
    check("our faults", protected_faults, 1);
}

static long huge_kib(void) {
    char line[256];
    long kib = 0, more;
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    while (rollup && fgets(line, sizeof line, rollup))
        if (sscanf(line, "AnonHugePages: %ld kB", &more) == 1) kib += more;
    if (rollup) fclose(rollup);
    return kib;
}

static void splits(void) {
    open_with(FEATURE_MOVE);
    char *whole = map(2 * HUGE), *to = map(PAGE), *huge = (char *)(((uintptr_t)whole + HUGE - 1) & ~(HUGE - 1UL));
    madvise(huge, HUGE, MADV_HUGEPAGE);
    for (int at = 0; at < HUGE / 8; at++) ((uint64_t *)huge)[at] = at * 0x9e3779b97f4a7c15u;
    if (huge_kib() == 0) skip("huge page to be had");
    take(to, PAGE, UFFDIO_REGISTER_MODE_MISSING);
    struct move move = {(uintptr_t)to, (uintptr_t)huge + 100 * PAGE, PAGE, 0, 0};
    check("UFFDIO_MOVE", ioctl(uffd, DO_MOVE, &move), 0);
    check("huge pages left", huge_kib(), 0);
    for (int at = 0; at < HUGE / 8; at++) {
        int is_moved = at / (PAGE / 8) == 100;
        uint64_t found = is_moved ? ((uint64_t *)to)[at % (PAGE / 8)] : ((uint64_t *)huge)[at];
        check("what was in it", found == at * 0x9e3779b97f4a7c15u, 1);
    }
    check("the hole", huge[100 * PAGE], 0);
}

static sigjmp_buf before;
static volatile int signals, kind;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signals++, kind = info->si_code;
    siglongjmp(before, 1);
}

// Who touches it gets SIGBUS, and the kernel EFAULT; its neighbours are as they were.
static void poisons(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    begin(FEATURE_POISON, UFFDIO_REGISTER_MODE_MISSING);
    sigaction(SIGBUS, &action, 0);
    struct poison poison = {(uintptr_t)area + PAGE, PAGE, 0, 0};
    check("UFFDIO_POISON", ioctl(uffd, DO_POISON, &poison), 0);
    check("before it", area[0], 'P');
    if (!sigsetjmp(before, 1)) check("it can be read", area[PAGE], -1);
    check("signals", signals, 1);
    // By whether the kernel is built for memory that fails.
    check("its kind", kind == BUS_MCEERR_AR || kind == BUS_ADRERR, 1);
    int ends[2];
    check("pipe", pipe(ends), 0);
    check("write", write(ends[1], area + PAGE, 8), -1);
    check("its reason", errno, EFAULT);
    check("behind it", area[2 * PAGE], 'P');
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"fork", forks}, {"remap", moves}, {"remove", discards}, {"unmap", unmapped}, {"protect", protects},
        {"split", splits}, {"poison", poisons},
    };
    alarm(20);
    for (size_t at = 0; count > 1 && at < sizeof all / sizeof *all; at++)
        if (strcmp(words[1], all[at].name) == 0) {
            all[at].run();
            printf("as it should be\n");
            return 0;
        }
    return 2;
}
