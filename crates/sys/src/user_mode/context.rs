//! What the kernel puts on the stack for a signal handler: `struct ucontext` of arch/x86.

/// The registers of the interrupted program, its signal mask, and what lies in between.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Context {
    flags: u64,
    link: u64,
    /// `struct stack`: the thread's signal stack when the signal came.
    pub(super) stack: [u64; 3],
    pub(super) r8: u64,
    pub(super) r9: u64,
    pub(super) r10: u64,
    r11_to_r15: [u64; 5],
    pub(super) rdi: u64,
    pub(super) rsi: u64,
    rbp: u64,
    rbx: u64,
    pub(super) rdx: u64,
    pub(super) rax: u64,
    rcx: u64,
    pub(super) rsp: u64,
    pub(super) rip: u64,
    pub(super) processor_flags: u64,
    segments: u64,
    fault: [u64; 4],
    /// Where the processor's state is that belongs to it: `struct _fpstate`; 0: the state that a program begins with.
    pub(super) state: u64,
    reserved: [u64; 8],
    pub(super) signal_mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, rip) == 168);
const _: () = assert!(core::mem::offset_of!(Context, state) == 224);
const _: () = assert!(core::mem::offset_of!(Context, signal_mask) == SIGNAL_MASK_OFFSET);

/// Where the mask is in a frame that `rt_sigreturn` finds at the stack pointer.
pub(super) const SIGNAL_MASK_OFFSET: usize = 296;

impl Context {
    /// The arguments of a call.
    pub(super) fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Other arguments.
    pub(super) fn set_arguments(&mut self, arguments: [u64; 6]) {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9] = arguments;
    }
}
