//! Belady's MIN in one pass, without looking ahead.
//!
//! MIN keeps as many pages as it can from one reference to the next. While a page is kept, it takes, at each reference in
//! between, one of the frames that this reference leaves over, which is all but one. So the hits of MIN with *n* pages are
//! as many of these intervals as *n* − 1 frames can hold. Taking intervals in the order of their ends, each that still
//! fits, into the frame that has become free last before it starts, is best (Faigle and Nawijn, 1995; Carlisle and Lloyd,
//! 1995). The end of an interval is the reference at hand, so nothing has to be known of the future.
//!
//! Of each frame is known its last reference with a page kept in it, as a slot of the axis (see `lru.rs`): it can take a
//! page whose interval starts there or later. O(log pages) a reference and size.

use std::hint::black_box;

use page::PageCount;

use super::axis::{Staying, axis_end};
use super::{AHEAD, Contender, Touch};
use crate::slots::Slots;

const SLOTS_MIN: u32 = 1 << 16;

/// One size of memory.
struct Memory {
    /// Frames that have never been taken.
    unused: u64,
    /// The last reference during which each of the others was taken.
    taken_until: Slots,
    misses: u64,
}

/// MIN.
pub(super) struct Min {
    memories: Vec<Memory>,
    /// The slot of each page's last reference.
    last: Vec<u32>,
    now: u32,
    end: u32,
}

impl Min {
    pub(super) fn new(sizes: &[PageCount]) -> Self {
        Self::with_axis(sizes, SLOTS_MIN)
    }

    fn with_axis(sizes: &[PageCount], end: u32) -> Self {
        let memory = |size: &PageCount| Memory { unused: size.0 - 1, taken_until: Slots::new(end), misses: 0 };
        Self { memories: sizes.iter().map(memory).collect(), last: Vec::new(), now: 0, end }
    }

    /// Draws the axis anew: the slots of last references and those of frames stay, in their order.
    fn compact(&mut self) {
        let mut staying = Staying::new(self.end);
        self.last.iter().for_each(|&slot| staying.insert(slot));
        self.memories.iter().for_each(|memory| staying.insert_all(memory.taken_until.words()));
        let redrawn = staying.redraw();
        self.now = redrawn.members;
        self.end = axis_end(redrawn.members, self.end);
        for slot in &mut self.last {
            *slot = redrawn.moved(*slot);
        }
        for memory in &mut self.memories {
            let old = std::mem::replace(&mut memory.taken_until, Slots::new(self.end));
            for (at, &word) in old.words().iter().enumerate() {
                let mut rest = word;
                while rest != 0 {
                    memory.taken_until.insert(redrawn.moved(at as u32 * 64 + rest.trailing_zeros()));
                    rest &= rest - 1;
                }
            }
        }
    }
}

impl Memory {
    /// A page is used now whose last use was at `last`, with other references in between.
    fn play(&mut self, last: u32, now: u32) {
        if let Some(slot) = self.taken_until.at_or_below(last) {
            self.taken_until.remove(slot);
        } else if self.unused > 0 {
            self.unused -= 1;
        } else {
            self.misses += 1;
            return;
        }
        self.taken_until.insert(now - 1);
    }
}

impl Min {
    /// Reads what these touches will need.
    fn read_ahead(&self, touches: &[Touch]) {
        let last = |touch: &Touch| self.last.get(touch.number as usize).copied().unwrap_or(0);
        black_box(touches.iter().fold(0, |all, touch| all ^ last(touch)));
    }

    fn play_some(&mut self, touches: &[Touch]) {
        for touch in touches {
            if self.now == self.end {
                self.compact();
            }
            if touch.is_first {
                debug_assert_eq!(touch.number as usize, self.last.len());
                self.last.push(self.now);
            } else {
                let last = &mut self.last[touch.number as usize];
                for memory in &mut self.memories {
                    memory.play(*last, self.now);
                }
                *last = self.now;
            }
            self.now += 1;
        }
    }
}

impl Contender for Min {
    fn play(&mut self, touches: &[Touch]) {
        for touches in touches.chunks(AHEAD) {
            self.read_ahead(touches);
            self.play_some(touches);
        }
    }

    fn misses(&self) -> Vec<u64> {
        self.memories.iter().map(|memory| memory.misses).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::tests::{against_the_plain_twin, plain};

    #[test]
    fn misses_as_often_as_looking_ahead_does() {
        against_the_plain_twin(|sizes| Box::new(Min::with_axis(sizes, 16)), plain::min);
    }
}
