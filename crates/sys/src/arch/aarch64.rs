//! aarch64: the system call instruction, and the first moments of a bare thread.

use core::arch::asm;

use super::ThreadStart;

/// One system call.
///
/// # Safety
/// Whatever the call of this number demands of its arguments.
pub(crate) unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: only x0 changes.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") args[0] as isize => result, in("x1") args[1], in("x2") args[2],
             in("x3") args[3], in("x4") args[4], in("x5") args[5], options(nostack));
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
    // registers but x0 and sp kept, clears the frame pointer (end of back traces) and calls its entry.
    // Argument order differs from x86-64: flags, stack, parent tid, tls, child tid.
    unsafe {
        asm!("svc 0",
             "cbnz x0, 2f",
             "mov x29, xzr",
             "mov x0, x20",
             "blr x21",
             "brk 1",
             "2:",
             in("x8") super::number::CLONE, inlateout("x0") start.flags as isize => result, in("x1") start.stack_top,
             in("x2") start.number, in("x3") start.tls, in("x4") start.number, in("x20") start.argument, in("x21") start.entry);
    }
    result
}
