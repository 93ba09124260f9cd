//! The pool: one area seen as bytes. All unsafe code of the store is here.
//!
//! A `Pool` owns its area and never lends out the area's pointer, so the rules for references into it are the rules
//! for references into the `Pool`: the borrow checker sees that nobody reads what is written or released.

use page::PAGE_BYTES;
use sys::{Area, Errno};

/// A long row of bytes, zero at first. A frame comes with the first write to it and goes with `release`. They are
/// addresses without access until `open_to` says that they are wanted.
pub(crate) struct Pool {
    area: Area,
}

impl Pool {
    pub(crate) fn reserve(bytes: usize) -> Result<Self, Errno> {
        Area::reserve_closed(bytes).map(|area| Self { area })
    }

    /// Makes the first `bytes` usable. Fails where the system grants no more memory.
    pub(crate) fn open_to(&mut self, bytes: usize) -> Result<(), Errno> {
        self.area.open_to(bytes)
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        self.assert_inside(offset, length);
        let start = self.area.base().wrapping_add(offset);
        // SAFETY: the `length` bytes from `start` lie in what is open (asserted), which is mapped readable as long as
        // `self` lives, is initialised (anonymous memory starts as zeros), and is shorter than `isize::MAX`. They are
        // written and released only through `&mut self`, which cannot coexist with the returned borrow of `self`.
        unsafe { core::slice::from_raw_parts(start, length) }
    }

    pub(crate) fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        self.assert_inside(offset, length);
        let start = self.area.base().wrapping_add(offset);
        // SAFETY: as in `bytes`, and the area is writable. The returned borrow is of all of `self`, and nobody else has
        // the area's pointer, so it is the only reference to these bytes.
        unsafe { core::slice::from_raw_parts_mut(start, length) }
    }

    /// Copies `length` bytes; the two places do not overlap.
    pub(crate) fn copy(&mut self, from: usize, to: usize, length: usize) {
        let (low, high) = (from.min(to), from.max(to));
        let (before, behind) = self.bytes_mut(low, high - low + length).split_at_mut(high - low);
        if from < to {
            behind.copy_from_slice(&before[..length]);
        } else {
            before[..length].copy_from_slice(behind);
        }
    }

    /// Gives `frames` frames from the page-aligned `offset` on back to the system.
    // Needs `&mut`, though the compiler does not know it: the content changes under every reference to it.
    pub(crate) fn release(&mut self, offset: usize, frames: usize) {
        self.area.release(offset, frames * PAGE_BYTES);
    }

    fn assert_inside(&self, offset: usize, length: usize) {
        let open = self.area.open_bytes();
        assert!(offset <= open && length <= open - offset, "outside the pool");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_copied_and_released() {
        let mut pool = Pool::reserve(2 * PAGE_BYTES).unwrap();
        pool.open_to(2 * PAGE_BYTES).unwrap();
        pool.bytes_mut(10, 3).copy_from_slice(b"abc");
        pool.copy(10, PAGE_BYTES + 1, 3);
        pool.copy(PAGE_BYTES + 2, 13, 2);
        assert_eq!(pool.bytes(10, 5), b"abcbc");
        pool.release(0, 1);
        assert_eq!(pool.bytes(10, 5), [0; 5]);
        assert_eq!(pool.bytes(PAGE_BYTES + 1, 3), b"abc");
    }

    #[test]
    #[should_panic(expected = "outside the pool")]
    fn reading_past_the_end_is_a_bug() {
        let mut pool = Pool::reserve(PAGE_BYTES).unwrap();
        pool.open_to(PAGE_BYTES).unwrap();
        let _ = pool.bytes(PAGE_BYTES - 1, 2);
    }

    #[test]
    #[should_panic(expected = "outside the pool")]
    fn what_is_not_open_cannot_be_read() {
        let _ = Pool::reserve(PAGE_BYTES).unwrap().bytes(0, 1);
    }
}
