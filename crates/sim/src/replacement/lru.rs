//! LRU at all sizes in one pass, by stack distances (Mattson et al., 1970).
//!
//! The stack distance of a reference is how many pages have been used since the page's last use, itself included: a memory
//! hits if it has that many pages or more. Each reference takes the next slot of an axis; members of `live` are the slots
//! of each page's last reference, so a distance is a number of members. When the axis is used up, it is drawn anew with
//! the members alone, in their order: it has at least four times as many slots as pages, so a reference costs
//! O(log pages) all told.

use std::hint::black_box;

use page::PageCount;

use super::{AHEAD, Contender, Touch};
use crate::ranked::Ranked;

const SLOTS_MIN: u32 = 1 << 16;

/// LRU.
pub(super) struct Lru {
    sizes: Vec<PageCount>,
    /// The same, smallest first.
    steps: Vec<u64>,
    /// The slot of each page's last reference.
    last: Vec<u32>,
    live: Ranked,
    /// The end of the axis.
    end: u32,
    /// How many references have a distance above so many of the steps, and no more.
    above: Vec<u64>,
}

impl Lru {
    pub(super) fn new(sizes: &[PageCount]) -> Self {
        Self::with_axis(sizes, SLOTS_MIN)
    }

    fn with_axis(sizes: &[PageCount], end: u32) -> Self {
        let live = Ranked::filled(0, end);
        let mut steps: Vec<u64> = sizes.iter().map(|size| size.0).collect();
        steps.sort_unstable();
        let above = vec![0; steps.len() + 1];
        Self { sizes: sizes.to_vec(), steps, last: Vec::new(), live, end, above }
    }

    /// Draws the axis anew.
    fn compact(&mut self) {
        for slot in &mut self.last {
            *slot = self.live.below(*slot);
        }
        let members = self.last.len() as u32;
        self.end = axis_end(members, self.end);
        self.live = Ranked::filled(members, self.end);
    }
}

/// The end of an axis with so many members that has become too short.
pub(super) fn axis_end(members: u32, end: u32) -> u32 {
    assert!(members < u32::MAX / 2, "fewer than 2^31 pages");
    end.max(members.saturating_mul(4))
}

impl Lru {
    /// Reads what these touches will need.
    fn read_ahead(&self, touches: &[Touch]) {
        let mut slots = [0; AHEAD];
        for (slot, touch) in slots.iter_mut().zip(touches) {
            *slot = self.last.get(touch.number as usize).copied().unwrap_or(0);
        }
        black_box(slots.iter().fold(0, |all, &slot| all ^ self.live.peek(slot)));
    }

    fn play_some(&mut self, touches: &[Touch]) {
        for touch in touches {
            if self.live.next() == self.end {
                self.compact();
            }
            let now = self.live.next();
            if touch.is_first {
                debug_assert_eq!(touch.number as usize, self.last.len());
                self.last.push(now);
            } else {
                let pages = self.last.len() as u64;
                let last = &mut self.last[touch.number as usize];
                let distance = pages - u64::from(self.live.remove(*last));
                self.above[self.steps.partition_point(|&step| step < distance)] += 1;
                *last = now;
            }
            self.live.push();
        }
    }
}

impl Contender for Lru {
    fn play(&mut self, touches: &[Touch]) {
        for touches in touches.chunks(AHEAD) {
            self.read_ahead(touches);
            self.play_some(touches);
        }
    }

    fn misses(&self) -> Vec<u64> {
        let misses = |size: &PageCount| {
            let reached = self.steps.partition_point(|&step| step <= size.0);
            self.above[reached..].iter().sum()
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
