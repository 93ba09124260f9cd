//! The decoder. What one group needs does not wait for what the group before it was, but for the words themselves.

use core::mem::MaybeUninit;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// Groups that are rebuilt without a look whether there are so many.
const AT_ONCE: usize = 4;

/// See [`Path::ones`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn ones_of(bytes: &[u8]) -> usize {
    let mut words = [0; GROUP];
    store_words(&mut words, load_first(bytes));
    ones(&words)
}

/// What is to be done for eight groups.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(in crate::fold) struct Steps {
    /// Of each group, which bytes are told.
    told: [[u8; GROUP]; TILE],
    /// Where the predictors are.
    places: [[u8; GROUP]; TILE],
    /// A bit for each word whose predictor is in the farther half of the window, and in the nearer.
    far: [u8; TILE],
    near: [u8; TILE],
    /// Where the literals start.
    starts: [u16; TILE],
}

pub(in crate::fold) type Room = [MaybeUninit<Steps>; GROUPS / TILE];

pub(in crate::fold) const EMPTY: Room = [MaybeUninit::uninit(); GROUPS / TILE];

/// In a place: it is one of the farther half of the window, or of the nearer. Neither: there is none.
const FAR: i8 = 32;
const NEAR: i8 = 16;
/// In the table of places: those of the choices that have one.
const HAVE_PLACES: u64 = 0xfcfc_fcfc_fcfc_fcfc;

/// The places of each choice, for each word of a group.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn place_table(places: Places) -> __m512i {
    let table = places.table();
    let table = load_bytes(table.as_flattened().as_array().expect("eight choices of eight words"));
    let is_far = _mm512_mask_cmplt_epu8_mask(HAVE_PLACES, table, _mm512_set1_epi8(NEAR));
    _mm512_maskz_add_epi8(HAVE_PLACES, table, _mm512_maskz_mov_epi8(is_far, _mm512_set1_epi8(FAR)))
}

/// The row of each word in that table.
static ROWS: [u8; VECTOR_BYTES] = {
    let mut rows = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < VECTOR_BYTES {
        rows[at] = (at % GROUP * CHOICES) as u8;
        at += 1;
    }
    rows
};

/// Unpacks masks and places for eight groups at once; see [`Path::prepare`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn prepare<'a>(head: &Head<'_>, mut masks: &[u8], room: &'a mut Room) -> (usize, &'a [Steps]) {
    let mut differs = [0; GROUPS / 8];
    store_words(&mut differs, load_first(head.differs));
    let table = place_table(head.places);
    let indices = head.indices[..head.list.groups() * INDEX_BYTES].chunks(TILE * INDEX_BYTES);
    let tiles = indices.len();
    let mut sum = 0;
    for ((indices, differs), steps) in indices.zip(differs).zip(&mut *room) {
        let choices = unpack_bits(load_first(indices), INDEX_BITS);
        let whole = _mm512_cmpeq_epi8_mask(choices, _mm512_set1_epi8(WHOLE as i8));
        let (mine, others) = masks.split_at(differs.count_ones() as usize);
        masks = others;
        let told = _mm512_maskz_expand_epi8(differs, load_first(mine));
        let told = _mm512_mask_mov_epi8(told, whole, _mm512_set1_epi8(-1));
        let places = _mm512_permutexvar_epi8(_mm512_or_si512(choices, load_bytes(&ROWS)), table);
        let far = _mm512_test_epi8_mask(places, _mm512_set1_epi8(FAR)).to_le_bytes();
        let near = _mm512_test_epi8_mask(places, _mm512_set1_epi8(NEAR)).to_le_bytes();
        let empty = [[0; GROUP]; TILE];
        let steps = steps.write(Steps { told: empty, places: empty, far, near, starts: [0; TILE] });
        store(steps.told.as_flattened_mut().as_mut_array().expect("eight groups"), told);
        store(steps.places.as_flattened_mut().as_mut_array().expect("eight groups"), places);
        // Not in vectors: the unit that counts there has enough to do.
        for (start, told) in steps.starts.iter_mut().zip(steps.told) {
            *start = sum as u16;
            sum += u64::from_le_bytes(told).count_ones() as usize;
        }
    }
    // SAFETY: so many have been written.
    (sum, unsafe { room[..tiles].assume_init_ref() })
}

/// Rebuilds the page; see [`Path::rebuild`].
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn rebuild(head: &Head<'_>, steps: &[Steps], literals: &[u8], page: &mut PageBytes) {
    // Not made of zeros first, which would take as long as a part of the decoding.
    let mut buffer = [const { MaybeUninit::uninit() }; VECTORS];
    let end = 1 + head.list.groups().next_multiple_of(AT_ONCE);
    let words = if head.list.is_all() {
        let vectors = page.0.as_chunks_mut::<VECTOR_BYTES>().0;
        // SAFETY: of the same layout, and nothing is made uninitialised: only whole vectors are written.
        unsafe { &mut *(core::ptr::from_mut(vectors) as *mut [Vector]) }
    } else {
        // The zero that the first word may repeat; and what the last loads reach.
        buffer[0].write([0; VECTOR_BYTES]);
        buffer[end].write([0; VECTOR_BYTES]);
        buffer[end + 1].write([0; VECTOR_BYTES]);
        &mut buffer[1..end]
    };
    rebuild_words(steps, literals, words);
    if !head.list.is_all() {
        // SAFETY: these are the vectors that have been written.
        let written = unsafe { buffer[..end + 2].assume_init_ref() };
        unpack(head, written.as_flattened(), page);
    }
}

/// Listed words, a vector before them, and two behind.
const VECTORS: usize = 1 + GROUPS + 2;

/// Where a vector is to be written.
type Vector = MaybeUninit<[u8; VECTOR_BYTES]>;

/// Rebuilds one of four groups, into the place of the oldest. Not a function: that is not inlined four times.
macro_rules! group {
    ($new:ident, $last:expr, $at:expr, $steps:ident, $literals:ident, $word:expr) => {
        let (last, at) = ($last, $at % TILE);
        let places = load_wide($steps.places[at]);
        let told = u64::from_le_bytes($steps.told[at]);
        let literals = &$literals[$steps.starts[at].into()..];
        let bytes = match literals.first_chunk() {
            Some(bytes) => load_bytes(bytes),
            None => load_first(literals),
        };
        let literal = _mm512_maskz_expand_epi8(told, bytes);
        let kept = _mm512_movm_epi8(told);
        let far = _mm512_maskz_permutex2var_epi64($steps.far[at], last[0], places, last[1]);
        // Of the far ones what is not told, and what is. All that waits for the group before is what follows.
        let new = _mm512_ternarylogic_epi64::<OR_UNLESS>(literal, far, kept);
        let near = _mm512_maskz_permutex2var_epi64($steps.near[at], last[2], places, last[3]);
        $new = _mm512_ternarylogic_epi64::<OR_UNLESS>(new, near, kept);
        // SAFETY: writes 64 bytes, which there are.
        unsafe { _mm512_storeu_si512($word.as_mut_ptr().cast(), $new) };
    };
}

/// Rebuilds the listed words, and some behind them, so that all of `words` is written: fours of groups, of which the last
/// four have at least one that is real.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
#[inline]
fn rebuild_words(steps: &[Steps], literals: &[u8], words: &mut [Vector]) {
    // The last four groups, the oldest first.
    let [mut a, mut b, mut c, mut d] = [_mm512_setzero_si512(); 4];
    for (four, words) in words.as_chunks_mut::<AT_ONCE>().0.iter_mut().enumerate() {
        let at = four * AT_ONCE;
        let steps = &steps[at / TILE];
        group!(a, [a, b, c, d], at, steps, literals, words[0]);
        group!(b, [b, c, d, a], at + 1, steps, literals, words[1]);
        group!(c, [c, d, a, b], at + 2, steps, literals, words[2]);
        group!(d, [d, a, b, c], at + 3, steps, literals, words[3]);
    }
}

/// Eight bytes, each as a number of 64 bits.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_wide(bytes: [u8; GROUP]) -> __m512i {
    _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)))
}

/// One or, where a third has no bit, another.
const OR_UNLESS: i32 = 0xf4;

/// The bits of each word and of those before it in its block.
static UP_TO: [u64; GROUP] = [1, 3, 7, 15, 31, 63, 127, 255];

/// Puts the listed words in their places, and between them what is not listed.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,avx512bitalg,popcnt")]
#[inline]
fn unpack(head: &Head<'_>, words: &[u8], page: &mut PageBytes) {
    let mut bitmap = [0; BITMAP_BYTES];
    // SAFETY: reads one byte for each bit of the mask, which is as many as the area has.
    let bits = unsafe { _mm512_maskz_expandloadu_epi8(head.list.bitmap_bytes, head.bitmap.as_ptr().cast()) };
    store(&mut bitmap, bits);
    let mut next = GROUP;
    if head.list.unlisted == Unlisted::Zeros {
        // Eight blocks in each turn, because a turn takes as long as a block.
        for (blocks, bits) in page.0.as_chunks_mut::<{ 8 * VECTOR_BYTES }>().0.iter_mut().zip(bitmap.as_chunks::<8>().0)
        {
            for (bytes, &listed) in blocks.as_chunks_mut().0.iter_mut().zip(bits) {
                store(bytes, _mm512_maskz_expand_epi64(listed, load_at(words, next)));
                next += listed.count_ones() as usize;
            }
        }
        return;
    }
    let blocks = page.0.as_chunks_mut().0.iter_mut().zip(bitmap);
    for (bytes, listed) in blocks {
        // As many words as are listed up to here, counted from the last of the blocks before.
        let up_to = _mm512_and_si512(_mm512_set1_epi64(i64::from(listed)), load(&UP_TO));
        let (near, far) = (load_at(words, next - 1), load_at(words, next + GROUP - 1));
        store(bytes, _mm512_permutex2var_epi64(near, _mm512_popcnt_epi16(up_to), far));
        next += listed.count_ones() as usize;
    }
}

/// A vector of words from one on, or the last if there are not so many.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_at(words: &[u8], at: usize) -> __m512i {
    assert!(words.len() >= VECTOR_BYTES);
    let at = words.as_ptr().wrapping_add((8 * at).min(words.len() - VECTOR_BYTES));
    // SAFETY: reads 64 bytes, which there are from there on.
    unsafe { _mm512_loadu_si512(at.cast()) }
}
