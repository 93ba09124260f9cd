//! A set of numbers that finds its largest member at or below any number: bits, and above them bits that say which words
//! have any.

/// The set.
#[derive(Clone)]
pub(crate) struct Slots {
    /// The first level has a bit for each number, each other one for each word of the level before.
    levels: Vec<Vec<u64>>,
}

impl Slots {
    /// The empty set of numbers below `end`.
    pub(crate) fn new(end: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = end as usize;
        while words > 1 || levels.is_empty() {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
        }
        Self { levels }
    }

    /// The words of the first level.
    pub(crate) fn words(&self) -> &[u64] {
        &self.levels[0]
    }

    /// Adds a number.
    pub(crate) fn insert(&mut self, number: u32) {
        let mut place = number as usize;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            let had_any = *word != 0;
            *word |= 1 << (place % 64);
            if had_any {
                return;
            }
            place /= 64;
        }
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, number: u32) {
        let mut place = number as usize;
        for level in &mut self.levels {
            let word = &mut level[place / 64];
            *word &= !(1 << (place % 64));
            if *word != 0 {
                return;
            }
            place /= 64;
        }
    }

    /// The largest member that is `number` or less.
    pub(crate) fn at_or_below(&self, number: u32) -> Option<u32> {
        let mut place = number as usize;
        let mut candidates = self.levels[0][place / 64] & (u64::MAX >> (63 - place % 64));
        let mut height = 0;
        while candidates == 0 {
            place /= 64;
            height += 1;
            // Only what is strictly below: the word at `place` has been looked at.
            candidates = self.levels.get(height)?[place / 64] & ((1 << (place % 64)) - 1);
        }
        place = place / 64 * 64 + highest(candidates);
        for level in self.levels[..height].iter().rev() {
            place = place * 64 + highest(level[place]);
        }
        Some(place as u32)
    }
}

fn highest(word: u64) -> usize {
    word.ilog2() as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_set_finds(end in 1..300_000_u32, changes in prop::collection::vec(any::<u32>(), 0..200)) {
            let mut slots = Slots::new(end);
            let mut plain = BTreeSet::new();
            for change in changes {
                let number = change % end;
                if plain.insert(number) {
                    slots.insert(number);
                } else {
                    plain.remove(&number);
                    slots.remove(number);
                }
                for at in [number, number.saturating_sub(1), change.rotate_left(9) % end, end - 1, 0] {
                    prop_assert_eq!(slots.at_or_below(at), plain.range(..=at).next_back().copied());
                }
            }
        }
    }
}
