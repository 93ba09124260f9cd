//! User mode is for x86-64 only: elsewhere the kernel cannot trap a program's system calls for it.

use crate::Errno;

/// See the module of the same name for x86-64.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Nobody changes the layout; the agent brings its state to rest.
    pub before_fork: fn(),
    /// The child, if there is one. It may wait for us to do something; we do not wait for it.
    pub after_fork_in_parent: fn(Option<u32>),
    /// No code of the program has run in the child yet.
    pub after_fork_in_child: fn(),
    /// The child has a network namespace of its own from now on.
    pub has_own_network: fn(),
    /// How many bytes one call may hold, where it can be made in pieces.
    pub held_bytes_max: fn() -> u64,
    /// Tells the program's user something.
    pub say: fn(&str),
    /// A call has been refused (ENOSYS): its name.
    pub has_refused: fn(&'static str),
    /// Ends the program with a reason.
    pub fail: fn(&str) -> !,
}

/// Cannot be done here.
pub fn arm(_hooks: &'static Hooks) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// It is not.
pub fn is_supported() -> bool {
    false
}

/// Nobody tells.
pub fn last_exit_status() -> u8 {
    0
}

/// Nobody asks.
pub fn set_executing(_thread: u32) {}

/// Nobody is to.
pub fn execute(_call: core::ffi::c_long, _arguments: [usize; 6]) -> Errno {
    Errno::NOSYS
}

/// They are not.
pub fn is_armed() -> bool {
    false
}

pub(crate) fn while_nothing_before_is_held<R>(_start: u64, end: u64, moving: impl FnOnce(u64) -> R) -> R {
    moving(end)
}

pub(crate) fn has_stack(_start: u64, _end: u64) -> bool {
    false
}
