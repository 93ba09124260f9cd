//! Codes of two and of four bits, packed by words: sixteen or eight codes with two or three operations on 64 bits.
//!
//! `plain::pack` says where each code goes.

use page::PAGE_BYTES;

/// A code for each 32-bit word of a page.
pub(super) const CODES_MAX: usize = PAGE_BYTES / WORD_BYTES;
const WORD_BYTES: usize = 4;

/// Codes that are not packed: one in a byte, the lowest first. Behind the last there are zeros, which fill up its word.
pub(super) type Codes = [u8; CODES_MAX];

/// What `count` codes of two bits take: whole words.
pub(super) const fn bytes_of_twos(count: usize) -> usize {
    count.div_ceil(16) * WORD_BYTES
}

/// What `count` codes of four bits take: whole words.
pub(super) const fn bytes_of_fours(count: usize) -> usize {
    count.div_ceil(8) * WORD_BYTES
}

/// Packs as many codes as `packed` takes.
pub(super) fn pack_twos(codes: &Codes, packed: &mut [u8]) {
    for (word, codes) in packed.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(codes.as_chunks::<16>().0) {
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(*codes[at..].first_chunk().expect("sixteen")));
        let joined = low | high << 4;
        // The second word of each two goes two bits above the first.
        *word = ((joined | joined >> 30) as u32).to_le_bytes();
    }
}

/// The same for four bits.
pub(super) fn pack_fours(codes: &Codes, packed: &mut [u8]) {
    for (word, codes) in packed.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(codes.as_chunks::<8>().0) {
        let joined = u64::from_le_bytes(*codes);
        *word = ((joined | joined >> 28) as u32).to_le_bytes();
    }
}

/// Unpacks all codes of `packed`, of which there are no more than there is room for.
pub(super) fn unpack_twos(packed: &[u8], codes: &mut Codes) {
    const LOWEST: u64 = u64::from_le_bytes([3; 8]);
    for (word, codes) in packed.as_chunks::<WORD_BYTES>().0.iter().zip(codes.as_chunks_mut::<16>().0) {
        let word = u64::from(u32::from_le_bytes(*word));
        let (low, high) = codes.split_at_mut(8);
        low.copy_from_slice(&((word | word << 30) & LOWEST).to_le_bytes());
        high.copy_from_slice(&((word >> 4 | word >> 4 << 30) & LOWEST).to_le_bytes());
    }
}

/// The same for four bits.
pub(super) fn unpack_fours(packed: &[u8], codes: &mut Codes) {
    const LOWEST: u64 = u64::from_le_bytes([15; 8]);
    for (word, codes) in packed.as_chunks::<WORD_BYTES>().0.iter().zip(codes.as_chunks_mut::<8>().0) {
        let word = u64::from(u32::from_le_bytes(*word));
        *codes = ((word | word << 28) & LOWEST).to_le_bytes();
    }
}

/// How many of the codes of two bits in `packed` are 1, 2 and 3.
pub(super) fn count_twos(packed: &[u8]) -> [usize; 3] {
    const LOWS: u64 = u64::from_le_bytes([0x55; 8]);
    let mut counts = [0; 3];
    let (words, rest) = packed.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        let (low, high) = (word & LOWS, word >> 1 & LOWS);
        for (count, bits) in counts.iter_mut().zip([low & !high, high & !low, low & high]) {
            *count += bits.count_ones() as usize;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::plain::pack;
    use super::*;

    #[test]
    fn words_are_as_the_plain_twin_packs_them() {
        for count in [0, 1, 3, 4, 5, 15, 16, 17, 500, CODES_MAX] {
            let codes = |bits: u32| {
                let mut codes = [0; CODES_MAX];
                let used = codes[..count].iter_mut().enumerate();
                used.for_each(|(at, code)| *code = (at * 7 + at / 5) as u8 % (1 << bits));
                codes
            };
            let (twos, fours) = (codes(2), codes(4));
            let (mut plain_twos, mut plain_fours) = (pack::Codes::<2>::EMPTY, pack::Codes::<4>::EMPTY);
            twos[..count].iter().for_each(|code| plain_twos.push(*code));
            fours[..count].iter().for_each(|code| plain_fours.push(*code));
            let mut expected = std::vec![0; bytes_of_twos(count)];
            plain_twos.pack(&mut expected);
            let mut packed = expected.clone();
            packed.fill(0xee);
            pack_twos(&twos, &mut packed);
            assert_eq!(packed, expected, "{count} codes");
            assert_eq!(count_twos(&packed), [1, 2, 3].map(|code| plain_twos.count_of(code)));
            let mut unpacked = [0; CODES_MAX];
            unpack_twos(&packed, &mut unpacked);
            assert!(unpacked == twos, "{count} codes");

            expected.resize(bytes_of_fours(count), 0);
            plain_fours.pack(&mut expected);
            packed.resize(expected.len(), 0xee);
            pack_fours(&fours, &mut packed);
            assert_eq!(packed, expected, "{count} codes");
            unpacked.fill(0);
            unpack_fours(&packed, &mut unpacked);
            assert!(unpacked == fours, "{count} codes");
        }
    }
}
