//! Finds copies as MXT's hardware does: what comes next is compared with all that was seen, many places at once.
//!
//! Bytes of a step lie side by side, step behind step: so what was seen is the beginning of the line, the last noted place is the
//! highest, and what follows a byte in its part is [`PARTS`] bytes behind it.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use super::super::plain::mxt::{LENGTH_MIN, LINE_BYTES, PARTS, STEPS};
use super::super::vectors::{self, Avx512, BYTE_LANES};
use super::encode::{Find, Padded};

/// Places that are told apart by the bits of a word.
const BLOCKS: usize = LINE_BYTES / BYTE_LANES;
/// A line in that order. Whatever a place is compared with may be up to a part behind it.
type Turned = [u8; LINE_BYTES + 2 * BYTE_LANES];
const _: () = assert!(PARTS == 4);

/// A line that can be looked through.
pub(super) struct Comparer {
    #[expect(dead_code, reason = "it proves what the processor has")]
    cpu: Avx512,
    turned: Turned,
    /// Each byte and the next of its part, in vectors.
    pairs: Pairs,
    /// For hashes of pairs, whether one was seen: most that comes next was not, and need not be looked for.
    seen: [bool; HASHES],
}

const HASHES: usize = 4096;

#[inline(always)]
fn hash(line: &Padded, at: usize) -> usize {
    let pair = u16::from_le_bytes([line[at], line[at + 1]]);
    (u32::from(pair).wrapping_mul(0x9e37_79b1) >> 20) as usize % HASHES
}

/// In lines of the cache, because a vector across two of them takes twice as long.
#[repr(align(64))]
struct Pairs([[u16; BYTE_LANES / 2]; 2 * BLOCKS]);

impl Comparer {
    pub(super) fn new(cpu: Avx512, line: &Padded) -> Self {
        let mut new = Self {
            cpu,
            turned: [0; LINE_BYTES + 2 * BYTE_LANES],
            pairs: Pairs([[0; BYTE_LANES / 2]; 2 * BLOCKS]),
            seen: [false; HASHES],
        };
        // SAFETY: the processor has what it needs, as `cpu` proves.
        unsafe { turn(line, &mut new) };
        new
    }
}

/// Puts a line in the order of its steps.
#[target_feature(enable = "avx512f,avx512bw")]
fn turn(line: &Padded, Comparer { turned, pairs, .. }: &mut Comparer) {
    for (step, bytes) in (0..STEPS).step_by(16).zip(turned.as_chunks_mut::<BYTE_LANES>().0) {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|part| {
            let part: &[u8; 16] = line[part * STEPS + step..].first_chunk().expect("a part has whole vectors");
            // SAFETY: reads 16 bytes, which there are.
            unsafe { _mm_loadu_si128(part.as_ptr().cast()) }
        });
        let (low, high) = (_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second));
        let (other_low, other_high) = (_mm_unpacklo_epi8(third, fourth), _mm_unpackhi_epi8(third, fourth));
        let steps = [
            _mm_unpacklo_epi16(low, other_low),
            _mm_unpackhi_epi16(low, other_low),
            _mm_unpacklo_epi16(high, other_high),
            _mm_unpackhi_epi16(high, other_high),
        ];
        for (bytes, steps) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(steps) {
            // SAFETY: writes 16 bytes, which there are.
            unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), steps) };
        }
    }
    for (at, pairs) in (0..LINE_BYTES).step_by(BYTE_LANES / 2).zip(&mut pairs.0) {
        let [first, second] = [at, at + PARTS].map(|at| {
            let bytes: &[u8; 32] = turned[at..].first_chunk().expect("there is more behind a line");
            // SAFETY: reads 32 bytes, which there are.
            _mm512_cvtepu8_epi16(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
        });
        let both = _mm512_or_si512(first, _mm512_slli_epi16::<8>(second));
        // SAFETY: writes 64 bytes, which there are.
        unsafe { _mm512_storeu_si512(pairs.as_mut_ptr().cast(), both) };
    }
}

impl Find for Comparer {
    #[inline(always)]
    fn longest(&self, line: &Padded, at: usize) -> (usize, usize) {
        if !self.seen[hash(line, at)] {
            return (0, 0);
        }
        // SAFETY: the processor has what it needs, as `cpu` proves.
        unsafe { longest(self, line, at) }
    }

    #[inline(always)]
    fn note(&mut self, line: &Padded, step: usize) {
        for part in 0..PARTS {
            self.seen[hash(line, part * STEPS + step)] = true;
        }
    }
}

/// See [`Find::longest`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,lzcnt,popcnt")]
fn longest(within: &Comparer, line: &Padded, at: usize) -> (usize, usize) {
    let Comparer { turned, pairs, .. } = within;
    let (seen, whole) = (PARTS * (at % STEPS), STEPS - at % STEPS);
    let blocks = seen.div_ceil(BYTE_LANES);
    if blocks == 0 || whole < LENGTH_MIN {
        return (0, 0);
    }
    let pair = _mm512_set1_epi16(i16::from_le_bytes([line[at], line[at + 1]]));
    let mut twos = [0; BLOCKS];
    let mut any = 0;
    for ([low, high], twos) in pairs.0.as_chunks::<2>().0.iter().zip(&mut twos[..blocks]) {
        let [low, high] = [low, high].map(|pairs| u64::from(_mm512_cmpeq_epi16_mask(load_pairs(pairs), pair)));
        *twos = low | high << (BYTE_LANES / 2);
        any |= *twos;
    }
    if any == 0 {
        return (0, 0);
    }
    let places = &mut twos[..blocks];
    // Behind what was seen there may be equals, too.
    places[blocks - 1] &= vectors::lowest(seen - (blocks - 1) * BYTE_LANES);
    longest_of(places, turned, line, at)
}

/// The place and length of the longest copy from any of `places`, by bits in the order of the steps.
#[target_feature(enable = "avx512f,avx512bw,bmi1,lzcnt")]
#[inline]
fn longest_of(places: &mut [u64], turned: &Turned, line: &Padded, at: usize) -> (usize, usize) {
    let whole = STEPS - at % STEPS;
    let (mut best, mut longest) = (0, 0);
    for block in (0..places.len()).rev() {
        while places[block] != 0 {
            let bit = places[block].ilog2() as usize;
            places[block] ^= 1 << bit;
            let place = place_of(block * BYTE_LANES + bit);
            let length = match_length(line, place, at, whole);
            if length <= longest {
                continue;
            }
            (best, longest) = (place, length);
            if longest == whole {
                return (best, longest);
            }
            // Only what has the next byte, too, can be longer.
            for (block, places) in places[..=block].iter_mut().enumerate() {
                *places = like(turned, line, block, at, longest, *places);
            }
        }
    }
    (best, longest)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_pairs(pairs: &[u16; BYTE_LANES / 2]) -> __m512i {
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(pairs.as_ptr().cast()) }
}

/// Where in a line a place of this number is.
#[inline(always)]
const fn place_of(number: usize) -> usize {
    number % PARTS * STEPS + number / PARTS
}

/// Which of the places of a block, of those in `of`, have behind them at `distance` what `at` has there.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn like(turned: &Turned, line: &Padded, block: usize, at: usize, distance: usize, of: u64) -> u64 {
    let bytes = vectors::load_bytes(turned, block * BYTE_LANES + PARTS * distance);
    _mm512_mask_cmpeq_epi8_mask(of, bytes, _mm512_set1_epi8(line[at + distance] as i8))
}

/// How many bytes at `at` are those at `from`, which is of an earlier step: `whole` at most, which ends its part.
#[target_feature(enable = "avx512f,avx512bw,bmi1")]
#[inline]
fn match_length(line: &Padded, from: usize, at: usize, whole: usize) -> usize {
    for length in (0..whole).step_by(BYTE_LANES) {
        let (one, other) = (vectors::load_bytes(line, from + length), vectors::load_bytes(line, at + length));
        let differing = _mm512_cmpneq_epi8_mask(one, other);
        if differing != 0 {
            return whole.min(length + differing.trailing_zeros() as usize);
        }
    }
    whole
}
