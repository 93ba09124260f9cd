// Memory of unusual kinds beside memory that is managed, while another thread presses: a mapping that grows downwards, shared
// memory of both kinds, and a userfaultfd of the program's own; and under a limit on data that leaves the agent no room to
// grow, or on files, which stops the swap file. shapes down|shared|userfaultfd|data|file
#define _GNU_SOURCE
#include "cold.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// Grows a page at a time, as a stack does, while pages above leave.
static void down(void) {
    enum { ROUNDS = 3, PAGES = 1900 }; // Less than the limit on stacks.
    for (int round = 0; round < ROUNDS; round++) {
        char *top = (char *)(0x100000000000 + (round + 1L) * (64L << 20));
        char *low = mmap(top - 32 * PAGE, 32 * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
        check("MAP_GROWSDOWN", low == MAP_FAILED, 0);
        for (long page = 1; page <= PAGES; page++) {
            fill(top - page * PAGE, PAGE, 7000 + page);
            long back = page * 7919 % page + 1;
            expect("above", top - back * PAGE, PAGE, 7000 + back);
        }
        for (long page = 1; page <= PAGES; page++) expect("at the end", top - page * PAGE, PAGE, 7000 + page);
        munmap(top - PAGES * PAGE, (size_t)PAGES * PAGE);
    }
}

static void *shared_of(int kind, size_t bytes) {
    if (kind == 0) {
        int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
        void *memory = shmat(id, 0, 0);
        shmctl(id, IPC_RMID, 0);
        return memory;
    }
    int file = memfd_create("shared", MFD_CLOEXEC);
    check("ftruncate", ftruncate(file, bytes), 0);
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory;
}

static void is_zero(const unsigned char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at++) check("what was removed", memory[at], 0);
}

// With a child that writes to it, and holes (MADV_REMOVE, which is told to nobody here).
static void shared(void) {
    const size_t bytes = 8 << 20, third = bytes / 4;
    for (int kind = 0; kind < 2; kind++) {
        unsigned char *memory = shared_of(kind, bytes);
        check("shared memory", memory == (void *)-1, 0);
        fill(memory, bytes, 8000 + kind);
        press();
        expect("shared", memory, bytes, 8000 + kind);
        check("MADV_REMOVE", madvise(memory + third, third, MADV_REMOVE), 0);
        press();
        is_zero(memory + third, third);
        pid_t pid = fork();
        if (pid == 0) {
            expect("in a child", memory, third, 8000 + kind);
            fill(memory + third, third, 9000);
            for (int number = 0; number < 16; number++) expect("a child's own", buffer(number), BUFFER, number);
            _exit(0);
        }
        int status;
        check("waitpid", waitpid(pid, &status, 0), pid);
        check("the child", status, 0);
        expect("before it", memory, third, 8000 + kind);
        expect("what the child wrote", memory + third, third, 9000);
        check("MADV_REMOVE of a part that leaves", madvise(memory + 2 * third, PAGE, MADV_REMOVE), 0);
        is_zero(memory + 2 * third, PAGE);
        check("munmap", kind ? munmap(memory, bytes) : shmdt(memory), 0);
    }
}

enum { OWN_PAGES = 2048, OWN = 3 };
static int own;
// Registered before memory is short, fresh behind that, and folded by then.
static unsigned char *own_memory[OWN];
static size_t faults_served[OWN];

static int owner(uintptr_t at) {
    int which = 0;
    while (which < OWN && at - (uintptr_t)own_memory[which] >= OWN_PAGES * PAGE) which++;
    check("a fault outside", which == OWN, 0);
    return which;
}

// Fills each missing page of the program's own.
static void *serve(void *nothing) {
    static unsigned char page[PAGE] __attribute__((aligned(4096)));
    for (struct pollfd wait = {own, POLLIN, 0}; poll(&wait, 1, -1) >= 0;) {
        struct uffd_msg message;
        if (read(own, &message, sizeof message) != sizeof message) continue;
        check("a message", message.event, UFFD_EVENT_PAGEFAULT);
        uintptr_t at = message.arg.pagefault.address & ~(PAGE - 1UL);
        int which = owner(at);
        faults_served[which]++;
        fill(page, PAGE, 10000 + (at - (uintptr_t)own_memory[which]) / PAGE);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        check("UFFDIO_COPY", ioctl(own, UFFDIO_COPY, &copy), 0);
    }
    return nothing;
}

static void register_own(int which) {
    struct uffdio_register what = {.range = {(uintptr_t)own_memory[which], OWN_PAGES * PAGE},
                                   .mode = UFFDIO_REGISTER_MODE_MISSING};
    check("UFFDIO_REGISTER", ioctl(own, UFFDIO_REGISTER, &what), 0);
}

static void *fresh(void) {
    return mmap(0, OWN_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Before memory is short.
static void open_own(void) {
    pthread_t thread;
    own = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (own < 0) return;
    struct uffdio_api api = {.api = UFFD_API};
    check("UFFDIO_API", ioctl(own, UFFDIO_API, &api), 0);
    own_memory[0] = fresh();
    register_own(0);
    check("pthread_create", pthread_create(&thread, 0, serve, 0), 0);
}

static void expect_served(int which, int first, int end) {
    for (int page = 0; page < OWN_PAGES; page++) {
        int at = page * 1031 % OWN_PAGES;
        if (at < first || at >= end) continue;
        expect("what the program's own userfaultfd brought", own_memory[which] + at * PAGE, PAGE, 10000 + at);
    }
}

// Every other page of the second half is the program's before it registers them, and out.
static void userfaultfd(void) {
    enum { HALF = OWN_PAGES / 2 };
    if (own < 0) return (void)printf("no userfaultfd: %s\n", strerror(errno));
    for (int round = 0; round < 3; round++) {
        expect_served(0, 0, OWN_PAGES);
        press();
        // It is brought again.
        check("madvise", madvise(own_memory[0], HALF * PAGE, MADV_DONTNEED), 0);
    }
    check("faults", faults_served[0], OWN_PAGES + 2 * HALF);
    own_memory[1] = fresh();
    usleep(20000); // A scan finds it.
    register_own(1);
    expect_served(1, 0, OWN_PAGES);
    check("faults of fresh memory", faults_served[1], OWN_PAGES);
    own_memory[2] = fresh();
    for (int at = HALF; at < OWN_PAGES; at += 2) fill(own_memory[2] + at * PAGE, PAGE, 11000 + at);
    press(), press();
    register_own(2);
    expect_served(2, 0, HALF);
    for (int at = HALF; at < OWN_PAGES; at += 2) expect("what was folded", own_memory[2] + at * PAGE, PAGE, 11000 + at);
    check("faults beside what was folded", faults_served[2], HALF);
    for (int at = HALF + 1; at < OWN_PAGES; at += 2) expect_served(2, at, at + 1);
    check("faults in between", faults_served[2], OWN_PAGES - HALF / 2);
}

static size_t data_bytes(void) {
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmData: %zu kB", &kib);
    fclose(status);
    return kib << 10;
}

static void limited(int resource, size_t bytes, int rounds) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    check("setrlimit", setrlimit(resource, &limit), 0);
    for (int round = 1; round <= rounds; round++) {
        fill(bulk, BULK, 3 * round);
        expect("noise", bulk, BULK, 3 * round);
    }
}

int main(int count, char **words) {
    if (count < 2) return 2;
    if (strcmp(words[1], "userfaultfd") == 0) open_own();
    begin();
    if (strcmp(words[1], "down") == 0) under_pressure(down);
    if (strcmp(words[1], "shared") == 0) under_pressure(shared);
    if (strcmp(words[1], "userfaultfd") == 0) under_pressure(userfaultfd);
    if (strcmp(words[1], "data") == 0) limited(RLIMIT_DATA, data_bytes(), 2);
    if (strcmp(words[1], "file") == 0) limited(RLIMIT_FSIZE, 1 << 20, 1);
    chill();
    for (int number = 0; number < BUFFERS; number++) expect("beside it", buffer(number), BUFFER, number);
    end();
    printf("%s\n", words[1]);
    return 0;
}
