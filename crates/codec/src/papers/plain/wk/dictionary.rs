//! The sixteen words seen before: in sets of `WAYS`, the last used first in its set.

use super::{LOW_BITS, LOW_MASK};

/// Entries in all: an index takes four bits.
const ENTRIES: usize = 16;

/// One entry in a set is direct mapped.
pub(super) struct Dictionary<const WAYS: usize>([u32; ENTRIES]);

impl<const WAYS: usize> Dictionary<WAYS> {
    /// Ones rather than zeros: a zero word has a tag of its own and is never looked up.
    pub(super) const START: Self = Self([1; ENTRIES]);

    /// The entry that is `word`, or else the last used whose upper bits are those of `word`.
    pub(super) fn find(&self, word: u32) -> Option<usize> {
        let first = set_of::<WAYS>(word) * WAYS;
        let set = &self.0[first..first + WAYS];
        let exact = set.iter().position(|&entry| entry == word);
        let found = exact.or_else(|| set.iter().position(|entry| (entry ^ word) & !LOW_MASK == 0));
        found.map(|way| first + way)
    }

    pub(super) fn read(&self, index: usize) -> u32 {
        self.0[index]
    }

    /// Puts `word` in the place of the entry at `index`, as the last used of its set.
    pub(super) fn renew(&mut self, index: usize, word: u32) {
        let first = index / WAYS * WAYS;
        // Not `copy_within`: for so few words the call would take longest.
        for at in (first..index).rev() {
            self.0[at + 1] = self.0[at];
        }
        self.0[first] = word;
    }

    /// Puts `word` in the place of the entry of its set that was not used for longest.
    pub(super) fn insert(&mut self, word: u32) {
        self.renew(set_of::<WAYS>(word) * WAYS + WAYS - 1, word);
    }
}

/// The set of a word: from its upper bits, so that words which match in part share a set.
///
/// All 22 of them, multiplied by 2^32 divided by the golden ratio: one multiplication. The published codecs look the
/// lowest eight up in a table of random numbers, which leaves `wkdm` 0.574 of a heap where this leaves 0.556.
pub(in crate::papers) const fn set_of<const WAYS: usize>(word: u32) -> usize {
    ((word >> LOW_BITS).wrapping_mul(0x9e37_79b1) >> 28) as usize % (ENTRIES / WAYS)
}
