//! libc's function `clone`, where it copies the process: that goes on at ours. What shares memory goes on as libc's does.
//!
//! Sandboxes make their processes so. The child begins in a function, on a stack that may be a small one, or lie in the frame of who
//! calls. What an agent does in a forked child needs more: it has a stack of its own for that.

use core::ffi::{c_int, c_long};

use crate::arch::{self, number};
use crate::process::{self, NEWNET, NEWUSER};
use crate::thread::errno;

mod asked;
#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use asked::Asked;
#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::{entry, launch};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{entry, launch};

/// Its number.
pub const CLONE: c_long = number::CLONE as c_long;
/// That of the call which takes a structure.
pub const CLONE3: c_long = number::CLONE3 as c_long;

/// What a clone shares with its parent where it is no copy: memory, files, being a thread; and its parent waits (vfork).
pub(crate) const NO_FORK: usize = 0x100 | 0x400 | 0x1_0000 | 0x4000;

/// The arguments of `clone` as libc takes them: function, stack, flags, its argument, and three places.
pub type Ours = unsafe extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int;

/// How a child ends whose function has returned this.
pub type End = extern "C" fn(c_int) -> !;

/// How a process is copied that an agent follows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// For the clone.
    pub clone: usize,
    /// What the child parts with by itself: with a network of its own it would not reach its parent's agent.
    unshared: usize,
}

impl Flags {
    /// `None`: it cannot be followed.
    pub fn of(asked: usize) -> Option<Self> {
        let unshared = asked & NEWNET;
        // The child could not say that it may not.
        let may = unshared == 0 || asked & NEWUSER != 0 || process::is_administrator();
        may.then_some(Self { clone: asked & !unshared, unshared })
    }

    /// For a copy that nobody follows.
    pub fn as_asked(asked: usize) -> Self {
        Self { clone: asked, unshared: 0 }
    }

    /// In the child. Says whether there is anything that it has parted with.
    pub fn unshare(self) -> bool {
        if self.unshared != 0 {
            // SAFETY: takes a number.
            let result = errno(unsafe { arch::syscall(number::UNSHARE, [self.unshared, 0, 0, 0, 0, 0]) });
            assert!(result.is_ok(), "a network of its own: {result:?}");
        }
        self.unshared != 0
    }
}

/// A process to be made: what it runs first, and where.
#[repr(C)]
pub struct Launch {
    /// A function of one argument, whose result is the child's status.
    pub function: usize,
    /// That argument.
    pub argument: usize,
    /// The upper end of its stack.
    pub stack: usize,
    /// Run before it, on a stack of ours.
    pub arrive: extern "C" fn(&Self),
    /// For that.
    pub flags: Flags,
}
