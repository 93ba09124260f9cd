//! libc's function `clone`, where it copies the process: that goes on at ours. What shares memory goes on as libc's does.
//!
//! Sandboxes make their processes so. The child begins in a function, on a stack that may be a small one, or lie in the frame of who
//! calls. What an agent does in a forked child needs more: it has a stack of its own for that.

use core::arch::global_asm;
use core::ffi::{c_int, c_long};
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{self, number};
use crate::raw_calls::NO_FORK;
use crate::thread::errno;
use crate::{Area, Errno, process};

/// Its number.
pub const CLONE: c_long = number::CLONE as c_long;

const STACK_BYTES: usize = 128 << 10;
/// Namespaces of users, and of networks.
const NEWUSER: usize = 0x1000_0000;
const NEWNET: usize = 0x4000_0000;

/// The arguments of `clone` as libc takes them: function, stack, flags, its argument, and three places.
pub type Ours = unsafe extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int;

static OURS: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);
/// The upper end of the stack on which children begin. Each writes to its own copy.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// How a process is copied that an agent follows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// For the clone.
    pub clone: usize,
    /// What the child parts with by itself: with a network of its own it would not reach its parent's agent.
    unshared: usize,
}

impl Flags {
    /// `None`: it cannot be followed.
    pub fn of(asked: usize) -> Option<Self> {
        let unshared = asked & NEWNET;
        // The child could not say that it may not.
        let may = unshared == 0 || asked & NEWUSER != 0 || process::is_administrator();
        may.then_some(Self { clone: asked & !unshared, unshared })
    }

    /// For a copy that nobody follows.
    pub fn as_asked(asked: usize) -> Self {
        Self { clone: asked, unshared: 0 }
    }

    /// In the child. Says whether there is anything that it has parted with.
    pub fn unshare(self) -> bool {
        if self.unshared != 0 {
            // SAFETY: takes a number.
            let result = errno(unsafe { arch::syscall(number::UNSHARE, [self.unshared, 0, 0, 0, 0, 0]) });
            assert!(result.is_ok(), "a network of its own: {result:?}");
        }
        self.unshared != 0
    }
}

/// A process to be made: what it runs first, and where.
#[repr(C)]
pub struct Launch {
    /// A function of one argument, whose result is the child's status.
    pub function: usize,
    /// That argument.
    pub argument: usize,
    /// The upper end of its stack.
    pub stack: usize,
    /// Run before it, on a stack of ours.
    pub arrive: extern "C" fn(&Self),
    /// For that.
    pub flags: Flags,
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.pleat_copies,\"ax\",@progbits",
    ".balign 16",
    ".hidden pleat_clone_by_libc",
    ".globl pleat_clone_by_libc",
    ".type pleat_clone_by_libc,@function",
    "pleat_clone_by_libc:",
    ".cfi_startproc",
    "test edx, {no_fork}",
    "jnz 1f",
    "test rdi, rdi",
    "jz 1f",
    "test rsi, rsi",
    "jz 1f",
    "jmp qword ptr [rip + {ours}]",
    // As glibc's: function and argument are on the child's stack.
    "1:",
    "mov rax, -22",
    "test rdi, rdi",
    "jz 3f",
    "and rsi, -16",
    "jz 3f",
    "mov [rsi - 8], rcx",
    "sub rsi, 16",
    "mov [rsi], rdi",
    "mov rdi, rdx",
    "mov rdx, r8",
    "mov r8, r9",
    "mov r10, [rsp + 8]",
    "mov eax, {clone}",
    ".cfi_endproc",
    "syscall",
    "test rax, rax",
    "jl 3f",
    "jz 2f",
    "ret",
    "2:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "xor ebp, ebp",
    "pop rax",
    "pop rdi",
    "call rax",
    "mov edi, eax",
    "mov eax, {exit}",
    "syscall",
    "ud2",
    ".cfi_endproc",
    "3:",
    "mov rdi, rax",
    "jmp qword ptr [rip + {failed}]",
    ".size pleat_clone_by_libc, . - pleat_clone_by_libc",
    // Flags, stack, two places, a third, and the launch.
    ".balign 16",
    ".hidden pleat_launch",
    ".globl pleat_launch",
    ".type pleat_launch,@function",
    "pleat_launch:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbx, -16",
    "mov rbx, r9",
    "mov r10, rcx",
    "mov eax, {clone}",
    "syscall",
    "test rax, rax",
    "jz 4f",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    "4:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "xor ebp, ebp",
    "mov rdi, rbx",
    "call [rbx + {arrive}]",
    "mov rsp, [rbx + {stack}]",
    "and rsp, -16",
    "mov rdi, [rbx + {argument}]",
    "call [rbx + {function}]",
    "mov edi, eax",
    "mov eax, {exit}",
    "syscall",
    "ud2",
    ".cfi_endproc",
    ".size pleat_launch, . - pleat_launch",
    ".popsection",
    no_fork = const NO_FORK,
    clone = const number::CLONE,
    exit = const number::EXIT,
    ours = sym OURS,
    failed = sym FAILED,
    function = const offset_of!(Launch, function),
    argument = const offset_of!(Launch, argument),
    stack = const offset_of!(Launch, stack),
    arrive = const offset_of!(Launch, arrive),
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn pleat_clone_by_libc();
    fn pleat_launch(flags: usize, stack: usize, parent: usize, child: usize, tls: usize, launch: &Launch) -> isize;
}

/// Where libc's function is to go on: what copies the process goes to `ours`, and `failed` returns for what the kernel refuses.
#[cfg(target_arch = "x86_64")]
pub fn entry(ours: Ours, failed: extern "C" fn(isize) -> c_int) -> usize {
    OURS.store(ours as *const () as usize, Ordering::Relaxed);
    FAILED.store(failed as *const () as usize, Ordering::Relaxed);
    pleat_clone_by_libc as *const () as usize
}

/// Other processors' functions are left alone.
#[cfg(not(target_arch = "x86_64"))]
pub fn entry(_ours: Ours, _failed: extern "C" fn(isize) -> c_int) -> usize {
    0
}

/// Makes a process. `places`: for its number in the parent and in the child, and for its thread's data.
///
/// # Safety
/// As for clone; the child has this thread only, and what `launch` says is its own.
pub unsafe fn launch(launch: &Launch, places: [usize; 3]) -> Result<usize, Errno> {
    let [parent, child, tls] = places;
    let stack = stack()?;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the stack is ours, and each child has a copy.
    return errno(unsafe { pleat_launch(launch.flags.clone, stack, parent, child, tls, launch) });
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (launch, stack, parent, child, tls);
        Err(Errno::NOSYS)
    }
}

/// The stack on which children begin, made at the first need.
fn stack() -> Result<usize, Errno> {
    let known = STACK.load(Ordering::Acquire);
    if known != 0 {
        return Ok(known);
    }
    let fresh = Area::reserve(STACK_BYTES)?;
    let top = fresh.base() as usize + STACK_BYTES;
    match STACK.compare_exchange(0, top, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            fresh.leave();
            Ok(top)
        }
        Err(other) => Ok(other),
    }
}
