//! The detour of glibc's `clone` on x86-64, and the processes that it makes.

use core::arch::global_asm;
use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{End, Launch, NO_FORK, Ours};
use crate::arch::number;
use crate::thread::errno;
use crate::{Area, Errno};

const STACK_BYTES: usize = 128 << 10;

static OURS: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The upper end of the stack on which children begin. Each writes to its own copy.
static STACK: AtomicUsize = AtomicUsize::new(0);

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
    "call qword ptr [rip + {end}]",
    "ud2",
    ".cfi_endproc",
    ".size pleat_launch, . - pleat_launch",
    ".popsection",
    no_fork = const NO_FORK,
    clone = const number::CLONE,
    exit = const number::EXIT,
    ours = sym OURS,
    failed = sym FAILED,
    end = sym END,
    function = const offset_of!(Launch, function),
    argument = const offset_of!(Launch, argument),
    stack = const offset_of!(Launch, stack),
    arrive = const offset_of!(Launch, arrive),
);

unsafe extern "C" {
    fn pleat_clone_by_libc();
    fn pleat_launch(flags: usize, stack: usize, parent: usize, child: usize, tls: usize, launch: &Launch) -> isize;
}

/// Where libc's function is to go on: what copies the process goes to `ours`, `failed` returns for what the kernel refuses, and `end` ends
/// children that `ours` has made.
pub fn entry(ours: Ours, failed: extern "C" fn(isize) -> c_int, end: End) -> usize {
    END.store(end as *const () as usize, Ordering::Relaxed);
    OURS.store(ours as *const () as usize, Ordering::Relaxed);
    FAILED.store(failed as *const () as usize, Ordering::Relaxed);
    pleat_clone_by_libc as *const () as usize
}

/// Makes a process. `places`: for its number in the parent and in the child, and for its thread's data.
///
/// # Safety
/// As for clone; the child has this thread only, and what `launch` says is its own.
pub unsafe fn launch(launch: &Launch, places: [usize; 3]) -> Result<usize, Errno> {
    let [parent, child, tls] = places;
    // SAFETY: the caller's promise; the stack is ours, and each child has a copy.
    errno(unsafe { pleat_launch(launch.flags.clone, stack()?, parent, child, tls, launch) })
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
