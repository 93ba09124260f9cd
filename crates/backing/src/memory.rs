//! The plain twin of a swap file: a medium that is memory, and demands whole blocks, as direct I/O does. And one that keeps nothing, where only
//! what is asked of it counts.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use sys::Errno;

use crate::{BLOCK_BYTES, BackingError, BackingStore};

/// A store of bytes in memory, all zeros at first.
#[derive(Debug)]
pub struct MemoryBacking {
    // Atomics for want of a lock: readers and writers of one range get a mixture, as from a real medium.
    words: Box<[AtomicU64]>,
}

impl MemoryBacking {
    /// A medium of `bytes`, rounded down to blocks.
    pub fn new(bytes: u64) -> Self {
        let words = bytes as usize / BLOCK_BYTES * (BLOCK_BYTES / size_of::<u64>());
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn range(&self, offset: u64, bytes: usize) -> Result<&[AtomicU64], BackingError> {
        if !offset.is_multiple_of(BLOCK_BYTES as u64) || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(BackingError::Io { offset, errno: Errno::INVAL });
        }
        let first = offset as usize / size_of::<u64>();
        let count = bytes / size_of::<u64>();
        self.words.get(first..).and_then(|words| words.get(..count)).ok_or(BackingError::Short { offset })
    }
}

impl BackingStore for MemoryBacking {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BackingError> {
        let words = self.range(offset, out.len())?;
        for (bytes, word) in out.chunks_exact_mut(size_of::<u64>()).zip(words) {
            // Relaxed, here and below: the log orders a read after the write it needs, by the caller's lock.
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingError> {
        let words = self.range(offset, bytes.len()).map_err(|error| match error {
            BackingError::Short { .. } => BackingError::Full,
            other => other,
        })?;
        for (bytes, word) in bytes.chunks_exact(size_of::<u64>()).zip(words) {
            let mut value = [0; size_of::<u64>()];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) {
        if let Ok(words) = self.range(offset, bytes as usize) {
            for word in words {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    fn bytes_max(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

/// A medium without content, and without end: what is written is gone, and what is read from it nobody may look at.
#[derive(Debug)]
pub struct Nowhere;

impl BackingStore for Nowhere {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), BackingError> {
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), BackingError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) {}

    fn bytes_max(&self) -> u64 {
        i64::MAX as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_keeps_what_is_written_inside_it() {
        let store = MemoryBacking::new(3 * 4096 + 5);
        assert_eq!(store.bytes_max(), 3 * 4096);
        store.write_at(4096, &[9; 8192]).unwrap();
        let mut out = [1; 8192];
        store.read_at(0, &mut out).unwrap();
        assert_eq!((out[4095], out[4096]), (0, 9));
        store.discard(4096, 4096);
        store.read_at(4096, &mut out).unwrap();
        assert_eq!((out[4095], out[4096]), (0, 9));
        assert_eq!(store.write_at(8192, &[9; 8192]), Err(BackingError::Full));
        assert_eq!(store.read_at(1 << 40, &mut out), Err(BackingError::Short { offset: 1 << 40 }));
        assert_eq!(store.read_at(8, &mut out), Err(BackingError::Io { offset: 8, errno: Errno::INVAL }));
        assert!(store.read_at(0, &mut out[..100]).is_err());
    }
}
