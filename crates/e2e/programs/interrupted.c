// A signal's handler that runs while its thread changes the layout.
//   interrupted forks      forks in the handler
//   interrupted changes    changes the layout in the handler, while another thread forks
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BULK = 40 << 20, BLOCK = 1 << 20, FORKS = 150 };

static volatile sig_atomic_t forks, failures;
static int forks_in_handler;
static uint64_t *bulk;

static void change(void) {
    char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED || block[BLOCK / 2] != 0) failures++;
    block[BLOCK / 2] = 1;
    if (munmap(block, BLOCK) != 0) failures++;
    // It takes one argument; what a compiler leaves in the register of a second one is no length.
    for (int round = 0; round < 4; round++)
        if (syscall(SYS_brk, 0, -1L) <= 0) failures++;
}

static void fork_once(void) {
    pid_t child = fork();
    if (child == 0) _exit(bulk[forks * 4096] == (uint64_t)forks * 4096 ? 0 : 1);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failures++;
    forks++;
}

static void interrupt(int number) {
    (void)number;
    if (forks_in_handler && forks < FORKS) fork_once();
    else if (!forks_in_handler) change();
}

static void *fork_on(void *unused) {
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    while (forks < FORKS) fork_once();
    return unused;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    forks_in_handler = strcmp(arguments[1], "forks") == 0;
    bulk = mmap(NULL, BULK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < BULK / 8; at++) bulk[at] = at;
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_t thread;
    if (!forks_in_handler) pthread_create(&thread, NULL, fork_on, NULL);
    while (forks < FORKS) change();
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    if (!forks_in_handler) pthread_join(thread, NULL);
    for (size_t at = 0; at < BULK / 8; at++) failures += bulk[at] != at;
    printf("%d failures\n", (int)failures);
    return 0;
}
