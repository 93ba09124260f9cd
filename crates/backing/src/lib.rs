//! Below RAM: encodings in a swap file, appended to large encrypted segments.
//!
//! [`BackingStore`] is the seam: a device of bytes. [`SegmentLog`] makes of it a place for encodings that is written
//! in large requests only, cleaned like a log-structured file system (Rosenblum and Ousterhout, 1992), and never hands
//! out wrong bytes. The format is `docs/format/segment.md`.
//!
//! The crate runs inside the agent: no libc, no panic over a bad medium, and nothing that touches the medium happens
//! under the caller's lock. What takes long is a *job*, which the log hands out, any thread runs, and the log finishes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use core::fmt;

use alloc::sync::Arc;
use sys::Errno;
use sys::ring::{Queue, Read};

mod aside;
mod buffer;
mod cipher;
#[cfg(any(test, feature = "testing"))]
pub mod failing;
mod job;
mod memory;
mod places;
mod segment;
mod segment_log;
mod swap_file;
#[cfg(test)]
mod tests;

pub use aside::ASIDE_MAX;
pub use job::{CleanJob, PunchJob, READ_BYTES_MAX, READ_PAGES_MAX, ReadBuffer, ReadError, ReadJob, WriteJob};
pub use memory::{MemoryBacking, Nowhere};
pub use places::ChildPin;
pub use segment::{BackingKey, ENCODING_BYTES_MAX};
pub use segment_log::{Beside, Cleaned, Located, LogFigures, LogFull, SEGMENT_BYTES, SegmentLog};
pub use swap_file::SwapFile;

/// Offsets, lengths and memory of each request are multiples of this: direct I/O wants whole blocks.
pub const BLOCK_BYTES: usize = 4096;

/// A device of bytes below RAM. Requests are made of whole blocks (see [`BLOCK_BYTES`]) and may come from several
/// threads at once.
pub trait BackingStore: Send + Sync {
    /// Fills all of `out` from `offset`, or fails.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError>;
    /// Makes several reads, at the same time where the store can do that, and says of each whether all of it came. `queue` is the
    /// calling thread's.
    fn read_many(&self, reads: &mut [Read<'_>], _queue: &mut Queue) {
        read_in_turn(self, reads);
    }
    /// Writes all of `bytes` at `offset`, or fails; then any part of the range may have changed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError>;
    /// Says that nobody needs the range any more. A store that cannot use the hint ignores it.
    fn discard(&self, offset: u64, bytes: u64);
    /// Offsets at or above this cannot be written.
    fn bytes_max(&self) -> u64;
}

/// One read after the other.
fn read_in_turn<S: BackingStore + ?Sized>(store: &S, reads: &mut [Read<'_>]) {
    for read in reads.iter_mut().filter(|read| !read.is_whole()) {
        let (offset, out) = read.parts();
        let is_whole = store.read_at(offset, out).is_ok();
        read.ends(is_whole);
    }
}

impl<T: BackingStore + ?Sized> BackingStore for Arc<T> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        (**self).read_at(offset, out)
    }
    fn read_many(&self, reads: &mut [Read<'_>], queue: &mut Queue) {
        (**self).read_many(reads, queue);
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        (**self).write_at(offset, bytes)
    }
    fn discard(&self, offset: u64, bytes: u64) {
        (**self).discard(offset, bytes);
    }
    fn bytes_max(&self) -> u64 {
        (**self).bytes_max()
    }
}

/// Why a store refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackingError {
    /// No room: the file system is full, a quota or the store's own limit is reached. May pass.
    Full,
    /// The medium or the kernel failed.
    Io {
        /// First byte of the request.
        offset: u64,
        /// What the kernel said.
        errno: Errno,
    },
    /// The medium ended inside the request.
    Short {
        /// First byte that did not come or go.
        offset: u64,
    },
}

impl fmt::Display for BackingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(out, "no space left in the swap file"),
            Self::Io { offset, errno } => write!(out, "swap file: error {} at byte {offset}", errno.raw_os_error()),
            Self::Short { offset } => write!(out, "swap file ends early, at byte {offset}"),
        }
    }
}

impl core::error::Error for BackingError {}
