//! x86-64: the system call instruction, and the first moments of a bare thread.

use core::arch::asm;

use super::ThreadStart;

/// One system call.
///
/// # Safety
/// Whatever the call of this number demands of its arguments.
pub(crate) unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: rcx and r11 are lost, everything else is kept.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") args[0], in("rsi") args[1],
             in("rdx") args[2], in("r10") args[3], in("r8") args[4], in("r9") args[5],
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// clone(2) with a new stack; the new thread calls `start.entry(start.argument)`.
///
/// # Safety
/// `start.stack_top` is the 16-byte aligned end of memory that only the new thread uses, `start.tls` a thread control
/// block of its own, and `entry` never returns.
pub(crate) unsafe fn clone_thread(start: &ThreadStart) -> isize {
    let result: isize;
    // SAFETY: in the parent this is an ordinary system call. The child starts behind the same instruction with all
    // registers but rax and rsp kept, clears the frame pointer (end of back traces) and calls its entry.
    unsafe {
        asm!("syscall",
             "test rax, rax",
             "jnz 2f",
             "xor ebp, ebp",
             "mov rdi, r12",
             "call r13",
             "ud2",
             "2:",
             inlateout("rax") super::number::CLONE as isize => result, in("rdi") start.flags, in("rsi") start.stack_top,
             in("rdx") start.number, in("r10") start.number, in("r8") start.tls, in("r12") start.argument, in("r13") start.entry,
             lateout("rcx") _, lateout("r11") _);
    }
    result
}
