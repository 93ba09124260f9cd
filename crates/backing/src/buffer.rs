//! Memory as direct I/O wants it: whole blocks, aligned.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::BLOCK_BYTES;

/// Zeroed bytes that start at a multiple of [`BLOCK_BYTES`]. Takes one block more than it offers: alignment without
/// unsafe code.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBytes {
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(BLOCK_BYTES));
        let memory = alloc::vec![0; Self::memory_bytes(bytes)];
        let address = memory.as_ptr().addr();
        // The vector is never grown, so its bytes stay where they are.
        Self { start: address.next_multiple_of(BLOCK_BYTES) - address, memory, bytes }
    }

    /// What a buffer of `bytes` takes of RAM.
    pub(crate) fn memory_bytes(bytes: usize) -> usize {
        bytes + BLOCK_BYTES
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}
