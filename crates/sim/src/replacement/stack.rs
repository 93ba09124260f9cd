//! LRU at every size in one pass, by stack distances (Mattson et al., 1970).
//!
//! The stack distance of a reference is how many pages have been used since the page's last use, itself included: a memory
//! hits if it has that many pages or more. Each reference takes the next slot of an axis; members of `live` are the slots
//! of each page's last reference, so a distance is a number of members. When the axis is used up, it is drawn anew with
//! the members alone, in their order: it has at least four times as many slots as pages, so a reference costs
//! O(log pages) all told.

use std::hint::black_box;

use page::PageCount;

use super::axis::axis_end;
use super::curve::Distances;
use super::{AHEAD, Contender, Touch};
use crate::ranked::Ranked;

const SLOTS_MIN: u32 = 1 << 16;

/// The pages in the order of their last use.
pub(super) struct Stack {
    /// The slot of each page's last reference.
    last: Vec<u32>,
    live: Ranked,
    /// The end of the axis.
    end: u32,
}

/// LRU at many sizes: all of them for what one costs.
pub(super) struct Sizes {
    stack: Stack,
    wanted: Vec<PageCount>,
    /// The same, smallest first.
    steps: Vec<u64>,
    /// How many references have a distance above so many of the steps, and no more.
    above: Vec<u64>,
}

impl Sizes {
    pub(super) fn new(sizes: &[PageCount]) -> Self {
        Self::with_axis(sizes, SLOTS_MIN)
    }

    fn with_axis(sizes: &[PageCount], end: u32) -> Self {
        let mut steps: Vec<u64> = sizes.iter().map(|size| size.0).collect();
        steps.sort_unstable();
        let above = vec![0; steps.len() + 1];
        Self { stack: Stack::with_axis(end), wanted: sizes.to_vec(), steps, above }
    }
}

impl Stack {
    pub(super) fn new() -> Self {
        Self::with_axis(SLOTS_MIN)
    }

    fn with_axis(end: u32) -> Self {
        Self { last: Vec::new(), live: Ranked::filled(0, end), end }
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

    /// Reads what these touches will need.
    fn read_ahead(&self, touches: &[Touch]) {
        let mut slots = [0; AHEAD];
        for (slot, touch) in slots.iter_mut().zip(touches) {
            *slot = self.last.get(touch.number as usize).copied().unwrap_or(0);
        }
        black_box(slots.iter().fold(0, |all, &slot| all ^ self.live.peek(slot)));
    }

    /// Gives `each` the distances of touches that are not the first to their pages.
    fn play_all(&mut self, touches: &[Touch], mut each: impl FnMut(u64)) {
        for touches in touches.chunks(AHEAD) {
            self.read_ahead(touches);
            self.play_some(touches, &mut each);
        }
    }

    fn play_some(&mut self, touches: &[Touch], mut each: impl FnMut(u64)) {
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
                each(pages - u64::from(self.live.remove(*last)));
                *last = now;
            }
            self.live.push();
        }
    }
}

impl Distances for Stack {
    fn play(&mut self, touches: &[Touch], each: &mut dyn FnMut(u64)) {
        self.play_all(touches, each);
    }
}

impl Contender for Sizes {
    fn play(&mut self, touches: &[Touch]) {
        let Self { stack, steps, above, .. } = self;
        stack.play_all(touches, |distance| above[steps.partition_point(|&step| step < distance)] += 1);
    }

    fn misses(&self) -> Vec<u64> {
        let misses = |size: &PageCount| {
            let reached = self.steps.partition_point(|&step| step <= size.0);
            self.above[reached..].iter().sum()
        };
        self.wanted.iter().map(misses).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::tests::{against_the_plain_twin, plain};

    #[test]
    fn counts_as_a_list_does() {
        // A short axis: it is drawn anew many times.
        against_the_plain_twin(|sizes| Box::new(Sizes::with_axis(sizes, 16)), plain::lru);
    }
}
