//! The sixteen words seen before. Sets are renewed in registers, without a branch; see `plain::wk::dictionary`.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

/// Entries in all: an index takes four bits.
const ENTRIES: usize = 16;
/// Entries of a set that is not one entry.
const SET: usize = 4;
const WAY_BYTES: usize = 4;

/// Looks up each word where a set is one entry, none of which is zero and whose entries are `indices`, and takes it in: in `found` is
/// what the entry was.
#[inline]
pub(super) fn tell(words: &[u32], indices: &[u8], found: &mut [u32]) {
    let mut entries = [1; ENTRIES];
    for ((word, index), found) in words.iter().zip(indices).zip(found) {
        *found = core::mem::replace(&mut entries[usize::from(*index) % ENTRIES], *word);
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
