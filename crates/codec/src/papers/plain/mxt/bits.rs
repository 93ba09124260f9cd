//! Bits behind each other, the first in the lowest bit of a byte.

use crate::Corrupt;

/// No more bits are pushed or taken at once.
const BITS_MAX: u32 = 32;

pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    length: usize,
    /// Fewer than eight bits that have no byte yet, and how many.
    pending: u64,
    count: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, length: 0, pending: 0, count: 0 }
    }

    /// Writes the lowest `count` bits of `value`, which has no others. `None` if there is no room.
    pub(super) fn push(&mut self, value: u32, count: u32) -> Option<()> {
        debug_assert!(count <= BITS_MAX && u64::from(value) >> count == 0);
        self.pending |= u64::from(value) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.push_byte()?;
        }
        Some(())
    }

    /// Fills the last byte up with zeros, and returns how many bytes there are.
    pub(super) fn finish(mut self) -> Option<usize> {
        if self.count > 0 {
            self.count = 8;
            self.push_byte()?;
        }
        Some(self.length)
    }

    fn push_byte(&mut self) -> Option<()> {
        *self.out.get_mut(self.length)? = self.pending as u8;
        self.length += 1;
        self.pending >>= 8;
        self.count -= 8;
        Some(())
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    pending: u64,
    count: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest, pending: 0, count: 0 }
    }

    pub(super) fn take(&mut self, count: u32) -> Result<u32, Corrupt> {
        debug_assert!(count < BITS_MAX);
        while self.count < count {
            let (&byte, rest) = self.rest.split_first().ok_or(Corrupt)?;
            self.rest = rest;
            self.pending |= u64::from(byte) << self.count;
            self.count += 8;
        }
        let bits = self.pending as u32 & ((1 << count) - 1);
        self.pending >>= count;
        self.count -= count;
        Ok(bits)
    }

    /// The bytes of which no bit was taken.
    pub(super) fn behind(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_in_their_order() {
        let mut out = [0xee; 6];
        let mut writer = Writer::new(&mut out);
        let all = [(1, 1), (0, 0), (0x155, 9), (0, 3), (0x7fff_ffff, 31)];
        for (value, count) in all {
            writer.push(value, count).unwrap();
        }
        assert_eq!(writer.finish(), Some(6));
        assert_eq!(out[..2], [0xab, 0xe2]);
        assert_eq!(out[5], 0x0f);
        let mut reader = Reader::new(&out);
        assert!(all.iter().all(|&(value, count)| reader.take(count) == Ok(value)));
        assert!(reader.behind().is_empty());
        assert_eq!(reader.take(4), Ok(0));
        assert_eq!(reader.take(1), Err(Corrupt));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        assert_eq!(Writer::new(&mut [0; 2]).push(0, 17), Some(()));
        let mut out = [0; 2];
        let mut writer = Writer::new(&mut out);
        assert_eq!(writer.push(0, 17), Some(()));
        assert_eq!(writer.finish(), None);
        assert_eq!(Writer::new(&mut [0; 2]).push(0, 24), None);
    }
}
