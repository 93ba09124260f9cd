//! libc's function `syscall`: some of the calls that a program makes by it go on at ours.
//!
//! Of those the kernel tells nobody, or too late, and libc's own functions are not in their way: forks, for one. Everything else
//! goes through as before, by the rest of libc's function, at the cost of a few instructions.

use core::ffi::c_long;

use crate::Errno;
use crate::arch::{self, number};
use crate::thread::errno;

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::NO_FORK;
#[cfg(target_arch = "x86_64")]
pub use x86_64::place;

/// Number and arguments, as `syscall` takes them.
pub type Ours = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// Other processors' functions are left alone.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn place(_function: usize, _ours: Ours) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// What a call that has gone on at ours is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// fork, or a clone like it.
    Fork,
    /// madvise.
    Advise,
    /// shmat.
    Attach,
    /// ioctl.
    Control,
    /// seccomp.
    Confine,
}

impl Call {
    /// The one of this number.
    pub fn of(number: c_long) -> Option<Self> {
        Some(match number as usize {
            number::MADVISE => Self::Advise,
            number::SHMAT => Self::Attach,
            number::IOCTL => Self::Control,
            number::SECCOMP => Self::Confine,
            #[cfg(target_arch = "x86_64")]
            number::FORK => Self::Fork,
            number::CLONE => Self::Fork,
            _ => return None,
        })
    }
}

/// The call itself.
///
/// # Safety
/// Whatever the call demands; a clone is a fork.
pub unsafe fn make(call: c_long, arguments: [c_long; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    errno(unsafe { arch::syscall(call as usize, arguments.map(|word| word as usize)) })
}
