//! The decoder: four words at once. Where each word's predictor is does not wait for the words, and is found out beforehand.

use core::mem::MaybeUninit;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::{PAGE_BYTES, PageBytes};

use super::super::format::{Head, Unlisted};
use super::super::places::Places;
use super::super::shuffles::UNPACKS;
use super::super::words::first_eight;
use super::super::{GROUP, GROUPS, INDEX_BITS, INDEX_BYTES, LISTED, WHOLE, WINDOW, WORDS};
use super::{load, shuffle};

/// Words that are handled at once.
const HALF: usize = 4;

/// What is to be done for a group. Only [`prepare`] makes them.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(in crate::fold) struct Step {
    /// Where the predictors are, counted from the window of the first group: before the group's end. The first is always zero.
    predictors: [u32; GROUP],
    /// Which bytes are told.
    told: [u8; GROUP],
}

pub(in crate::fold) type Room = [MaybeUninit<Step>; GROUPS];

pub(in crate::fold) const EMPTY: Room = [MaybeUninit::uninit(); GROUPS];

/// See [`Path::prepare`](super::Path::prepare).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn prepare<'a>(head: &Head<'_>, mut masks: &[u8], room: &'a mut Room) -> (usize, &'a [Step]) {
    let (first, step) = place_table(head.places);
    let shifts = _mm256_mullo_epi32(numbers(), _mm256_set1_epi32(INDEX_BITS as i32));
    let (seven, one) = (_mm256_set1_epi32(7), _mm256_set1_epi32(WHOLE as i32));
    let mut start = _mm256_setzero_si256();
    let mut sum = 0;
    let groups = head.differs.iter().zip(head.indices.chunks_exact(INDEX_BYTES));
    for (at, (steps, (&differs, indices))) in room.iter_mut().zip(groups).enumerate() {
        // One byte more than there is in a group's, where there is one.
        let indices = match head.indices[at * INDEX_BYTES..].first_chunk() {
            Some(four) => i32::from_le_bytes(*four),
            None => first_eight(indices) as i32,
        };
        let choices = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(indices), shifts), seven);
        let whole = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(choices, one)));
        let moved = _mm256_and_si256(numbers(), _mm256_permutevar8x32_epi32(step, choices));
        let places = _mm256_add_epi32(_mm256_permutevar8x32_epi32(first, choices), moved);
        // Zero and words in full have no place: the first word of all is zero.
        let places = _mm256_and_si256(_mm256_add_epi32(places, start), _mm256_cmpgt_epi32(choices, one));
        start = _mm256_add_epi32(start, _mm256_set1_epi32(GROUP as i32));

        let told = shuffle(first_eight(masks), UNPACKS[usize::from(differs)]) | BYTES[whole as usize % 256];
        masks = &masks[differs.count_ones() as usize..];
        sum += told.count_ones() as usize;
        let steps = steps.write(Step { predictors: [0; GROUP], told: told.to_le_bytes() });
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(steps.predictors.as_mut_ptr().cast(), places) };
    }
    // SAFETY: so many have been written: there are as many groups in `differs` as the head says, and indices for each.
    (sum, unsafe { room[..head.differs.len()].assume_init_ref() })
}

/// The place of each choice for the first word of a group, and all bits for those that are one word further on for the next.
#[target_feature(enable = "avx2")]
#[inline]
fn place_table(places: Places) -> (__m256i, __m256i) {
    let first = _mm_cvtsi64_si128(u64::from_le_bytes(places.table()[0]).cast_signed());
    let step = _mm256_cmpgt_epi32(numbers(), _mm256_set1_epi32(LISTED as i32 - 1));
    (_mm256_cvtepu8_epi32(first), step)
}

#[target_feature(enable = "avx2")]
#[inline]
fn numbers() -> __m256i {
    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
}

/// Window, listed words, and what the last loads reach.
const BUFFER_WORDS: usize = WINDOW + WORDS + HALF;

/// See [`Path::rebuild`](super::Path::rebuild).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn rebuild(head: &Head<'_>, steps: &[Step], literals: &[u8], page: &mut PageBytes) {
    // Not made of zeros first, which would take as long as a part of the decoding.
    let mut buffer = [const { MaybeUninit::<u64>::uninit() }; BUFFER_WORDS];
    for word in &mut buffer[..WINDOW] {
        word.write(0);
    }
    let end = WINDOW + steps.len() * GROUP;
    let mut at = 0;
    for (group, step) in steps.iter().enumerate() {
        // SAFETY: the buffer has room for each group of a page, and all words before this one are written.
        unsafe { rebuild_group(&mut buffer, group, step, literals, at) };
        at += u64::from_le_bytes(step.told).count_ones() as usize;
    }
    for word in &mut buffer[end..end + HALF] {
        word.write(0);
    }
    // SAFETY: these are the words that have been written.
    let words = unsafe { buffer[..end + HALF].assume_init_ref() };
    if head.list.is_all() {
        for (to, word) in page.0.as_chunks_mut::<8>().0.iter_mut().zip(&words[WINDOW..]) {
            *to = word.to_le_bytes();
        }
    } else if head.list.unlisted == Unlisted::Zeros {
        unlist::<true>(head, words, page);
    } else {
        unlist::<false>(head, words, page);
    }
}

/// Writes eight words of the buffer.
///
/// # Safety
/// All words before the group must have been written.
#[target_feature(enable = "avx2,bmi1,popcnt")]
#[inline]
unsafe fn rebuild_group(
    buffer: &mut [MaybeUninit<u64>; BUFFER_WORDS],
    group: usize,
    step: &Step,
    literals: &[u8],
    at: usize,
) {
    let all = u64::from_le_bytes(step.told);
    let told = _mm256_set1_epi64x(all.cast_signed());
    let before = |pairs: u32| at + (all & ((1 << (16 * pairs)) - 1)).count_ones() as usize;
    let starts = [[at, before(1)], [before(2), before(3)]];
    let window: *const u64 = buffer.as_ptr().cast();
    let bytes: &[[u8; 32]; 2] = &WORD_OF_BYTE;
    let mut words = [_mm256_setzero_si256(); 2];
    for half in 0..2 {
        let told = _mm256_shuffle_epi8(told, load_bytes(&bytes[half]));
        let told = _mm256_cmpeq_epi8(_mm256_and_si256(told, load_bytes(&BIT_OF_BYTE)), load_bytes(&BIT_OF_BYTE));
        let literals = _mm256_set_m128i(sixteen(literals, starts[half][1]), sixteen(literals, starts[half][0]));
        let literals = _mm256_shuffle_epi8(literals, spread(told));
        // SAFETY: as the caller promises; predictors are before the group's own words.
        let predictor = |lane| unsafe { word(window, step.predictors[HALF * half + lane]) };
        let predictors = _mm256_set_epi64x(predictor(3), predictor(2), predictor(1), predictor(0));
        words[half] = _mm256_or_si256(literals, _mm256_andnot_si256(told, predictors));
    }
    let to: &mut [MaybeUninit<u64>; GROUP] =
        buffer[WINDOW + group * GROUP..].first_chunk_mut().expect("there is room for each group");
    // SAFETY: writes 32 bytes, which there are.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words[0]) };
    // SAFETY: writes 32 bytes, which there are behind the first.
    unsafe { _mm256_storeu_si256(to[HALF..].as_mut_ptr().cast(), words[1]) };
}

/// For each byte that is told, which of the sixteen literals of its two words it is; the highest bit for others.
#[target_feature(enable = "avx2")]
#[inline]
fn spread(told: __m256i) -> __m256i {
    // Of each byte, less one for each that is told up to there: first in a word, then with the word before it.
    let sum = _mm256_add_epi8(told, _mm256_slli_epi64::<8>(told));
    let sum = _mm256_add_epi8(sum, _mm256_slli_epi64::<16>(sum));
    let sum = _mm256_add_epi8(sum, _mm256_slli_epi64::<32>(sum));
    let sum = _mm256_add_epi8(sum, _mm256_shuffle_epi8(sum, load_bytes(&LAST_OF_FIRST)));
    _mm256_xor_si256(_mm256_and_si256(sum, told), _mm256_set1_epi8(-1))
}

/// A word of the buffer.
///
/// # Safety
/// It must have been written.
#[inline(always)]
unsafe fn word(words: *const u64, at: u32) -> i64 {
    let word = words.wrapping_add(at as usize);
    // SAFETY: it is there, as the caller promises.
    unsafe { word.read() }.cast_signed()
}

/// Sixteen literals, and zeros behind the last.
#[target_feature(enable = "avx2")]
#[inline]
fn sixteen(literals: &[u8], at: usize) -> __m128i {
    let Some(bytes) = literals.get(at..at + 16) else { return last_ones(literals, at) };
    // SAFETY: reads 16 bytes, which there are.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[cold]
fn last_ones(literals: &[u8], at: usize) -> __m128i {
    let mut bytes = [0; 16];
    let there = &literals[at..];
    bytes[..there.len()].copy_from_slice(there);
    // SAFETY: reads 16 bytes, which there are.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Puts the listed words in their places, and between them zeros or the word before.
#[target_feature(enable = "avx2,bmi1,popcnt")]
#[inline]
fn unlist<const ZEROS: bool>(head: &Head<'_>, words: &[u64], page: &mut PageBytes) {
    // The last that was listed; before the first of all there is a zero.
    let mut last = WINDOW - 1;
    let mut bytes = 0;
    for (at, block) in page.0.as_chunks_mut::<{ PAGE_BYTES / GROUPS }>().0.iter_mut().enumerate() {
        let is_there = (head.list.bitmap_bytes >> at) as u8 & 1;
        let bits = head.bitmap.get(bytes).copied().unwrap_or_default() & is_there.wrapping_neg();
        bytes += usize::from(is_there);
        for (half, to) in block.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let bits = usize::from(bits >> (HALF * half)) % 16;
            let four = load(words[last + bits % 2..].first_chunk().expect("there are four more than are listed"));
            let mut four = _mm256_permutevar8x32_epi32(four, load_bytes(&ORDERS[bits]));
            if ZEROS {
                four = _mm256_and_si256(four, load_bytes(&KEPT[bits]));
            }
            last += bits.count_ones() as usize;
            // SAFETY: writes 32 bytes, which there are.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), four) };
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_bytes<T>(bytes: &[T]) -> __m256i {
    const { assert!(size_of::<T>() > 0) };
    assert!(size_of_val(bytes) == 32);
    // SAFETY: reads 32 bytes, which there are.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// A byte for each bit: all ones where it is set.
static BYTES: [u64; 256] = {
    let mut bytes = [0; 256];
    let mut at = 0;
    while at < 256 * 8 {
        bytes[at / 8] |= if (at / 8) >> (at % 8) & 1 == 1 { 0xff << (8 * (at % 8)) } else { 0 };
        at += 1;
    }
    bytes
};

/// For each byte of four words, which byte of a group's masks is that of its word; for either half of a group.
static WORD_OF_BYTE: [[u8; 32]; 2] = {
    let mut words = [[0; 32]; 2];
    let mut at = 0;
    while at < 64 {
        words[at / 32][at % 32] = at as u8 / 8;
        at += 1;
    }
    words
};

/// And which bit of that is its own.
static BIT_OF_BYTE: [u8; 32] = {
    let mut bits = [0; 32];
    let mut at = 0;
    while at < 32 {
        bits[at] = 1 << (at % 8);
        at += 1;
    }
    bits
};

/// The last byte of the first of two words, for the second; nothing for the first.
static LAST_OF_FIRST: [u8; 32] = {
    let mut from = [0x80; 32];
    let mut at = 0;
    while at < 32 {
        from[at] = if at % 16 < 8 { 0x80 } else { 7 };
        at += 1;
    }
    from
};

/// Which of four words, told as halves, each word is for the bits that say which are listed: as many as are listed up to it, from
/// the first listed on, or from the one before if that is not the first word.
static ORDERS: [[u32; 8]; 16] = {
    let mut orders = [[0; 8]; 16];
    let mut at = 0;
    while at < 16 * 8 {
        let (bits, word) = (at / 8, at % 8 / 2);
        let listed = (bits & ((2 << word) - 1) as usize).count_ones();
        orders[bits][at % 8] = (listed - (bits & 1) as u32) * 2 + at as u32 % 2;
        at += 1;
    }
    orders
};

/// All ones for the words that are listed.
static KEPT: [[u64; 4]; 16] = {
    let mut kept = [[0; 4]; 16];
    let mut at = 0;
    while at < 16 * 4 {
        kept[at / 4][at % 4] = if (at / 4) >> (at % 4) & 1 == 1 { u64::MAX } else { 0 };
        at += 1;
    }
    kept
};
