// What a tracer does who reads what is written, as strace does.
#include "cold.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

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
