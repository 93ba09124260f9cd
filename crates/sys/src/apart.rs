//! Addresses of our mappings: apart from the program's.
//!
//! A program may unmap a part of its memory and map something at the same place later, by `MAP_FIXED`: in its own process nobody
//! else can have come there meanwhile. The kernel fills such holes first. So ours lie where neither the kernel nor
//! programs with addresses of their own choice (Go, ZGC, sanitizers, V8) put anything, at random as everything else.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use page::PAGE_BYTES;
use rustix::mm::MapFlags;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Errno;

/// Between what is not relocated and its heap, below, and the kernel's own choices, above: on x86-64 and aarch64.
const FIRST: u64 = 0x2000_0000_0000;
/// The last one begins before `FIRST` and this.
const BYTES: u64 = 0x1000_0000_0000;
/// So often something may be in the way. Then, and where there are no such addresses, the kernel chooses.
const TRIES: usize = 4;

/// The next place, from `FIRST` on; 0: nothing has been mapped yet.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Maps `bytes` by `map`, which is given an address and what is to be added to the flags of its mmap.
pub(crate) fn map(
    bytes: usize,
    mut map: impl FnMut(*mut c_void, MapFlags) -> Result<*mut c_void, Errno>,
) -> Result<*mut c_void, Errno> {
    for _ in 0..TRIES {
        match map(place(bytes), MapFlags::FIXED_NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(_) => break,
            mapped => return mapped,
        }
    }
    map(core::ptr::null_mut(), MapFlags::empty())
}

/// Addresses that have not been given out yet.
fn place(bytes: usize) -> *mut c_void {
    prepare();
    // More than there are addresses is the kernel's to refuse.
    let pages = bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0);
    let taken = NEXT.fetch_add(pages as u64, Ordering::Relaxed);
    core::ptr::without_provenance_mut((FIRST + taken % BYTES) as usize)
}

/// Asks for the random number that it needs once.
pub(crate) fn prepare() {
    if NEXT.load(Ordering::Relaxed) == 0 {
        // Of several threads that come first, one is right for all.
        let _ = NEXT.compare_exchange(0, begin(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Some page, not the first.
fn begin() -> u64 {
    let mut word = [0; 8];
    // Without random numbers, which the kernel may not have yet when it has just begun: always the same place.
    let _ = getrandom(&mut word, GetRandomFlags::NONBLOCK);
    let pages = BYTES / PAGE_BYTES as u64;
    (u64::from_ne_bytes(word) % (pages - 1) + 1) * PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Area;

    #[test]
    fn areas_fill_no_hole_that_the_program_has_left() {
        let hole = crate::remap::reserve(64 << 20).unwrap();
        // SAFETY: this test's own.
        unsafe { rustix::mm::munmap(hole as *mut c_void, 64 << 20) }.unwrap();
        for _ in 0..8 {
            let span = Area::reserve(1 << 20).unwrap().span();
            assert!((FIRST..FIRST + BYTES + (2 << 20)).contains(&span.start), "{span:x?}");
        }
    }

    #[test]
    fn what_is_in_the_way_stays() {
        let mut tried = Vec::new();
        let mapped = map(PAGE_BYTES, |at, flags| {
            tried.push((at.addr(), flags));
            if tried.len() < 3 { Err(Errno::EXIST) } else { Ok(at) }
        });
        assert_eq!(mapped.map(<*mut c_void>::addr), Ok(tried[2].0));
        assert_eq!(tried.iter().map(|(at, _)| at).collect::<std::collections::HashSet<_>>().len(), 3);
        assert!(tried.iter().all(|(_, flags)| *flags == MapFlags::FIXED_NOREPLACE));
    }

    #[test]
    fn where_there_are_no_such_addresses_the_kernel_chooses() {
        let choice = core::ptr::without_provenance_mut(0x7000_0000);
        let mapped =
            map(PAGE_BYTES, |at, flags| if at.is_null() && flags.is_empty() { Ok(choice) } else { Err(Errno::NOMEM) });
        assert_eq!(mapped, Ok(choice));
    }
}
