//! Codes of two and of four bits, packed as `WKdm` and PBPM do (`crames`, "Software Acceleration").
//!
//! While a page is scanned each code takes a byte. Afterwards words of four such bytes are shifted past each other and
//! joined: four words of two-bit codes make one, or two of four-bit codes. So one shift moves four codes.

use page::PAGE_BYTES;

use crate::Corrupt;

/// A code for each 32-bit word of a page.
pub(in crate::papers) const CODES_MAX: usize = PAGE_BYTES / WORD_BYTES;
const WORD_BYTES: usize = 4;

/// Up to [`CODES_MAX`] codes of `BITS` bits each.
pub(in crate::papers) struct Codes<const BITS: usize> {
    /// Behind `count` there are zeros, which fill up the last word.
    codes: [u8; CODES_MAX],
    count: usize,
}

impl<const BITS: usize> Codes<BITS> {
    pub(in crate::papers) const EMPTY: Self = Self { codes: [0; CODES_MAX], count: 0 };

    /// Words of codes that one packed word holds.
    const LAYERS: usize = 8 / BITS;

    pub(in crate::papers) fn push(&mut self, code: u8) {
        debug_assert!(code >> BITS == 0);
        self.codes[self.count] = code;
        self.count += 1;
    }

    pub(in crate::papers) fn iter(&self) -> impl Iterator<Item = u8> {
        self.codes[..self.count].iter().copied()
    }

    /// How many codes are `code`.
    pub(in crate::papers) fn count_of(&self, code: u8) -> usize {
        self.iter().filter(|&other| other == code).count()
    }

    /// What the codes take when packed: whole words.
    pub(in crate::papers) const fn packed_bytes(&self) -> usize {
        packed_bytes::<BITS>(self.count)
    }

    /// Packs the codes into `out`, which is [`packed_bytes`](Self::packed_bytes) long.
    pub(in crate::papers) fn pack(&self, out: &mut [u8]) {
        let words = self.codes.as_chunks::<WORD_BYTES>().0.chunks(Self::LAYERS);
        for (packed, layers) in out.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
            let joined =
                layers.iter().enumerate().fold(0, |bits, (at, word)| bits | u32::from_le_bytes(*word) << (at * BITS));
            *packed = joined.to_le_bytes();
        }
    }

    /// Unpacks `count` codes from the start of `packed`, and returns what lies behind them.
    pub(in crate::papers) fn unpack(packed: &[u8], count: usize) -> Result<(Self, &[u8]), Corrupt> {
        let (packed, rest) = packed.split_at_checked(packed_bytes::<BITS>(count)).ok_or(Corrupt)?;
        let lowest = u32::from_le_bytes([(1 << BITS) - 1; WORD_BYTES]);
        let mut unpacked = Self { count, ..Self::EMPTY };
        let words = unpacked.codes.as_chunks_mut::<WORD_BYTES>().0.chunks_mut(Self::LAYERS);
        for (packed, layers) in packed.as_chunks::<WORD_BYTES>().0.iter().zip(words) {
            for (at, word) in layers.iter_mut().enumerate() {
                *word = (u32::from_le_bytes(*packed) >> (at * BITS) & lowest).to_le_bytes();
            }
        }
        Ok((unpacked, rest))
    }
}

const fn packed_bytes<const BITS: usize>(count: usize) -> usize {
    (count * BITS).div_ceil(8 * WORD_BYTES) * WORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain twin: where the words of the module's head put a code.
    fn place<const BITS: usize>(code: usize) -> (usize, usize) {
        let (packed, rest) = (code / (32 / BITS), code % (32 / BITS));
        (packed * 4 + rest % 4, rest / 4 * BITS)
    }

    fn every_code_has_its_place<const BITS: usize>() {
        for count in [0, 1, 3, 4, 5, 15, 16, 17, 500, CODES_MAX] {
            let mut codes = Codes::<BITS>::EMPTY;
            let code = |at: usize| (at * 7 + at / 5) as u8 % (1 << BITS);
            (0..count).for_each(|at| codes.push(code(at)));
            let mut packed = std::vec![0xee; codes.packed_bytes()];
            codes.pack(&mut packed);
            for at in 0..count {
                let (byte, shift) = place::<BITS>(at);
                assert_eq!(packed[byte] >> shift & ((1 << BITS) - 1), code(at), "code {at} of {count}");
            }
            packed.push(9);
            let (unpacked, rest) = Codes::<BITS>::unpack(&packed, count).unwrap();
            assert!(unpacked.iter().eq((0..count).map(code)));
            assert_eq!(rest, [9]);
            assert!(Codes::<BITS>::unpack(&packed, count + 32).is_err());
        }
    }

    #[test]
    fn two_bits() {
        every_code_has_its_place::<2>();
    }

    #[test]
    fn four_bits() {
        every_code_has_its_place::<4>();
    }
}
