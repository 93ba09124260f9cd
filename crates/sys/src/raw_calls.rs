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
pub use x86_64::place;

/// Number and arguments, as `syscall` takes them.
pub type Ours = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// The operations of futex(2) by which the kernel writes a word, a bit each: `FUTEX_WAKE_OP`, `FUTEX_LOCK_PI`, `FUTEX_UNLOCK_PI`,
/// `FUTEX_TRYLOCK_PI`, `FUTEX_CMP_REQUEUE_PI` and `FUTEX_LOCK_PI2`.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only there calls go on at ours"))]
const WRITING: u32 = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 13;
/// Those that have two words: `FUTEX_WAKE_OP` and `FUTEX_CMP_REQUEUE_PI`.
const HAS_TWO: [u32; 2] = [5, 12];
/// What an operation is without its flags (`FUTEX_CMD_MASK`, as far as there are operations).
const OPERATION: u32 = 31;

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
    /// futex, where the kernel writes a word.
    WriteWord,
    /// exit.
    End,
}

impl Call {
    /// The one of this number.
    pub fn of(number: c_long) -> Option<Self> {
        Some(match number as usize {
            number::MADVISE => Self::Advise,
            number::SHMAT => Self::Attach,
            number::IOCTL => Self::Control,
            number::SECCOMP => Self::Confine,
            number::FUTEX => Self::WriteWord,
            number::EXIT => Self::End,
            #[cfg(target_arch = "x86_64")]
            number::FORK => Self::Fork,
            number::CLONE | number::CLONE3 => Self::Fork,
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

/// futex(2) where the kernel writes a word. It does not wait for us there: what is missing it answers with `EFAULT`, and is brought in
/// here.
///
/// # Safety
/// As for the call.
pub unsafe fn write_word(arguments: [c_long; 6]) -> Result<usize, Errno> {
    /// A word that may be read only, or a time that is nowhere, is answered with the same.
    const TRIES: usize = 64;
    let [first, operation, .., second, _] = arguments;
    let words = if HAS_TWO.contains(&(operation as u32 & OPERATION)) { &[first, second][..] } else { &[first] };
    // SAFETY: the caller's promise.
    let mut answer = unsafe { make(number::FUTEX as c_long, arguments) };
    for _ in 0..TRIES {
        if answer != Err(Errno::FAULT) || !words.iter().all(|word| is_there(*word)) {
            break;
        }
        // SAFETY: as above; the call has done nothing.
        answer = unsafe { make(number::FUTEX as c_long, arguments) };
    }
    answer
}

/// Has the kernel read a word of four bytes, by a call that hardly a sandbox forbids, and so brings it in; says whether there is one.
pub(crate) fn is_there(word: c_long) -> bool {
    /// `FUTEX_CMP_REQUEUE` with `FUTEX_PRIVATE_FLAG`: of nobody, from a word to itself.
    const READ: c_long = 4 | 128;
    // SAFETY: reads a word if there is one, and wakes nobody.
    let answer = unsafe { make(number::FUTEX as c_long, [word, READ, 0, 0, word, 0]) };
    answer != Err(Errno::FAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_cannot_be_written_is_told_of() {
        const LOCK: c_long = 6 | 128;
        let closed = crate::Area::reserve_closed(4096).unwrap();
        for word in [8, closed.base() as c_long] {
            // SAFETY: there is no word, or one without access.
            assert_eq!(unsafe { write_word([word, LOCK, 0, 0, 0, 0]) }, Err(Errno::FAULT));
        }
        let mut mutex = 0_u32;
        // SAFETY: this thread's.
        let locked = unsafe { write_word([(&raw mut mutex) as c_long, LOCK, 0, 0, 0, 0]) };
        assert_eq!((locked, mutex), (Ok(0), crate::thread::thread_id()));
    }
}
