// A program leaves holes in its address space, goes on, and maps memory there again: nobody else can have come there. Every
// byte that it has is checked at the end.
#define _GNU_SOURCE
#include "cold.h"

enum { HOLE = 48 << 20 };
static const int readable = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;

int main(void) {
    map_all();
    // Before anything is managed: what pleat maps when it begins must not come there, where the kernel would place it.
    unsigned char *hole = mmap(0, HOLE, readable, private, -1, 0);
    check("munmap", munmap(hole, HOLE), 0);
    fill_all();
    check("the hole", mmap(hole, HOLE, readable, private | MAP_FIXED, -1, 0) == hole, 1);
    for (int round = 0; round < 3; round++) {
        fill(hole, HOLE, 500 + round);
        // Single pages go one by one, and come again in another order, while much is read from the swap file and written to it.
        for (size_t at = 0; at < HOLE; at += 16 * PAGE) check("munmap of a page", munmap(hole + at, PAGE), 0);
        check("munmap of a half", munmap(hole, HOLE / 2), 0);
        chill();
        check("the half", mmap(hole, HOLE / 2, readable, private | MAP_FIXED, -1, 0) == hole, 1);
        for (size_t at = HOLE; at > HOLE / 2; at -= 16 * PAGE) {
            unsigned char *page = hole + at - 16 * PAGE;
            check("a page", mmap(page, PAGE, readable, private | MAP_FIXED, -1, 0) == page, 1);
            page[round] = 1;
        }
        fill(hole, HOLE, 600 + round);
        expect("the hole", hole, HOLE, 600 + round);
    }
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
