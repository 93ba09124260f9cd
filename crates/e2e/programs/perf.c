// Performance events whose attributes, counts and answers lie in memory that has left; and a sampling ring that the kernel fills
// while other memory leaves, with a copy of the stack in each sample: what is out it may not wait for, and what it copies must be
// right. How many copies end early is said on standard error. perf
#define _GNU_SOURCE
#include "cold.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#if defined(__x86_64__)
#include <asm/perf_regs.h>
enum { STACK_POINTER = PERF_REG_X86_SP };
#else
#include <asm/perf_regs.h>
enum { STACK_POINTER = PERF_REG_ARM64_SP };
#endif

enum { RING_PAGES = 64, COPIED = 32 << 10, BASE = 10 * PAGE, BASE_KEY = 70001, SAMPLES = 300 };

static size_t samples, cut, words_right;
static unsigned char *base;

static int open_event(struct perf_event_attr *attributes, int group) {
    return (int)syscall(SYS_perf_event_open, attributes, 0, -1, group, PERF_FLAG_FD_CLOEXEC);
}

// Across the end of a page, so that both must come.
static void *across(int number) { return buffer(number) + PAGE - 24; }

static struct perf_event_attr *describe(int number, uint64_t what) {
    struct perf_event_attr *attributes = across(number);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = PERF_TYPE_SOFTWARE, attributes->size = sizeof *attributes, attributes->config = what;
    attributes->exclude_kernel = 1, attributes->exclude_hv = 1;
    return attributes;
}

// Two counts read as a group, and an attribute that the kernel writes to.
static void counts(void) {
    struct {
        uint64_t members, enabled;
        struct {
            uint64_t value, id;
        } of[2];
    } *read_as = across(3);
    uint64_t *ids[2] = {across(4), across(5)}, *period = across(6), last = 0;
    struct perf_event_attr *faults = describe(0, PERF_COUNT_SW_PAGE_FAULTS), *clock = describe(1, PERF_COUNT_SW_CPU_CLOCK);
    faults->read_format = clock->read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED;
    clock->sample_period = 1000000000, *period = 2000000000;
    struct perf_event_attr *larger = across(2);
    memset(larger, 0, PAGE);
    larger->type = PERF_TYPE_SOFTWARE, larger->size = PAGE / 2, ((char *)larger)[PAGE / 2 - 1] = 1;
    chill();
    check("an attribute too large", open_event(larger, -1) == -1 && errno == E2BIG, 1);
    check("the size that the kernel knows", larger->size >= PERF_ATTR_SIZE_VER5 && larger->size < PAGE / 2, 1);
    int leader = open_event(faults, -1), other = open_event(clock, leader);
    check("perf_event_open", leader < 0 || other < 0, 0);
    chill();
    check("PERF_EVENT_IOC_ID", ioctl(leader, PERF_EVENT_IOC_ID, ids[0]) | ioctl(other, PERF_EVENT_IOC_ID, ids[1]), 0);
    check("PERF_EVENT_IOC_PERIOD", ioctl(other, PERF_EVENT_IOC_PERIOD, period), 0);
    for (int round = 0; round < 4; round++) {
        memset(read_as, 0xff, sizeof *read_as);
        chill();
        check("read", read(leader, read_as, sizeof *read_as), sizeof *read_as);
        check("members", read_as->members, 2);
        check("ids", read_as->of[0].id == *ids[0] && read_as->of[1].id == *ids[1] && *ids[0] != *ids[1], 1);
        check("a time that grows", read_as->enabled > last && read_as->enabled < last + 300000000000, 1);
        last = read_as->enabled;
    }
    close(other), close(leader);
    for (int number = 0; number < 8; number++) fill(buffer(number), BUFFER, number);
    printf("counts\n");
}

// Of the ring, which may end in the middle.
static uint64_t ring_word(const struct perf_event_mmap_page *ring, uint64_t at) {
    return *(const uint64_t *)((const char *)ring + ring->data_offset + at % ring->data_size);
}

// A sample: the thread, the registers, the stack from its pointer on, and how much of that could be copied. What it holds of
// `base` must be that.
static void look_at(const struct perf_event_mmap_page *ring, uint64_t at, size_t bytes) {
    check("the thread", ring_word(ring, at + 8), (uint64_t)gettid() << 32 | getpid());
    check("registers of 64 bits", ring_word(ring, at + 16), PERF_SAMPLE_REGS_ABI_64);
    uint64_t pointer = ring_word(ring, at + 24), copy = ring_word(ring, at + 32), from = at + 40;
    check("a sample's length", bytes, 40 + copy + (copy ? 8 : 0));
    uint64_t copied = copy ? ring_word(ring, from + copy) : 0;
    check("what was copied", copied <= copy && copy <= COPIED, 1);
    samples++, cut += copied < copy;
    for (uint64_t word_at = 0; word_at + 8 <= copied; word_at += 8) {
        uint64_t place = pointer + word_at - (uintptr_t)base;
        if (place >= BASE) continue;
        check("a word of the stack", ring_word(ring, from + word_at) == word(BASE_KEY, place / 8), 1);
        words_right++;
    }
}

static void drain(struct perf_event_mmap_page *ring) {
    uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE), tail = ring->data_tail;
    while (tail < head) {
        uint64_t word_of_header = ring_word(ring, tail);
        struct perf_event_header header;
        memcpy(&header, &word_of_header, sizeof header);
        check("a record's length", header.size >= 8 && header.size <= head - tail, 1);
        if (header.type == PERF_RECORD_SAMPLE) look_at(ring, tail, header.size);
        tail += header.size;
    }
    __atomic_store_n(&ring->data_tail, tail, __ATOMIC_RELEASE);
}

// While another thread presses. Half of the time nobody looks at what lies above on the stack, then all the time.
static void *sample(void *nothing) {
    uint64_t known[BASE / 8] __attribute__((aligned(PAGE)));
    base = (unsigned char *)known;
    fill(known, BASE, BASE_KEY);
    struct perf_event_attr *attributes = describe(10, PERF_COUNT_SW_CPU_CLOCK);
    attributes->freq = 1, attributes->sample_freq = 1000, attributes->sample_stack_user = COPIED;
    attributes->sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attributes->sample_regs_user = 1UL << STACK_POINTER;
    chill();
    int event = open_event(attributes, -1);
    check("perf_event_open", event < 0, 0);
    struct perf_event_mmap_page *ring = mmap(0, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
    check("a ring", ring == MAP_FAILED, 0);
    while (samples < SAMPLES) {
        drain(ring);
        if (samples > SAMPLES / 2) expect("the stack", known, BASE, BASE_KEY);
    }
    check("what was copied and known", words_right > PAGE / 8, 1);
    munmap(ring, (1 + RING_PAGES) * PAGE), close(event);
    fill(buffer(10), BUFFER, 10);
    is_over = 1;
    return nothing;
}

int main(void) {
    begin();
    struct perf_event_attr *attributes = describe(0, PERF_COUNT_SW_CPU_CLOCK);
    int event = open_event(attributes, -1);
    if (event < 0 && (errno == EACCES || errno == EPERM || errno == ENOENT || errno == ENOSYS)) {
        printf("no performance events: %s\n", strerror(errno));
        return 0;
    }
    check("perf_event_open", event < 0, 0);
    close(event);
    counts();
    pthread_t thread;
    check("pthread_create", pthread_create(&thread, 0, sample, 0), 0);
    press_on(0);
    pthread_join(thread, 0);
    printf("samples\n");
    for (int number = 0; number < BUFFERS; number++) expect("at the end", buffer(number), BUFFER, number);
    end();
    fprintf(stderr, "%zu stacks of %zu were cut\n", cut, samples);
    return 0;
}
