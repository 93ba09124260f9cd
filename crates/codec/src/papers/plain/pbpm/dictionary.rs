//! Sixteen words seen before, in eight sets of two, the newest first.

use super::Pattern;

const WAYS: usize = 2;
const ENTRIES: usize = 16;

/// For each third byte its set: "random indices within the range of the dictionary", never changed.
pub(in crate::papers) static SETS: [u8; 256] = random_sets();

const fn random_sets() -> [u8; 256] {
    let mut sets = [0; 256];
    let (mut state, mut at) = (1_u64, 0);
    while at < sets.len() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        sets[at] = (state >> 61) as u8;
        at += 1;
    }
    sets
}

const _: () = assert!(1 << (64 - 61) == ENTRIES / WAYS);

/// The set of a word, by its third byte. In memory, lowest byte first, that is the lower of the two that a partial match
/// has in any case: so the words that can match share a set.
pub(super) fn set_of(word: u32) -> usize {
    usize::from(SETS[(word >> 16 & 0xff) as usize])
}

pub(super) struct Dictionary([u32; ENTRIES]);

impl Dictionary {
    pub(super) const START: Self = Self([0; ENTRIES]);

    /// The entry of the word's set that matches most of it, and how.
    pub(super) fn find(&self, word: u32) -> Option<(usize, Pattern)> {
        let first = set_of(word) * WAYS;
        let which = |open: u32| self.0[first..first + WAYS].iter().position(|entry| (entry ^ word) & !open == 0);
        let found = |pattern| move |way| (first + way, pattern);
        which(0)
            .map(found(Pattern::Mmmm))
            .or_else(|| which(0xff).map(found(Pattern::Mmmx)))
            .or_else(|| which(0xffff).map(found(Pattern::Mmxx)))
    }

    pub(super) fn read(&self, index: usize) -> u32 {
        self.0[index]
    }

    /// `word` has matched the entry at `index`: a full match makes that the newest of its set, a partial one is inserted.
    pub(super) fn note(&mut self, index: usize, pattern: Pattern, word: u32) {
        if pattern.is_inserted() {
            self.insert(word);
        } else if !index.is_multiple_of(WAYS) {
            self.0.swap(index - 1, index);
        }
    }

    /// Puts `word` in the place of the oldest entry of its set.
    pub(super) fn insert(&mut self, word: u32) {
        let first = set_of(word) * WAYS;
        self.0[first + 1] = self.0[first];
        self.0[first] = word;
    }
}
