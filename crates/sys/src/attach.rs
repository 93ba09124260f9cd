//! shmat(2) on the program's behalf. With `SHM_REMAP` it replaces what is there, and of that userfaultfd tells nobody: what is with
//! us would be taken for a part of whatever is mapped there later. mremap, which replaces as well, does tell.

use core::ops::Range;

use page::PAGE_BYTES;

use crate::arch::{self, number};
use crate::remap::{self, Request};
use crate::thread::errno;
use crate::{Errno, apart};

/// Its number, for who makes the call by libc.
pub const SHMAT: core::ffi::c_long = number::SHMAT as core::ffi::c_long;

const IPC_STAT: usize = 2;
const SHM_RND: usize = 0o20000;
const SHM_REMAP: usize = 0o40000;

/// The arguments of shmat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attach {
    /// The segment.
    pub id: usize,
    /// Where it is to be; 0: anywhere.
    pub at: usize,
    /// `SHM_REMAP` and so on.
    pub flags: usize,
}

impl Attach {
    /// What is replaced, if it succeeds. `None`: nothing, or it is the kernel's to refuse.
    pub fn replaced(self) -> Result<Option<Range<usize>>, Errno> {
        let start = if self.flags & SHM_RND == 0 { self.at } else { self.at & !(PAGE_BYTES - 1) };
        if self.flags & SHM_REMAP == 0 || start == 0 || !start.is_multiple_of(PAGE_BYTES) {
            return Ok(None);
        }
        // Who may attach a segment may ask for its size.
        let bytes = segment_bytes(self.id)?.next_multiple_of(PAGE_BYTES);
        let end = start.saturating_add(bytes);
        Ok((end < remap::ADDRESS_END).then_some(start..end))
    }
}

/// shmat, as the kernel does it.
///
/// # Safety
/// What is replaced belongs to the caller.
pub unsafe fn call(attach: Attach) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    errno(unsafe { arch::syscall(number::SHMAT, [attach.id, attach.at, attach.flags, 0, 0, 0]) })
}

/// The same, such that what it replaces is told as unmapped: it is attached elsewhere and moved there.
///
/// # Safety
/// As for [`call`].
pub unsafe fn replace(attach: Attach) -> Result<usize, Errno> {
    let Some(target) = attach.replaced()? else {
        // SAFETY: the caller's promise.
        return unsafe { call(attach) };
    };
    let flags = attach.flags & !(SHM_REMAP | SHM_RND);
    let elsewhere = apart::map(target.len(), |at, _| {
        // SAFETY: without `SHM_REMAP` it replaces nothing.
        let attached = unsafe { call(Attach { at: at.addr(), flags, ..attach }) };
        match attached {
            // Something is in the way. Huge pages are nowhere but at multiples of their size, which the kernel knows.
            Err(Errno::INVAL) if !at.is_null() => Err(Errno::EXIST),
            attached => attached.map(core::ptr::with_exposed_provenance_mut),
        }
    })?
    .expose_provenance();
    let there = Request::whole(elsewhere, target.len(), target.start);
    // SAFETY: what was attached above, and what the caller gives up.
    unsafe { remap::call(there) }.inspect_err(|_| {
        // SAFETY: what was attached above, which nobody knows.
        let _ = unsafe { arch::syscall(number::SHMDT, [elsewhere, 0, 0, 0, 0, 0]) };
    })
}

/// How long a segment is.
fn segment_bytes(id: usize) -> Result<usize, Errno> {
    /// `struct shmid_ds` has 112 bytes.
    const WORDS: usize = 16;
    /// `shm_segsz`, behind a `struct ipc64_perm`.
    const BYTES_AT: usize = 6;
    let mut segment = [0_u64; WORDS];
    // SAFETY: writes a `struct shmid_ds`, for which there is room.
    errno(unsafe { arch::syscall(number::SHMCTL, [id, IPC_STAT, segment.as_mut_ptr().expose_provenance(), 0, 0, 0]) })?;
    Ok(segment[BYTES_AT] as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 5 * PAGE_BYTES;

    /// A segment that goes when nobody has it attached, and is attached at the address.
    fn segment() -> (usize, usize) {
        const IPC_CREAT: usize = 0o1000;
        const IPC_RMID: usize = 0;
        // SAFETY: takes numbers.
        let id = errno(unsafe { arch::syscall(number::SHMGET, [0, BYTES - 7, IPC_CREAT | 0o600, 0, 0, 0]) }).unwrap();
        // SAFETY: replaces nothing.
        let at = unsafe { replace(Attach { id, at: 0, flags: 0 }) }.unwrap();
        // SAFETY: takes numbers.
        errno(unsafe { arch::syscall(number::SHMCTL, [id, IPC_RMID, 0, 0, 0, 0]) }).unwrap();
        (id, at)
    }

    fn word(at: usize) -> *mut u64 {
        core::ptr::with_exposed_provenance_mut(at)
    }

    #[test]
    fn what_is_replaced_is_the_segment_at_the_very_place() {
        let (id, first) = segment();
        let room = remap::reserve(3 * BYTES).unwrap();
        for (at, flags) in [(room + BYTES, SHM_REMAP), (room + BYTES + 77, SHM_REMAP | SHM_RND)] {
            let attach = Attach { id, at, flags };
            assert_eq!(attach.replaced(), Ok(Some(room + BYTES..room + 2 * BYTES)));
            // SAFETY: this test's own.
            assert_eq!(unsafe { replace(attach) }, Ok(room + BYTES));
            // SAFETY: attached.
            unsafe { word(first).write(at as u64) };
            // SAFETY: the same.
            assert_eq!(unsafe { word(room + BYTES).read() }, at as u64);
            // SAFETY: attached above.
            errno(unsafe { arch::syscall(number::SHMDT, [room + BYTES, 0, 0, 0, 0, 0]) }).unwrap();
        }
        // SAFETY: this test's own.
        errno(unsafe { arch::syscall(number::SHMDT, [first, 0, 0, 0, 0, 0]) }).unwrap();
        let gone = Attach { id, at: room, flags: SHM_REMAP };
        // SAFETY: this test's own.
        let ours = unsafe { replace(gone) };
        // SAFETY: the same.
        let kernels = unsafe { call(gone) };
        assert!(ours.is_err(), "the segment has ended with its last attachment");
        assert_eq!(ours, kernels);
    }

    #[test]
    fn what_is_refused_is_refused_as_by_the_kernel() {
        let (id, first) = segment();
        let room = remap::reserve(BYTES).unwrap();
        let whole = Attach { id, at: room, flags: SHM_REMAP };
        let refused = [
            Attach { id: usize::from(u16::MAX) << 15, ..whole },
            Attach { at: room + 1, ..whole },
            Attach { at: 0, ..whole },
            Attach { at: 1, flags: SHM_REMAP | SHM_RND, ..whole },
            Attach { flags: 0, ..whole },
            Attach { at: remap::ADDRESS_END - PAGE_BYTES, ..whole },
            Attach { at: usize::MAX - PAGE_BYTES + 1, ..whole },
        ];
        for attach in refused {
            // SAFETY: this test's own, or an address that nobody can have.
            let ours = unsafe { replace(attach) };
            // SAFETY: the same.
            let kernels = unsafe { call(attach) };
            assert!(ours.is_err(), "{attach:?}");
            assert_eq!(ours, kernels, "{attach:?}");
        }
        // SAFETY: this test's own.
        errno(unsafe { arch::syscall(number::SHMDT, [first, 0, 0, 0, 0, 0]) }).unwrap();
    }
}
