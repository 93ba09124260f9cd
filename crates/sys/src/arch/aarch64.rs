//! aarch64: the system call instruction, and the first moments of a bare thread.

use core::arch::asm;

use super::{Succession, ThreadStart};

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

/// clone(2) without a new stack. Only the new thread returns, with 0; the old one touches no memory but the word that relieves it, and
/// ends then. Where no thread can be made the old one returns, with the error.
///
/// # Safety
/// Both words last for ever, the flags hold `CLONE_THREAD`, nothing else of the process counts on the old thread, and it has no
/// shadow stack.
pub(crate) unsafe fn clone_on_this_stack(succession: &Succession) -> isize {
    let result: isize;
    // SAFETY: the new thread starts behind the first instruction with all registers but x0 kept, the stack pointer among them; the old
    // one goes on in registers alone.
    unsafe {
        asm!("svc 0",
             "cmp x0, #0",
             "b.le 2f",
             "3:",
             "mov x8, #{sched_yield}",
             "svc 0",
             "ldr w9, [x20]",
             "cbz w9, 3b",
             "mov x8, #{exit}",
             "mov x0, xzr",
             "svc 0",
             "brk 1",
             "2:",
             sched_yield = const super::number::SCHED_YIELD, exit = const super::number::EXIT,
             inlateout("x8") super::number::CLONE => _, inlateout("x0") succession.flags as isize => result, in("x1") 0_usize,
             in("x2") succession.number, in("x3") 0_usize, in("x4") succession.number, in("x20") succession.is_relieved, lateout("x9") _);
    }
    result
}

/// Whether the processor keeps this thread's return addresses a second time, on a stack that no other thread goes on with.
pub(crate) fn has_shadow_stack() -> bool {
    const PR_GET_SHADOW_STACK_STATUS: usize = 74;
    let mut features = 0_u64;
    // SAFETY: writes eight bytes, if the kernel knows of such stacks.
    let result =
        unsafe { syscall(super::number::PRCTL, [PR_GET_SHADOW_STACK_STATUS, &raw mut features as usize, 0, 0, 0, 0]) };
    result == 0 && features & 1 != 0
}
