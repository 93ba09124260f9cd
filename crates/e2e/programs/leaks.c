// Four threads fill blocks, a forked child and the program itself lose some, and what looks for leaks (LeakSanitizer) stops all
// threads of each at its end and reads all that they have. With an argument it stops and goes on in between.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, COUNT = 15000 };
static char *all[THREADS][COUNT];

static void *fill(void *who) {
    long thread = (long)who;
    for (int at = 0; at < COUNT; at++) {
        int bytes = at % 900 + 2;
        all[thread][at] = malloc(bytes);
        memset(all[thread][at], at, bytes);
    }
    return 0;
}

static long sum(void) {
    long sum = 0;
    for (int thread = 0; thread < THREADS; thread++) {
        for (int at = 0; at < COUNT; at++) {
            int step = at * 7919L % COUNT;
            if (all[thread][step]) sum = sum * 31 + all[thread][step][step % 900 + 1];
        }
    }
    return sum;
}

int main(int count, char **words) {
    (void)words;
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++) pthread_create(&threads[at], 0, fill, (void *)at);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
    printf("%ld\n", sum());
    fflush(stdout);
    if (count > 1) {
        raise(SIGSTOP);
        printf("%ld\n", sum());
        fflush(stdout);
    }
    pid_t child = fork();
    if (child == 0) {
        all[1][500] = all[2][600] = 0;
        printf("child %ld\n", sum());
        fflush(stdout);
        return 0;
    }
    int status;
    waitpid(child, &status, 0);
    all[3][700] = 0;
    printf("%ld, child %d\n", sum(), WEXITSTATUS(status));
    // Who has found leaks ends without.
    fflush(stdout);
    return 0;
}
