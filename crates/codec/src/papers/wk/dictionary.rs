//! The sixteen words seen before. Sets are renewed in registers, without a branch; see `plain::wk::dictionary`.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use super::super::plain::wk::LOW_BITS;

/// Entries in all: an index takes four bits.
const ENTRIES: usize = 16;
/// Entries of a set that is not one entry.
const SET: usize = 4;
const WAY_BYTES: usize = 4;

/// Looks up each word, none of which is zero and whose sets are in `indices`, and takes it in. In `indices` is then the entry
/// that is the word, or else the last used that is like it, or else the one whose place the word takes; in `found` what it was.
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
#[inline]
pub(super) fn tell<const WAYS: usize>(words: &[u32], indices: &mut [u8], found: &mut [u32]) {
    const { assert!(WAYS == 1 || WAYS == SET) };
    if WAYS == 1 {
        let mut entries = [1; ENTRIES];
        for ((word, index), found) in words.iter().zip(indices).zip(found) {
            *found = core::mem::replace(&mut entries[usize::from(*index) % ENTRIES], *word);
        }
        return;
    }
    let mut sets = [Set::START; ENTRIES / SET];
    for ((word, index), found) in words.iter().zip(indices).zip(found) {
        let set = &mut sets[usize::from(*index) % (ENTRIES / SET)];
        let (way, entry) = set.tell(*word);
        *index = *index << 2 | way;
        *found = entry;
    }
}

/// Makes each word of the entry at its place and, where it is open, of what is told. The word is the last used then.
#[target_feature(enable = "avx512f,avx512vl")]
#[inline]
pub(super) fn restore<const WAYS: usize>(told: &[u32], open: &[u32], places: &[u8], words: &mut [u32]) {
    const { assert!(WAYS == 1 || WAYS == SET) };
    let steps = told.iter().zip(open).zip(places).zip(words);
    if WAYS == 1 {
        let mut entries = [1; ENTRIES];
        for (((told, open), place), word) in steps {
            let entry = &mut entries[usize::from(*place) % ENTRIES];
            *entry = *entry & !open | told;
            *word = *entry;
        }
        return;
    }
    let mut sets = [Set::START; ENTRIES / SET];
    for (((told, open), place), word) in steps {
        let (set, way) = (usize::from(*place) / SET % (ENTRIES / SET), usize::from(*place) % SET);
        *word = sets[set].restore(way, *told, *open);
    }
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Set([u32; SET]);

impl Set {
    const START: Self = Self([1; SET]);

    #[inline(always)]
    fn load(&self) -> __m128i {
        // SAFETY: reads 16 bytes, which there are.
        unsafe { _mm_load_si128(self.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(&mut self, set: __m128i) {
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_store_si128(self.0.as_mut_ptr().cast(), set) };
    }

    /// See [`tell`]: the way of the entry, and what it was.
    #[target_feature(enable = "avx512f,avx512vl,popcnt")]
    #[inline]
    fn tell(&mut self, word: u32) -> (u8, u32) {
        const SELECT: i32 = 0b1100_1010;
        const OR: i32 = 0b1111_1110;
        let (entries, word) = (self.load(), _mm_set1_epi32(word as i32));
        let differing = _mm_xor_si128(entries, word);
        let zero = _mm_setzero_si128();
        let like = _mm_cmpeq_epi32(_mm_srli_epi32::<{ LOW_BITS as i32 }>(differing), zero);
        let exact = _mm_cmpeq_epi32(entries, word);
        // An exact match goes before the others, for which only the ones of the start leave room.
        let pairs = _mm_or_si128(exact, _mm_shuffle_epi32::<0b10_11_00_01>(exact));
        let any = _mm_or_si128(pairs, _mm_shuffle_epi32::<0b01_00_11_10>(pairs));
        let matches = _mm_ternarylogic_epi32::<SELECT>(any, exact, like);
        // Behind the first match entries stay, before it they move one way on.
        let (one, two, three) = (
            _mm_slli_si128::<{ WAY_BYTES as i32 }>(matches),
            _mm_slli_si128::<{ 2 * WAY_BYTES as i32 }>(matches),
            _mm_slli_si128::<{ 3 * WAY_BYTES as i32 }>(matches),
        );
        let stays = _mm_ternarylogic_epi32::<OR>(one, two, three);
        let moved = _mm_alignr_epi8::<{ 3 * WAY_BYTES as i32 }>(entries, word);
        self.store(_mm_ternarylogic_epi32::<SELECT>(stays, entries, moved));
        let way = (SET - 1) as u32 - _mm_movemask_ps(_mm_castsi128_ps(stays)).count_ones();
        let entry = _mm_permutevar_ps(_mm_castsi128_ps(entries), _mm_cvtsi32_si128(way as i32));
        (way as u8, _mm_cvtsi128_si32(_mm_castps_si128(entry)) as u32)
    }

    /// See [`restore`].
    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn restore(&mut self, way: usize, told: u32, open: u32) -> u32 {
        const REPLACE: i32 = 0b1010_1110;
        // SAFETY: reads 16 bytes, which there are.
        let order = unsafe { _mm_loadu_si128(FIRST[way].as_ptr().cast()) };
        let entries = _mm_shuffle_epi8(self.load(), order);
        let (told, open) = (_mm_cvtsi32_si128(told as i32), _mm_cvtsi32_si128(open as i32));
        // The entry but for what is open, or what is told.
        let entries = _mm_ternarylogic_epi32::<REPLACE>(open, entries, told);
        self.store(entries);
        _mm_cvtsi128_si32(entries) as u32
    }
}

/// For each way the bytes of a set with that way first, and those that were before it one place on.
static FIRST: [[u8; SET * WAY_BYTES]; SET] = {
    let mut orders = [[0; SET * WAY_BYTES]; SET];
    let mut at = 0;
    while at < SET * SET * WAY_BYTES {
        let (way, place, byte) = (at / (SET * WAY_BYTES), at / WAY_BYTES % SET, at % WAY_BYTES);
        let from = if place == 0 {
            way
        } else if place <= way {
            place - 1
        } else {
            place
        };
        orders[way][place * WAY_BYTES + byte] = (from * WAY_BYTES + byte) as u8;
        at += 1;
    }
    orders
};
