//! Streams of bits, the first in the highest bit of the first byte.

use super::decode::PADDED_BYTES;
use crate::Corrupt;

/// Bits on their way to `out`.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    length: usize,
    /// Those that do not fill a byte yet, the last of them lowest.
    bits: u64,
    count: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, length: 0, bits: 0, count: 0 }
    }

    /// Appends the lowest `count` bits of `value`, at most 32, which has no others. `None` if there is no room.
    pub(super) fn push(&mut self, value: u32, count: u32) -> Option<()> {
        self.bits = self.bits << count | u64::from(value);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            *self.out.get_mut(self.length)? = (self.bits >> self.count) as u8;
            self.length += 1;
        }
        Some(())
    }

    /// Fills the last byte up with zeros; how many bytes there are.
    pub(super) fn finish(mut self) -> Option<usize> {
        let missing = (8 - self.count % 8) % 8;
        self.push(0, missing)?;
        Some(self.length)
    }
}

/// Where a stream is read in bytes that have eight more behind them.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    start: usize,
    bytes: usize,
    /// Bits that are read.
    at: usize,
}

impl Reader {
    pub(super) const fn new(start: usize, bytes: usize) -> Self {
        Self { start, bytes, at: 0 }
    }

    /// The next bits, at least 57, the first of them highest. Behind the end of the stream they mean nothing.
    #[inline(always)]
    pub(super) fn peek(&self, padded: &[u8; PADDED_BYTES]) -> u64 {
        // Garbage can read far behind its stream: that is found at the end, and here it must not leave the bytes.
        let from = (self.start + self.at / 8).min(PADDED_BYTES - 8);
        let word = u64::from_be_bytes(*padded[from..].first_chunk().expect("eight bytes follow"));
        word << (self.at % 8)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, bits: usize) {
        self.at += bits;
    }

    /// Whether all its bytes have been read and none behind them.
    pub(super) fn finish(self) -> Result<(), Corrupt> {
        if self.at.div_ceil(8) == self.bytes { Ok(()) } else { Err(Corrupt) }
    }
}
