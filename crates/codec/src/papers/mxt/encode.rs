//! The encoder, and where in a line the bytes at a place were seen before.

use page::PageBytes;

use super::super::plain::mxt::{LENGTH_MIN, LINE_BYTES, LITERAL_BITS, PART_BITS, PARTS, STEPS, lines, place_bits};
use super::bits::Writer;
#[cfg(target_arch = "x86_64")]
use super::{super::vectors::Avx512, avx512::Comparer};

const WORD_BYTES: usize = 8;
/// A line that takes as many bytes as it has stays plain; behind that there is room for a word.
const ROOM_BYTES: usize = LINE_BYTES + 2 * WORD_BYTES;
/// A line with zeros behind that vectors can be read from.
pub(super) type Padded = [u8; LINE_BYTES + 64];

/// See [`Codec::encode`](crate::Codec::encode).
pub(super) fn encode(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let (mut plain, mut written) = (0, 1);
    for (number, line) in lines(page).iter().enumerate() {
        let mut bits = Writer::EMPTY;
        let mut padded = [0; LINE_BYTES + 64];
        padded[..LINE_BYTES].copy_from_slice(line);
        let bytes: &[u8] = if encode_line(&padded, &mut bits) {
            bits.finish()
        } else {
            plain |= 1 << number;
            line
        };
        out.get_mut(written..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        written += bytes.len();
    }
    *out.first_mut()? = plain;
    (written < out.len()).then_some(written)
}

/// Encodes a line; whether it is shorter then.
fn encode_line(line: &Padded, bits: &mut Writer<ROOM_BYTES>) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(cpu) = Avx512::new() {
        return encode_with(Comparer::new(cpu, line), line, bits);
    }
    encode_with(Finder::START, line, bits)
}

/// Where the bytes at a place were seen before.
pub(super) trait Find {
    /// The place and length of the longest copy for what comes at `at`, of equals the last noted. Less than two bytes are none.
    fn longest(&self, line: &Padded, at: usize) -> (usize, usize);

    /// Takes in the bytes of all parts at `step`: later steps can copy from there.
    fn note(&mut self, line: &Padded, step: usize);
}

fn encode_with(mut finder: impl Find, line: &Padded, bits: &mut Writer<ROOM_BYTES>) -> bool {
    // The step from which on each part is not inside a copy.
    let mut free = [0; PARTS];
    for step in 0..STEPS {
        let place_bits = place_bits(step);
        for (part, free) in free.iter_mut().enumerate() {
            if *free > step {
                continue;
            }
            let at = part * STEPS + step;
            let (from, length) = finder.longest(line, at);
            let (value, count) = if length >= LENGTH_MIN {
                copy_bits(from, length, place_bits)
            } else {
                (u64::from(line[at]) << 1, LITERAL_BITS)
            };
            if !bits.push(value, count) {
                return false;
            }
            *free = step + length.max(1);
        }
        finder.note(line, step);
    }
    bits.finish().len() < LINE_BYTES
}

/// A one, the place that is copied from, and the length; and how many bits that takes.
#[inline(always)]
fn copy_bits(from: usize, length: usize, place_bits: u32) -> (u64, u32) {
    let number = (length - 1) as u64;
    let more = number.ilog2();
    let told = 1 << more | (number - (1 << more)) << (more + 1);
    let place = (from % STEPS) as u64 | told << place_bits;
    let bits = 1 | ((from / STEPS) as u64 | place << PART_BITS) << 1;
    (bits, 1 + PART_BITS + place_bits + 2 * more + 1)
}

const CHAINS: usize = 1024;
/// The end of a chain: no place of a line.
const NONE: u16 = LINE_BYTES as u16;

/// Places where the same bytes begin, or others of their hash, the last noted first.
struct Chains<const BYTES: usize> {
    first: [u16; CHAINS],
    /// For each place the one before it in its chain.
    next: [u16; LINE_BYTES],
}

impl<const BYTES: usize> Chains<BYTES> {
    const START: Self = Self { first: [NONE; CHAINS], next: [NONE; LINE_BYTES] };

    #[inline(always)]
    fn chain_of(word: u64) -> usize {
        ((word as u32) << (8 * (4 - BYTES))).wrapping_mul(0x9e37_79b1) as usize >> 22
    }

    #[inline(always)]
    fn note(&mut self, word: u64, at: usize) {
        let chain = Self::chain_of(word) % CHAINS;
        self.next[at % LINE_BYTES] = self.first[chain];
        self.first[chain] = at as u16;
    }

    /// The place that was noted last for the bytes that `word` begins with.
    #[inline(always)]
    fn last(&self, line: &Padded, word: u64) -> Option<usize> {
        let mut from = self.first[Self::chain_of(word) % CHAINS];
        while from != NONE {
            let place = usize::from(from) % LINE_BYTES;
            if (word_at(line, place) ^ word) << (8 * (WORD_BYTES - BYTES)) == 0 {
                return Some(place);
            }
            from = self.next[place];
        }
        None
    }
}

/// The dictionary that all parts share: chains of two, three and four bytes, because those of two are long.
struct Finder {
    twos: Chains<2>,
    threes: Chains<3>,
    fours: Chains<4>,
}

impl Finder {
    const START: Self = Self { twos: Chains::START, threes: Chains::START, fours: Chains::START };

    #[inline(always)]
    fn longest_of_fours(&self, line: &Padded, at: usize, whole: usize) -> (usize, usize) {
        let (mut best, mut longest) = (0, 3);
        let mut from = self.fours.first[Chains::<4>::chain_of(word_at(line, at)) % CHAINS];
        // The last four bytes that a longer copy has: most have others.
        let mut last = word_at(line, at) as u32;
        while from != NONE {
            let place = usize::from(from) % LINE_BYTES;
            if word_at(line, place + longest - 3) as u32 == last {
                let length = match_length(line, place, at, whole);
                if length > longest {
                    (best, longest) = (place, length);
                    if longest == whole {
                        break;
                    }
                    last = word_at(line, at + longest - 3) as u32;
                }
            }
            from = self.fours.next[place];
        }
        (best, longest)
    }
}

impl Find for Finder {
    #[inline(always)]
    fn longest(&self, line: &Padded, at: usize) -> (usize, usize) {
        let (whole, here) = (STEPS - at % STEPS, word_at(line, at));
        if whole >= 4 {
            let (place, length) = self.longest_of_fours(line, at, whole);
            if length >= 4 {
                return (place, length);
            }
        }
        if whole >= 3
            && let Some(place) = self.threes.last(line, here)
        {
            return (place, 3);
        }
        if whole < LENGTH_MIN {
            return (0, 0);
        }
        self.twos.last(line, here).map_or((0, 0), |place| (place, 2))
    }

    #[inline(always)]
    fn note(&mut self, line: &Padded, step: usize) {
        for at in (0..PARTS).map(|part| part * STEPS + step) {
            let word = word_at(line, at);
            self.twos.note(word, at);
            self.threes.note(word, at);
            self.fours.note(word, at);
        }
    }
}

#[inline(always)]
fn word_at(line: &Padded, at: usize) -> u64 {
    u64::from_le_bytes(*line[at..].first_chunk().expect("a word is behind the line"))
}

/// How many bytes at `at` are those at `from`, which is of an earlier step: `whole` at most, which ends its part.
#[inline(always)]
fn match_length(line: &Padded, from: usize, at: usize, whole: usize) -> usize {
    let mut length = 0;
    while length < whole {
        let differing = word_at(line, from + length) ^ word_at(line, at + length);
        if differing != 0 {
            length += differing.trailing_zeros() as usize / 8;
            break;
        }
        length += WORD_BYTES;
    }
    length.min(whole)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::papers::tests::pages;

    #[test]
    fn chains_and_vectors_find_the_same() {
        let Some(cpu) = Avx512::new() else {
            println!("skipped: this processor has no AVX-512");
            return;
        };
        for (number, page) in pages().enumerate() {
            for line in lines(&page) {
                let mut padded = [0; LINE_BYTES + 64];
                padded[..LINE_BYTES].copy_from_slice(line);
                let (mut chained, mut compared) = (Writer::EMPTY, Writer::EMPTY);
                let is_shorter = encode_with(Finder::START, &padded, &mut chained);
                assert_eq!(encode_with(Comparer::new(cpu, &padded), &padded, &mut compared), is_shorter, "{number}");
                assert!(chained.finish() == compared.finish(), "page {number}");
            }
        }
    }
}
