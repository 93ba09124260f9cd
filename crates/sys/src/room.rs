//! Whether there is room for a mapping, asked without making it.

use core::ops::Range;

use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::kernel::PageRange;
use crate::{Errno, apart, locking, process};

/// Whether limits and memory allow private memory at `range` with this protection in the place of what is there. `is_reserved`:
/// without `MAP_NORESERVE`. Another thread may take what there is meanwhile.
pub fn can_replace(range: Range<usize>, protection: u32, is_reserved: bool) -> bool {
    if can_map(range.len(), protection, is_reserved) {
        return true;
    }
    if is_beyond_limits(protection) {
        return false;
    }
    let pages = PageRange {
        start: PageIndex::containing(range.start as u64),
        end: PageIndex::containing(range.end.saturating_add(PAGE_BYTES - 1) as u64),
    };
    let mut more = pages.count();
    let read = process::mappings(&mut |mapping| {
        if let Some(part) = mapping.range.intersection(pages) {
            more -= part.count();
        }
    });
    // Who cannot tell what is there must not let the kernel refuse it: what is with us would be lost.
    read.is_ok() && (more == PageCount::ZERO || can_map(more.bytes().0 as usize, protection, is_reserved))
}

/// Whether the limits are lower than what there is: then the kernel refuses even what adds nothing (`may_expand_vm`).
fn is_beyond_limits(protection: u32) -> bool {
    let Some([all, data]) = process::mapped() else { return false };
    let (addresses, of_data) = (getrlimit(Resource::As), getrlimit(Resource::Data));
    // No data at all stands for the hard limit.
    let data_max = if of_data.current == Some(0) { of_data.maximum } else { of_data.current };
    let exceeds = |bytes: ByteCount, limit: Option<u64>| limit.is_some_and(|limit| bytes.0 > limit);
    exceeds(all, addresses.current) || protection & ProtFlags::WRITE.bits() != 0 && exceeds(data, data_max)
}

/// Makes all further calls of this module do with mmap, mprotect and munmap, where they find room and nothing is locked.
pub fn prepare() {
    apart::prepare();
}

fn can_map(bytes: usize, protection: u32, is_reserved: bool) -> bool {
    let flags = if is_reserved { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
    // Apart: in a hole of the program's another thread may replace it (`MAP_FIXED`), and what we unmap would be that thread's.
    let mapped = apart::map(bytes, |at, fixed| {
        // SAFETY: a new mapping where nothing is touches no memory that anybody else uses.
        unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::empty(), flags | fixed) }
    });
    let Ok(place) = mapped else { return false };
    if locking::may_lock_new() {
        // It would be filled when it is opened.
        // SAFETY: the mapping made above, which nobody else knows.
        let _ = unsafe { rustix::mm::munlock(place, bytes) };
    }
    // SAFETY: as above.
    let opened = unsafe { rustix::mm::mprotect(place, bytes, MprotectFlags::from_bits_retain(protection)) };
    // SAFETY: as above.
    let _ = unsafe { rustix::mm::munmap(place, bytes) };
    opened != Err(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_WRITE: u32 = 3;

    #[test]
    fn what_is_there_already_is_replaced() {
        let bytes = 16 * PAGE_BYTES;
        // SAFETY: memory of this test's own.
        let place =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE) }
                .unwrap();
        let start = place as usize;
        for reserved in [false, true] {
            assert!(can_replace(start..start + bytes, READ_WRITE, reserved));
            // More than there are addresses; nothing of it is there.
            assert!(!can_replace(start..start + (1 << 60), READ_WRITE, reserved));
        }
        // SAFETY: as above.
        unsafe { rustix::mm::munmap(place, bytes) }.unwrap();
    }
}
