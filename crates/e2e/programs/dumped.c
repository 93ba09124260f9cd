// Known pages, most of which have left when the program aborts; and what of them its core dump holds. The first page of each
// buffer is hot. dumped DIRECTORY, then dumped DIRECTORY check
#define _GNU_SOURCE
#include "cold.h"

#include <elf.h>
#include <sys/resource.h>

enum { PAGES = BUFFERS * (BUFFER / PAGE) };
#define KNOWN ((unsigned char *)0x200000000000)

static int hot(int page) { return page % (BUFFER / PAGE) == 0; }

static void abort_cold(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    check("RLIMIT_CORE", setrlimit(RLIMIT_CORE, &all), 0);
    void *known = mmap(KNOWN, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    check("the place of the known pages", known == KNOWN, 1);
    for (int page = 0; page < PAGES; page++) fill(KNOWN + page * PAGE, PAGE, 100 + page);
    begin();
    chill(), end();
    for (int page = 0; page < PAGES; page++)
        if (hot(page)) expect("a hot page", KNOWN + page * PAGE, PAGE, 100 + page);
    printf("aborts\n");
    fflush(stdout);
    abort();
}

static void check_core(void) {
    static unsigned char page_of_core[PAGE];
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    size_t right = 0, zeros = 0, hot_zeros = 0;
    int core = open("core", O_RDONLY | O_CLOEXEC);
    check("the core's header", pread(core, &header, sizeof header, 0), sizeof header);
    check("ELF", memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_CORE, 1);
    for (int at = 0; at < header.e_phnum; at++) {
        off_t place = header.e_phoff + (off_t)at * header.e_phentsize;
        check("a segment's header", pread(core, &segment, sizeof segment, place), sizeof segment);
        for (int page = 0; page < PAGES && segment.p_type == PT_LOAD; page++) {
            uintptr_t offset = (uintptr_t)KNOWN + page * PAGE - segment.p_vaddr;
            if (offset >= segment.p_filesz) continue;
            check("a page of the core", pread(core, page_of_core, PAGE, segment.p_offset + offset), PAGE);
            size_t nothing = 0;
            while (nothing < PAGE && page_of_core[nothing] == 0) nothing++;
            if (nothing == PAGE) zeros++, hot_zeros += hot(page);
            else right++, expect("a page of the core", page_of_core, PAGE, 100 + page);
        }
    }
    check("pages in the core", right + zeros, PAGES);
    printf("%zu right, %zu zeros, %zu of them hot\n", right, zeros, hot_zeros);
}

int main(int count, char **words) {
    if (count < 2 || chdir(words[1])) return 2;
    if (count > 2) check_core();
    else abort_cold();
    return 0;
}
