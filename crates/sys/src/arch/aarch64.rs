//! aarch64: the system call instruction, and the first moments of a bare thread.

use core::arch::asm;

use super::{StandIn, Succession, ThreadStart};

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

/// clone(2) without a new stack. The new process returns, with 0; the thread waits in registers alone until that has ended, and goes on where
/// [`leave_to_thread`] has left the stack to it. Where no process can be made the thread returns, with the error.
///
/// # Safety
/// Both words last for ever, the flags hold `CLONE_VM` and `CLONE_CHILD_CLEARTID` and no `CLONE_THREAD`, `abandoned` takes nothing and does not
/// return, nothing else of the process counts on the thread, and it has no shadow stack.
pub(crate) unsafe fn clone_stand_in(stand_in: &StandIn) -> isize {
    let result: isize;
    // SAFETY: the process starts behind the first instruction with all registers but x0 kept, the stack pointer among them; the thread
    // uses the stack only when the process has ended.
    unsafe {
        asm!("svc 0",
             "cmp x0, #0",
             "b.le 2f",
             "mov x23, x0",
             "3:",
             "mov x8, #{futex}",
             "mov x0, x20",
             "mov x1, xzr",
             "mov x2, x23",
             "mov x3, xzr",
             "svc 0",
             "ldr w9, [x20]",
             "cmp w9, w23",
             "b.eq 3b",
             "mov x8, #{wait4}",
             "mov x0, x23",
             "mov x1, xzr",
             "mov x2, #{of_any_kind}",
             "mov x3, xzr",
             "svc 0",
             "ldr x9, [x21]",
             "cbz x9, 4f",
             "mov sp, x9",
             "ldr x9, [sp], #16",
             "ret x9",
             "4:",
             "blr x22",
             "brk 1",
             "2:",
             futex = const super::number::FUTEX, wait4 = const super::number::WAIT4, of_any_kind = const super::WAIT_OF_ANY_KIND,
             inlateout("x8") super::number::CLONE => _, inlateout("x0") stand_in.flags as isize => result, inlateout("x1") 0_usize => _,
             inlateout("x2") stand_in.number => _, inlateout("x3") 0_usize => _, in("x4") stand_in.number, in("x20") stand_in.number,
             in("x21") stand_in.place, in("x22") stand_in.abandoned, lateout("x9") _, lateout("x23") _);
    }
    result
}

/// In a process that [`clone_stand_in`] has made: writes down where its stack is, and ends. The thread returns from here.
///
/// # Safety
/// `place` is that of the call that made it.
pub(crate) unsafe fn leave_to_thread(place: usize) {
    // SAFETY: what the caller keeps in registers is on the stack while another thread goes on with that. Behind the store the process
    // touches no memory.
    unsafe {
        asm!("stp x19, x20, [sp, #-16]!",
             "stp x21, x22, [sp, #-16]!",
             "stp x23, x24, [sp, #-16]!",
             "stp x25, x26, [sp, #-16]!",
             "stp x27, x28, [sp, #-16]!",
             "stp x29, x30, [sp, #-16]!",
             "stp d8, d9, [sp, #-16]!",
             "stp d10, d11, [sp, #-16]!",
             "stp d12, d13, [sp, #-16]!",
             "stp d14, d15, [sp, #-16]!",
             "adr x9, 2f",
             "str x9, [sp, #-16]!",
             "mov x9, sp",
             "str x9, [x0]",
             "3:",
             "mov x8, #{exit}",
             "mov x0, xzr",
             "svc 0",
             "b 3b",
             "2:",
             "ldp d14, d15, [sp], #16",
             "ldp d12, d13, [sp], #16",
             "ldp d10, d11, [sp], #16",
             "ldp d8, d9, [sp], #16",
             "ldp x29, x30, [sp], #16",
             "ldp x27, x28, [sp], #16",
             "ldp x25, x26, [sp], #16",
             "ldp x23, x24, [sp], #16",
             "ldp x21, x22, [sp], #16",
             "ldp x19, x20, [sp], #16",
             exit = const super::number::EXIT, in("x0") place, clobber_abi("C"));
    }
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
