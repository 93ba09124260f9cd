//! LRU at some sizes in one pass.
//!
//! Each reference takes the next slot of an axis, and the live slots are those of each page's last reference. A memory holds the
//! pages whose slots are at its bound or behind: a reference to any other misses, and moves the bound past the first live slot,
//! whose page goes. So a reference costs one look at its page's slot, and for each memory that misses a step along a row of
//! bits; no memory steps over a slot twice. When the axis is used up, it is drawn anew with the live slots alone, in their
//! order: it has at least four times as many slots as pages.
//!
//! `stack.rs` knows every size at once, but needs a tree: cheaper from some twenty sizes on.

use std::hint::black_box;

use page::PageCount;

use super::axis::{Staying, axis_end};
use super::{AHEAD, Contender, Touch};

const SLOTS_MIN: u32 = 1 << 16;
/// More sizes than that are played by their stack distances.
pub(super) const SIZES_MAX: usize = 16;

/// One size of memory.
struct Memory {
    size: u64,
    /// Its place among the sizes asked for.
    place: usize,
    /// From this slot on as many are live as pages are in memory.
    bound: u32,
    misses: u64,
}

/// LRU.
pub(super) struct Lru {
    /// The slot of each page's last reference.
    last: Vec<u32>,
    live: Bits,
    now: u32,
    /// The end of the axis.
    end: u32,
    /// The smallest first: what a memory misses, all smaller ones miss.
    memories: Vec<Memory>,
}

impl Lru {
    pub(super) fn new(sizes: &[PageCount]) -> Self {
        Self::with_axis(sizes, SLOTS_MIN)
    }

    fn with_axis(sizes: &[PageCount], end: u32) -> Self {
        let memory = |(place, size): (usize, &PageCount)| Memory { size: size.0, place, bound: 0, misses: 0 };
        let mut memories: Vec<Memory> = sizes.iter().enumerate().map(memory).collect();
        memories.sort_by_key(|memory| memory.size);
        Self { last: Vec::new(), live: Bits::new(end), now: 0, end, memories }
    }

    /// Draws the axis anew.
    fn compact(&mut self) {
        let mut staying = Staying::new(self.end);
        staying.insert_all(&self.live.words);
        let redrawn = staying.redraw();
        self.last.iter_mut().for_each(|slot| *slot = redrawn.moved(*slot));
        self.memories.iter_mut().for_each(|memory| memory.bound = redrawn.moved(memory.bound));
        self.now = redrawn.members;
        self.end = axis_end(redrawn.members, self.end);
        self.live = Bits::new(self.end);
        (0..self.now).for_each(|slot| self.live.insert(slot));
    }

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
            let Self { live, memories, .. } = self;
            if touch.is_first {
                debug_assert_eq!(touch.number as usize, self.last.len());
                let pages = self.last.len() as u64;
                memories.iter_mut().take_while(|memory| memory.size <= pages).for_each(|memory| memory.make_room(live));
                self.last.push(self.now);
            } else {
                let last = std::mem::replace(&mut self.last[touch.number as usize], self.now);
                live.remove(last);
                for memory in memories.iter_mut().take_while(|memory| last < memory.bound) {
                    memory.misses += 1;
                    memory.make_room(live);
                }
            }
            live.insert(self.now);
            self.now += 1;
        }
    }
}

impl Memory {
    /// The page that was used longest ago goes.
    fn make_room(&mut self, live: &Bits) {
        self.bound = live.at_or_above(self.bound) + 1;
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
        let mut misses = vec![0; self.memories.len()];
        self.memories.iter().for_each(|memory| misses[memory.place] = memory.misses);
        misses
    }
}

/// A set of slots.
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(end: u32) -> Self {
        Self { words: vec![0; (end as usize).div_ceil(64)] }
    }

    fn insert(&mut self, slot: u32) {
        self.words[slot as usize / 64] |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: u32) {
        self.words[slot as usize / 64] &= !(1 << (slot % 64));
    }

    /// The first member that is `slot` or more; there must be one.
    fn at_or_above(&self, slot: u32) -> u32 {
        let mut at = slot as usize / 64;
        let mut word = self.words[at] & (u64::MAX << (slot % 64));
        while word == 0 {
            at += 1;
            word = self.words[at];
        }
        at as u32 * 64 + word.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replacement::tests::{against_the_plain_twin, plain, references, touches};

    #[test]
    fn misses_as_a_list_does() {
        // A short axis: it is drawn anew many times.
        against_the_plain_twin(|sizes| Box::new(Lru::with_axis(sizes, 16)), plain::lru);
    }

    proptest! {
        #[test]
        fn many_sizes_miss_as_each_does(pages in references(), sizes in prop::collection::vec(1..80_u64, 1..20)) {
            let sizes: Vec<PageCount> = sizes.into_iter().map(PageCount).collect();
            let mut lru = Lru::with_axis(&sizes, 16);
            lru.play(&touches(&pages));
            prop_assert_eq!(lru.misses(), sizes.iter().map(|size| plain::lru(&pages, size.0 as usize)).collect::<Vec<_>>());
        }
    }
}
