//! What an encoder asks of four sets of four words, all sets at once: a word of one set does nothing to another.
//!
//! Words go to a list for each set. Each lane of a vector is a set, and each of four vectors has one entry of every set, the last
//! used first; they are renewed without leaving registers. A set that has fewer words than another is told its last again, which
//! changes nothing.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use super::super::plain::wk::LOW_BITS;
use super::super::vectors::{self, BYTE_LANES, Bytes, LANES, Mask, Words};

const SETS: usize = 4;
/// Entries of a set.
const WAYS: usize = 4;
/// Words that go to lists together.
const BLOCK: usize = 256;
/// Steps whose answers fill a word of each set.
const STEPS: usize = 4;

/// In an answer: the word is the entry, or is like it. Below is its place in the set.
const EXACT: i32 = 16;
const LIKE: i32 = 32;

/// Looks up each word of `list`, none of which is zero and whose sets are in `indices`, and takes it in. In `indices` is then the entry
/// that is the word, or else the last used that is like it, or else the one whose place the word takes. Which words are like
/// their entries, and which are those.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
#[inline]
pub(super) fn tell(list: &Words, count: usize, indices: &mut Bytes) -> (Mask, Mask) {
    let (mut like, mut exact) = (Mask::default(), Mask::default());
    let mut sets = Sets([_mm_set1_epi32(1); WAYS]);
    let mut lists = Lists { words: [[0; BLOCK + LANES]; SETS], last: [1; SETS] };
    let mut answers = [[0; BLOCK + BYTE_LANES]; SETS];
    for start in (0..count).step_by(BLOCK) {
        let steps = lists.fill(list, start, BLOCK.min(count - start), indices);
        for at in (0..steps).step_by(STEPS) {
            sets.tell_four(&lists, at, &mut answers);
        }
        let mut taken = [0; SETS];
        for at in (start..count.min(start + BLOCK)).step_by(BYTE_LANES) {
            let used = vectors::lowest(count - at);
            let set_of = vectors::load_bytes(indices, at);
            let mut told = _mm512_setzero_si512();
            for set in 0..SETS {
                let here = _mm512_mask_cmpeq_epi8_mask(used, set_of, _mm512_set1_epi8(set as i8));
                told = _mm512_mask_expand_epi8(told, here, vectors::load_bytes(&answers[set], taken[set]));
                taken[set] += here.count_ones() as usize;
            }
            like[at / BYTE_LANES] = _mm512_test_epi8_mask(told, _mm512_set1_epi8(LIKE as i8));
            exact[at / BYTE_LANES] = _mm512_test_epi8_mask(told, _mm512_set1_epi8(EXACT as i8));
            let way = _mm512_and_si512(told, _mm512_set1_epi8(WAYS as i8 - 1));
            // No set has more bits than leave the byte above alone.
            vectors::store_bytes(indices, at, _mm512_or_si512(_mm512_slli_epi16::<2>(set_of), way));
        }
    }
    (like, exact)
}

/// The words of a block by their sets.
struct Lists {
    words: [[u32; BLOCK + LANES]; SETS],
    /// The last of each set.
    last: [u32; SETS],
}

impl Lists {
    /// Takes in `count` words from `start` on. The length of the longest list, to which the others are filled up.
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    #[inline]
    fn fill(&mut self, list: &Words, start: usize, count: usize, indices: &Bytes) -> usize {
        let mut lengths = [0; SETS];
        for at in (0..count).step_by(LANES) {
            let words = vectors::load(list, start + at);
            let set_of = _mm512_cvtepu8_epi32(load_sixteen(indices, start + at));
            let used = vectors::lowest(count - at) as __mmask16;
            for (set, length) in lengths.iter_mut().enumerate() {
                let here = _mm512_mask_cmpeq_epi32_mask(used, set_of, _mm512_set1_epi32(set as i32));
                vectors::store(&mut self.words[set], *length, _mm512_maskz_compress_epi32(here, words));
                *length += here.count_ones() as usize;
            }
        }
        let longest = lengths.into_iter().max().expect("there are sets");
        for ((words, last), length) in self.words.iter_mut().zip(&mut self.last).zip(lengths) {
            if let Some(before) = length.checked_sub(1) {
                *last = words[before];
            }
            for at in (length..longest.next_multiple_of(STEPS)).step_by(LANES) {
                vectors::store(words, at, _mm512_set1_epi32(*last as i32));
            }
        }
        longest
    }
}

/// The sixteen bytes from `at` on.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_sixteen(bytes: &Bytes, at: usize) -> __m128i {
    let bytes: &[u8; LANES] = bytes[at..].first_chunk().expect("a vector more than there are codes");
    // SAFETY: reads 16 bytes, which there are.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// The entries: the last used of each set, those used before them, and so on.
struct Sets([__m128i; WAYS]);

impl Sets {
    /// Tells four words of each list, and takes down what was found: a byte for each, in the order of the list.
    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn tell_four(&mut self, lists: &Lists, at: usize, answers: &mut [[u8; BLOCK + BYTE_LANES]; SETS]) {
        let [first, second, third, fourth] = lists.words.each_ref().map(|words| {
            let four: &[u32; STEPS] = words[at..].first_chunk().expect("lists are filled up to whole steps");
            // SAFETY: reads 16 bytes, which there are.
            unsafe { _mm_loadu_si128(four.as_ptr().cast()) }
        });
        // What lies in a row, by step.
        let (low, high) = (_mm_unpacklo_epi32(first, second), _mm_unpackhi_epi32(first, second));
        let (other_low, other_high) = (_mm_unpacklo_epi32(third, fourth), _mm_unpackhi_epi32(third, fourth));
        let told = [
            self.tell(_mm_unpacklo_epi64(low, other_low)),
            self.tell(_mm_unpackhi_epi64(low, other_low)),
            self.tell(_mm_unpacklo_epi64(high, other_high)),
            self.tell(_mm_unpackhi_epi64(high, other_high)),
        ];
        let lower = _mm_or_si128(told[0], _mm_slli_epi32::<8>(told[1]));
        let upper = _mm_or_si128(_mm_slli_epi32::<16>(told[2]), _mm_slli_epi32::<24>(told[3]));
        let (both, mut words) = (_mm_or_si128(lower, upper), [0_u32; SETS]);
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), both) };
        for (answers, word) in answers.iter_mut().zip(words) {
            answers[at..at + STEPS].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Tells a word of each set.
    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn tell(&mut self, words: __m128i) -> __m128i {
        const SELECT: i32 = 0b1100_1010;
        const OR: i32 = 0b1111_1110;
        const AND_OR: i32 = 0b1110_1010;
        let Self([one, two, three, four]) = *self;
        let exacts = [one, two, three, four].map(|entries| _mm_cmpeq_epi32(entries, words));
        let any = _mm_or_si128(_mm_ternarylogic_epi32::<OR>(exacts[0], exacts[1], exacts[2]), exacts[3]);
        let mut matches = exacts;
        for (matches, entries) in matches.iter_mut().zip([one, two, three, four]) {
            let upper = _mm_srli_epi32::<{ LOW_BITS as i32 }>(_mm_xor_si128(entries, words));
            let like = _mm_cmpeq_epi32(upper, _mm_setzero_si128());
            // An exact match goes before the others, for which only the ones of the start leave room.
            *matches = _mm_ternarylogic_epi32::<SELECT>(any, *matches, like);
        }
        // Behind the first match entries stay, before it they move one way on.
        let second = _mm_or_si128(matches[0], matches[1]);
        let third = _mm_ternarylogic_epi32::<OR>(matches[0], matches[1], matches[2]);
        let hit = _mm_or_si128(third, matches[3]);
        let moved = |stays, entries, before| _mm_ternarylogic_epi32::<SELECT>(stays, entries, before);
        self.0 = [words, moved(matches[0], two, one), moved(second, three, two), moved(third, four, three)];
        let way = _mm_add_epi32(_mm_set1_epi32(WAYS as i32 - 1), matches[0]);
        let way = _mm_add_epi32(way, _mm_add_epi32(second, third));
        let told = _mm_ternarylogic_epi32::<AND_OR>(any, _mm_set1_epi32(EXACT), way);
        _mm_ternarylogic_epi32::<AND_OR>(hit, _mm_set1_epi32(LIKE), told)
    }
}
