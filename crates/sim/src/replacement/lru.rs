//! LRU at all sizes in one pass, by stack distances (Mattson et al., 1970).
//!
//! The stack distance of a reference is how many pages have been used since the page's last use, itself included: a memory
//! hits if it has that many pages or more. Each reference takes the next slot of an axis; members of `live` are the slots
//! of each page's last reference, so a distance is a number of members. When the axis is used up, it is drawn anew with
//! the members alone, in their order: it has at least four times as many slots as pages, so a reference costs
//! O(log pages) all told.

use page::PageCount;

use super::{Contender, Touch};
use crate::ranked::Ranked;

const SLOTS_MIN: u32 = 1 << 16;

/// LRU.
pub(super) struct Lru {
    sizes: Vec<PageCount>,
    /// The slot of each page's last reference.
    last: Vec<u32>,
    live: Ranked,
    /// The next slot, and the end of the axis.
    now: u32,
    end: u32,
    /// How many references have each distance.
    distances: Vec<u64>,
}

impl Lru {
    pub(super) fn new(sizes: &[PageCount]) -> Self {
        Self::with_axis(sizes, SLOTS_MIN)
    }

    fn with_axis(sizes: &[PageCount], end: u32) -> Self {
        let live = Ranked::filled(0, end);
        Self { sizes: sizes.to_vec(), last: Vec::new(), live, now: 0, end, distances: vec![0] }
    }

    /// Draws the axis anew.
    fn compact(&mut self) {
        for slot in &mut self.last {
            *slot = self.live.below(*slot);
        }
        self.now = self.last.len() as u32;
        self.end = axis_end(self.now, self.end);
        self.live = Ranked::filled(self.now, self.end);
    }
}

/// The end of an axis with so many members that has become too short.
pub(super) fn axis_end(members: u32, end: u32) -> u32 {
    assert!(members < u32::MAX / 2, "fewer than 2^31 pages");
    end.max(members.saturating_mul(4))
}

impl Contender for Lru {
    fn play(&mut self, touches: &[Touch]) {
        for touch in touches {
            if self.now == self.end {
                self.compact();
            }
            if touch.is_first {
                debug_assert_eq!(touch.number as usize, self.last.len());
                self.last.push(self.now);
                self.distances.push(0);
            } else {
                let last = &mut self.last[touch.number as usize];
                let distance = self.distances.len() - 1 - self.live.below(*last) as usize;
                self.distances[distance] += 1;
                self.live.remove(*last);
                *last = self.now;
            }
            self.live.insert(self.now);
            self.now += 1;
        }
    }

    fn misses(&self) -> Vec<u64> {
        let misses = |size: &PageCount| match self.distances.get(size.0 as usize + 1..) {
            Some(longer) => longer.iter().sum(),
            None => 0,
        };
        self.sizes.iter().map(misses).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::tests::{against_the_plain_twin, plain};

    #[test]
    fn counts_as_a_list_does() {
        // A short axis: it is drawn anew many times.
        against_the_plain_twin(|sizes| Box::new(Lru::with_axis(sizes, 16)), plain::lru);
    }
}
