// A filter of system calls for all threads of a program that has many, while some begin and end.
enum { CROWD = 12, FEW = 3 };
static _Atomic int are_confined, strangers, looked;
static volatile int are_to_stop;

static int forbid_to_all(void) { return forbid(SECCOMP_RET_ERRNO | EPERM, SECCOMP_FILTER_FLAG_TSYNC); }

// Whether the filter lets this thread open a file. Once all have been confined, none may.
static void look_whether_confined(void) {
    int file = open("/dev/null", O_RDONLY);
    if (file >= 0) close(file);
    if (are_confined) strangers += file >= 0, looked++;
}

static void *begin_and_end(void *nothing) {
    int was_confined = are_confined;
    if (was_confined) look_whether_confined();
    return nothing;
}

// One of many: sleeps, runs, waits for others, or makes other threads all the time.
static void *be_one(void *key) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    while (!are_to_stop) {
        pthread_t other;
        switch ((uintptr_t)key % 4) {
        case 0: usleep(1000); break;
        case 1: for (volatile int at = 0; at < 100000; at++) {} break;
        case 2: pthread_mutex_lock(&mutex), usleep(100), pthread_mutex_unlock(&mutex); break;
        case 3: if (pthread_create(&other, 0, begin_and_end, 0) == 0) pthread_join(other, 0);
        }
        if (are_confined) look_whether_confined();
    }
    return 0;
}

static int confine_crowd(void) {
    pthread_t crowd[CROWD];
    for (uintptr_t at = 0; at < CROWD; at++)
        if (pthread_create(&crowd[at], 0, be_one, (void *)at)) return 1;
    // What is wrong is told, and nobody is confined.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0) != -1 || errno != EFAULT) return 2;
    int file = open("/dev/null", O_RDONLY);
    if (file < 0 || close(file)) return 3;
    if (forbid_to_all()) return 4;
    are_confined = 1;
    while (looked < 100 * CROWD) usleep(1000);
    are_to_stop = 1;
    for (int at = 0; at < CROWD; at++) pthread_join(crowd[at], 0);
    return strangers;
}

static void *be_deaf(void *is_deaf) {
    uint64_t all = ~0ull;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, 8);
    *(_Atomic int *)is_deaf = 1;
    for (;;) pause();
    return 0;
}

// A thread that blocks every signal, past libc. The kernel's answer is 0, or the number of a thread.
static int confine_deaf(void) {
    static _Atomic int is_deaf;
    pthread_t deaf;
    if (pthread_create(&deaf, 0, be_deaf, (void *)&is_deaf)) return 1;
    while (!is_deaf) usleep(1000);
    int answer = forbid_to_all();
    return answer > 1 ? 1 : answer;
}
