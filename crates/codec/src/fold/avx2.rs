//! `fold` with vectors of 256 bits: four words at once to choose, and bytes moved by shuffles.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::format::{self, Head, List};
use super::frequent::{self, Counts, Selection};
use super::places::{Places, Scores};
use super::scalar::Scalar;
use super::shuffles::{PACKS, UNPACKS};
use super::words::{self, Words};
use super::{GROUP, LISTED, Path, VECTOR_BYTES, WHOLE, WINDOW, Workspace, Written};

mod decode;

cpufeatures::new!(needed, "avx2", "bmi1", "popcnt");

/// A processor that has all that is used here. Not the bit scatter of BMI2, which takes some processors 18 cycles and more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(super) fn new() -> Option<Self> {
        needed::get().then_some(Self(()))
    }
}

impl Path for Avx2 {
    type Steps = [decode::Step];
    type Room = decode::Room;
    const ROOM: decode::Room = decode::EMPTY;

    fn ones(self, bytes: &[u8]) -> usize {
        #[target_feature(enable = "popcnt")]
        fn ones(bytes: &[u8]) -> usize {
            format::ones(bytes)
        }
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { ones(bytes) }
    }

    fn list(self, page: &PageBytes, workspace: &mut Workspace) -> List {
        #[target_feature(enable = "avx2,bmi1,popcnt")]
        fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
            words::list(page, workspace)
        }
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { list(page, workspace) }
    }

    fn scores(self, groups: usize, workspace: &Workspace) -> Scores {
        #[target_feature(enable = "avx2,bmi1,popcnt")]
        fn scores(with: Avx2, groups: usize, workspace: &Workspace) -> Scores {
            words::scores(with, groups, workspace)
        }
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { scores(self, groups, workspace) }
    }

    fn encode(self, groups: usize, places: Places, workspace: &mut Workspace) -> Written {
        #[target_feature(enable = "avx2,bmi1,popcnt")]
        fn encode(with: Avx2, groups: usize, places: Places, workspace: &mut Workspace) -> Written {
            words::encode(with, groups, places, workspace)
        }
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { encode(self, groups, places, workspace) }
    }

    fn prepare<'a>(self, head: &Head<'_>, masks: &[u8], room: &'a mut Self::Room) -> (usize, &'a Self::Steps) {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { decode::prepare(head, masks, room) }
    }

    fn rebuild(self, head: &Head<'_>, steps: &Self::Steps, literals: &[u8], page: &mut PageBytes) {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { decode::rebuild(head, steps, literals, page) }
    }
}

impl frequent::Path for Avx2 {
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

// Always inlined into the functions above, so that the intrinsics are, too.
impl Words for Avx2 {
    #[inline(always)]
    fn same_bytes(self, words: &[u64; GROUP], others: &[u64; GROUP]) -> u32 {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { same_bytes(words, others) }
    }

    #[inline(always)]
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP] {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { choose(words, window, places) }
    }

    #[inline(always)]
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP] {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { differing(words, predictors) }
    }

    #[inline(always)]
    fn pack(self, word: u64, mask: u8) -> u64 {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { shuffle(word, PACKS[usize::from(mask)]) }
    }

    #[inline(always)]
    fn unpack(self, bytes: u64, mask: u8, predictor: u64) -> u64 {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { shuffle_over(bytes, UNPACKS[usize::from(mask)], predictor) }
    }
}

#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn same_bytes(words: &[u64; GROUP], others: &[u64; GROUP]) -> u32 {
    let mut sum = 0;
    for at in [0, 4] {
        let (words, others) = (load(part(words, at)), load(part(others, at)));
        let same = _mm256_movemask_epi8(_mm256_cmpeq_epi8(words, others));
        let zero = _mm256_movemask_epi8(_mm256_cmpeq_epi8(words, _mm256_setzero_si256()));
        sum += (same & !zero).count_ones();
    }
    sum
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP] {
    let (low, high) = (load(part(words, 0)), load(part(words, 4)));
    let zero = _mm256_setzero_si256();
    let (mut best_low, mut best_high) = (key(low, zero, 0), key(high, zero, 0));
    for (choice, near) in [(2, 1), (3, 2)] {
        let predictor = _mm256_set1_epi64x(window[WINDOW - near].cast_signed());
        best_low = _mm256_max_epi32(best_low, key(low, predictor, choice));
        best_high = _mm256_max_epi32(best_high, key(high, predictor, choice));
    }
    for (choice, place) in (LISTED..).zip(places.0) {
        let predictors: &[u64; GROUP] = part(window, usize::from(place).min(WINDOW - GROUP));
        best_low = _mm256_max_epi32(best_low, key(low, load(part(predictors, 0)), choice));
        best_high = _mm256_max_epi32(best_high, key(high, load(part(predictors, 4)), choice));
    }
    let mut keys = [0_u64; GROUP];
    for (keys, best) in keys.as_chunks_mut::<4>().0.iter_mut().zip([best_low, best_high]) {
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(keys.as_mut_ptr().cast(), best) };
    }
    keys.map(|key| {
        // That many times 256, less itself, plus 7, less a choice below 8.
        let equal = (key + 8) >> 8;
        if equal <= 1 { WHOLE as u8 } else { 7 - (key + equal) as u8 }
    })
}

#[target_feature(enable = "avx2")]
#[inline]
fn differing(words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP] {
    let mut equal = [0; 2];
    let halves = words.as_chunks().0.iter().zip(predictors.as_chunks().0);
    for (equal, (words, predictors)) in equal.iter_mut().zip(halves) {
        *equal = _mm256_movemask_epi8(_mm256_cmpeq_epi8(load(words), load(predictors))).cast_unsigned();
    }
    (!(u64::from(equal[1]) << 32 | u64::from(equal[0]))).to_le_bytes()
}

/// What a choice is worth for each word: 255 for each equal byte, plus 7, less the choice. Not a closure: those are not inlined.
#[target_feature(enable = "avx2")]
#[inline]
fn key(words: __m256i, predictors: __m256i, choice: usize) -> __m256i {
    let equal = _mm256_sad_epu8(_mm256_cmpeq_epi8(words, predictors), _mm256_setzero_si256());
    _mm256_add_epi64(equal, _mm256_set1_epi64x(7 - choice as i64))
}

#[inline(always)]
fn part<const N: usize>(words: &[u64], at: usize) -> &[u64; N] {
    words[at..].first_chunk().expect("a part of a group or of a window")
}

/// Bytes of a word by their places; zero for places of which the highest bit is set.
#[target_feature(enable = "avx2")]
#[inline]
fn shuffle(word: u64, places: u64) -> u64 {
    let (word, places) = (_mm_cvtsi64_si128(word.cast_signed()), _mm_cvtsi64_si128(places.cast_signed()));
    _mm_cvtsi128_si64(_mm_shuffle_epi8(word, places)).cast_unsigned()
}

/// [`shuffle`], but the bytes of another word instead of zeros.
#[target_feature(enable = "avx2")]
#[inline]
fn shuffle_over(word: u64, places: u64, other: u64) -> u64 {
    let (word, places) = (_mm_cvtsi64_si128(word.cast_signed()), _mm_cvtsi64_si128(places.cast_signed()));
    let other = _mm_cvtsi64_si128(other.cast_signed());
    _mm_cvtsi128_si64(_mm_blendv_epi8(_mm_shuffle_epi8(word, places), other, places)).cast_unsigned()
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(words: &[u64; 4]) -> __m256i {
    // SAFETY: reads 32 bytes, which there are.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}
