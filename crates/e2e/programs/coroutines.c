// Coroutines whose stacks leave while others run, and whose first call comes when nothing below has been touched.
//   coroutines heap     on a block of malloc's
//   coroutines mapped   on mappings with MAP_STACK
#define _GNU_SOURCE
#include "cold.h"
#include <ucontext.h>

enum { COROUTINES = 64, STACK = 64 << 10, LOCAL = 48 << 10, ROUNDS = 4 };
static ucontext_t contexts[COROUTINES], home;

static void coroutine(int number) {
    uint64_t local[LOCAL / 8];
    for (int round = 0; round < ROUNDS; round++) {
        fill(local, LOCAL, number * 10 + round);
        check("swapcontext", swapcontext(&contexts[number], &home), 0);
        expect("a coroutine's stack", local, LOCAL, number * 10 + round);
    }
}

static void make_all(unsigned char *stacks) {
    for (int number = 0; number < COROUTINES; number++) {
        ucontext_t *context = &contexts[number];
        check("getcontext", getcontext(context), 0);
        context->uc_stack.ss_sp = stacks + (size_t)number * STACK, context->uc_stack.ss_size = STACK;
        context->uc_link = &home;
        makecontext(context, (void (*)(void))coroutine, 1, number);
    }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, is_mapped = !strcmp(arguments[1], "mapped");
    begin();
    size_t bytes = (size_t)COROUTINES * STACK;
    make_all(is_mapped ? mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) : malloc(bytes));
    // The last time they end.
    for (int round = 0; round <= ROUNDS; round++) {
        chill();
        for (int number = 0; number < COROUTINES; number++) check("swapcontext", swapcontext(&home, &contexts[number]), 0);
    }
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
