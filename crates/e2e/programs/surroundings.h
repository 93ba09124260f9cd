// What a process changes about itself besides its rights: flags, limits, namespaces, and its user with several threads.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { UNKNOWN = -77, THREADS = 4 };
static pthread_t threads[THREADS];
static int thread_count;
static volatile int are_to_end;
static _Atomic int seen_users;

// Goes over memory of its own, and once sees who it is.
static void *go_over(void *key) {
    uint64_t *own = fill(PAGES / 8, (uintptr_t)key), seen = 0, bad = !own;
    while (!are_to_end && !bad) {
        bad = differs(own, PAGES / 8, (uintptr_t)key);
        // Of this thread, not of the process.
        uid_t ids[3];
        if (!seen && syscall(SYS_getresuid, &ids[0], &ids[1], &ids[2]) == 0 && ids[0] == 65534) seen = 1, seen_users++;
    }
    return (void *)(uintptr_t)bad;
}

static int end_threads(void) {
    int bad = 0;
    are_to_end = 1;
    for (int at = 0; at < thread_count; at++) {
        void *answer;
        bad |= pthread_join(threads[at], &answer) || answer;
    }
    return bad;
}

// glibc signals each thread that it knows, and waits for all of them.
static int change_user_of_all(void) {
    for (; thread_count < THREADS; thread_count++)
        if (pthread_create(&threads[thread_count], 0, go_over, (void *)(uintptr_t)(30 + thread_count))) return 1;
    usleep(200000);
    if (setgid(65534) || setuid(65534)) return 2;
    for (int waited = 0; seen_users < THREADS; waited++) {
        if (waited > 3000) return 3;
        usleep(10000);
    }
    return 0;
}

static int limit(int resource, rlim_t bytes) {
    struct rlimit limits;
    if (getrlimit(resource, &limits)) return 1;
    limits.rlim_cur = bytes;
    return setrlimit(resource, &limits);
}

static size_t private_bytes(void) {
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmData: %zu kB", &kib);
    fclose(status);
    return kib << 10;
}

// Frames of half a page, all the way down.
static __attribute__((noinline)) int descend(int depth) {
    volatile uint64_t frame[WORDS / 2];
    for (int at = 0; at < WORDS / 2; at++) frame[at] = word(depth, at, 3);
    int bad = depth ? descend(depth - 1) : press();
    for (int at = 0; at < WORDS / 2; at++) bad |= frame[at] != word(depth, at, 3);
    return bad;
}

static int lock_some(void) {
    if (limit(RLIMIT_MEMLOCK, 1 << 20)) return 1;
    uint64_t *locked = fill(64, 5);
    return mlock(locked, 64 * 4096) || press() || differs(locked, 64, 5) || munlock(locked, 64 * 4096) || press() ||
           differs(locked, 64, 5);
}

// The hard limit, too, which who may not raise it again has for ever.
static int few_descriptors(void) {
    struct rlimit limits = {6, 6};
    return setrlimit(RLIMIT_NOFILE, &limits);
}

// One more than its user has now: all threads count.
static int one_more_process(void) {
    rlim_t count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(all));) {
        char path[280], line[256];
        unsigned user = 0, threads = 0;
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        if (!status) continue;
        while (fgets(line, sizeof line, status)) sscanf(line, "Uid: %u", &user), sscanf(line, "Threads: %u", &threads);
        fclose(status);
        if (user == getuid()) count += threads;
    }
    closedir(all);
    return limit(RLIMIT_NPROC, count + 1);
}

// Half of it has been swapped out, and half is new: one mapping to us, and several to the kernel where something knows of the first
// half only.
static int grow_new(uint64_t *old) {
    size_t half = 64 * 4096;
    char *second = (char *)old + half;
    int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(second, half, access, flags, -1, 0) != second) return 1;
    uint64_t *moved = mremap(old, 2 * half, 3 * half, MREMAP_MAYMOVE);
    return moved == MAP_FAILED || differs(moved, 64, 7);
}

// No descriptor more than there are, fewer than an agent needs: the soft limit, and /dev/null until there are as many. It still
// forks, spawns, and moves memory.
static int brink(void) {
    struct rlimit limits;
    int last = -1, status = -1;
    uint64_t *old = fill(128, 7);
    if (!old || press() || getrlimit(RLIMIT_NOFILE, &limits)) return 1;
    limits.rlim_cur = 8;
    if (setrlimit(RLIMIT_NOFILE, &limits)) return 1;
    for (int file; (file = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) last = file;
    if (last != 7) return 2;
    char *words[] = {"true", 0}, *environment[] = {0};
    for (int round = 0; round < 5; round++) {
        pid_t pid;
        if (posix_spawn(&pid, "/bin/true", 0, 0, words, environment)) return 3;
        if (waitpid(pid, &status, 0) != pid || status) return 4;
    }
    return open("/dev/null", O_RDONLY) >= 0 || grow_new(old);
}

// Another root, and there a program, this one once more.
static int execute_inside(const char *root) {
    if (chroot(root) || chdir("/")) return 1;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/program", "program", "pages", (char *)0);
        _exit(9);
    }
    int status = -1;
    return waitpid(pid, &status, 0) != pid || status;
}

// The user namespace of a child.
static int enter_user_namespace(void) {
    int ready[2], status;
    char byte, path[64];
    if (pipe(ready)) return 1;
    pid_t child = fork();
    if (child == 0) {
        byte = unshare(CLONE_NEWUSER) ? 'n' : 'y';
        if (write(ready[1], &byte, 1) == 1) pause();
        _exit(1);
    }
    int answer = read(ready[0], &byte, 1) != 1 || byte != 'y';
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)child);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    answer |= namespace < 0 || setns(namespace, 0);
    close(namespace), close(ready[0]), close(ready[1]);
    return answer | kill(child, SIGKILL) | (waitpid(child, &status, 0) != child);
}

static int change_surroundings(const char *what) {
    if (!strcmp(what, "hard")) return few_descriptors();
    if (!strcmp(what, "processes")) return one_more_process();
    if (!strcmp(what, "brink")) return brink();
    if (!strcmp(what, "flags")) return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!strcmp(what, "pages")) return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    // What is still filled, and what the agent may need.
    if (!strcmp(what, "data")) return limit(RLIMIT_DATA, private_bytes() + (112UL << 20));
    if (!strcmp(what, "locked")) return lock_some();
    if (!strcmp(what, "stack")) return limit(RLIMIT_STACK, 64 << 20) || descend(12000);
    if (!strcmp(what, "mounts"))
        return unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) ||
               mount("none", "/dev/shm", "tmpfs", 0, 0) || mount("none", "/proc", "tmpfs", 0, 0);
    if (!strcmp(what, "early") || !strcmp(what, "later") || !strcmp(what, "entered")) return 0;
    if (!strcmp(what, "people")) return unshare(CLONE_NEWUSER);
    if (!strcmp(what, "threads")) return change_user_of_all();
    return UNKNOWN;
}
