//! The decoder. Where each word's predictor is does not wait for the words, and is found out beforehand, for two groups at once; then
//! one word after the other takes a literal or its predictor's for each byte.

use core::mem::MaybeUninit;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::covers::{CHOICE_BITS, COVERS, LITERALS};
use super::super::format::{Head, Unlisted};
use super::super::shuffles::UNPACKS;
use super::super::words::first_eight;
use super::super::{BEHIND_LITERALS, BITMAP_BYTES, CHOICES, GROUP, GROUPS, LISTED, WINDOW, WORDS};
use super::{entry, load_bytes, shuffle};

/// What is to be done for two groups. Only [`prepare`] makes them.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(in crate::fold) struct Step {
    /// Where the predictors are, counted from the window of the first group: before the group's own words, or its last word where
    /// there is zero.
    predictors: [[u16; GROUP]; 2],
    /// The codes of the words.
    codes: [[u8; GROUP]; 2],
}

pub(in crate::fold) type Room = [MaybeUninit<Step>; GROUPS / 2];

pub(in crate::fold) const EMPTY: Room = [MaybeUninit::uninit(); GROUPS / 2];

/// See [`Path::prepare`](super::Path::prepare). Of a second group that is not there, all words are zero.
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn prepare<'a>(head: &Head<'_>, codes: &[u8], room: &'a mut Room) -> (usize, &'a [Step]) {
    let mut table = head.places.table()[0];
    table[0] = (WINDOW + GROUP - 1) as u8;
    let table = _mm256_set1_epi64x(i64::from_le_bytes(table));
    // Of each choice the place, and of those that move with the words how far.
    let mut starts = load_bytes(&STARTS);
    let last_listed = _mm256_set1_epi16(LISTED as i16 - 1);
    let (choice, high) = (_mm256_set1_epi16(CHOICES as i16 - 1), _mm256_set1_epi16(i16::MIN));
    let [few, many] = [load_counts(0), load_counts(1)];
    let mut sums = _mm_setzero_si128();
    for (step, codes) in room.iter_mut().zip(codes.chunks(2 * GROUP)) {
        let copy;
        let codes: &[u8; 2 * GROUP] = if let Some(codes) = codes.as_array() {
            codes
        } else {
            copy = last_codes(codes);
            &copy
        };
        // SAFETY: reads 16 bytes, which there are.
        let codes = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
        let choices = _mm256_and_si256(_mm256_cvtepu8_epi16(codes), choice);
        let moved = _mm256_and_si256(load_bytes(&LANES), _mm256_cmpgt_epi16(choices, last_listed));
        // The higher byte of each is no place.
        let places = _mm256_shuffle_epi8(table, _mm256_or_si256(choices, high));
        let places = _mm256_add_epi16(places, _mm256_add_epi16(moved, starts));
        starts = _mm256_add_epi16(starts, _mm256_set1_epi16(2 * GROUP as i16));

        // The four lower bits of each mask's number, and the highest, as it stands.
        let numbers = _mm_and_si128(_mm_srli_epi16::<{ CHOICE_BITS as i32 }>(codes), _mm_set1_epi8(15));
        let counts = _mm_blendv_epi8(_mm_shuffle_epi8(few, numbers), _mm_shuffle_epi8(many, numbers), codes);
        sums = _mm_add_epi64(sums, _mm_sad_epu8(counts, _mm_setzero_si128()));
        let step = step.write(Step { predictors: [[0; GROUP]; 2], codes: [[0; GROUP]; 2] });
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(step.predictors.as_mut_ptr().cast(), places) };
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_storeu_si128(step.codes.as_mut_ptr().cast(), codes) };
    }
    let sum = _mm_cvtsi128_si64(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums))) as usize;
    // SAFETY: so many have been written: there are no more codes than words of a page.
    (sum, unsafe { room[..codes.len().div_ceil(2 * GROUP)].assume_init_ref() })
}

/// The codes where there are less than those of two groups, and zeros.
#[cold]
#[inline(never)]
fn last_codes(codes: &[u8]) -> [u8; 2 * GROUP] {
    let mut last = [0; 2 * GROUP];
    last[..codes.len()].copy_from_slice(codes);
    last
}

/// How many bits the masks have, of one half of them.
#[target_feature(enable = "avx2")]
#[inline]
fn load_counts(half: usize) -> __m128i {
    // SAFETY: reads 16 bytes, which there are.
    unsafe { _mm_loadu_si128(COUNTS[half].as_ptr().cast()) }
}

/// How many bits each mask has.
static COUNTS: [[u8; 16]; 2] = {
    let mut counts = [[0; 16]; 2];
    let mut number = 0;
    while number < COVERS.len() {
        counts[number / 16][number % 16] = COVERS[number].count_ones() as u8;
        number += 1;
    }
    counts
};

/// Window, listed words, and what the last loads reach.
const BUFFER_WORDS: usize = WINDOW + WORDS + GROUP;
/// Steps of which the words are as many as a window.
const WINDOW_STEPS: usize = WINDOW / (2 * GROUP);

/// See [`Path::rebuild`](super::Path::rebuild).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn rebuild(head: &Head<'_>, steps: &[Step], literals: &[u8], page: &mut PageBytes) {
    // Not made of zeros first, which would take as long as a part of the decoding.
    let mut buffer = [const { MaybeUninit::<u64>::uninit() }; BUFFER_WORDS];
    for word in &mut buffer[..WINDOW] {
        word.write(0);
    }
    if head.list.is_all() {
        rebuild_steps(&mut buffer, steps, literals, Some(page));
        return;
    }
    rebuild_steps(&mut buffer, steps, literals, None);
    let end = WINDOW + steps.len() * 2 * GROUP;
    for word in &mut buffer[end..end + GROUP] {
        word.write(0);
    }
    // SAFETY: these are the words that have been written.
    let words = unsafe { buffer[..end + GROUP].assume_init_ref() };
    if head.list.unlisted == Unlisted::Zeros {
        unlist::<true>(head, words, page);
    } else {
        unlist::<false>(head, words, page);
    }
}

/// Writes the listed words, the zeros before which have been written: behind them in the buffer, or into a page of them alone.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn rebuild_steps(
    buffer: &mut [MaybeUninit<u64>; BUFFER_WORDS],
    steps: &[Step],
    mut literals: &[u8],
    mut page: Option<&mut PageBytes>,
) {
    assert!(steps.len() <= GROUPS / 2);
    let mut words: *mut u64 = buffer.as_mut_ptr().cast();
    for (number, step) in steps.iter().enumerate() {
        if number == WINDOW_STEPS
            && let Some(page) = page.take()
        {
            // Here the words themselves are the window, now that there are enough of them.
            // Pages are aligned. The pointer is to all of the page, and not to its bytes alone.
            let (first, to) = (words.wrapping_add(WINDOW), core::ptr::from_mut(page).cast::<u64>());
            // SAFETY: so many words have been written, and the page has room for them; it is not a part of the buffer.
            unsafe { to.copy_from_nonoverlapping(first, WINDOW) };
            words = to.wrapping_sub(WINDOW);
        }
        let group = words.wrapping_add(WINDOW + 2 * number * GROUP);
        for (half, codes) in step.codes.iter().enumerate() {
            let bytes = literals.first_chunk().expect("there is something behind the literals");
            let (predictors, group) = (&step.predictors[half], group.wrapping_add(half * GROUP));
            // SAFETY: the window of the first is written, and there is room for each group of a page.
            literals = &literals[unsafe { rebuild_group(words, group, predictors, *codes, bytes) }..];
        }
    }
}

/// Writes the words of a group, and returns how many literals they took.
///
/// # Safety
/// The predictors, from `words` on, must have been written or be the last of the group, for which there must be room.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn rebuild_group(
    words: *mut u64,
    group: *mut u64,
    predictors: &[u16; GROUP],
    codes: [u8; GROUP],
    literals: &[u8; BEHIND_LITERALS],
) -> usize {
    let last = group.wrapping_add(GROUP - 1);
    // What is told as zero finds its predictor here.
    // SAFETY: there is room for it, as the caller promises.
    unsafe { last.write(0) };
    let mut at = 0;
    // In a register: what there is most to do here is loads.
    let mut codes = u64::from_le_bytes(codes);
    for (lane, predictor) in predictors.iter().enumerate() {
        let code = usize::from(codes as u8);
        codes >>= 8;
        // SAFETY: reads eight bytes, which there are: no word before it took more.
        let literal = unsafe { _mm_loadl_epi64(literals.as_ptr().wrapping_add(at).cast()) };
        let literal = _mm_castsi128_pd(literal);
        let predictor = words.wrapping_add(usize::from(*predictor));
        // SAFETY: reads a word before the group, or its last, which have been written, as the caller promises; words are
        // aligned as `f64` is.
        let both = unsafe { _mm_loadh_pd(literal, predictor.cast()) };
        let word = _mm_shuffle_epi8(_mm_castpd_si128(both), entry(&OVERS, code >> CHOICE_BITS));
        // SAFETY: writes eight bytes, for which there is room, as the caller promises.
        unsafe { _mm_storel_epi64(group.wrapping_add(lane).cast(), word) };
        at += LITERALS[code];
    }
    at
}

/// For each mask, which of sixteen bytes a word takes: of the first eight the lowest ones where the mask has bits, elsewhere its own of the
/// other eight.
static OVERS: [u64; COVERS.len() + 1] = {
    let mut overs = [0; COVERS.len() + 1];
    let mut number = 0;
    while number < COVERS.len() {
        overs[number] = super::OVERS[COVERS[number] as usize];
        number += 1;
    }
    overs
};

/// Puts the listed words in their places, and between them zeros or the word before.
#[target_feature(enable = "avx2,bmi1,popcnt")]
#[inline]
fn unlist<const ZEROS: bool>(head: &Head<'_>, words: &[u64], page: &mut PageBytes) {
    let mut bitmap = [0_u8; BITMAP_BYTES];
    let mut there = head.bitmap;
    for (bits, is_there) in bitmap.as_chunks_mut::<8>().0.iter_mut().zip(head.list.bitmap_bytes.to_le_bytes()) {
        *bits = shuffle(first_eight(there), UNPACKS[usize::from(is_there)]).to_le_bytes();
        there = &there[is_there.count_ones() as usize..];
    }
    // The last that was listed; before the first of all there is a zero.
    let mut last = WINDOW - 1;
    for (block, bits) in page.0.as_chunks_mut::<{ 8 * GROUP }>().0.iter_mut().zip(bitmap) {
        let words: &[u64; GROUP + 1] = words[last..].first_chunk().expect("there are eight more than are listed");
        let mut at = 0;
        for (half, to) in block.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let bits = usize::from(bits >> (4 * half)) % 16;
            // SAFETY: reads 32 bytes, which there are: no more than four of the words come before them.
            let four = unsafe { _mm256_loadu_si256(words.as_ptr().wrapping_add(at + bits % 2).cast()) };
            let mut four = _mm256_permutevar8x32_epi32(four, load_bytes(&ORDERS[bits]));
            if ZEROS {
                four = _mm256_and_si256(four, load_bytes(&KEPT[bits]));
            }
            at += bits.count_ones() as usize;
            // SAFETY: writes 32 bytes, which there are.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), four) };
        }
        last += at;
    }
}

/// Where the words before the first two groups start, less what the place of a choice counts from.
static STARTS: [u16; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8];

/// The number of each word in its group.
static LANES: [u16; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7];

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
