//! The assembly: calls made for the program, threads that begin, and reads that may fail.
//!
//! The signal handler does not make the program's call itself: a call may wait for hours, be interrupted, or never
//! return, and then it must look as if the program had made it. The handler lets the program go on in one of these
//! instead, in its own context and on its own stack.

use core::arch::global_asm;
use core::mem::offset_of;

use super::holds::Slot;
use super::transfers;

/// Bytes below the stack pointer that a function may use without moving it, and two words of ours.
pub(super) const FRAME_BYTES: u64 = 128 + 16;

unsafe extern "C" {
    /// Makes the call, restores the arguments, lets the slot go and goes back. On the stack: slot, and where to go on.
    pub(super) fn pleat_call();
    /// Behind its call.
    pub(super) fn pleat_called();
    /// Makes the call, which is a piece of the program's, writes its result down (`scratch`), and goes back to the program's own
    /// instruction with a number that is no call's ([`super::transfers`]) and the slot. On the stack: the same.
    pub(super) fn pleat_piece();
    /// Behind its call.
    pub(super) fn pleat_pieced();
    pub(super) fn pleat_piece_end();
    /// The same for a call that makes a thread or a process in the same memory. Its r9 is the slot.
    pub(super) fn pleat_clone();
    /// Makes the call and nothing else.
    pub(super) fn pleat_bare();
    /// Clears a bit, by r8, in the word at r9, and makes the call, which ends the thread.
    pub(super) fn pleat_exit();
    /// Makes the call, and then ends the thread as [`pleat_exit`] does: its stack is gone.
    pub(super) fn pleat_unmap_self();
    /// `rt_sigreturn`, for the program and for our own handlers.
    pub(super) fn pleat_return();
    /// Our handler for SIGSEGV and SIGBUS: a failed touch or copy goes on behind it, everything else is the program's.
    pub(super) fn pleat_fault();
    /// The same where everything else has the default action, whatever the program's handler is.
    pub(super) fn pleat_fault_or_default();
    fn pleat_touch(at: *const u8) -> u32;
    fn pleat_copy(to: *mut u8, from: *const u8, bytes: usize) -> u32;
}

/// Reads a byte; false where that is a fault.
///
/// # Safety
/// `pleat_fault` is the handler of SIGSEGV and SIGBUS, and the byte's reading has no effects.
pub(super) unsafe fn touch(at: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { pleat_touch(at) == 0 }
}

/// Copies bytes; false where that is a fault.
///
/// # Safety
/// As for `touch`; what lies at `to` is for the caller to write to.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { pleat_copy(to, from, bytes) == 0 }
}

/// What the assembly reads.
#[repr(C)]
pub(super) struct Constants {
    /// The code that may make system calls.
    pub(super) text: core::sync::atomic::AtomicU64,
    pub(super) text_bytes: core::sync::atomic::AtomicU64,
}

pub(super) static CONSTANTS: Constants =
    Constants { text: core::sync::atomic::AtomicU64::new(0), text_bytes: core::sync::atomic::AtomicU64::new(0) };

// The frame of `pleat_call` is described to unwinders: back traces and cancellation go through it.
// r11 and rcx are lost in any system call; so they are free here, behind it.
global_asm!(
    ".pushsection .text.pleat_stubs,\"ax\",@progbits",
    ".balign 16",
    ".globl pleat_call",
    ".hidden pleat_call",
    ".type pleat_call,@function",
    "pleat_call:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, {frame}",
    ".cfi_offset rip, -{frame}+8",
    "syscall",
    ".globl pleat_called",
    ".hidden pleat_called",
    "pleat_called:",
    "mov rcx, [rsp]",
    "mov rdi, [rcx+{arguments}]",
    "mov rsi, [rcx+{arguments}+8]",
    "mov rdx, [rcx+{arguments}+16]",
    "mov r10, [rcx+{arguments}+24]",
    "mov r8, [rcx+{arguments}+32]",
    "mov r9, [rcx+{arguments}+40]",
    "mov r11, [rcx+{generation}]",
    "lea r11, [r11+2]",
    "mov [rcx+{generation}], r11",
    "mov rcx, [rsp+8]",
    "lea rsp, [rsp+{frame}]",
    "jmp rcx",
    ".cfi_endproc",
    ".size pleat_call,.-pleat_call",
    //
    ".globl pleat_piece",
    ".hidden pleat_piece",
    ".type pleat_piece,@function",
    "pleat_piece:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, {frame}",
    ".cfi_offset rip, -{frame}+8",
    "syscall",
    ".globl pleat_pieced",
    ".hidden pleat_pieced",
    "pleat_pieced:",
    "mov rdi, [rsp]",
    "mov [rdi+{result}], rax",
    "mov rcx, [rsp+8]",
    "lea rcx, [rcx-{syscall_bytes}]",
    "mov eax, {go_on}",
    "jmp rcx",
    ".cfi_endproc",
    ".globl pleat_piece_end",
    ".hidden pleat_piece_end",
    "pleat_piece_end:",
    ".size pleat_piece,.-pleat_piece",
    //
    ".globl pleat_clone",
    ".hidden pleat_clone",
    "pleat_clone:",
    "syscall",
    "test rax, rax",
    "js 3f",
    "jnz 4f",
    // The new thread: on its own signal stack, where `make` has one for it, before a call of it is trapped.
    "cmp qword ptr [r9+{scratch}+16], 0",
    "je 2f",
    "lea rdi, [r9+{scratch}]",
    "xor esi, esi",
    "mov eax, 131", // sigaltstack
    "syscall",
    // Dispatch is not inherited.
    "2: mov edi, 59", // PR_SET_SYSCALL_USER_DISPATCH
    "mov esi, 1",  // on
    "mov rdx, [rip+{constants}]",
    "mov r10, [rip+{constants}+8]",
    "xor r8d, r8d",
    "mov eax, 157", // prctl
    "syscall",
    "test rax, rax",
    "jz 4f",
    "ud2",
    // No new thread: its share in the slot is let go as well, and its signal stack.
    "3: mov rcx, [r9+{scratch}+24]",
    "mov r11d, [r9+{scratch}+12]",
    "lock btr qword ptr [rcx], r11",
    "lock dec qword ptr [r9+{parties}]",
    "4: mov r11, r9",
    "mov rdi, [r11+{arguments}]",
    "mov rsi, [r11+{arguments}+8]",
    "mov rdx, [r11+{arguments}+16]",
    "mov r10, [r11+{arguments}+24]",
    "mov r8, [r11+{arguments}+32]",
    "mov r9, [r11+{arguments}+40]",
    "mov rcx, [r11+{back}]",
    "lock dec qword ptr [r11+{parties}]",
    "jnz 5f",
    "lock add qword ptr [r11+{generation}], 2",
    "5: jmp rcx",
    //
    ".globl pleat_bare",
    ".hidden pleat_bare",
    "pleat_bare:",
    "syscall",
    "ud2",
    //
    ".globl pleat_unmap_self",
    ".hidden pleat_unmap_self",
    "pleat_unmap_self:",
    "syscall",
    "xor edi, edi",
    "mov eax, 60", // exit
    ".globl pleat_exit",
    ".hidden pleat_exit",
    "pleat_exit:",
    "lock btr qword ptr [r9], r8",
    "syscall",
    "ud2",
    //
    ".globl pleat_return",
    ".hidden pleat_return",
    "pleat_return:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    //
    // rdi signal, rsi information, rdx context; the program counter is at 168 of the context.
    ".globl pleat_fault",
    ".hidden pleat_fault",
    "pleat_fault:",
    "mov rax, [rdx+168]",
    "lea rcx, [rip+6f]",
    "cmp rax, rcx",
    "je 8f",
    "lea rcx, [rip+7f]",
    "cmp rax, rcx",
    "je 8f",
    "jmp {deliver}",
    //
    ".globl pleat_fault_or_default",
    ".hidden pleat_fault_or_default",
    "pleat_fault_or_default:",
    "mov rax, [rdx+168]",
    "lea rcx, [rip+6f]",
    "cmp rax, rcx",
    "je 8f",
    "lea rcx, [rip+7f]",
    "cmp rax, rcx",
    "jne {own_default}",
    // Not by the restorer that the program has given: its system call would be trapped, with SIGSYS blocked.
    "8: lea rax, [rip+9f]",
    "mov [rdx+168], rax",
    "add rsp, 8",
    "jmp pleat_return",
    //
    ".globl pleat_touch",
    ".hidden pleat_touch",
    "pleat_touch:",
    "6: mov al, [rdi]",
    "xor eax, eax",
    "ret",
    "9: mov eax, 1",
    "ret",
    ".globl pleat_copy",
    ".hidden pleat_copy",
    "pleat_copy:",
    "mov rcx, rdx",
    "7: rep movsb",
    "xor eax, eax",
    "ret",
    ".popsection",
    frame = const FRAME_BYTES,
    result = const offset_of!(Slot, scratch) + transfers::RESULT * 8,
    syscall_bytes = const transfers::SYSCALL_BYTES,
    go_on = const transfers::GO_ON,
    generation = const offset_of!(Slot, generation),
    back = const offset_of!(Slot, back),
    arguments = const offset_of!(Slot, arguments),
    parties = const offset_of!(Slot, parties),
    scratch = const offset_of!(Slot, scratch),
    constants = sym CONSTANTS,
    deliver = sym super::deliver::deliver,
    own_default = sym super::signals::own_default_action,
);
