// Process ids that mean something else to others: children in a namespace of their own (CLONE_NEWPID), while memory leaves.
// strangers children: they check their memory and fork. strangers mounted: with a /proc of their own. strangers secluded: and a
// network of their own. strangers executed DIR: what is executed with such a /proc, and without DIR. strangers walled DIR: the same with such a network.
// strangers users: what is executed in a namespace of users. strangers raw: one that
// pleat cannot follow has to itself the number that another process has to us, which must live; and libc's forks go on
// beside one that lives. strangers hidden DIR: where DIR is there is only what cannot be written.
#define _GNU_SOURCE
#include "cold.h"
#include "raw.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void all_as_it_was(const char *whose) {
    for (int number = 0; number < BUFFERS; number++) expect(whose, buffer(number), BUFFER, number);
}

static int mounts;

static int children(int depth) {
    pid_t pid = fork();
    check("fork", pid < 0, 0);
    if (pid == 0) {
        if (mounts && getpid() == 1) check("mount", mount("proc", "/proc", "proc", 0, 0), 0);
        all_as_it_was("a child's");
        chill();
        all_as_it_was("a child's, again");
        printf("%s\n", getpid() == 1 ? "the first of its namespace" : "another");
        fflush(stdout);
        _exit(depth ? children(depth - 1) : 0);
    }
    int status;
    chill();
    check("waitpid", waitpid(pid, &status, 0), pid);
    check("the child", status, 0);
    all_as_it_was("the parent's");
    return 0;
}

static pid_t raw_clone(pid_t number) {
    struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = number ? (uintptr_t)&number : 0, .set_tid_size = number != 0};
    return clone3_raw(&how, sizeof how);
}

static void raw(void) {
    char *command[] = {"sleep", "100", 0};
    pid_t bystander = fork();
    if (bystander == 0) execvp("sleep", command);
    if (unshare(CLONE_NEWPID)) return (void)printf("no namespace: %s\n", strerror(errno));
    // The first of a namespace has the number 1, and the others end with it.
    pid_t first = raw_clone(0);
    if (first == 0) syscall(SYS_pause);
    pid_t child = fork();
    check("fork", child < 0, 0);
    if (child == 0) all_as_it_was("a child's"), _exit(0);
    int ended = 1;
    check("waitpid", waitpid(child, &ended, 0), child);
    check("a child beside a raw one", ended, 0);
    pid_t other = raw_clone(bystander);
    if (other == 0) _exit(buffer(7)[0]);
    check("clone3", other < 0, 0);
    int status;
    for (int waited = 0; waitpid(other, &status, WNOHANG) == 0 && waited < 1000; waited++) usleep(10000);
    printf("the bystander %s\n", waitpid(bystander, &status, WNOHANG) == 0 ? "lives" : "was ended");
    kill(bystander, SIGKILL), kill(first, SIGKILL), kill(other, SIGKILL);
    while (wait(0) > 0) {}
}

static int apart(int kinds) {
    int refused = unshare(kinds) || (kinds & CLONE_NEWNS && mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    if (refused) printf("no namespace: %s\n", strerror(errno));
    return !refused;
}

static void hide(const char *directory) { check("mount", mount("none", directory, "tmpfs", MS_RDONLY, 0), 0); }

static int execute(char *program) { return execl("/proc/self/exe", program, "noise", (char *)0); }

static int first_of_namespace(char *program, const char *directory) {
    pid_t pid = fork();
    if (pid == 0) {
        check("mount", mount("proc", "/proc", "proc", 0, 0), 0);
        hide(directory);
        execute(program);
    }
    int status;
    check("waitpid", waitpid(pid, &status, 0), pid);
    return status != 0;
}

// More than the budget, and all of it goes to the swap file.
static void noise(void) {
    enum { NOISE = 32 << 20 };
    void *memory = mmap(0, NOISE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, NOISE, 0);
    chill();
    expect("the noise", memory, NOISE, 0);
}

int main(int count, char **words) {
    if (count < 2) return 2;
    int walled = strcmp(words[1], "walled") == 0;
    if (walled || strcmp(words[1], "executed") == 0) {
        if (!apart(CLONE_NEWPID | CLONE_NEWNS | (walled ? CLONE_NEWNET : 0))) return 0;
        return first_of_namespace(words[0], words[2]);
    }
    // Only what is executed from there on, or forked, is there with all its threads.
    if (strcmp(words[1], "hidden") == 0) return apart(CLONE_NEWNS) && (hide(words[2]), execute(words[0]));
    if (strcmp(words[1], "users") == 0) return apart(CLONE_NEWUSER) && execute(words[0]);
    begin();
    if (strcmp(words[1], "noise") == 0) noise();
    if (strcmp(words[1], "raw") == 0) raw();
    int secluded = strcmp(words[1], "secluded") == 0;
    mounts = secluded || strcmp(words[1], "mounted") == 0;
    if (mounts || strcmp(words[1], "children") == 0) {
        if (!apart(CLONE_NEWPID | (mounts ? CLONE_NEWNS : 0) | (secluded ? CLONE_NEWNET : 0))) return 0;
        children(2);
    }
    all_as_it_was("at the end");
    end();
    return 0;
}
