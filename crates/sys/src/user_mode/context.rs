//! What the kernel puts on the stack for a signal handler: `struct ucontext` of arch/x86, as far as it is of use.

/// The registers of the interrupted program, and its signal mask.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
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
    rest: [u64; 15],
    pub(super) signal_mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, rip) == 168);
const _: () = assert!(core::mem::offset_of!(Context, signal_mask) == SIGNAL_MASK_OFFSET);

/// Where the mask is in a frame that `rt_sigreturn` finds at the stack pointer.
pub(super) const SIGNAL_MASK_OFFSET: usize = 296;

impl Context {
    /// Whether an address is on the signal stack that the thread has, or had when the signal came (`SS_AUTODISARM`).
    pub(super) fn has_on_signal_stack(&self, address: u64) -> bool {
        let [start, flags, bytes] = self.stack;
        flags & 2 /* SS_DISABLE */ == 0 && address.checked_sub(start).is_some_and(|above| above < bytes)
    }

    /// The arguments of a call.
    pub(super) fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Other arguments.
    pub(super) fn set_arguments(&mut self, arguments: [u64; 6]) {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9] = arguments;
    }
}
