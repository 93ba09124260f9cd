// Before any other file: madvise and shmat go by libc's function `syscall`, as programs call it that do without libc's own.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define madvise(start, bytes, advice) ((int)syscall(SYS_madvise, start, bytes, advice))
#define shmat(id, at, flags) ((void *)syscall(SYS_shmat, id, at, flags))
