// Where handlers run and what they find: signal stacks, masks, actions, the processor's state, and the ways out of a handler. Prints
// what is the same with and without pleat.
#define _GNU_SOURCE
#include "cold.h"
#include <execinfo.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <xmmintrin.h>
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

enum { STACK = 64 << 10, JUMPS = 3000 };
static unsigned char *stack_memory;
static sigjmp_buf jump;
static const char *stage;
static volatile sig_atomic_t handled;

static int is_on(const void *address) {
    return (unsigned char *)address >= stack_memory && (unsigned char *)address < stack_memory + STACK;
}

// Without SIGSYS, which user mode never shows as blocked.
static uint64_t mask_now(void) {
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, &mask, 8);
    return mask & ~(1ULL << (SIGSYS - 1));
}

static void set(int signal, void *handler, int flags, uint64_t mask) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    memcpy(&action.sa_mask, &mask, sizeof mask);
    check("sigaction", sigaction(signal, &action, 0), 0);
}

static void set_stack(void *start, int flags, size_t bytes) {
    stack_t stack = {.ss_sp = start, .ss_flags = flags, .ss_size = bytes}, old = {0};
    int answer = sigaltstack(&stack, &old);
    printf("%s: sigaltstack %s; before %d of %zu\n", stage, answer ? strerror(errno) : "good", old.ss_flags, old.ss_size);
}

static void tell_stack(const char *who) {
    stack_t now = {0};
    check("sigaltstack", sigaltstack(0, &now), 0);
    printf("%s: %s: %s, flags %x of %zu\n", stage, who, now.ss_sp == stack_memory ? "ours" : now.ss_sp ? "?" : "none",
           now.ss_flags, now.ss_size);
}

// Says where it is, and what it has been told.
static void tell(int signal, siginfo_t *information, void *of) {
    ucontext_t *context = of;
    char marker;
    uint64_t before;
    memcpy(&before, &context->uc_sigmask, sizeof before);
    printf("%s: signal %d, code %d, value %d, on %s stack, mask %llx over %llx, aligned %d, flags %x, uc_stack %s %x %zu\n", stage,
           signal, information->si_code, information->si_code == SI_QUEUE ? information->si_value.sival_int : 0,
           is_on(&marker) ? "its" : "this", (unsigned long long)mask_now(), (unsigned long long)before,
           (int)((uintptr_t)__builtin_frame_address(0) % 16), (unsigned)(context->uc_mcontext.gregs[REG_EFL] & 0x400),
           context->uc_stack.ss_sp == stack_memory ? "ours" : context->uc_stack.ss_sp ? "?" : "none",
           context->uc_stack.ss_flags, context->uc_stack.ss_size);
    tell_stack("within");
    handled++;
}

static void stacks(void) {
    stage = "none", tell_stack("outside");
    set_stack(stack_memory, 7, STACK), set_stack(stack_memory, 0, 2047), set_stack(stack_memory, SS_ONSTACK, STACK);
    tell_stack("outside");
    errno = 0;
    check("a bad pointer", syscall(SYS_sigaltstack, (void *)0x10000, 0), -1), check("EFAULT", errno, EFAULT);
    check("a bad pointer", syscall(SYS_sigaltstack, 0, (void *)0x10000), -1), check("EFAULT", errno, EFAULT);
    stage = "on it", set(SIGUSR1, tell, SA_ONSTACK, 0x500), raise(SIGUSR1);
    stage = "not on it", set(SIGUSR1, tell, 0, 0x500), raise(SIGUSR1);
    stage = "queued", set(SIGRTMIN + 3, tell, SA_ONSTACK | SA_NODEFER, 0);
    check("sigqueue", sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 4711}), 0);
    stage = "disarmed", set_stack(stack_memory, SS_AUTODISARM, STACK), set(SIGUSR1, tell, SA_ONSTACK, 0);
    tell_stack("before"), raise(SIGUSR1), tell_stack("after");
    set(SIGUSR1, tell, 0, 0), raise(SIGUSR1), tell_stack("after the other");
    stage = "disabled", set_stack(0, SS_DISABLE, 0), set(SIGUSR1, tell, SA_ONSTACK, 0), raise(SIGUSR1), tell_stack("outside");
}

static void change_within(int signal, siginfo_t *information, void *context) {
    tell(signal, information, context);
    set_stack(stack_memory, 0, STACK);
    set_stack(0, SS_DISABLE, 0);
    if (handled < 100) handled = 100, raise(SIGUSR2);
    ((ucontext_t *)context)->uc_stack.ss_size = STACK / 2;
}

static void changes(void) {
    stage = "changed within", set_stack(stack_memory, 0, STACK);
    set(SIGUSR1, change_within, SA_ONSTACK, 0), set(SIGUSR2, tell, SA_ONSTACK, 0);
    handled = 0, raise(SIGUSR1), tell_stack("after");
    set(SIGUSR1, change_within, 0, 0), handled = 0, raise(SIGUSR1), tell_stack("after the other");
    set_stack(stack_memory, 0, STACK);
}

// The thread's mask is another while it waits, and a handler finds that.
static void waits(void) {
    uint64_t waiting = 0x30000, blocked = 1ULL << (SIGUSR1 - 1) | 0x80000;
    struct timespec soon = {5, 0};
    sigset_t mask, empty;
    sigemptyset(&empty), memcpy(&empty, &waiting, sizeof waiting);
    sigemptyset(&mask), memcpy(&mask, &blocked, sizeof blocked);
    int epoll = epoll_create1(0);
    set(SIGUSR1, tell, SA_ONSTACK, 0x40);
    check("sigprocmask", sigprocmask(SIG_SETMASK, &mask, 0), 0);
    for (int way = 0; way < 4; way++) {
        struct epoll_event event;
        raise(SIGUSR1);
        stage = (const char *[]){"sigsuspend", "ppoll", "pselect", "epoll_pwait"}[way];
        int answer = way == 0   ? sigsuspend(&empty)
                     : way == 1 ? ppoll(0, 0, &soon, &empty)
                     : way == 2 ? pselect(0, 0, 0, 0, &soon, &empty)
                                : epoll_pwait(epoll, &event, 1, 5000, &empty);
        printf("%s: %d %s, then %llx\n", stage, answer, strerror(errno), (unsigned long long)mask_now());
    }
    // Two at once: the first finds the mask of the wait, the second that of the first.
    set(SIGUSR2, tell, 0, 0x80), set(SIGUSR1, tell, 0, 0x40);
    blocked |= 1ULL << (SIGUSR2 - 1), memcpy(&mask, &blocked, sizeof blocked), sigprocmask(SIG_SETMASK, &mask, 0);
    stage = "two at once", raise(SIGUSR1), raise(SIGUSR2), sigsuspend(&empty);
    printf("%s: then %llx\n", stage, (unsigned long long)mask_now());
    sigemptyset(&mask), sigprocmask(SIG_SETMASK, &mask, 0), close(epoll);
}

static void actions(void) {
    struct sigaction old, now;
    stage = "once", set(SIGUSR1, tell, SA_RESETHAND | SA_ONSTACK, 0), raise(SIGUSR1);
    check("sigaction", sigaction(SIGUSR1, 0, &now), 0);
    printf("once: %d, flags %x\n", now.sa_handler == SIG_DFL, (unsigned)now.sa_flags);
    set(SIGUSR1, tell, SA_RESTART | SA_NODEFER, 0x7fff0000), check("sigaction", sigaction(SIGUSR1, 0, &old), 0);
    uint64_t mask;
    memcpy(&mask, &old.sa_mask, sizeof mask);
    printf("told: %d, flags %x, mask %llx\n", old.sa_sigaction == tell, (unsigned)old.sa_flags, (unsigned long long)mask);
    signal(SIGUSR1, SIG_IGN), raise(SIGUSR1);
    check("sigaction", sigaction(SIGUSR1, 0, &now), 0), check("ignored", now.sa_handler == SIG_IGN, 1);
    check("SIGKILL", sigaction(SIGKILL, &old, 0), -1), check("SIGKILL's reason", errno, EINVAL);
    check("signal 65", syscall(SYS_rt_sigaction, 65, 0, 0, 8), -1), check("signal 65's reason", errno, EINVAL);
    stage = "of this signal", set(SIGSYS, tell, 0, 0), raise(SIGSYS), signal(SIGSYS, SIG_DFL);
    pid_t child = fork();
    if (!child) raise(SIGSYS), _exit(0);
    int status;
    check("wait", waitpid(child, &status, 0), child), printf("SIGSYS ends: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    set(SIGUSR1, tell, SA_RESTART, 0), set(SIGALRM, tell, 0, 0), stage = "a read that waits";
    int ends[2];
    check("pipe", pipe(ends), 0), ualarm(20000, 0);
    char byte;
    check("read", read(ends[0], &byte, 1), -1), check("interrupted", errno, EINTR);
    set(SIGALRM, tell, SA_RESTART, 0), ualarm(20000, 0);
    if (!(child = fork())) usleep(100000), check("write", write(ends[1], "x", 1), 1), _exit(0);
    check("read again", read(ends[0], &byte, 1), 1), waitpid(child, &status, 0);
    close(ends[0]), close(ends[1]);
}

static unsigned state_within, words_within[4];

static void spoil(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)information, (void)context;
    state_within = _mm_getcsr();
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    words_within[0] = control;
    __asm__ volatile("pcmpeqd %%xmm7, %%xmm7; fninit; fld1; fld1; fld1" ::: "xmm7", "st", "st(1)", "st(2)");
    _mm_setcsr(0x1f80 | 0x2000);
}

static void processor(void) {
    uint64_t before[2] = {0x1122334455667788, 0x99aabbccddeeff00}, after[2];
    set(SIGUSR1, spoil, SA_ONSTACK, 0);
    for (int round = 0; round < 2; round++) {
        _mm_setcsr(0x1f80 | 0x6000);
        long answer, call = SYS_tgkill, process = getpid(), thread = gettid(), signal = SIGUSR1;
        __asm__ volatile("movdqu %2, %%xmm7; fldpi; syscall; movdqu %%xmm7, %1; fstp %%st(0)"
                         : "=a"(answer), "=m"(after)
                         : "m"(before), "0"(call), "D"(process), "S"(thread), "d"(signal)
                         : "rcx", "r11", "xmm7", "memory");
        printf("processor: %ld, within %x and %x, then %x, %d\n", answer, state_within, words_within[0], _mm_getcsr(),
               !memcmp(before, after, sizeof before));
        _mm_setcsr(0x1f80);
        set(SIGUSR1, spoil, 0, 0);
    }
}

static unsigned char *nowhere;

// Makes the fault good, by the address or by going on elsewhere.
static void mend(int signal, siginfo_t *information, void *of) {
    ucontext_t *context = of;
    check("si_addr", (unsigned char *)information->si_addr == nowhere, 1);
    handled = signal;
    if (context->uc_mcontext.gregs[REG_RBX] == (long)nowhere)
        context->uc_mcontext.gregs[REG_RBX] = (long)stack_memory;
    else
        check("mprotect", mprotect(nowhere, PAGE, PROT_READ | PROT_WRITE), 0);
    sigaddset(&context->uc_sigmask, SIGUSR2);
}

static void faults(void) {
    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        nowhere = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        set(SIGSEGV, mend, flags, 0);
        long got = 1;
        stack_memory[0] = 42;
        __asm__ volatile("mov %1, %%rbx; movzbl (%%rbx), %%eax; mov %%rax, %0" : "=r"(got) : "r"(nowhere) : "rax", "rbx", "memory");
        printf("faults: elsewhere %ld, mask %llx\n", got, (unsigned long long)mask_now());
        *(volatile unsigned char *)nowhere = 7;
        printf("faults: mended %d\n", *nowhere);
        munmap(nowhere, PAGE);
    }
    sigset_t none;
    sigemptyset(&none), sigprocmask(SIG_SETMASK, &none, 0), signal(SIGSEGV, SIG_DFL);
}

static void jump_out(int signal) {
    (void)signal;
    handled++;
    siglongjmp(jump, 1);
}

static void jumps(void) {
    handled = 0;
    for (volatile int round = 0; round < JUMPS; round++) {
        struct sigaction action = {.sa_handler = jump_out, .sa_flags = round & 1 ? SA_ONSTACK : 0};
        sigaction(SIGUSR1, &action, 0);
        if (!sigsetjmp(jump, 1)) raise(SIGUSR1);
    }
    printf("jumps: %d, mask %llx\n", (int)handled, (unsigned long long)mask_now());
    tell_stack("after");
}

static int deeper(volatile int depth) {
    volatile unsigned char room[4000];
    room[0] = depth;
    return deeper(depth + 1) + room[0];
}

// How a child ends whose stack has no room, by what stack its handler has.
static void overflows(void) {
    for (int way = 0; way < 3; way++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            struct rlimit little = {1 << 20, 1 << 20}, none = {0, 0};
            setrlimit(RLIMIT_STACK, &little), setrlimit(RLIMIT_CORE, &none);
            stack_t stack = {.ss_sp = stack_memory, .ss_size = way == 2 ? 2048 : STACK};
            check("sigaltstack", sigaltstack(&stack, 0), 0);
            struct sigaction action = {.sa_handler = jump_out, .sa_flags = way ? SA_ONSTACK : 0};
            sigaction(SIGSEGV, &action, 0);
            if (sigsetjmp(jump, 1)) _exit(33);
            _exit(deeper(0));
        }
        int status;
        check("wait", waitpid(child, &status, 0), child), printf("overflow %d: %x\n", way, status & ~0x80);
    }
}

static void look_back(int signal) {
    (void)signal;
    void *frames[64];
    int count = backtrace(frames, 64), found = 0;
    for (int at = 0; at < count; at++) found |= (uintptr_t)frames[at] - (uintptr_t)stacks < 64 << 10;
    printf("back trace: %d\n", found && count > 4);
}

static __attribute__((noinline)) void traces(void) {
    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        struct sigaction action = {.sa_handler = look_back, .sa_flags = flags};
        sigaction(SIGUSR1, &action, 0), raise(SIGUSR1);
    }
}

static void *thread(void *nothing) {
    (void)nothing;
    stage = "thread", tell_stack("at first");
    set(SIGUSR1, tell, SA_ONSTACK, 0), pthread_kill(pthread_self(), SIGUSR1);
    set_stack(stack_memory, 0, STACK), pthread_kill(pthread_self(), SIGUSR1);
    return 0;
}

// A signal stack that is given back, and used for something else, while it is still set: nobody writes there, but for a signal.
static void *forgetful(void *nothing) {
    unsigned char *memory = malloc(STACK);
    stack_t forgotten = {.ss_sp = memory, .ss_size = STACK};
    check("sigaltstack", sigaltstack(&forgotten, 0), 0);
    free(memory), memory = malloc(STACK), fill(memory, STACK, 99);
    for (int round = 0; round < 100; round++) getppid(), usleep(1), expect("what was a signal stack", memory, STACK, 99);
    return nothing;
}

static void *sleeper(void *nothing) {
    pause();
    return nothing;
}

static void threads(void) {
    pthread_t id;
    for (int round = 0; round < 2; round++) check("pthread_create", pthread_create(&id, 0, thread, 0), 0), pthread_join(id, 0);
    check("pthread_create", pthread_create(&id, 0, forgetful, 0), 0), pthread_join(id, 0);
    void *result;
    pthread_create(&id, 0, sleeper, 0), usleep(20000), pthread_cancel(id), pthread_join(id, &result);
    printf("threads: cancelled %d\n", result == PTHREAD_CANCELED);
    stage = "main", tell_stack("then");
}

int main(void) {
    stack_memory = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin();
    void (*const stages[])(void) = {stacks, changes, waits, actions, processor, faults, jumps, overflows, traces, threads};
    for (size_t at = 0; at < sizeof stages / sizeof *stages; at++) chill(), stages[at](), fflush(stdout);
    end();
    printf("equal\n");
}
