//! Sixteen words seen before, in eight sets of two, asked and renewed without a branch; see `plain::pbpm::dictionary`.

use core::hint::select_unpredictable;

use super::super::plain::pbpm::dictionary::SETS;
use super::super::vectors::{NO_WORDS, Words};

const SETS_COUNT: usize = 8;
/// The place of a set's older entry among the bits of the set.
const OLDER: u32 = 32;

/// The entries of a word's set before the word was taken in.
pub(super) struct Found {
    pub(super) newer: Words,
    pub(super) older: Words,
}

impl Found {
    pub(super) const NONE: Self = Self { newer: NO_WORDS, older: NO_WORDS };
}

#[inline(always)]
pub(super) fn set_of(word: u32) -> u8 {
    SETS[(word >> 16 & 0xff) as usize]
}

/// A set with `word` as its newer entry. The other is what was newer, unless that was `word`.
#[inline(always)]
fn renewed(set: u64, word: u32, was_newer: bool) -> u64 {
    let other = select_unpredictable(was_newer, set >> OLDER, set & u64::from(u32::MAX));
    u64::from(word) | other << OLDER
}

/// Looks up each word and takes it in; `sets` are its sets. Slices of one call have one length.
#[inline(always)]
pub(super) fn tell(words: &[u32], sets: &mut [u8], found: &mut Found) {
    let mut entries = [0; SETS_COUNT];
    let found = found.newer.iter_mut().zip(&mut found.older);
    for ((word, set), (newer, older)) in words.iter().zip(sets).zip(found) {
        *set = set_of(*word);
        let entry = &mut entries[usize::from(*set) % SETS_COUNT];
        (*newer, *older) = (*entry as u32, (*entry >> OLDER) as u32);
        *entry = renewed(*entry, *word, *entry as u32 == *word);
    }
}

/// Makes each word of the entry at its place and, where it is open, of what is told, and takes it in. `false` if a word
/// came from a set that is not its own, which no encoder writes.
#[inline(always)]
pub(super) fn restore(told: &[u32], open: &[u32], places: &[u8], words: &mut [u32]) -> bool {
    let mut entries = [0_u64; SETS_COUNT];
    let mut strange = 0;
    for (((told, open), place), word) in told.iter().zip(open).zip(places).zip(words) {
        let set = *place >> 1;
        let entry = &mut entries[usize::from(set) % SETS_COUNT];
        let is_older = place & 1;
        *word = (*entry >> (u32::from(is_older) * OLDER)) as u32 & !open | told;
        strange |= set_of(*word) ^ set;
        *entry = renewed(*entry, *word, *open | u32::from(is_older) == 0);
    }
    strange == 0
}
