//! Numbers in a row, most of them absent, over which a number is carried from any place to the left: above the row a tree of
//! minima, to find those that it changes places with.
//!
//! Each node has sixteen children and holds their minima: a line of the processor's cache.

const FAN: usize = 16;

/// What stands where there is no number.
pub(crate) const ABSENT: u32 = u32::MAX;

/// In one line of the processor's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node([u32; FAN]);

impl Node {
    fn min(&self) -> u32 {
        self.0.iter().copied().fold(ABSENT, u32::min)
    }

    /// The last child before `end` whose minimum is below `bound`.
    fn last_below(&self, end: usize, bound: u32) -> Option<usize> {
        let low = self.0.iter().enumerate().fold(0_u32, |low, (child, &min)| low | u32::from(min < bound) << child);
        (low & ((1 << end) - 1)).checked_ilog2().map(|child| child as usize)
    }
}

/// The row.
pub(crate) struct Lowest {
    /// Children of the first level are the numbers, those of each other level the nodes of the level before.
    levels: Vec<Vec<Node>>,
}

impl Lowest {
    /// Without any number, but with `end` places.
    pub(crate) fn new(end: u32) -> Self {
        let mut levels = Vec::new();
        // One place more, behind the last: from there, too, a number is carried.
        let mut nodes = end as usize + 1;
        while nodes > 1 || levels.is_empty() {
            nodes = nodes.div_ceil(FAN).max(1);
            levels.push(vec![Node([ABSENT; FAN]); nodes]);
        }
        Self { levels }
    }

    /// Puts a number at a place.
    pub(crate) fn set(&mut self, place: u32, number: u32) {
        let (mut place, mut min) = (place as usize, number);
        for level in &mut self.levels {
            let node = &mut level[place / FAN];
            let before = std::mem::replace(&mut node.0[place % FAN], min);
            // Nothing above changes if this child is not the one that has the minimum, before or now.
            let others = node.min();
            if others < before.min(min) {
                return;
            }
            min = others;
            place /= FAN;
        }
    }

    /// Takes the number at the last place before `end`, and carries it to the left: it changes places with each lower one that
    /// it meets. Returns what is carried in the end, the lowest of all, which the row has then no more.
    pub(crate) fn carry(&mut self, end: u32) -> u32 {
        let mut carried = ABSENT;
        let mut place = end as usize;
        for height in 0..self.levels.len() {
            if let Some(below) = height.checked_sub(1) {
                self.levels[height][place / FAN].0[place % FAN] = self.levels[below][place].min();
            }
            self.carry_within(height, place / FAN, place % FAN, &mut carried);
            place /= FAN;
        }
        carried
    }

    /// The same within the first `end` children of a node.
    fn carry_within(&mut self, height: usize, index: usize, mut end: usize, carried: &mut u32) {
        while let Some(child) = self.levels[height][index].last_below(end, *carried) {
            let below = height.checked_sub(1);
            let min = if let Some(below) = below {
                self.carry_within(below, index * FAN + child, FAN, carried);
                self.levels[below][index * FAN + child].min()
            } else {
                std::mem::replace(carried, self.levels[0][index].0[child])
            };
            self.levels[height][index].0[child] = min;
            end = child;
        }
    }

    /// All places with numbers, from the first on.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        let numbers = self.levels[0].iter().flat_map(|node| node.0);
        (0..).zip(numbers).filter(|(_, number)| *number != ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn carries_from_the_end_of_a_full_row() {
        let mut row = Lowest::new(FAN as u32);
        row.set(3, 7);
        assert_eq!(row.carry(FAN as u32), 7);
    }

    proptest! {
        #[test]
        fn carries_what_a_plain_row_carries(end in 1..5000_u32, changes in prop::collection::vec(any::<(u32, u8)>(), 0..300)) {
            let mut row = Lowest::new(end);
            let mut plain = vec![ABSENT; end as usize];
            for (draw, number) in changes {
                let number = if number > 200 { ABSENT } else { u32::from(number) };
                row.set(draw % end, number);
                plain[(draw % end) as usize] = number;
                let before = draw.rotate_left(9) % (end + 1);
                let mut carried = ABSENT;
                for place in plain[..before as usize].iter_mut().rev() {
                    if *place < carried {
                        std::mem::swap(place, &mut carried);
                    }
                }
                prop_assert_eq!(row.carry(before), carried);
            }
            let all: Vec<(u32, u32)> = (0..).zip(plain).filter(|(_, number)| *number != ABSENT).collect();
            prop_assert!(row.numbers().eq(all));
        }
    }
}
