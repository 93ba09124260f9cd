//! The decoder. What one group needs does not wait for what the group before it was, but for the words themselves.
//!
//! What it does most is shuffles, and moves to mask registers, of which the processors that have these vectors do one in each cycle: what can be done in
//! another way is, where it takes two instructions instead of one too.

use core::mem::MaybeUninit;

use super::super::BEHIND_LITERALS;
use super::super::covers::{CHOICE_BITS, COVERS};
#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// Groups that are rebuilt without a look whether there are so many.
const AT_ONCE: usize = 4;

/// See [`Path::ones`].
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,bmi2,popcnt"
)]
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
    told: [u64; TILE],
    /// Where the predictors are in their half of the window, and in the highest bit of the byte before (of the first, in that of the last)
    /// whether it is the nearer half.
    places: [u64; TILE],
}

pub(in crate::fold) type Room = [MaybeUninit<Steps>; GROUPS / TILE];

pub(in crate::fold) const EMPTY: Room = [MaybeUninit::uninit(); GROUPS / TILE];

/// In a place: it is one of the nearer half of the window.
const NEAR: i8 = -128;

/// The places of each choice, for each word of a group, in their halves of the window.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn place_table(places: Places) -> __m512i {
    let table = places.table();
    let table = load_bytes(table.as_flattened().as_array().expect("eight choices of eight words"));
    let near = _mm512_slli_epi16::<3>(_mm512_and_si512(table, _mm512_set1_epi8(WINDOW as i8 / 2)));
    let place = _mm512_and_si512(table, _mm512_set1_epi8(WINDOW as i8 / 2 - 1));
    _mm512_or_si512(near, place)
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

/// The masks, twice: of a number in the upper bits of a byte the lowest bit of the next byte is left above it.
static COVERS_TWICE: [u8; VECTOR_BYTES] = {
    let mut covers = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < VECTOR_BYTES {
        covers[at] = COVERS[at % COVERS.len()];
        at += 1;
    }
    covers
};

/// Where in three numbers the bits of the first are set, those of the second, else those of the third.
const SELECT: i32 = 0xca;
/// Of three numbers the bits of the first that are in the second, and those of the third.
const AND_OR: i32 = 0xea;

/// See [`Path::prepare`].
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,bmi2,popcnt"
)]
pub(super) fn prepare<'a>(head: &Head<'_>, codes: &[u8], room: &'a mut Room) -> (usize, &'a [Steps]) {
    let table = place_table(head.places);
    let (whole, rest) = codes.as_chunks();
    let tiles = codes.len().div_ceil(VECTOR_BYTES);
    let mut sums = _mm512_setzero_si512();
    let (steps, last) = room[..tiles].split_at_mut(whole.len());
    for (codes, steps) in whole.iter().zip(steps) {
        sums = _mm512_add_epi64(sums, prepare_tile(load_bytes(codes), table, steps));
    }
    for steps in last {
        sums = _mm512_add_epi64(sums, prepare_tile(load_first(rest), table, steps));
    }
    // SAFETY: so many have been written.
    (_mm512_reduce_add_epi64(sums) as usize, unsafe { room[..tiles].assume_init_ref() })
}

/// Unpacks masks and places for eight groups at once, and returns how many literals each has.
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,bmi2,popcnt"
)]
#[inline]
fn prepare_tile(codes: __m512i, table: __m512i, steps: &mut MaybeUninit<Steps>) -> __m512i {
    let numbers = _mm512_srli_epi16::<{ CHOICE_BITS as u32 }>(codes);
    let told = _mm512_permutexvar_epi8(numbers, load_bytes(&COVERS_TWICE));
    let rows = _mm512_ternarylogic_epi64::<AND_OR>(codes, _mm512_set1_epi8(CHOICES as i8 - 1), load_bytes(&ROWS));
    let places = _mm512_permutexvar_epi8(rows, table);
    let near = _mm512_ror_epi64::<8>(places);
    let places = _mm512_ternarylogic_epi64::<SELECT>(_mm512_set1_epi8(NEAR), near, places);
    let steps = steps.write(Steps { told: [0; TILE], places: [0; TILE] });
    store_words(&mut steps.told, told);
    store_words(&mut steps.places, places);
    _mm512_popcnt_epi64(told)
}

/// Rebuilds the page; see [`Path::rebuild`].
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,bmi2,popcnt"
)]
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
        &mut buffer[1..end]
    };
    rebuild_words(steps, literals, words);
    if !head.list.is_all() {
        // SAFETY: these are the vectors that have been written.
        let written = unsafe { buffer[..=end].assume_init_ref() };
        unpack(head, written.as_flattened().as_chunks().0, page);
    }
}

/// Listed words, and a vector before them and behind.
const VECTORS: usize = 1 + GROUPS + 1;

/// Where a vector is to be written.
type Vector = MaybeUninit<[u8; VECTOR_BYTES]>;

/// Rebuilds one of four groups, into the place of the oldest. Not a function: that is not inlined four times.
macro_rules! group {
    ($new:ident, $last:expr, $at:expr, $steps:ident, $literals:ident, $word:expr) => {
        let (last, at) = ($last, $at % TILE);
        let told = $steps.told[at];
        let bytes: &[u8; BEHIND_LITERALS] = $literals.first_chunk().expect("there is something behind the literals");
        $literals = &$literals[told.count_ones() as usize..];
        let literal = _mm512_maskz_expand_epi8(told, load_bytes(bytes.first_chunk().expect("less than it has")));
        let places = by_lanes($steps.places[at]);
        let near = _mm512_movepi64_mask(places);
        // Where there is no predictor the place is the first, which no other word has.
        let far = _mm512_maskz_mov_epi64(!1, last[0]);
        let predictor = _mm512_mask2_permutex2var_epi64(far, places, !near, last[1]);
        // All that waits for the group before is what follows.
        let predictor = _mm512_mask2_permutex2var_epi64(last[2], predictor, near, last[3]);
        $new = _mm512_mask_mov_epi8(predictor, told, literal);
        // SAFETY: writes 64 bytes, which there are.
        unsafe { _mm512_storeu_si512($word.as_mut_ptr().cast(), $new) };
    };
}

/// Rebuilds the listed words, and some behind them, so that all of `words` is written: fours of groups, of which the last
/// four have at least one that is real.
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,bmi2,popcnt"
)]
#[inline]
fn rebuild_words(steps: &[Steps], mut literals: &[u8], words: &mut [Vector]) {
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

/// For each byte of the bitmap, where its words are among the listed ones behind those before; eight where there is zero.
static RANKS: [u64; 256] = {
    let mut ranks = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut at, mut count) = (0, 0);
        while at < GROUP {
            let is_listed = bits >> at & 1 == 1;
            ranks[bits] |= (if is_listed { count } else { GROUP as u64 }) << (8 * at);
            count += is_listed as u64;
            at += 1;
        }
        bits += 1;
    }
    ranks
};

/// The same where words repeat the one before them: counted from the first if that is listed, else from the last of those before.
static REPEATED_RANKS: [u64; 256] = {
    let mut ranks = [0; 256];
    let mut bits = 0_usize;
    while bits < 256 {
        let mut at = 0;
        while at < GROUP {
            let listed = (bits & ((2 << at) - 1)).count_ones() as u64;
            ranks[bits] |= (listed - (bits & 1) as u64) << (8 * at);
            at += 1;
        }
        bits += 1;
    }
    ranks
};

/// Puts the listed words in their places, and between them what is not listed. There is a vector before them, and one behind.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,avx512bitalg,popcnt")]
#[inline]
fn unpack(head: &Head<'_>, words: &[[u8; 8]], page: &mut PageBytes) {
    let mut bitmap = [0; GROUP];
    // SAFETY: reads one byte for each bit of the mask, which is as many as the area has.
    let bits = unsafe { _mm512_maskz_expandloadu_epi8(head.list.bitmap_bytes, head.bitmap.as_ptr().cast()) };
    store_words(&mut bitmap, bits);
    let zeros = head.list.unlisted == Unlisted::Zeros;
    let mut next = GROUP;
    // Eight blocks in each turn, because a turn takes as long as a block.
    for (blocks, bits) in page.0.as_chunks_mut::<{ 8 * VECTOR_BYTES }>().0.iter_mut().zip(bitmap) {
        let (blocks, listed) = (blocks.as_chunks_mut().0, bits.count_ones() as usize);
        // From the last of those before on.
        let words = &words[next - 1..][..1 + listed + GROUP];
        if zeros {
            unpack_blocks::<true>(words, bits, blocks);
        } else {
            unpack_blocks::<false>(words, bits, blocks);
        }
        next += listed;
    }
}

/// The same of eight blocks, of a bit for each word; `words` has the last one before them, theirs, and eight more.
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn unpack_blocks<const ZEROS: bool>(words: &[[u8; 8]], bits: u64, blocks: &mut [[u8; VECTOR_BYTES]]) {
    assert!(words.len() > bits.count_ones() as usize + GROUP);
    let mut next = words.as_ptr().wrapping_add(1);
    for (bytes, listed) in blocks.iter_mut().zip(bits.to_le_bytes()) {
        let (ranks, from) = if ZEROS {
            (RANKS[usize::from(listed)], next)
        } else {
            (REPEATED_RANKS[usize::from(listed)], next.wrapping_add(usize::from(listed & 1)).wrapping_sub(1))
        };
        // SAFETY: reads eight words, which there are: no more come before them than the first, and those of the blocks before.
        let words = unsafe { _mm512_loadu_si512(from.cast()) };
        store(bytes, _mm512_permutex2var_epi64(words, by_lanes(ranks), _mm512_setzero_si512()));
        next = next.wrapping_add(listed.count_ones() as usize);
    }
}
