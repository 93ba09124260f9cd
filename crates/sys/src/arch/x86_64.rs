//! x86-64: the system call instruction, and the first moments of a bare thread.

use core::arch::asm;

use super::{StandIn, Succession, ThreadStart};

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

/// clone(2) without a new stack. Only the new thread returns, with 0; the old one touches no memory but the word that relieves it, and
/// ends then. Where no thread can be made the old one returns, with the error.
///
/// # Safety
/// Both words last for ever, the flags hold `CLONE_THREAD`, nothing else of the process counts on the old thread, and it has no
/// shadow stack.
pub(crate) unsafe fn clone_on_this_stack(succession: &Succession) -> isize {
    let result: isize;
    // SAFETY: the new thread starts behind the first instruction with all registers but rax kept, the stack pointer among them; the old
    // one goes on in registers alone.
    unsafe {
        asm!("syscall",
             "test rax, rax",
             "jle 2f",
             "3:",
             "mov eax, {sched_yield}",
             "syscall",
             "cmp dword ptr [r12], 0",
             "je 3b",
             "mov eax, {exit}",
             "xor edi, edi",
             "syscall",
             "ud2",
             "2:",
             sched_yield = const super::number::SCHED_YIELD, exit = const super::number::EXIT,
             inlateout("rax") super::number::CLONE as isize => result, inlateout("rdi") succession.flags => _, in("rsi") 0_usize,
             in("rdx") succession.number, in("r10") succession.number, in("r8") 0_usize, in("r12") succession.is_relieved,
             lateout("rcx") _, lateout("r11") _);
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
    // SAFETY: the process starts behind the first instruction with all registers but rax kept, the stack pointer among them; the thread
    // uses the stack only when the process has ended.
    unsafe {
        asm!("syscall",
             "test rax, rax",
             "jle 2f",
             "mov r14, rax",
             "3:",
             "mov eax, {futex}",
             "mov rdi, r12",
             "xor esi, esi",
             "mov rdx, r14",
             "xor r10d, r10d",
             "syscall",
             "cmp dword ptr [r12], r14d",
             "je 3b",
             "mov eax, {wait4}",
             "mov rdi, r14",
             "xor esi, esi",
             "mov edx, {of_any_kind}",
             "xor r10d, r10d",
             "syscall",
             "mov rax, [r13]",
             "test rax, rax",
             "jz 4f",
             "mov rsp, rax",
             "ret",
             "4:",
             "call r15",
             "ud2",
             "2:",
             futex = const super::number::FUTEX, wait4 = const super::number::WAIT4, of_any_kind = const super::WAIT_OF_ANY_KIND,
             inlateout("rax") super::number::CLONE as isize => result, inlateout("rdi") stand_in.flags => _, inlateout("rsi") 0_usize => _,
             inlateout("rdx") stand_in.number => _, inlateout("r10") stand_in.number => _, in("r8") 0_usize, in("r12") stand_in.number,
             in("r13") stand_in.place, in("r15") stand_in.abandoned, lateout("r14") _, lateout("rcx") _, lateout("r11") _);
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
        asm!("push rbx",
             "push rbp",
             "push r12",
             "push r13",
             "push r14",
             "push r15",
             "lea rax, [rip + 2f]",
             "push rax",
             "mov [rdi], rsp",
             "3:",
             "mov eax, {exit}",
             "xor edi, edi",
             "syscall",
             "jmp 3b",
             "2:",
             "pop r15",
             "pop r14",
             "pop r13",
             "pop r12",
             "pop rbp",
             "pop rbx",
             exit = const super::number::EXIT, in("rdi") place, clobber_abi("C"));
    }
}

/// Whether the processor keeps this thread's return addresses a second time, on a stack that no other thread goes on with.
pub(crate) fn has_shadow_stack() -> bool {
    const STATUS: usize = 0x5005;
    let mut features = 0_u64;
    // SAFETY: writes eight bytes, if the kernel knows of such stacks.
    let result = unsafe { syscall(super::number::ARCH_PRCTL, [STATUS, &raw mut features as usize, 0, 0, 0, 0]) };
    result == 0 && features & 1 != 0
}
