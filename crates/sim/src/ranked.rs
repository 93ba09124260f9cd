//! A set of numbers that grows at its end only and knows how many of its members lie below any one: bits, and above them a
//! tree of sums.
//!
//! Each node of the tree has sixteen children and holds, for each of them, how many members lie in its earlier siblings.
//! A node is a line of the processor's cache, and one vector addition keeps it. Of siblings behind the last number the sums
//! mean nothing: each is set when the first number of it comes, so an addition costs no way through the tree.

const FAN_SHIFT: u32 = 4;
const FAN: usize = 1 << FAN_SHIFT;

type Sums = [u32; FAN];

/// In one line of the processor's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node(Sums);

/// What a node loses with a member below its n-th child: one from all later siblings.
const LATER: [Sums; FAN] = {
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
    /// What will be added next.
    next: u32,
}

impl Ranked {
    /// The numbers below `count`, with room for those below `end`.
    pub(crate) fn filled(count: u32, end: u32) -> Self {
        let words = (end as usize).div_ceil(64).max(1);
        let bits: Vec<u64> = (0..words).map(|word| word_below(count, word)).collect();
        let mut sums: Vec<u32> = bits.iter().map(|word| word.count_ones()).collect();
        let mut levels = Vec::new();
        while sums.len() > 1 {
            let mut level = Vec::new();
            for family in sums.chunks(FAN) {
                let mut node = Node([0; FAN]);
                let mut before = 0;
                for (entry, sum) in node.0.iter_mut().zip(family.iter().chain([0].iter().cycle())) {
                    *entry = before;
                    before += sum;
                }
                level.push(node);
            }
            sums = sums.chunks(FAN).map(|family| family.iter().sum()).collect();
            levels.push(level);
        }
        Self { bits, levels, next: count }
    }

    /// The number that will be added next: those added before, and those that it was filled with, are below.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Adds the next number, which must be below the end.
    pub(crate) fn push(&mut self) {
        if self.next.is_multiple_of(64) {
            self.begin_word(self.next as usize / 64);
        }
        self.bits[self.next as usize / 64] |= 1 << (self.next % 64);
        self.next += 1;
    }

    /// Sets the sums of a word that gets its first number, and of the nodes that begin with it.
    fn begin_word(&mut self, word: usize) {
        let Some(before) = word.checked_sub(1) else { return };
        let mut count = self.bits[before].count_ones();
        let mut place = word;
        for level in &mut self.levels {
            if !place.is_multiple_of(FAN) {
                let Node(node) = &mut level[place >> FAN_SHIFT];
                node[place % FAN] = node[place % FAN - 1] + count;
                return;
            }
            // The node before is full.
            count += level[(place >> FAN_SHIFT) - 1].0[FAN - 1];
            place >>= FAN_SHIFT;
        }
    }

    /// Removes a member and returns how many are below it.
    pub(crate) fn remove(&mut self, number: u32) -> u32 {
        let mut place = number as usize / 64;
        let (word, bit) = (&mut self.bits[place], 1 << (number % 64));
        let mut count = (*word & (bit - 1)).count_ones();
        *word &= !bit;
        for level in &mut self.levels {
            let Node(node) = &mut level[place >> FAN_SHIFT];
            count += node[place % FAN];
            // As values: in place, the compiler subtracts one by one. Wraps where the sum means nothing yet.
            let (sums, later) = (*node, LATER[place % FAN]);
            *node = std::array::from_fn(|child| sums[child].wrapping_sub(later[child]));
            place >>= FAN_SHIFT;
        }
        count
    }

    /// Reads the places that removing `number` will change, as far as they are many; what comes back means nothing.
    pub(crate) fn peek(&self, number: u32) -> u32 {
        let place = number as usize / 64;
        let sums = self.levels.first().map_or(0, |level| level[place >> FAN_SHIFT].0[0]);
        self.bits[place] as u32 ^ sums
    }

    /// How many members are below `number`, which is below the next one.
    pub(crate) fn below(&self, number: u32) -> u32 {
        let mut place = number as usize / 64;
        let mut count = (self.bits[place] & ((1 << (number % 64)) - 1)).count_ones();
        for level in &self.levels {
            count += level[place >> FAN_SHIFT].0[place % FAN];
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
            steps in prop::collection::vec((0..300_u32, any::<u32>()), 0..200),
        ) {
            let count = (f64::from(end) * part) as u32;
            let mut ranked = Ranked::filled(count, end);
            let mut plain: BTreeSet<u32> = (0..count).collect();
            for (pushes, draw) in steps {
                for _ in 0..pushes.min(end - ranked.next()) {
                    plain.insert(ranked.next());
                    ranked.push();
                }
                if ranked.next() == 0 {
                    continue;
                }
                let number = draw % ranked.next();
                if plain.remove(&number) {
                    prop_assert_eq!(ranked.remove(number) as usize, plain.range(..number).count());
                }
                for at in [number, draw.rotate_left(7) % ranked.next(), ranked.next() - 1, 0] {
                    prop_assert_eq!(ranked.below(at) as usize, plain.range(..at).count());
                }
            }
        }
    }
}
