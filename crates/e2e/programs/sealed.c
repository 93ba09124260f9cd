// What is sealed (mseal) is not unmapped, and what lies beside it in the same call is not either: it may be away.
#define _GNU_SOURCE
#include "cold.h"
#include <sys/syscall.h>

enum { MSEAL = 462, SEALED = 128, HEAP = 1 << 20 };
static const int readable = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
static unsigned char *heap;

static int seal(void *start, size_t bytes) { return syscall(MSEAL, start, bytes, 0); }

static void is_refused(const char *what, long result) {
    int error = errno;
    check(what, result, -1);
    check(what, error, EPERM);
    for (int number = 0; number < BUFFERS; number++) expect(what, buffer(number), BUFFER, number);
    chill();
}

int main(void) {
    map_all();
    heap = sbrk(HEAP);
    fill(heap, HEAP, 700);
    fill_all();
    if (seal(buffer(SEALED), PAGE)) {
        fprintf(stderr, "\nskipped: no mseal\n");
        printf("equal\n");
        return 0;
    }
    chill();
    size_t all = (size_t)BUFFERS * BUFFER;
    is_refused("munmap", munmap(buffers, all));
    is_refused("munmap past libc", syscall(SYS_munmap, buffers, all));
    is_refused("mmap", (long)mmap(buffers, all, readable, private | MAP_FIXED, -1, 0));
    is_refused("mmap of a part", (long)mmap(buffer(SEALED), BUFFER, readable, private | MAP_FIXED, -1, 0));
    void *other = mmap(0, all, readable, private, -1, 0);
    is_refused("mremap to a place", (long)mremap(other, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, buffers));
    is_refused("mremap that shrinks", (long)mremap(buffers, all, BUFFER, 0));

    // The heap stays as long as it is, and nobody waits for ever.
    check("mseal of the heap", seal(heap + HEAP / 2 - ((uintptr_t)heap & (PAGE - 1)), PAGE), 0);
    brk(heap + PAGE);
    check("the heap's end", sbrk(0) == heap + HEAP, 1);
    chill();
    expect("the heap", heap, HEAP, 700);

    // What is not sealed goes.
    check("munmap", munmap(buffers, SEALED * BUFFER), 0);
    check("mmap", mmap(buffers, SEALED * BUFFER, readable, private | MAP_FIXED_NOREPLACE, -1, 0) == buffers, 1);
    for (int number = 0; number < SEALED; number++) {
        check("a buffer", *buffer(number), 0);
        fill(buffer(number), BUFFER, number + 900);
    }
    chill();
    for (int number = 0; number < BUFFERS; number++)
        expect("a buffer", buffer(number), BUFFER, number < SEALED ? number + 900 : number);
    end();
    printf("equal\n");
}
