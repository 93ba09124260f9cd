// Coroutines whose stacks leave while others run, and whose first call comes when nothing below has been touched.
//   coroutines heap       on a block of malloc's
//   coroutines mapped     on mappings with MAP_STACK
//   coroutines many       thousands of small ones, on a block of malloc's
//   coroutines preempted  they change in the handler of a timer's signal, which runs on their stacks
#define _GNU_SOURCE
#include "cold.h"
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

enum { COROUTINES_MAX = 6000, ROUNDS = 4, TURN_US = 2000, PRESSED = 80 };
static ucontext_t contexts[COROUTINES_MAX], home;
static int coroutines = 64, is_preempted, living;
static size_t stack = 64 << 10, local = 48 << 10;
// Who may be made to give way: set by himself, for swapcontext unblocks the signal before it has changed to his stack.
static volatile int running = -1;

static void give_way(int number) {
    running = -1;
    check("swapcontext", swapcontext(&contexts[number], &home), 0);
    running = number;
}

static void change(int signal) {
    (void)signal;
    if (running >= 0) give_way(running);
}

static void coroutine(int number) {
    uint64_t memory[local / 8];
    running = number;
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, local, number * 10 + round);
        if (!is_preempted) give_way(number);
        for (int look = 0; look < (is_preempted ? 400 : 1); look++) expect("a coroutine's stack", memory, local, number * 10 + round);
    }
    running = -1;
    living--;
}

static void make_all(unsigned char *stacks) {
    for (int number = 0; number < coroutines; number++) {
        ucontext_t *context = &contexts[number];
        check("getcontext", getcontext(context), 0);
        context->uc_stack.ss_sp = stacks + number * stack, context->uc_stack.ss_size = stack;
        context->uc_link = &home;
        makecontext(context, (void (*)(void))coroutine, 1, number);
    }
    living = coroutines;
}

static void take_turns(void) {
    // The last time they end.
    for (int round = 0; round <= ROUNDS; round++) {
        chill();
        for (int number = 0; number < coroutines; number++) check("swapcontext", swapcontext(&home, &contexts[number]), 0);
    }
}

static void be_preempted(void) {
    struct itimerval turn = {{0, TURN_US}, {0, TURN_US}}, none = {0};
    static char is_over[COROUTINES_MAX];
    sigset_t alarms;
    sigemptyset(&alarms), sigaddset(&alarms, SIGVTALRM);
    check("signal", signal(SIGVTALRM, change) == SIG_ERR, 0);
    // Blocked here, not in a coroutine: its context has been made before.
    check("sigprocmask", sigprocmask(SIG_BLOCK, &alarms, 0), 0);
    check("setitimer", setitimer(ITIMER_VIRTUAL, &turn, 0), 0);
    for (int round = 0; living; round++) {
        // Not for ever: while what has been pressed is being folded turns may end before anything has come back.
        if (round % 8 == 0 && round < PRESSED) chill();
        for (int number = 0; number < coroutines; number++) {
            int before = living;
            if (!is_over[number]) check("swapcontext", swapcontext(&home, &contexts[number]), 0);
            is_over[number] |= living < before;
        }
    }
    check("setitimer", setitimer(ITIMER_VIRTUAL, &none, 0), 0);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, is_mapped = !strcmp(arguments[1], "mapped");
    is_preempted = !strcmp(arguments[1], "preempted");
    if (!strcmp(arguments[1], "many")) coroutines = COROUTINES_MAX, stack = 16 << 10, local = 4 << 10;
    begin();
    size_t bytes = coroutines * stack;
    make_all(is_mapped ? mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) : malloc(bytes));
    if (is_preempted) be_preempted();
    else take_turns();
    for (int number = 0; number < BUFFERS; number++) expect("a buffer", buffer(number), BUFFER, number);
    end();
    printf("equal\n");
}
