//! A set of numbers that knows how many of its members lie below any number: bits, and above them a tree of sums.
//!
//! Each node of the tree has sixteen children and holds, for each of them, how many members lie in its earlier siblings.
//! A node is a line of the processor's cache, and one vector addition keeps it.

const FAN_SHIFT: u32 = 4;
const FAN: usize = 1 << FAN_SHIFT;

type Node = [u32; FAN];

/// What is added to a node when a member comes below its n-th child: one to all later siblings.
const LATER: [Node; FAN] = {
    let mut rows = [[0; FAN]; FAN];
    let mut child = 0;
    while child < FAN {
        let mut sibling = child + 1;
        while sibling < FAN {
            rows[child][sibling] = 1;
            sibling += 1;
        }
        child += 1;
    }
    rows
};

/// The set.
pub(crate) struct Ranked {
    bits: Vec<u64>,
    /// Children of the first level are words of `bits`, those of each other level are nodes of the level before.
    levels: Vec<Vec<Node>>,
}

impl Ranked {
    /// The numbers below `count` as a set of numbers below `end`.
    pub(crate) fn filled(count: u32, end: u32) -> Self {
        let words = (end as usize).div_ceil(64).max(1);
        let bits: Vec<u64> = (0..words).map(|word| word_below(count, word)).collect();
        let mut sums: Vec<u32> = bits.iter().map(|word| word.count_ones()).collect();
        let mut levels = Vec::new();
        while sums.len() > 1 {
            let mut level = Vec::new();
            for family in sums.chunks(FAN) {
                let mut node = [0; FAN];
                let mut before = 0;
                for (entry, sum) in node.iter_mut().zip(family.iter().chain([0].iter().cycle())) {
                    *entry = before;
                    before += sum;
                }
                level.push(node);
            }
            sums = sums.chunks(FAN).map(|family| family.iter().sum()).collect();
            levels.push(level);
        }
        Self { bits, levels }
    }

    /// Adds a number that is not a member.
    pub(crate) fn insert(&mut self, number: u32) {
        self.bits[number as usize / 64] |= 1 << (number % 64);
        let mut place = number as usize / 64;
        for level in &mut self.levels {
            let node = &mut level[place >> FAN_SHIFT];
            for (entry, one) in node.iter_mut().zip(&LATER[place % FAN]) {
                *entry += one;
            }
            place >>= FAN_SHIFT;
        }
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, number: u32) {
        self.bits[number as usize / 64] &= !(1 << (number % 64));
        let mut place = number as usize / 64;
        for level in &mut self.levels {
            let node = &mut level[place >> FAN_SHIFT];
            for (entry, one) in node.iter_mut().zip(&LATER[place % FAN]) {
                *entry -= one;
            }
            place >>= FAN_SHIFT;
        }
    }

    /// How many members are below `number`.
    pub(crate) fn below(&self, number: u32) -> u32 {
        let mut place = number as usize / 64;
        let mut count = (self.bits[place] & ((1 << (number % 64)) - 1)).count_ones();
        for level in &self.levels {
            count += level[place >> FAN_SHIFT][place % FAN];
            place >>= FAN_SHIFT;
        }
        count
    }
}

/// Word `word` of a set that has all numbers below `count`.
fn word_below(count: u32, word: usize) -> u64 {
    match (count as usize).saturating_sub(word * 64) {
        0 => 0,
        64.. => u64::MAX,
        some => (1 << some) - 1,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_as_a_plain_set_does(
            end in 1..20_000_u32,
            part in 0.0..1.0_f64,
            changes in prop::collection::vec(any::<u32>(), 0..200),
        ) {
            let count = (f64::from(end) * part) as u32;
            let mut ranked = Ranked::filled(count, end);
            let mut plain: BTreeSet<u32> = (0..count).collect();
            for change in changes {
                let number = change % end;
                if plain.insert(number) {
                    ranked.insert(number);
                } else {
                    plain.remove(&number);
                    ranked.remove(number);
                }
                for at in [number, change.rotate_left(7) % end, end - 1, 0] {
                    prop_assert_eq!(ranked.below(at) as usize, plain.range(..at).count());
                }
            }
        }
    }
}
