// A stand-in for the agent: claims an entry of the ledger, writes numbers into it, and does what TEST_AGENT says.
// The test passes the offsets of the ledger's fields as macros.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t start_ticks(void) {
    char text[1024] = {0};
    int fd = open("/proc/self/stat", O_RDONLY);
    if (read(fd, text, sizeof text - 1) <= 0) _exit(98);
    close(fd);
    char *at = strrchr(text, ')') + 1;
    for (int field = 3; field < 22; field++) at = strchr(at + 1, ' ');
    return strtoull(at, NULL, 10);
}

static void fill(char *entry) {
    for (uint64_t i = 0; i < GAUGES; i++) {
        ((uint64_t *)(entry + AT_GAUGES))[i] = 1000 + i;
        ((uint64_t *)(entry + AT_PEAKS))[i] = 2000 + i;
    }
    for (uint64_t i = 0; i < COUNTERS; i++) ((uint64_t *)(entry + AT_COUNTERS))[i] = 10 + i;
    for (uint32_t i = 0; i < FAULTS; i++) ((uint32_t *)(entry + AT_FAULTS))[i * BUCKETS + 20] = i + 1;
}

// Grows past the threshold and waits to be woken.
static void grow(char *ledger) {
    size_t bytes = 60 << 20;
    char *memory = malloc(bytes);
    memset(memory, 1, bytes);
    uint32_t *active = (uint32_t *)(ledger + AT_ACTIVE);
    struct timespec limit = {5, 0};
    syscall(SYS_futex, active, FUTEX_WAIT, 0, &limit, NULL, 0);
    _exit(__atomic_load_n(active, __ATOMIC_ACQUIRE) == 1 && memory[bytes - 1] ? 55 : 56);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("PLEAT_LEDGER"), *what = getenv("TEST_AGENT");
    if (!path || !what) return;
    int fd = open(strndupa(path, strcspn(path, " ")), O_RDWR | O_CLOEXEC);
    if (fd < 0) _exit(97);
    char *ledger = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED || *(uint64_t *)ledger != MAGIC) _exit(96);
    uint32_t pid = (uint32_t)getpid();
    char *entry = ledger + AT_PROCESSES;
    for (int slot = 0;; slot++, entry += ENTRY_BYTES) {
        uint32_t none = 0;
        if (slot == 4096) _exit(95);
        if (__atomic_compare_exchange_n((uint32_t *)entry, &none, pid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
    }
    uint32_t *used = (uint32_t *)(ledger + AT_USED), slots = (uint32_t)((entry - ledger - AT_PROCESSES) / ENTRY_BYTES) + 1;
    for (uint32_t now = *used; now < slots;)
        if (__atomic_compare_exchange_n(used, &now, slots, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
    *(uint64_t *)(entry + AT_START_TICKS) = start_ticks();
    uint32_t *phase = (uint32_t *)(entry + AT_PHASE);
    *phase = 1;
    if (!strcmp(what, "manage")) fill(entry), *phase = 2;
    if (!strcmp(what, "grow")) grow(ledger);
    if (!strcmp(what, "fail")) *phase = 3, kill(getpid(), SIGKILL);
    if (!strcmp(what, "stop")) *phase = 4, pause();
}
