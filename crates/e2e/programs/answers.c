// What calls read and answer through pointers: each piece of memory that a call is given lies across a border of pages, one byte of it behind
// the border (but for words that must be aligned), and both pages are out when the call is made. One line a call, the same with and without pleat; "Bad address" stands in none.
// Each step runs twice: first it writes what the calls are to read, then everything leaves, then it makes the calls. answers [WHAT] DIRECTORY
#define _GNU_SOURCE
#include "cold.h"

#include <sys/syscall.h>

static const char *directory;
// Whether all is out, and calls are to be made.
static int is_out;
// How many places have been given away in this round, and to steps that have made their calls; pages of the latter, in all rounds.
static int places, places_used;
static size_t used_out, used, lines;
static long outcome;
static struct { unsigned char *start; int pages; } given[BUFFERS];

// So many bytes in a buffer of their own, the last one alone on its page. What follows is far away: pages beside those that are used come early.
static void *cold(size_t bytes) {
    enum { FAR = 219 };
    int pages = 1 + (bytes + PAGE - 2) / PAGE;
    check("there is a buffer left", places < BUFFERS && pages < BUFFER / PAGE, 1);
    unsigned char *start = buffer(places * FAR % BUFFERS);
    if (!is_out) fill(start, (size_t)pages * PAGE, 1000 + places);
    given[places].start = start, given[places++].pages = pages;
    return start + (size_t)(pages - 1) * PAGE + 1 - bytes;
}

static void *with(const void *what, size_t bytes) {
    void *place = cold(bytes);
    return is_out ? place : memcpy(place, what, bytes);
}

#define ROOM(type) ((type *)cold(sizeof(type)))
#define GIVEN(type, ...) ((type *)with(&(type)__VA_ARGS__, sizeof(type)))

static char *text(const char *words) { return with(words, strlen(words) + 1); }

static char *path(const char *name) {
    char whole[PAGE];
    snprintf(whole, sizeof whole, "%s/answers.%s", directory, name);
    return text(whole);
}

// A number that must be aligned: the last of its page.
static uint32_t *aligned(uint32_t value) {
    uint32_t *place = cold(5);
    if (!is_out) *place = value;
    return place;
}

// Pages that are out, of some of the places.
static size_t out_of(int first, int end) {
    size_t out = 0;
    for (int number = first; number < end; number++) {
        uint64_t entries[BUFFER / PAGE];
        long bytes = given[number].pages * sizeof *entries;
        check("pagemap", pread(pagemap, entries, bytes, (uintptr_t)given[number].start / PAGE * sizeof *entries), bytes);
        for (int page = 0; page < given[number].pages; page++) out += !(entries[page] >> 63);
    }
    return out;
}

static size_t pages_of(int first, int end) {
    size_t pages = 0;
    for (int number = first; number < end; number++) pages += given[number].pages;
    return pages;
}

// Whether the calls of a step are to be made; how many of its pages are out then is counted.
static int ready(void) {
    if (!is_out) return 0;
    used_out += out_of(places_used, places), used += pages_of(places_used, places);
    places_used = places;
    return 1;
}

// Until everything that was given away is out, which it never is without pleat.
static void chill_all(void) {
    size_t all = pages_of(0, places);
    chill();
    for (int pass = 0; pass < 40 && out_of(0, places) > 0 && out_of(0, places) < all; pass++) press_apart();
}

static uint64_t sum(const void *bytes, size_t count) {
    uint64_t sum = 5381;
    for (size_t at = 0; at < count; at++) sum = sum * 33 + ((const unsigned char *)bytes)[at];
    return sum;
}

// What is left in registers may be an address: a call that takes fewer arguments than six has zeros for the others.
#define CALL(...) CALL_OF_SIX(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_OF_SIX(name, a, b, c, d, e, f, ...) syscall(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

// What a call has answered, and what it has written.
static void told(const char *name, long result, const void *answer, size_t bytes) {
    int error = errno;
    printf("%s: %ld %s, %llx\n", name, result, result < 0 ? strerror(error) : "", (unsigned long long)sum(answer, bytes));
    lines++;
}

static void said(const char *name, long result) { told(name, result, 0, 0); }

// Where the answer is never the same. What it is compared with is looked at behind the call.
#define likely(name, call, is_right) (outcome = (call), told_whether(name, outcome, is_right))

static void told_whether(const char *name, long result, int is_right) {
    int error = errno;
    printf("%s: %s, %d\n", name, result < 0 ? strerror(error) : "done", is_right);
    lines++;
}

// Where it is another for another user: anything but EFAULT.
static void reached(const char *name, long result) {
    printf("%s: %s\n", name, result < 0 && errno == EFAULT ? strerror(EFAULT) : "reached");
    lines++;
}

static void opened(const char *name, long file) {
    said(name, file < 0 ? file : 0);
    if (file >= 0) close(file);
}

#include "answers_files.h"
#include "answers_sockets.h"
#include "answers_shared.h"
#include "answers_process.h"

static void both_ways(void (*const *steps)(void)) {
    for (is_out = 0; is_out < 2; is_out++) {
        places = places_used = 0;
        for (void (*const *step)(void) = steps; *step; step++) (*step)();
        if (!is_out) chill_all();
    }
}

int main(int count, char **words) {
    if (count < 2) return 2;
    directory = words[count - 1];
    setvbuf(stdout, 0, _IOLBF, 0);
    begin();
    begin_files(), both_ways(file_steps), end_files();
    begin_sockets(), both_ways(socket_steps);
    begin_shared(), both_ways(shared_steps), end_shared();
    begin_process(), both_ways(process_steps);
    printf("%zu answers\n", lines);
    pages_out = used_out, pages_seen = used;
    end();
    return 0;
}
