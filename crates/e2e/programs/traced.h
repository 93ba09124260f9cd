// What a tracer does who reads what is written, as strace does.
#include "cold.h"

#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { THREADS_MAX = 64 };
static pid_t threads[THREADS_MAX];
static int count, refused;

// A thread has stopped: whether at the beginning of a write of a buffer, to a place that says which it is. That has been read then.
static int look(pid_t process, pid_t thread) {
    static unsigned char copy[BUFFER];
    struct __ptrace_syscall_info call;
    check("PTRACE_GET_SYSCALL_INFO", ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof call, &call) > 0, 1);
    if (call.op != PTRACE_SYSCALL_INFO_ENTRY || call.entry.nr != SYS_pwrite64 || call.entry.args[2] != BUFFER)
        return 0;
    struct iovec local = {copy, BUFFER}, remote = {(void *)call.entry.args[1], BUFFER};
    check("process_vm_readv", process_vm_readv(process, &local, 1, &remote, 1, 0), BUFFER);
    expect("what is written", copy, BUFFER, call.entry.args[3] / BUFFER);
    return 1;
}

__attribute__((unused)) static int is_ours(pid_t thread) {
    for (int at = 0; at < count; at++)
        if (threads[at] == thread) return 1;
    return 0;
}

// One look at the threads of a process: how many were there that are not ours, whether we could take them or not.
__attribute__((unused)) static int take_threads(pid_t process, long how, long options) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    int seen = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        pid_t thread = atoi(task->d_name);
        if (thread == 0 || is_ours(thread)) continue;
        seen++;
        if (ptrace(how, thread, 0, options) == 0) threads[count++] = thread;
        else refused++;
    }
    if (tasks) closedir(tasks);
    return seen;
}
