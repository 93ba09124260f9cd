//! The decoder. Where each word's predictor is does not wait for the words, and is found out beforehand, for two groups at once; then
//! one word after the other takes a literal or its predictor's for each byte.

use core::mem::MaybeUninit;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::format::{Head, Unlisted};
use super::super::shuffles::UNPACKS;
use super::super::words::first_eight;
use super::super::{BITMAP_BYTES, GROUP, GROUPS, INDEX_BITS, INDEX_BYTES, LISTED, WHOLE, WINDOW, WORDS};
use super::{OVERS, entry, load_bytes, shuffle};

/// What is to be done for two groups. Only [`prepare`] makes them.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(in crate::fold) struct Step {
    /// Where the predictors are, counted from the window of the first group: before the group's own words, or its last word where
    /// there is zero.
    predictors: [[u16; GROUP]; 2],
    /// Which bytes are told.
    told: [[u8; GROUP]; 2],
}

pub(in crate::fold) type Room = [MaybeUninit<Step>; GROUPS / 2];

pub(in crate::fold) const EMPTY: Room = [MaybeUninit::uninit(); GROUPS / 2];

/// See [`Path::prepare`](super::Path::prepare). Of a second group that is not there, all words are zero.
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn prepare<'a>(head: &Head<'_>, mut masks: &[u8], room: &'a mut Room) -> (usize, &'a [Step]) {
    let mut table = head.places.table()[0];
    // Words in full take nothing from there.
    [table[0], table[WHOLE]] = [(WINDOW + GROUP - 1) as u8; 2];
    let table = _mm256_set1_epi64x(i64::from_le_bytes(table));
    // Of each choice the place, and of those that move with the words how far.
    let mut starts = load_bytes(&STARTS);
    let last_listed = _mm256_set1_epi16(LISTED as i16 - 1);
    let (whole, high) = (_mm256_set1_epi16(WHOLE as i16), _mm256_set1_epi16(i16::MIN));
    let mut sum = 0;
    for (at, (step, differs)) in room.iter_mut().zip(head.differs.chunks(2)).enumerate() {
        let mut indices = first_eight(&head.indices[at * 2 * INDEX_BYTES..]);
        let mut both = [differs[0], 0];
        match differs {
            [_, second] => both[1] = *second,
            _ => indices &= (1 << (8 * INDEX_BYTES)) - 1,
        }
        let choices = choices(indices);
        let moved = _mm256_and_si256(load_bytes(&LANES), _mm256_cmpgt_epi16(choices, last_listed));
        // The higher byte of each is no place.
        let places = _mm256_shuffle_epi8(table, _mm256_or_si256(choices, high));
        let places = _mm256_add_epi16(places, _mm256_add_epi16(moved, starts));
        starts = _mm256_add_epi16(starts, _mm256_set1_epi16(2 * GROUP as i16));

        let whole = _mm256_cmpeq_epi16(choices, whole);
        let whole = _mm_packs_epi16(_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole));
        let (told, used) = unpack_masks(masks, both);
        masks = &masks[used..];
        let told = _mm_or_si128(told, whole);
        let step = step.write(Step { predictors: [[0; GROUP]; 2], told: [[0; GROUP]; 2] });
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(step.predictors.as_mut_ptr().cast(), places) };
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_storeu_si128(step.told.as_mut_ptr().cast(), told) };
        for told in step.told {
            sum += u64::from_le_bytes(told).count_ones() as usize;
        }
    }
    // SAFETY: so many have been written: there are as many groups in `differs` as the head says, and indices for each.
    (sum, unsafe { room[..head.differs.len().div_ceil(2)].assume_init_ref() })
}

/// The masks of two groups, for each word that differs, and how many they are. Not a closure: those are not inlined.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn unpack_masks(masks: &[u8], differs: [u8; 2]) -> (__m128i, usize) {
    let copy;
    let masks: &[u8; 3 * GROUP] = if let Some(masks) = masks.first_chunk() {
        masks
    } else {
        copy = last_masks(masks);
        &copy
    };
    let [first, second] = [differs[0].count_ones() as usize, differs[1].count_ones() as usize];
    // No more than eight, which the compiler does not know.
    let of_second: &[u8; GROUP] =
        masks[first % (2 * GROUP)..].first_chunk().expect("eight are behind the first fifteen");
    // SAFETY: reads eight bytes, which there are.
    let of_first = unsafe { _mm_loadl_epi64(masks.as_ptr().cast()) };
    // SAFETY: reads eight bytes, which there are.
    let of_second = unsafe { _mm_loadl_epi64(of_second.as_ptr().cast()) };
    let of_first = _mm_shuffle_epi8(of_first, entry(&UNPACKS, differs[0]));
    let of_second = _mm_shuffle_epi8(of_second, entry(&UNPACKS, differs[1]));
    (_mm_unpacklo_epi64(of_first, of_second), first + second)
}

/// The masks where there are less than those of three groups behind them, and zeros.
#[cold]
#[inline(never)]
fn last_masks(masks: &[u8]) -> [u8; 3 * GROUP] {
    let mut last = [0; 3 * GROUP];
    last[..masks.len()].copy_from_slice(masks);
    last
}

/// The choices of two groups, 16 bits each.
#[target_feature(enable = "avx2")]
#[inline]
fn choices(indices: u64) -> __m256i {
    // Each into the highest bits of the two bytes that it is in, and from there to the lowest.
    let pairs = _mm256_shuffle_epi8(_mm256_set1_epi64x(indices.cast_signed()), load_bytes(&CHOICE_BYTES));
    let highest = _mm256_mullo_epi16(pairs, load_bytes(&CHOICE_SHIFTS));
    _mm256_srli_epi16::<{ 16 - INDEX_BITS as i32 }>(highest)
}

/// Window, listed words, and what the last loads reach.
const BUFFER_WORDS: usize = WINDOW + WORDS + GROUP;
/// Steps of which the words are as many as a window.
const WINDOW_STEPS: usize = WINDOW / (2 * GROUP);
/// The most literals of a step.
const STEP_BYTES: usize = 2 * GROUP * 8;

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
    literals: &[u8],
    mut page: Option<&mut PageBytes>,
) {
    assert!(steps.len() <= GROUPS / 2);
    let mut done = Done { words: buffer.as_mut_ptr().cast(), steps: 0 };
    // SAFETY: the window of the first is written, and the buffer has room for each group of a page.
    let rest = unsafe { rebuild_some(&mut done, steps, literals, &mut page) };
    // What is left from a copy with zeros behind it, because words are read as if each had eight literals.
    let mut last = [0; 2 * STEP_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    // SAFETY: as above.
    unsafe { rebuild_some(&mut done, steps, &last, &mut page) };
    assert!(done.steps == steps.len(), "there are as many literals as are told");
}

/// What has been written.
struct Done {
    /// The window of the first word.
    words: *mut u64,
    steps: usize,
}

/// Writes words until there are less literals than those of a step could be, and returns the literals that are left.
///
/// # Safety
/// The window of the words that come next must have been written, and there must be room for all words.
#[target_feature(enable = "avx2,popcnt")]
unsafe fn rebuild_some<'a>(
    done: &mut Done,
    steps: &[Step],
    mut literals: &'a [u8],
    page: &mut Option<&mut PageBytes>,
) -> &'a [u8] {
    let Done { mut words, steps: mut number } = *done;
    while let (Some(step), Some(bytes)) = (steps.get(number), literals.first_chunk()) {
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
        // SAFETY: as the caller promises.
        literals = &literals[unsafe { rebuild_step(words, number, step, bytes) }..];
        number += 1;
    }
    *done = Done { words, steps: number };
    literals
}

/// Writes the words of two groups, and returns how many literals they took.
///
/// # Safety
/// The window before them must have been written, and there must be room for them.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn rebuild_step(words: *mut u64, number: usize, step: &Step, literals: &[u8; STEP_BYTES]) -> usize {
    let mut at = 0;
    for half in 0..2 {
        let group = words.wrapping_add(WINDOW + (2 * number + half) * GROUP);
        let last = group.wrapping_add(GROUP - 1);
        // What is told as zero finds its predictor here.
        // SAFETY: there is room for it, as the caller promises.
        unsafe { last.write(0) };
        // In a register: what there is most to do here is loads.
        let mut masks = u64::from_le_bytes(step.told[half]);
        for lane in 0..GROUP {
            let told = masks as u8;
            masks >>= 8;
            // SAFETY: reads eight bytes, which there are: no word before it took more.
            let literal = unsafe { _mm_loadl_epi64(literals.as_ptr().wrapping_add(at).cast()) };
            let literal = _mm_castsi128_pd(literal);
            let predictor = words.wrapping_add(step.predictors[half][lane].into());
            // SAFETY: reads a word before the group, or its last, which have been written, as the caller promises; words are
            // aligned as `f64` is.
            let both = unsafe { _mm_loadh_pd(literal, predictor.cast()) };
            let word = _mm_shuffle_epi8(_mm_castpd_si128(both), entry(&OVERS, told));
            // SAFETY: writes eight bytes, for which there is room, as the caller promises.
            unsafe { _mm_storel_epi64(group.wrapping_add(lane).cast(), word) };
            at += told.count_ones() as usize;
        }
    }
    at
}

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

/// Which two bytes of the indices of two groups hold each choice.
static CHOICE_BYTES: [u8; 32] = {
    let mut bytes = [0; 32];
    let mut at = 0;
    while at < 32 {
        bytes[at] = (at / 16 * INDEX_BYTES + at % 16 / 2 * INDEX_BITS / 8 + at % 2) as u8;
        at += 1;
    }
    bytes
};

/// What to multiply these by, so that the choice is in the highest bits.
static CHOICE_SHIFTS: [u16; 16] = {
    let mut shifts = [0; 16];
    let mut at = 0;
    while at < 16 {
        shifts[at] = 1 << (16 - INDEX_BITS - at % GROUP * INDEX_BITS % 8);
        at += 1;
    }
    shifts
};

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
