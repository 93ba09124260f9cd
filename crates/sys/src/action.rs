//! What the kernel does with a signal, past libc.

use crate::Errno;
use crate::arch::{number, syscall};
use crate::thread::errno;

/// Handlers that are none.
pub(crate) const DEFAULT: u64 = 0;
pub(crate) const IGNORED: u64 = 1;

pub(crate) const SA_SIGINFO: u64 = 4;
#[cfg(target_arch = "x86_64")]
pub(crate) const SA_RESTORER: u64 = 0x0400_0000;
pub(crate) const SA_ONSTACK: u64 = 0x0800_0000;
pub(crate) const SA_RESTART: u64 = 0x1000_0000;

/// `struct sigaction` of the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

impl Action {
    pub(crate) const DEFAULT: Self = Self { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };

    /// A handler of ours, during which every signal is blocked.
    pub(crate) fn of(handler: u64, flags: u64) -> Self {
        let (restorer_flag, restorer) = RESTORER;
        let restorer = restorer.map_or(0, |restorer| restorer as *const () as u64);
        Self { handler, flags: flags | restorer_flag, restorer, mask: u64::MAX }
    }
}

/// How a handler comes back, and the flag that says that there is one: elsewhere than on x86-64 the kernel brings its own.
#[cfg(target_arch = "x86_64")]
const RESTORER: (u64, Option<unsafe extern "C" fn()>) = (SA_RESTORER, Some(come_back));
#[cfg(not(target_arch = "x86_64"))]
const RESTORER: (u64, Option<unsafe extern "C" fn()>) = (0, None);

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn come_back() {
    core::arch::naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// Sets the kernel's action, if there is one to set, and returns the one before.
pub(crate) fn set(signal: u64, action: Option<Action>) -> Result<Action, Errno> {
    let mut before = Action::DEFAULT;
    let new = action.as_ref().map_or(0, |action| core::ptr::from_ref(action) as usize);
    let arguments = [signal as usize, new, &raw mut before as usize, 8, 0, 0];
    // SAFETY: null or a live action, and room for one; handlers are ours or the program's own.
    errno(unsafe { syscall(number::RT_SIGACTION, arguments) }).map(|_| before)
}
