// What neither libc nor its function `syscall` knows of: the system calls themselves.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((unused)) static pid_t clone_raw(long flags) {
#ifdef __x86_64__
    register long fourth __asm__("r10") = 0, fifth __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(0L), "d"(0L), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return result < 0 ? -1 : (pid_t)result;
#else
    return (pid_t)syscall(SYS_clone, flags, 0, 0, 0, 0);
#endif
}

__attribute__((unused)) static pid_t clone3_raw(void *how, size_t bytes) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_clone3), "D"(how), "S"(bytes) : "rcx", "r11", "memory");
    return result < 0 ? -1 : (pid_t)result;
#else
    return (pid_t)syscall(SYS_clone3, how, bytes);
#endif
}

__attribute__((unused)) static int advise_raw(void *start, size_t bytes, int advice) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_madvise), "D"(start), "S"(bytes), "d"((long)advice) : "rcx", "r11", "memory");
    return result < 0 ? -1 : 0;
#else
    return madvise(start, bytes, advice);
#endif
}
