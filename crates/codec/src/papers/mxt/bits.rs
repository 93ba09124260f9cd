//! Bits behind each other, the first in the lowest bit of a byte, as many at a time as a word holds.

use page::PAGE_BYTES;

use super::{LINE_BYTES, LINES};

/// What a line takes at most that a decoder takes for one: copies of two bytes with 26 bits each.
const LINE_BYTES_MAX: usize = LINE_BYTES * 13 / 8;
/// No encoding is longer.
pub(super) const ENCODING_BYTES_MAX: usize = 1 + LINES * LINE_BYTES_MAX;
/// The same with as much behind as garbage can make a decoder read.
pub(super) const PADDED_BYTES: usize = ENCODING_BYTES_MAX + LINE_BYTES_MAX + WORD_BYTES;
const WORD_BYTES: usize = 8;
const _: () = assert!(PAGE_BYTES < ENCODING_BYTES_MAX);

/// Where bits are read.
pub(super) struct Reader {
    at: usize,
}

impl Reader {
    /// From byte `start` on.
    pub(super) fn new(start: usize) -> Self {
        Self { at: 8 * start }
    }

    /// The next bits, at least 57, the first of them lowest.
    #[inline(always)]
    pub(super) fn peek(&self, padded: &[u8; PADDED_BYTES]) -> u64 {
        let word = padded[self.at / 8..].first_chunk().expect("no line reads so far");
        u64::from_le_bytes(*word) >> (self.at % 8)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, bits: u32) {
        self.at += bits as usize;
    }

    /// The byte behind those of which bits were read.
    pub(super) fn end(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// Bits on their way to bytes that have room for a word behind.
pub(super) struct Writer<const BYTES: usize> {
    out: [u8; BYTES],
    length: usize,
    /// Those that have no byte yet, and how many: fewer than eight after each push.
    pending: u64,
    count: u32,
}

impl<const BYTES: usize> Writer<BYTES> {
    pub(super) const EMPTY: Self = Self { out: [0; BYTES], length: 0, pending: 0, count: 0 };

    /// Writes the lowest `count` bits of `value`, which has no others; no more than 56. Whether there is room for another word.
    #[inline(always)]
    pub(super) fn push(&mut self, value: u64, count: u32) -> bool {
        self.pending |= value << self.count;
        self.count += count;
        let Some(word) = self.out[self.length..].first_chunk_mut() else { return false };
        *word = self.pending.to_le_bytes();
        let whole = self.count & !7;
        self.pending = self.pending.unbounded_shr(whole);
        self.count -= whole;
        self.length += whole as usize / 8;
        true
    }

    /// The bytes, of which the last is filled up with zeros.
    pub(super) fn finish(&self) -> &[u8] {
        &self.out[..self.length + usize::from(self.count > 0)]
    }
}
