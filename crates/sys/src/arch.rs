//! What differs between processors: a few functions and a table of numbers.

#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "arch/aarch64.rs")]
mod native;

pub(crate) use native::{
    clone_on_this_stack, clone_stand_in, clone_thread, has_shadow_stack, leave_to_thread, syscall,
};

/// How a bare thread begins.
pub(crate) struct ThreadStart {
    pub(crate) flags: usize,
    /// Where its number is written, and cleared at its end.
    pub(crate) number: usize,
    pub(crate) stack_top: usize,
    pub(crate) tls: usize,
    pub(crate) entry: usize,
    pub(crate) argument: usize,
}

/// How a bare thread is followed by another one on its stack.
pub(crate) struct Succession {
    pub(crate) flags: usize,
    /// As in [`ThreadStart`], of the new one.
    pub(crate) number: usize,
    /// The old one ends when this word is no longer zero.
    pub(crate) is_relieved: usize,
}

/// How a process goes on with the stack of a thread, which waits for it.
pub(crate) struct StandIn {
    pub(crate) flags: usize,
    /// As in [`ThreadStart`], of the process.
    pub(crate) number: usize,
    /// A word: where the stack is when the thread is to go on with it; 0 until then.
    pub(crate) place: usize,
    /// Called by the thread on that stack if the process ends without leaving it; does not return.
    pub(crate) abandoned: usize,
}

/// For wait4(2): children that send no signal at their end, too (`__WALL`).
const WAIT_OF_ANY_KIND: usize = 0x4000_0000;

/// System call numbers that rustix has no function for, or only one that would touch libc's thread data.
#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const READ: usize = 0;
    pub(crate) const WRITE: usize = 1;
    pub(crate) const FSTAT: usize = 5;
    pub(crate) const POLL: usize = 7;
    pub(crate) const PREAD64: usize = 17;
    pub(crate) const PWRITE64: usize = 18;
    pub(crate) const READV: usize = 19;
    pub(crate) const WRITEV: usize = 20;
    pub(crate) const SENDTO: usize = 44;
    pub(crate) const RECVFROM: usize = 45;
    pub(crate) const GETSOCKOPT: usize = 55;
    pub(crate) const FCNTL: usize = 72;
    pub(crate) const FSTATFS: usize = 138;
    pub(crate) const PREADV: usize = 295;
    pub(crate) const PWRITEV: usize = 296;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const MPROTECT: usize = 10;
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const BRK: usize = 12;
    pub(crate) const SIGALTSTACK: usize = 131;
    pub(crate) const MINCORE: usize = 27;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const EXECVEAT: usize = 322;
    pub(crate) const MREMAP: usize = 25;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const UNSHARE: usize = 272;
    pub(crate) const SETNS: usize = 308;
    pub(crate) const MSYNC: usize = 26;
    #[cfg(test)]
    pub(crate) const SHMGET: usize = 29;
    pub(crate) const SHMAT: usize = 30;
    pub(crate) const SHMCTL: usize = 31;
    pub(crate) const GETRUSAGE: usize = 98;
    pub(crate) const MLOCKALL: usize = 151;
    pub(crate) const PRLIMIT: usize = 302;
    #[cfg(test)]
    pub(crate) const MUNLOCKALL: usize = 152;
    pub(crate) const MLOCK2: usize = 325;
    pub(crate) const IOCTL: usize = 16;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const KILL: usize = 62;
    pub(crate) const KCMP: usize = 312;
    pub(crate) const GET_ROBUST_LIST: usize = 274;
    pub(crate) const PROCESS_VM_READV: usize = 310;
    pub(crate) const CLOCK_GETTIME: usize = 228;
    pub(crate) const EXIT: usize = 60;
    pub(crate) const SCHED_YIELD: usize = 24;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const GETPPID: usize = 110;
    pub(crate) const ARCH_PRCTL: usize = 158;
    pub(crate) const GETPID: usize = 39;
    pub(crate) const GETTID: usize = 186;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const SCHED_SETATTR: usize = 314;
    pub(crate) const USERFAULTFD: usize = 323;
    pub(crate) const CLOSE_RANGE: usize = 436;
    pub(crate) const PROCESS_MADVISE: usize = 440;
    #[cfg(test)]
    pub(crate) const MSEAL: usize = 462;
    pub(crate) const FORK: usize = 57;
    pub(crate) const VFORK: usize = 58;
    pub(crate) const SHMDT: usize = 67;
    pub(crate) const RT_SIGSUSPEND: usize = 130;
    pub(crate) const PTRACE: usize = 101;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const SET_TID_ADDRESS: usize = 218;
    pub(crate) const TGKILL: usize = 234;
    pub(crate) const PSELECT6: usize = 270;
    pub(crate) const PPOLL: usize = 271;
    pub(crate) const SET_ROBUST_LIST: usize = 273;
    pub(crate) const EPOLL_PWAIT: usize = 281;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const SECCOMP: usize = 317;
    pub(crate) const RT_TGSIGQUEUEINFO: usize = 297;
    pub(crate) const RSEQ: usize = 334;
    pub(crate) const CLONE3: usize = 435;
    pub(crate) const EPOLL_PWAIT2: usize = 441;
}

/// System call numbers that rustix has no function for, or only one that would touch libc's thread data.
#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const GETSOCKOPT: usize = 209;
    pub(crate) const GETRUSAGE: usize = 165;
    pub(crate) const BRK: usize = 214;
    pub(crate) const MINCORE: usize = 232;
    pub(crate) const EXECVE: usize = 221;
    pub(crate) const EXECVEAT: usize = 281;
    pub(crate) const MPROTECT: usize = 226;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const MREMAP: usize = 216;
    pub(crate) const MMAP: usize = 222;
    pub(crate) const MADVISE: usize = 233;
    pub(crate) const FUTEX: usize = 98;
    pub(crate) const SECCOMP: usize = 277;
    pub(crate) const RT_SIGACTION: usize = 134;
    pub(crate) const PRCTL: usize = 167;
    pub(crate) const RT_TGSIGQUEUEINFO: usize = 240;
    pub(crate) const UNSHARE: usize = 97;
    pub(crate) const SETNS: usize = 268;
    pub(crate) const MSYNC: usize = 227;
    #[cfg(test)]
    pub(crate) const SHMGET: usize = 194;
    pub(crate) const SHMCTL: usize = 195;
    pub(crate) const SHMAT: usize = 196;
    pub(crate) const SHMDT: usize = 197;
    pub(crate) const MLOCKALL: usize = 230;
    pub(crate) const PRLIMIT: usize = 261;
    #[cfg(test)]
    pub(crate) const MUNLOCKALL: usize = 231;
    pub(crate) const MLOCK2: usize = 284;
    pub(crate) const IOCTL: usize = 29;
    pub(crate) const CLONE: usize = 220;
    pub(crate) const CLONE3: usize = 435;
    pub(crate) const KILL: usize = 129;
    pub(crate) const KCMP: usize = 272;
    pub(crate) const GET_ROBUST_LIST: usize = 100;
    pub(crate) const PROCESS_VM_READV: usize = 270;
    pub(crate) const MUNMAP: usize = 215;
    pub(crate) const CLOCK_GETTIME: usize = 113;
    pub(crate) const EXIT: usize = 93;
    pub(crate) const SCHED_YIELD: usize = 124;
    pub(crate) const WAIT4: usize = 260;
    pub(crate) const GETPPID: usize = 173;
    pub(crate) const GETPID: usize = 172;
    pub(crate) const GETTID: usize = 178;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const SCHED_SETATTR: usize = 274;
    pub(crate) const USERFAULTFD: usize = 282;
    pub(crate) const CLOSE_RANGE: usize = 436;
    #[cfg(test)]
    pub(crate) const MSEAL: usize = 462;
}
