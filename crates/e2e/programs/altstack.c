// A signal stack of the usual 8 KiB, with a pattern below it: whatever is done in a system call keeps to it. So do the calls of a
// handler that runs there, one of them with an address where nothing is.
#define _GNU_SOURCE
#include "cold.h"
#include <signal.h>
#include <sys/wait.h>

enum { BELOW = 128 << 10, STACK = 8 << 10, ROUNDS = 12 };
static unsigned char *below, *nowhere;
static volatile sig_atomic_t handled;

static void handler(int signal) {
    handled += signal == SIGUSR1 && getpid() > 1 && write(1, nowhere, 8) < 0 && errno == EFAULT;
}

static void look(const char *what) { expect(what, below, BELOW, 77); }

static void in_child(void) {
    for (int number = 0; number < BUFFERS; number += 7) expect("the child's buffer", buffer(number), BUFFER, number);
    look("below the child's signal stack");
    raise(SIGUSR1);
    _exit(handled ? 0 : 1);
}

int main(void) {
    below = mmap(0, BELOW + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("mmap", below == MAP_FAILED, 0);
    fill(below, BELOW, 77);
    nowhere = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = below + BELOW, .ss_size = STACK};
    check("sigaltstack", sigaltstack(&stack, 0), 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    check("sigaction", sigaction(SIGUSR1, &action, 0), 0);
    begin();
    chill();
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) in_child();
        int status = -1;
        check("wait", waitpid(child, &status, 0), child);
        check("the child's status", status, 0);
        look("below the signal stack");
        raise(SIGUSR1);
        // What is asked of a failing address comes as a signal on this stack, too.
        check("write", write(1, nowhere, 8), -1);
        unsigned char *more = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(more, 1 << 20, round);
        more = mremap(more, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
        expect("moved", more, 1 << 20, round);
        check("munmap", munmap(more, 2 << 20), 0);
        look("below the signal stack, after all");
    }
    stack_t now;
    check("sigaltstack", sigaltstack(0, &now), 0);
    check("the signal stack is still there", now.ss_sp == below + BELOW && now.ss_size == STACK && !now.ss_flags, 1);
    printf("%d handled\n", handled);
    end();
    return 0;
}
