//! `fold` with vectors of 128 bits of an aarch64 processor: two words at once to choose, and bytes moved by table look-ups.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::aarch64::*;

use super::covers::COVERS;
use super::frequent::{self, Counts, Selection};
use super::places::Places;
use super::scalar::Scalar;
use super::shuffles::{PACKS, UNPACKS};
use super::words::Words;
use super::{GROUP, LISTED, VECTOR_BYTES, WINDOW};

/// An aarch64 processor: each has these vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon;

impl frequent::Path for Neon {
    fn select(self, counts: &Counts, most: usize) -> Selection {
        Scalar.select(counts, most)
    }

    fn write_codes(
        self,
        bytes: &[u8],
        count: usize,
        selection: &Selection,
        bits: usize,
        codes: &mut [u8],
        escapes: &mut [u8],
    ) -> usize {
        Scalar.write_codes(bytes, count, selection, bits, codes, escapes)
    }

    fn read_codes(
        self,
        codes: &[u8],
        bits: usize,
        table: &[u8; VECTOR_BYTES],
        escapes: &[u8],
        count: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        Scalar.read_codes(codes, bits, table, escapes, count, out)
    }
}

impl Words for Neon {
    #[inline(always)]
    fn same_bytes(self, words: &[u64; GROUP], others: &[u64; GROUP]) -> u32 {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { same_bytes(words, others) }
    }

    #[inline(always)]
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP] {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { choose(words, window, places) }
    }

    #[inline(always)]
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP] {
        Scalar.differing(words, predictors)
    }

    #[inline(always)]
    fn pack(self, word: u64, mask: u8) -> u64 {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { shuffle(word, PACKS[usize::from(mask)]) }
    }

    #[inline(always)]
    fn unpack(self, bytes: u64, cover: usize, predictor: u64) -> u64 {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { shuffle_over(bytes, COVER_UNPACKS[cover % COVERS.len()], predictor) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn same_bytes(words: &[u64; GROUP], others: &[u64; GROUP]) -> u32 {
    // A byte of each counts to at most four, less than a sum of sixteen overflows.
    let mut same = vdupq_n_u8(0);
    for (words, others) in words.as_chunks::<2>().0.iter().zip(others.as_chunks::<2>().0) {
        let (words, others) = (vreinterpretq_u8_u64(load(words)), vreinterpretq_u8_u64(load(others)));
        // All ones is minus one.
        same = vsubq_u8(same, vandq_u8(vceqq_u8(words, others), vtstq_u8(words, words)));
    }
    u32::from(vaddvq_u8(same))
}

#[target_feature(enable = "neon")]
#[inline]
fn choose(words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP] {
    let mut keys = [0_u64; GROUP];
    for (pair, (words, keys)) in words.as_chunks::<2>().0.iter().zip(keys.as_chunks_mut::<2>().0).enumerate() {
        let words = load(words);
        let mut best = key(words, vdupq_n_u64(0), 0);
        for (choice, near) in [(1, 1), (2, 2)] {
            best = vmaxq_u32(best, key(words, vdupq_n_u64(window[WINDOW - near]), choice));
        }
        for (choice, place) in (LISTED as u64..).zip(places.0) {
            let place = usize::from(place).min(WINDOW - GROUP) + 2 * pair;
            let predictors = window[place..].first_chunk().expect("places end with the window");
            best = vmaxq_u32(best, key(words, load(predictors), choice));
        }
        // SAFETY: writes 16 bytes, which there are.
        unsafe { vst1q_u64(keys.as_mut_ptr(), vreinterpretq_u64_u32(best)) };
    }
    keys.map(|key| {
        // That many times 256, less itself, plus 7, less a choice below 8.
        let equal = (key + 8) >> 8;
        7 - (key + equal) as u8
    })
}

/// What a choice is worth for each word: 255 for each equal byte, plus 7, less the choice.
#[target_feature(enable = "neon")]
#[inline]
fn key(words: uint64x2_t, predictors: uint64x2_t, choice: u64) -> uint32x4_t {
    let equal = vceqq_u8(vreinterpretq_u8_u64(words), vreinterpretq_u8_u64(predictors));
    let sums = vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(equal)));
    vreinterpretq_u32_u64(vaddq_u64(sums, vdupq_n_u64(7 - choice)))
}

#[target_feature(enable = "neon")]
#[inline]
fn load(words: &[u64; 2]) -> uint64x2_t {
    // SAFETY: reads 16 bytes, which there are.
    unsafe { vld1q_u64(words.as_ptr()) }
}

/// Bytes of a word by their places; zero for places of which the highest bit is set.
#[target_feature(enable = "neon")]
#[inline]
fn shuffle(word: u64, places: u64) -> u64 {
    vget_lane_u64::<0>(vreinterpret_u64_u8(vtbl1_u8(vcreate_u8(word), vcreate_u8(places))))
}

/// [`shuffle`], but the bytes of another word instead of zeros.
#[target_feature(enable = "neon")]
#[inline]
fn shuffle_over(word: u64, places: u64, other: u64) -> u64 {
    // A place that is too large leaves the byte as it was.
    let bytes = vtbx1_u8(vcreate_u8(other), vcreate_u8(word), vcreate_u8(places));
    vget_lane_u64::<0>(vreinterpret_u64_u8(bytes))
}

/// For each mask, where its bytes go.
static COVER_UNPACKS: [u64; COVERS.len()] = {
    let mut unpacks = [0; COVERS.len()];
    let mut number = 0;
    while number < COVERS.len() {
        unpacks[number] = UNPACKS[COVERS[number] as usize];
        number += 1;
    }
    unpacks
};
