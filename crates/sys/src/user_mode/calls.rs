//! Every system call of x86-64, and what memory of the program's it has the kernel read or write.
//!
//! A call that takes only structures of a fixed size and strings needs no row of its own: each argument that could be a
//! pointer is taken for one, and a page from there on is held (`ANY`); no such structure is longer, and `PATH_MAX` is a page.
//! The other rows are for lengths that the program gives, for pointers inside structures, and for calls that are made
//! often, where a page too many would cost. Numbers and names: `arch/x86/entry/syscalls/syscall_64.tbl`.

/// A part of the memory that a call uses. Numbers name arguments, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// A page from each argument that could be an address.
    Any,
    /// A string, or nothing.
    Str(u8),
    /// So many bytes, or nothing.
    Fix(u8, u16),
    /// Bytes at the first, as many as the second says.
    Buf(u8, u8),
    /// The eight bytes behind such bytes: the type before a message makes it longer.
    Past(u8, u8),
    /// Elements at the first, as many as the second says, of this size.
    Arr(u8, u8, u16),
    /// Bytes at the first, as many as the four bytes at the second say.
    LenPtr(u8, u8),
    /// What getsockopt writes, which is not always as much as its length says.
    Answer,
    /// `struct iovec`s and what they point at.
    Iov(u8, u8),
    /// `struct msghdr` and what it points at.
    Msg(u8),
    /// `struct mmsghdr`s.
    Msgs(u8, u8),
    /// Strings, up to a null pointer.
    Strs(u8),
    /// `struct sock_fprog`, if it is one.
    Prog(u8),
    /// The three sets of select.
    Sets,
    /// One byte a page: mincore.
    Residency,
    /// By the number of the ioctl, with what looks like a pointer inside.
    Ioctl,
    /// Bytes at the first, as many as the second says, with what looks like a pointer inside.
    Words(u8, u8),
    /// The buffer of keyctl, or its `struct iovec`s, by what is asked.
    Key,
    /// What a `struct sigevent` of `mq_notify` points at.
    Cookie(u8),
    /// The array of semctl's GETALL and SETALL.
    Sems,
    /// The other side of `process_vm_readv`, if it is this process.
    Remote,
    /// Pointers to `struct iocb`s and what those point at. Buffers that a device is still at work on when the call is over are pinned by
    /// the kernel, and pinned pages do not move.
    Requests(u8, u8),
    /// `struct futex_waitv`s.
    Waits(u8, u8),
    /// Two of them.
    WaitPair(u8),
    /// `struct xattr_args`.
    Value(u8, u8),
    /// Arrays of ptrace's.
    Traced,
    /// The program of seccomp.
    Program,
    /// What `MADV_POPULATE_READ and _WRITE` bring in.
    Populated,
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// With its memory held.
    Holds(&'static [Piece]),
    /// The same; it changes the layout, and does not happen while the program forks.
    Layout(&'static [Piece]),
    /// Signal actions and masks.
    Signals,
    /// `rt_sigreturn`.
    Return,
    /// sigaltstack.
    SignalStack,
    /// fork, vfork and clone.
    Process,
    /// ENOSYS: the kernel would use the memory after the call, or takes faults away from us.
    Refused,
}

use Piece::{
    Answer, Any, Arr, Buf, Cookie, Fix, Ioctl, Iov, Key, LenPtr, Msg, Msgs, Past, Populated, Prog, Program, Remote,
    Requests, Residency, Sems, Sets, Str, Strs, Traced, Value, WaitPair, Waits, Words,
};

const NONE: Class = Class::Holds(&[]);
const ANY: Class = Class::Holds(&[Any]);

/// What call `number` is. One that is newer than this table is taken for one with pages behind its pointers.
pub(super) fn class(number: u64) -> Class {
    find(number).map_or(ANY, |call| call.2)
}

/// What call `number` is called, if the table has it.
pub(super) fn name(number: u64) -> &'static str {
    find(number).map_or("?", |call| call.1)
}

fn find(number: u64) -> Option<&'static (u16, &'static str, Class)> {
    CALLS.binary_search_by_key(&number, |call| u64::from(call.0)).ok().map(|at| &CALLS[at])
}

#[rustfmt::skip]
static CALLS: &[(u16, &str, Class)] = &[
    (0, "read", Class::Holds(&[Buf(1, 2)])),
    (1, "write", Class::Holds(&[Buf(1, 2)])),
    (2, "open", Class::Holds(&[Str(0)])),
    (3, "close", NONE),
    (4, "stat", Class::Holds(&[Str(0), Fix(1, 144)])),
    (5, "fstat", Class::Holds(&[Fix(1, 144)])),
    (6, "lstat", Class::Holds(&[Str(0), Fix(1, 144)])),
    (7, "poll", Class::Holds(&[Arr(0, 1, 8)])),
    (8, "lseek", NONE),
    (9, "mmap", Class::Layout(&[])),
    (10, "mprotect", Class::Layout(&[])),
    (11, "munmap", Class::Layout(&[])),
    (12, "brk", Class::Layout(&[])),
    (13, "rt_sigaction", Class::Signals),
    (14, "rt_sigprocmask", Class::Signals),
    (15, "rt_sigreturn", Class::Return),
    (16, "ioctl", Class::Holds(&[Ioctl])),
    (17, "pread64", Class::Holds(&[Buf(1, 2)])),
    (18, "pwrite64", Class::Holds(&[Buf(1, 2)])),
    (19, "readv", Class::Holds(&[Iov(1, 2)])),
    (20, "writev", Class::Holds(&[Iov(1, 2)])),
    (21, "access", Class::Holds(&[Str(0)])),
    (22, "pipe", Class::Holds(&[Fix(0, 8)])),
    (23, "select", Class::Holds(&[Sets, Fix(4, 16)])),
    (24, "sched_yield", NONE),
    (25, "mremap", Class::Layout(&[])),
    (26, "msync", NONE),
    (27, "mincore", Class::Holds(&[Residency])),
    (28, "madvise", Class::Layout(&[Populated])),
    (29, "shmget", NONE),
    (30, "shmat", Class::Layout(&[])),
    (31, "shmctl", ANY),
    (32, "dup", NONE),
    (33, "dup2", NONE),
    (34, "pause", NONE),
    (35, "nanosleep", Class::Holds(&[Fix(0, 16), Fix(1, 16)])),
    (36, "getitimer", ANY),
    (37, "alarm", NONE),
    (38, "setitimer", ANY),
    (39, "getpid", NONE),
    (40, "sendfile", Class::Holds(&[Fix(2, 8)])),
    (41, "socket", ANY),
    (42, "connect", Class::Holds(&[Buf(1, 2)])),
    (43, "accept", Class::Holds(&[LenPtr(1, 2)])),
    (44, "sendto", Class::Holds(&[Buf(1, 2), Buf(4, 5)])),
    (45, "recvfrom", Class::Holds(&[Buf(1, 2), LenPtr(4, 5)])),
    (46, "sendmsg", Class::Holds(&[Msg(1)])),
    (47, "recvmsg", Class::Holds(&[Msg(1)])),
    (48, "shutdown", NONE),
    (49, "bind", Class::Holds(&[Buf(1, 2)])),
    (50, "listen", NONE),
    (51, "getsockname", Class::Holds(&[LenPtr(1, 2)])),
    (52, "getpeername", Class::Holds(&[LenPtr(1, 2)])),
    (53, "socketpair", Class::Holds(&[Fix(3, 8)])),
    (54, "setsockopt", Class::Holds(&[Buf(3, 4), Prog(3)])),
    (55, "getsockopt", Class::Holds(&[LenPtr(3, 4), Answer])),
    (56, "clone", Class::Process),
    (57, "fork", Class::Process),
    (58, "vfork", Class::Process),
    (59, "execve", Class::Holds(&[Str(0), Strs(1), Strs(2)])),
    (60, "exit", NONE),
    (61, "wait4", Class::Holds(&[Fix(1, 4), Fix(3, 144)])),
    (62, "kill", NONE),
    (63, "uname", ANY),
    (64, "semget", NONE),
    (65, "semop", Class::Holds(&[Arr(1, 2, 6)])),
    (66, "semctl", Class::Holds(&[Fix(3, 4096), Sems])),
    (67, "shmdt", Class::Layout(&[])),
    (68, "msgget", NONE),
    (69, "msgsnd", Class::Holds(&[Fix(1, 8), Buf(1, 2), Past(1, 2)])),
    (70, "msgrcv", Class::Holds(&[Fix(1, 8), Buf(1, 2), Past(1, 2)])),
    (71, "msgctl", ANY),
    (72, "fcntl", Class::Holds(&[Fix(2, 32)])),
    (73, "flock", NONE),
    (74, "fsync", NONE),
    (75, "fdatasync", NONE),
    (76, "truncate", ANY),
    (77, "ftruncate", NONE),
    (78, "getdents", Class::Holds(&[Buf(1, 2)])),
    (79, "getcwd", Class::Holds(&[Buf(0, 1)])),
    (80, "chdir", ANY),
    (81, "fchdir", NONE),
    (82, "rename", Class::Holds(&[Str(0), Str(1)])),
    (83, "mkdir", Class::Holds(&[Str(0)])),
    (84, "rmdir", ANY),
    (85, "creat", ANY),
    (86, "link", ANY),
    (87, "unlink", Class::Holds(&[Str(0)])),
    (88, "symlink", ANY),
    (89, "readlink", Class::Holds(&[Str(0), Buf(1, 2)])),
    (90, "chmod", ANY),
    (91, "fchmod", NONE),
    (92, "chown", ANY),
    (93, "fchown", NONE),
    (94, "lchown", ANY),
    (95, "umask", NONE),
    (96, "gettimeofday", Class::Holds(&[Fix(0, 16), Fix(1, 8)])),
    (97, "getrlimit", ANY),
    (98, "getrusage", ANY),
    (99, "sysinfo", ANY),
    (100, "times", ANY),
    (101, "ptrace", Class::Holds(&[Any, Traced])),
    (102, "getuid", NONE),
    (103, "syslog", Class::Holds(&[Buf(1, 2)])),
    (104, "getgid", NONE),
    (105, "setuid", NONE),
    (106, "setgid", NONE),
    (107, "geteuid", NONE),
    (108, "getegid", NONE),
    (109, "setpgid", NONE),
    (110, "getppid", NONE),
    (111, "getpgrp", NONE),
    (112, "setsid", NONE),
    (113, "setreuid", NONE),
    (114, "setregid", NONE),
    (115, "getgroups", Class::Holds(&[Arr(1, 0, 4)])),
    (116, "setgroups", Class::Holds(&[Arr(1, 0, 4)])),
    (117, "setresuid", NONE),
    (118, "getresuid", ANY),
    (119, "setresgid", NONE),
    (120, "getresgid", ANY),
    (121, "getpgid", NONE),
    (122, "setfsuid", NONE),
    (123, "setfsgid", NONE),
    (124, "getsid", NONE),
    (125, "capget", ANY),
    (126, "capset", ANY),
    (127, "rt_sigpending", Class::Holds(&[Fix(0, 8)])),
    (128, "rt_sigtimedwait", Class::Holds(&[Fix(0, 8), Fix(1, 128), Fix(2, 16)])),
    (129, "rt_sigqueueinfo", ANY),
    (130, "rt_sigsuspend", Class::Holds(&[Fix(0, 8)])),
    (131, "sigaltstack", Class::SignalStack),
    (132, "utime", ANY),
    (133, "mknod", ANY),
    (134, "uselib", NONE),
    (135, "personality", NONE),
    (136, "ustat", ANY),
    (137, "statfs", ANY),
    (138, "fstatfs", ANY),
    (139, "sysfs", ANY),
    (140, "getpriority", NONE),
    (141, "setpriority", NONE),
    (142, "sched_setparam", ANY),
    (143, "sched_getparam", ANY),
    (144, "sched_setscheduler", ANY),
    (145, "sched_getscheduler", NONE),
    (146, "sched_get_priority_max", NONE),
    (147, "sched_get_priority_min", NONE),
    (148, "sched_rr_get_interval", ANY),
    (149, "mlock", Class::Holds(&[Buf(0, 1)])),
    (150, "munlock", NONE),
    (151, "mlockall", NONE),
    (152, "munlockall", NONE),
    (153, "vhangup", NONE),
    (154, "modify_ldt", Class::Holds(&[Buf(1, 2)])),
    (155, "pivot_root", ANY),
    (156, "_sysctl", NONE),
    (157, "prctl", ANY),
    (158, "arch_prctl", ANY),
    (159, "adjtimex", ANY),
    (160, "setrlimit", ANY),
    (161, "chroot", ANY),
    (162, "sync", NONE),
    (163, "acct", ANY),
    (164, "settimeofday", ANY),
    (165, "mount", ANY),
    (166, "umount2", ANY),
    (167, "swapon", ANY),
    (168, "swapoff", ANY),
    (169, "reboot", ANY),
    (170, "sethostname", ANY),
    (171, "setdomainname", ANY),
    (172, "iopl", NONE),
    (173, "ioperm", NONE),
    (174, "create_module", NONE),
    (175, "init_module", Class::Holds(&[Buf(0, 1), Str(2)])),
    (176, "delete_module", ANY),
    (177, "get_kernel_syms", NONE),
    (178, "query_module", NONE),
    (179, "quotactl", ANY),
    (180, "nfsservctl", NONE),
    (181, "getpmsg", NONE),
    (182, "putpmsg", NONE),
    (183, "afs_syscall", NONE),
    (184, "tuxcall", NONE),
    (185, "security", NONE),
    (186, "gettid", NONE),
    (187, "readahead", NONE),
    (188, "setxattr", Class::Holds(&[Str(0), Str(1), Buf(2, 3)])),
    (189, "lsetxattr", Class::Holds(&[Str(0), Str(1), Buf(2, 3)])),
    (190, "fsetxattr", Class::Holds(&[Str(1), Buf(2, 3)])),
    (191, "getxattr", Class::Holds(&[Str(0), Str(1), Buf(2, 3)])),
    (192, "lgetxattr", Class::Holds(&[Str(0), Str(1), Buf(2, 3)])),
    (193, "fgetxattr", Class::Holds(&[Str(1), Buf(2, 3)])),
    (194, "listxattr", Class::Holds(&[Str(0), Buf(1, 2)])),
    (195, "llistxattr", Class::Holds(&[Str(0), Buf(1, 2)])),
    (196, "flistxattr", Class::Holds(&[Buf(1, 2)])),
    (197, "removexattr", ANY),
    (198, "lremovexattr", ANY),
    (199, "fremovexattr", ANY),
    (200, "tkill", NONE),
    (201, "time", ANY),
    (202, "futex", Class::Holds(&[Fix(0, 4), Fix(3, 16), Fix(4, 4)])),
    (203, "sched_setaffinity", Class::Holds(&[Buf(2, 1)])),
    (204, "sched_getaffinity", Class::Holds(&[Buf(2, 1)])),
    (205, "set_thread_area", ANY),
    (206, "io_setup", Class::Layout(&[Fix(1, 8)])),
    (207, "io_destroy", Class::Layout(&[])),
    (208, "io_getevents", Class::Holds(&[Arr(3, 2, 32), Fix(4, 16)])),
    (209, "io_submit", Class::Holds(&[Requests(2, 1)])),
    (210, "io_cancel", Class::Holds(&[Fix(1, 64), Fix(2, 32)])),
    (211, "get_thread_area", ANY),
    (212, "lookup_dcookie", ANY),
    (213, "epoll_create", NONE),
    (214, "epoll_ctl_old", NONE),
    (215, "epoll_wait_old", NONE),
    (216, "remap_file_pages", Class::Layout(&[])),
    (217, "getdents64", Class::Holds(&[Buf(1, 2)])),
    (218, "set_tid_address", Class::Holds(&[])),
    (219, "restart_syscall", NONE),
    (220, "semtimedop", Class::Holds(&[Arr(1, 2, 6), Fix(3, 16)])),
    (221, "fadvise64", ANY),
    (222, "timer_create", ANY),
    (223, "timer_settime", ANY),
    (224, "timer_gettime", ANY),
    (225, "timer_getoverrun", NONE),
    (226, "timer_delete", NONE),
    (227, "clock_settime", ANY),
    (228, "clock_gettime", Class::Holds(&[Fix(1, 16)])),
    (229, "clock_getres", ANY),
    (230, "clock_nanosleep", Class::Holds(&[Fix(2, 16), Fix(3, 16)])),
    (231, "exit_group", NONE),
    (232, "epoll_wait", Class::Holds(&[Arr(1, 2, 12)])),
    (233, "epoll_ctl", Class::Holds(&[Fix(3, 12)])),
    (234, "tgkill", NONE),
    (235, "utimes", ANY),
    (236, "vserver", NONE),
    (237, "mbind", ANY),
    (238, "set_mempolicy", ANY),
    (239, "get_mempolicy", ANY),
    (240, "mq_open", Class::Holds(&[Str(0), Fix(3, 64)])),
    (241, "mq_unlink", ANY),
    (242, "mq_timedsend", Class::Holds(&[Buf(1, 2), Fix(4, 16)])),
    (243, "mq_timedreceive", Class::Holds(&[Buf(1, 2), Fix(3, 4), Fix(4, 16)])),
    (244, "mq_notify", Class::Holds(&[Any, Cookie(1)])),
    (245, "mq_getsetattr", ANY),
    (246, "kexec_load", ANY),
    (247, "waitid", Class::Holds(&[Fix(2, 128), Fix(4, 144)])),
    (248, "add_key", Class::Holds(&[Str(0), Str(1), Buf(2, 3)])),
    (249, "request_key", ANY),
    (250, "keyctl", Class::Holds(&[Any, Key])),
    (251, "ioprio_set", NONE),
    (252, "ioprio_get", NONE),
    (253, "inotify_init", NONE),
    (254, "inotify_add_watch", Class::Holds(&[Str(1)])),
    (255, "inotify_rm_watch", NONE),
    (256, "migrate_pages", ANY),
    (257, "openat", Class::Holds(&[Str(1)])),
    (258, "mkdirat", ANY),
    (259, "mknodat", ANY),
    (260, "fchownat", ANY),
    (261, "futimesat", ANY),
    (262, "newfstatat", Class::Holds(&[Str(1), Fix(2, 144)])),
    (263, "unlinkat", Class::Holds(&[Str(1)])),
    (264, "renameat", ANY),
    (265, "linkat", ANY),
    (266, "symlinkat", ANY),
    (267, "readlinkat", Class::Holds(&[Str(1), Buf(2, 3)])),
    (268, "fchmodat", ANY),
    (269, "faccessat", Class::Holds(&[Str(1)])),
    (270, "pselect6", Class::Holds(&[Sets, Fix(4, 16), Fix(5, 16)])),
    (271, "ppoll", Class::Holds(&[Arr(0, 1, 8), Fix(2, 16), Fix(3, 8)])),
    (272, "unshare", NONE),
    (273, "set_robust_list", Class::Holds(&[])),
    (274, "get_robust_list", ANY),
    (275, "splice", Class::Holds(&[Fix(1, 8), Fix(3, 8)])),
    (276, "tee", ANY),
    (277, "sync_file_range", NONE),
    (278, "vmsplice", Class::Holds(&[Iov(1, 2)])),
    (279, "move_pages", Class::Holds(&[Arr(2, 1, 8), Arr(3, 1, 4), Arr(4, 1, 4)])),
    (280, "utimensat", ANY),
    (281, "epoll_pwait", Class::Holds(&[Arr(1, 2, 12), Fix(4, 8)])),
    (282, "signalfd", ANY),
    (283, "timerfd_create", NONE),
    (284, "eventfd", NONE),
    (285, "fallocate", NONE),
    (286, "timerfd_settime", Class::Holds(&[Fix(2, 32), Fix(3, 32)])),
    (287, "timerfd_gettime", Class::Holds(&[Fix(1, 32)])),
    (288, "accept4", Class::Holds(&[LenPtr(1, 2)])),
    (289, "signalfd4", ANY),
    (290, "eventfd2", NONE),
    (291, "epoll_create1", NONE),
    (292, "dup3", NONE),
    (293, "pipe2", Class::Holds(&[Fix(0, 8)])),
    (294, "inotify_init1", NONE),
    (295, "preadv", Class::Holds(&[Iov(1, 2)])),
    (296, "pwritev", Class::Holds(&[Iov(1, 2)])),
    (297, "rt_tgsigqueueinfo", ANY),
    (298, "perf_event_open", ANY),
    (299, "recvmmsg", Class::Holds(&[Msgs(1, 2), Fix(4, 16)])),
    (300, "fanotify_init", NONE),
    (301, "fanotify_mark", ANY),
    (302, "prlimit64", ANY),
    (303, "name_to_handle_at", Class::Holds(&[Any])),
    (304, "open_by_handle_at", ANY),
    (305, "clock_adjtime", ANY),
    (306, "syncfs", NONE),
    (307, "sendmmsg", Class::Holds(&[Msgs(1, 2)])),
    (308, "setns", NONE),
    (309, "getcpu", ANY),
    (310, "process_vm_readv", Class::Holds(&[Iov(1, 2), Arr(3, 4, 16), Remote])),
    (311, "process_vm_writev", Class::Holds(&[Iov(1, 2), Arr(3, 4, 16), Remote])),
    (312, "kcmp", Class::Holds(&[Fix(4, 12)])),
    (313, "finit_module", ANY),
    (314, "sched_setattr", ANY),
    (315, "sched_getattr", Class::Holds(&[Buf(1, 2)])),
    (316, "renameat2", ANY),
    (317, "seccomp", Class::Holds(&[Program])),
    (318, "getrandom", Class::Holds(&[Buf(0, 1)])),
    (319, "memfd_create", ANY),
    (320, "kexec_file_load", ANY),
    (321, "bpf", Class::Holds(&[Any, Words(1, 2)])),
    (322, "execveat", Class::Holds(&[Str(1), Strs(2), Strs(3)])),
    (323, "userfaultfd", Class::Refused),
    (324, "membarrier", NONE),
    (325, "mlock2", Class::Holds(&[Buf(0, 1)])),
    (326, "copy_file_range", Class::Holds(&[Fix(1, 8), Fix(3, 8)])),
    (327, "preadv2", Class::Holds(&[Iov(1, 2)])),
    (328, "pwritev2", Class::Holds(&[Iov(1, 2)])),
    (329, "pkey_mprotect", Class::Layout(&[])),
    (330, "pkey_alloc", NONE),
    (331, "pkey_free", NONE),
    (332, "statx", Class::Holds(&[Str(1), Fix(4, 256)])),
    (333, "io_pgetevents", Class::Refused),
    (334, "rseq", Class::Holds(&[])),
    (424, "pidfd_send_signal", ANY),
    (425, "io_uring_setup", Class::Refused),
    (426, "io_uring_enter", Class::Refused),
    (427, "io_uring_register", Class::Refused),
    (428, "open_tree", ANY),
    (429, "move_mount", ANY),
    (430, "fsopen", ANY),
    (431, "fsconfig", Class::Holds(&[Str(2), Any, Buf(3, 4)])),
    (432, "fsmount", ANY),
    (433, "fspick", ANY),
    (434, "pidfd_open", NONE),
    (435, "clone3", Class::Process),
    (436, "close_range", NONE),
    (437, "openat2", Class::Holds(&[Str(1), Buf(2, 3)])),
    (438, "pidfd_getfd", NONE),
    (439, "faccessat2", Class::Holds(&[Str(1)])),
    (440, "process_madvise", Class::Layout(&[Arr(1, 2, 16)])),
    (441, "epoll_pwait2", Class::Holds(&[Arr(1, 2, 12), Fix(3, 16), Fix(4, 8)])),
    (442, "mount_setattr", ANY),
    (443, "quotactl_fd", ANY),
    (444, "landlock_create_ruleset", ANY),
    (445, "landlock_add_rule", ANY),
    (446, "landlock_restrict_self", ANY),
    (447, "memfd_secret", NONE),
    (448, "process_mrelease", NONE),
    (449, "futex_waitv", Class::Holds(&[Waits(0, 1), Fix(3, 16)])),
    (450, "set_mempolicy_home_node", ANY),
    (451, "cachestat", ANY),
    (452, "fchmodat2", ANY),
    (453, "map_shadow_stack", Class::Layout(&[])),
    (454, "futex_wake", Class::Holds(&[Fix(0, 4)])),
    (455, "futex_wait", Class::Holds(&[Fix(0, 4), Fix(4, 16)])),
    (456, "futex_requeue", Class::Holds(&[WaitPair(0)])),
    (457, "statmount", Class::Holds(&[Fix(0, 64), Buf(1, 2)])),
    (458, "listmount", Class::Holds(&[Fix(0, 64), Arr(1, 2, 8)])),
    (459, "lsm_get_self_attr", Class::Holds(&[LenPtr(1, 2)])),
    (460, "lsm_set_self_attr", Class::Holds(&[Buf(1, 2)])),
    (461, "lsm_list_modules", ANY),
    (462, "mseal", Class::Layout(&[])),
    (463, "setxattrat", Class::Holds(&[Str(1), Str(3), Value(4, 5)])),
    (464, "getxattrat", Class::Holds(&[Str(1), Str(3), Value(4, 5)])),
    (465, "listxattrat", Class::Holds(&[Str(1), Buf(3, 4)])),
    (466, "removexattrat", ANY),
    (467, "open_tree_attr", ANY),
    (468, "file_getattr", ANY),
    (469, "file_setattr", ANY),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend() {
        assert!(CALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(class(0), Class::Holds(&[Buf(1, 2)]));
        assert_eq!(class(9999), ANY);
    }

    /// Whoever builds against newer headers hears of a call that nobody has looked at.
    #[test]
    fn every_call_of_the_headers_is_in_the_table() {
        let places = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
        let Some(text) = places.iter().find_map(|place| std::fs::read_to_string(place).ok()) else {
            println!("skipped: no kernel headers");
            return;
        };
        let calls = text.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
        let mut count = 0;
        for (name, number) in calls {
            let number: u16 = number.trim().parse().unwrap();
            let row = CALLS.iter().find(|call| call.0 == number);
            assert_eq!(row.map(|call| call.1), Some(name), "system call {number}");
            count += 1;
        }
        assert!(count > 300, "{count} calls in the headers");
    }
}
