//! What `clone3` is asked for. It is in the program's memory, and may be nowhere: then the kernel says so, not we.

use core::ffi::c_long;
use core::mem::size_of;

use super::{CLONE3, Flags, NO_FORK};
use crate::{Errno, raw_calls};

/// `struct clone_args` of clone3(2) as it is since Linux 5.7, with the cgroup last.
const WORDS: usize = 11;
/// The bytes of the shortest that there has been.
const BYTES_MIN: usize = 64;
/// Where it has the flags, and the stack and its size.
const FLAGS: usize = 0;
const STACK: usize = 5;
/// Its parent waits.
const VFORK: u64 = 0x4000;

/// A copy of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    words: [u64; WORDS],
    bytes: usize,
}

impl Asked {
    /// The bytes of what is known here.
    pub(crate) const BYTES_MAX: usize = size_of::<[u64; WORDS]>();

    /// From the call's arguments. `None` where the kernel would refuse it, or takes more than is known here.
    pub fn read(at: c_long, bytes: c_long) -> Option<Self> {
        let last = at.checked_add(bytes)?.checked_sub(size_of::<u32>() as c_long)?;
        let asked = Self::read_by(bytes, |words, bytes| {
            let is_there = [at, last].iter().all(|word| raw_calls::is_there(word & !3));
            let from: *const u8 = core::ptr::with_exposed_provenance(at as usize);
            if is_there {
                // SAFETY: there is memory at both ends, which are on the same page or on two that follow each other, and there is room.
                unsafe { core::ptr::copy_nonoverlapping(from, words, bytes) };
            }
            is_there
        });
        asked.ok()
    }

    /// The same by a function that copies so many bytes, and says whether it could: `INVAL` where there are too few or too many, `FAULT` where
    /// they cannot be read, as the kernel has it.
    pub(crate) fn read_by(bytes: c_long, copy: impl FnOnce(*mut u8, usize) -> bool) -> Result<Self, Errno> {
        let mut words = [0; WORDS];
        let known = BYTES_MIN..=Self::BYTES_MAX;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| known.contains(bytes)).ok_or(Errno::INVAL)?;
        if copy(words.as_mut_ptr().cast(), bytes) { Ok(Self { words, bytes }) } else { Err(Errno::FAULT) }
    }

    /// A copy that goes on where its parent does, which does not wait for it.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "user mode is there alone"))]
    pub(crate) fn as_fork(mut self) -> Self {
        self.words[FLAGS] &= !VFORK;
        self.words[STACK..STACK + 2].fill(0);
        self
    }

    /// Whether the process is copied, and the copy goes on where its parent does.
    pub fn is_copy(&self) -> bool {
        self.words[FLAGS] as usize & NO_FORK == 0 && self.words[STACK] == 0
    }

    /// How.
    pub fn flags(&self) -> usize {
        self.words[FLAGS] as usize
    }

    /// Makes the copy.
    ///
    /// # Safety
    /// As for a fork.
    pub unsafe fn make(mut self, flags: Flags) -> Result<usize, Errno> {
        self.words[FLAGS] = flags.clone as u64;
        let at = self.words.as_ptr().expose_provenance();
        // SAFETY: the caller's promise; a live structure of that size.
        unsafe { raw_calls::make(CLONE3, [at as c_long, self.bytes as c_long, 0, 0, 0, 0]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_is_told_from_a_bad_address() {
        let outcome = |bytes, can_copy| Asked::read_by(bytes, |_, _| can_copy).map(|asked| asked.flags());
        assert_eq!([56, 96].map(|bytes| outcome(bytes, true)), [Err(Errno::INVAL); 2]);
        assert_eq!([true, false].map(|can_copy| outcome(64, can_copy)), [Ok(0), Err(Errno::FAULT)]);
    }

    #[test]
    fn what_is_asked_is_read_where_the_kernel_would_read_it() {
        let mut words = [0_u64; WORDS];
        let at = words.as_ptr() as c_long;
        assert!(Asked::read(at, 64).is_some_and(|asked| asked.is_copy()));
        for refused in [(at, 56), (at, 96), (at, -1), (0, 64), (-64, 64), (c_long::MAX, 88)] {
            assert!(Asked::read(refused.0, refused.1).is_none(), "{refused:?}");
        }
        // Behind it is a page that may not be read.
        let mut page = crate::Area::reserve_closed(4096).unwrap();
        page.open_to(4096).unwrap();
        let end = page.base() as c_long + 4096;
        assert!(Asked::read(end - 64, 64).is_some());
        assert!(Asked::read(end - 56, 64).is_none());
        assert!(Asked::read(end, 64).is_none());
        words[STACK] = 16;
        assert!(Asked::read(words.as_ptr() as c_long, 88).is_some_and(|asked| !asked.is_copy()));
        (words[STACK], words[FLAGS]) = (0, 0x100);
        assert!(Asked::read(words.as_ptr() as c_long, 88).is_some_and(|asked| !asked.is_copy()));
    }
}
