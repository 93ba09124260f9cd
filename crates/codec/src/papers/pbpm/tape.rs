//! The tape of data in vectors: see `plain::pbpm::alignment`, which says where each datum lies.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::{PAGE_BYTES, PageBytes};

use super::super::plain::pbpm as plain;
use super::super::vectors::{self, BYTE_LANES, LANES, Mask, NO_WORDS, Words};
use crate::Codec;

/// A tape with room for what a vector is too long.
pub(super) type Tape = [u8; PAGE_BYTES + BYTE_LANES];
pub(super) const NO_TAPE: Tape = [0; PAGE_BYTES + BYTE_LANES];
const WORD_BYTES: usize = 4;

/// Where the words are that leave so many bytes open.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) words: Mask,
    /// The lower half of a word.
    pub(super) halves: Mask,
    /// The first and the third byte of a word, also a half.
    pub(super) spread: Mask,
    pub(super) bytes: Mask,
}

impl Sizes {
    /// All that take two bytes.
    fn all_halves(&self) -> Mask {
        core::array::from_fn(|at| self.halves[at] | self.spread[at])
    }

    /// What the data take without gaps.
    fn sum(&self) -> usize {
        WORD_BYTES * vectors::ones(&self.words) + 2 * vectors::ones(&self.all_halves()) + vectors::ones(&self.bytes)
    }
}

/// How data are aligned. All of it is safe where there is AVX-512.
pub(super) trait Alignment {
    /// The plain twin of the codec.
    const PLAIN: &'static dyn Codec;

    /// See `plain::pbpm::alignment`.
    fn tape_bytes(sizes: &Sizes) -> usize;

    /// Writes the data of a page.
    ///
    /// # Safety
    /// The processor has what `vectors` needs.
    unsafe fn write(page: &PageBytes, sizes: &Sizes, tape: &mut Tape);

    /// Reads them: each word of `data` has what its pattern leaves open, and zeros elsewhere.
    ///
    /// # Safety
    /// The processor has what `vectors` needs.
    unsafe fn read(tape: &Tape, sizes: &Sizes, data: &mut Words);
}

pub(super) struct NonAligned;
pub(super) struct Separate;
pub(super) struct Single;

/// The bytes of sixteen words, four bits each, of which so many leave that many open.
#[target_feature(enable = "bmi2")]
#[inline]
fn open_bytes(sizes: &Sizes, at: usize, lane: usize) -> u64 {
    let each = |mask: &Mask, bits: u64| _pdep_u64(u64::from(vectors::sixteen(mask[at], lane)), FIRST) * bits;
    each(&sizes.words, 0b1111) | each(&sizes.halves, 0b0011) | each(&sizes.spread, 0b0101) | each(&sizes.bytes, 0b0001)
}

/// The first bit of each four.
const FIRST: u64 = 0x1111_1111_1111_1111;

/// Writes the open bytes of a page behind each other, from `at` on; where they end.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,bmi2,popcnt")]
#[inline]
fn write_bytes(page: &PageBytes, sizes: &Sizes, tape: &mut Tape, mut at: usize) -> usize {
    for (word, bytes) in page.0.as_chunks::<{ BYTE_LANES * WORD_BYTES }>().0.iter().enumerate() {
        for lane in 0..4 {
            let open = open_bytes(sizes, word, lane);
            let words = vectors::load_bytes(bytes, lane * BYTE_LANES);
            vectors::store_bytes(tape, at, _mm512_maskz_compress_epi8(open, words));
            at += open.count_ones() as usize;
        }
    }
    at
}

/// The other way round, beside the data that are there already.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,bmi2,popcnt")]
#[inline]
fn read_bytes(tape: &Tape, sizes: &Sizes, data: &mut Words, mut at: usize) -> usize {
    for word in 0..sizes.words.len() {
        for lane in 0..4 {
            let open = open_bytes(sizes, word, lane);
            let start = word * BYTE_LANES + lane * LANES;
            let bytes = _mm512_maskz_expand_epi8(open, vectors::load_bytes(tape, at));
            let joined = _mm512_or_si512(vectors::load(data, start), bytes);
            vectors::store(data, start, joined);
            at += open.count_ones() as usize;
        }
    }
    at
}

impl Alignment for NonAligned {
    const PLAIN: &'static dyn Codec = &plain::Pbpm;

    fn tape_bytes(sizes: &Sizes) -> usize {
        sizes.sum()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn write(page: &PageBytes, sizes: &Sizes, tape: &mut Tape) {
        write_bytes(page, sizes, tape, 0);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn read(tape: &Tape, sizes: &Sizes, data: &mut Words) {
        read_bytes(tape, sizes, data, 0);
    }
}

/// The sizes one by one, the largest first.
fn one_by_one(sizes: &Sizes) -> [Sizes; 3] {
    let none =
        Sizes { words: Mask::default(), halves: Mask::default(), spread: Mask::default(), bytes: Mask::default() };
    [
        Sizes { words: sizes.words, ..none },
        Sizes { halves: sizes.halves, spread: sizes.spread, ..none },
        Sizes { bytes: sizes.bytes, ..none },
    ]
}

impl Alignment for Separate {
    const PLAIN: &'static dyn Codec = &plain::PbpmSeparate;

    fn tape_bytes(sizes: &Sizes) -> usize {
        sizes.sum()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn write(page: &PageBytes, sizes: &Sizes, tape: &mut Tape) {
        let mut end = 0;
        for sizes in one_by_one(sizes) {
            end = write_bytes(page, &sizes, tape, end);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn read(tape: &Tape, sizes: &Sizes, data: &mut Words) {
        let mut end = 0;
        for sizes in one_by_one(sizes) {
            end = read_bytes(tape, &sizes, data, end);
        }
    }
}

/// Who takes what on the single tape: in the order of the words, each second byte begins a half, each second half a word.
struct Taken {
    /// Words that are taken, for a word or for two halves.
    words: Mask,
    /// Words for two halves.
    of_halves: Mask,
    /// Halves that are taken, for a half or for two bytes.
    halves: Mask,
    /// Halves for two bytes.
    of_bytes: Mask,
}

impl Taken {
    #[target_feature(enable = "bmi2,popcnt")]
    #[inline]
    fn of(sizes: &Sizes) -> Self {
        let of_bytes = each_second(&sizes.bytes);
        let all_halves = sizes.all_halves();
        let halves = core::array::from_fn(|at| all_halves[at] | of_bytes[at]);
        let of_halves = each_second(&halves);
        Self { words: core::array::from_fn(|at| sizes.words[at] | of_halves[at]), of_halves, halves, of_bytes }
    }
}

/// The first, third, fifth … of the bits that are set.
#[target_feature(enable = "bmi2,popcnt")]
#[inline]
fn each_second(mask: &Mask) -> Mask {
    const ODD: u64 = u64::from_le_bytes([0x55; 8]);
    let mut before = 0;
    mask.map(|bits| {
        let chosen = _pdep_u64(ODD << (before % 2), bits);
        before += bits.count_ones();
        chosen
    })
}

impl Alignment for Single {
    const PLAIN: &'static dyn Codec = &plain::PbpmSingle;

    fn tape_bytes(sizes: &Sizes) -> usize {
        let halves = vectors::ones(&sizes.all_halves()) + vectors::ones(&sizes.bytes).div_ceil(2);
        (vectors::ones(&sizes.words) + halves.div_ceil(2)) * WORD_BYTES
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn write(page: &PageBytes, sizes: &Sizes, tape: &mut Tape) {
        let taken = Taken::of(sizes);
        // Bytes behind each other are the halves of two bytes, and halves the words of two halves.
        let [_, _, bytes] = one_by_one(sizes);
        let mut pairs = NO_TAPE;
        write_bytes(page, &bytes, &mut pairs, 0);
        let (mut halves, mut half, mut taken_half) = (NO_TAPE, 0, 0);
        for (word, bytes) in page.0.as_chunks::<{ BYTE_LANES * WORD_BYTES }>().0.iter().enumerate() {
            for lane in 0..4 {
                let words = vectors::load_bytes(bytes, lane * BYTE_LANES);
                let of_bytes = vectors::sixteen(taken.of_bytes[word], lane);
                let all = vectors::sixteen(taken.halves[word], lane);
                let spread = vectors::sixteen(sizes.spread[word], lane);
                let joined = _mm512_or_si512(words, _mm512_srli_epi32::<8>(words));
                let own = _mm512_mask_mov_epi32(words, spread, joined);
                let merged = vectors::expand_halves(&pairs, half, of_bytes, own);
                half += 2 * of_bytes.count_ones() as usize;
                vectors::compress_halves(merged, all, &mut halves, taken_half);
                taken_half += 2 * all.count_ones() as usize;
            }
        }
        let (mut fours, mut end) = (0, 0);
        for (word, bytes) in page.0.as_chunks::<{ BYTE_LANES * WORD_BYTES }>().0.iter().enumerate() {
            for lane in 0..4 {
                let of_halves = vectors::sixteen(taken.of_halves[word], lane);
                let all = vectors::sixteen(taken.words[word], lane);
                let own = vectors::load_bytes(bytes, lane * BYTE_LANES);
                let merged = _mm512_mask_expand_epi32(own, of_halves, vectors::load_bytes(&halves, fours));
                fours += WORD_BYTES * of_halves.count_ones() as usize;
                vectors::store_bytes(tape, end, _mm512_maskz_compress_epi32(all, merged));
                end += WORD_BYTES * all.count_ones() as usize;
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    unsafe fn read(tape: &Tape, sizes: &Sizes, data: &mut Words) {
        let taken = Taken::of(sizes);
        let (mut at, mut four, mut halves) = (0, 0, NO_TAPE);
        for word in 0..taken.words.len() {
            for lane in 0..4 {
                let all = vectors::sixteen(taken.words[word], lane);
                let words = _mm512_maskz_expand_epi32(all, vectors::load_bytes(tape, at));
                at += WORD_BYTES * all.count_ones() as usize;
                let of_halves = vectors::sixteen(taken.of_halves[word], lane);
                vectors::store_bytes(&mut halves, four, _mm512_maskz_compress_epi32(of_halves, words));
                four += WORD_BYTES * of_halves.count_ones() as usize;
                let own = _mm512_maskz_mov_epi32(vectors::sixteen(sizes.words[word], lane), words);
                vectors::store(data, word * BYTE_LANES + lane * LANES, own);
            }
        }
        let (mut at, mut pair, mut pairs) = (0, 0, NO_TAPE);
        for word in 0..taken.halves.len() {
            for lane in 0..4 {
                let all = vectors::sixteen(taken.halves[word], lane);
                let own = vectors::expand_halves(&halves, at, all, _mm512_setzero_si512());
                at += 2 * all.count_ones() as usize;
                let of_bytes = vectors::sixteen(taken.of_bytes[word], lane);
                vectors::compress_halves(own, of_bytes, &mut pairs, pair);
                pair += 2 * of_bytes.count_ones() as usize;
                let apart = _mm512_or_si512(own, _mm512_slli_epi32::<8>(own));
                let apart = _mm512_and_si512(apart, _mm512_set1_epi32(0x00ff_00ff));
                let here = word * BYTE_LANES + lane * LANES;
                let (low, spread) =
                    [&sizes.halves, &sizes.spread].map(|mask| vectors::sixteen(mask[word], lane)).into();
                let with = _mm512_mask_mov_epi32(vectors::load(data, here), low, own);
                vectors::store(data, here, _mm512_mask_mov_epi32(with, spread, apart));
            }
        }
        let [_, _, bytes] = one_by_one(sizes);
        read_bytes(&pairs, &bytes, data, 0);
    }
}

/// The data of no word.
pub(super) const NO_DATA: Words = NO_WORDS;
