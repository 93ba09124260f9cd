//! `fold` with vectors of 128 bits of an aarch64 processor: two words at once to choose, and bytes moved by table look-ups.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::aarch64::*;

use page::PageBytes;

use super::format::{self, Head};
use super::frequent::{self, Counts, Selection};
use super::scalar::Scalar;
use super::shuffles::{PACKS, UNPACKS};
use super::words::{self, Words};
use super::{GROUP, Path, Reach, Steps, VECTOR_BYTES, WHOLE, WINDOW, Workspace, Written};

/// An aarch64 processor: each has these vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon;

impl Path for Neon {
    fn ones(self, bytes: &[u8]) -> usize {
        format::ones(bytes)
    }

    fn same_bytes(self, page: &PageBytes) -> u32 {
        words::same_bytes(page)
    }

    fn encode(self, page: &PageBytes, reach: Reach, workspace: &mut Workspace) -> Written {
        words::encode(self, page, reach, workspace)
    }

    fn prepare(self, head: &Head<'_>, masks: &[u8], steps: &mut Steps) -> usize {
        words::prepare(self, head, masks, steps)
    }

    fn rebuild(self, head: &Head<'_>, steps: &Steps, literals: &[u8], page: &mut PageBytes) {
        words::rebuild(self, head, steps, literals, page);
    }
}

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
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], reach: Reach) -> [u8; GROUP] {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { choose(words, window, reach.first()) }
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
    fn unpack(self, bytes: u64, mask: u8, predictor: u64) -> u64 {
        // SAFETY: every aarch64 processor that Rust builds for has these vectors.
        unsafe { shuffle_over(bytes, UNPACKS[usize::from(mask)], predictor) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn choose(words: &[u64; GROUP], window: &[u64; WINDOW], first: usize) -> [u8; GROUP] {
    let mut keys = [0_u64; GROUP];
    for (words, keys) in words.as_chunks::<2>().0.iter().zip(keys.as_chunks_mut::<2>().0) {
        // SAFETY: reads 16 bytes, which there are.
        let words = unsafe { vld1q_u64(words.as_ptr()) };
        let mut best = key(words, 0, 0);
        for (choice, predictor) in window.iter().enumerate().skip(first) {
            best = vmaxq_u32(best, key(words, *predictor, choice as u64));
        }
        // SAFETY: writes 16 bytes, which there are.
        unsafe { vst1q_u64(keys.as_mut_ptr(), vreinterpretq_u64_u32(best)) };
    }
    keys.map(|key| {
        // That many times 256, less itself, plus a choice below 32.
        let equal = (key + 8) >> 8;
        if equal <= 1 { WHOLE as u8 } else { (key + equal) as u8 }
    })
}

/// What a choice is worth for each word: 255 for each equal byte, plus the choice.
#[target_feature(enable = "neon")]
#[inline]
fn key(words: uint64x2_t, predictor: u64, choice: u64) -> uint32x4_t {
    let equal = vceqq_u8(vreinterpretq_u8_u64(words), vreinterpretq_u8_u64(vdupq_n_u64(predictor)));
    let sums = vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(equal)));
    vreinterpretq_u32_u64(vaddq_u64(sums, vdupq_n_u64(choice)))
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
