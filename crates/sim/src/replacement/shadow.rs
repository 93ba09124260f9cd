//! What LRU would have in a memory of the same size, as far as uses are seen.
//!
//! Each use takes the next slot of an axis; a slot is live while it is its page's last. LRU has the pages whose slots are at the bound or
//! behind. When three slots of four are dead, the axis is drawn anew with the others. (`lru.rs` is the same for sizes side by side; it is
//! not asked for a page.)

use page::{PageCount, PageIndex};

use crate::pages::Pages;

const SLOTS_MIN: usize = 1 << 16;

/// LRU's memory.
pub(super) struct Shadow {
    size: u64,
    numbers: Pages,
    /// The slot of each page's last use, by its number.
    slots: Vec<u32>,
    /// The number of the page that each slot was taken for.
    axis: Vec<u32>,
    bound: u32,
    slots_min: usize,
}

impl Shadow {
    /// A memory of `size`, empty.
    pub(super) fn new(size: PageCount) -> Self {
        let (numbers, slots, axis) = (Pages::default(), Vec::new(), Vec::new());
        Self { size: size.0, numbers, slots, axis, bound: 0, slots_min: SLOTS_MIN }
    }

    /// A page is used. Returns whether it was there, or has never been used before.
    pub(super) fn use_page(&mut self, page: PageIndex) -> bool {
        if self.axis.len() > self.slots_min.max(self.slots.len() * 4) {
            self.redraw();
        }
        let (number, is_first) = self.numbers.number(page);
        let now = self.axis.len() as u32;
        self.axis.push(number);
        let is_there = if is_first {
            self.slots.push(now);
            self.slots.len() as u64 <= self.size
        } else {
            std::mem::replace(&mut self.slots[number as usize], now) >= self.bound
        };
        if !is_there {
            let last =
                (self.bound..=now).find(|&slot| self.is_live(slot)).expect("the page that is used has a live slot");
            self.bound = last + 1;
        }
        is_there || is_first
    }

    fn is_live(&self, slot: u32) -> bool {
        self.slots[self.axis[slot as usize] as usize] == slot
    }

    fn redraw(&mut self) {
        let live: Vec<u32> = (0..self.axis.len() as u32).filter(|&slot| self.is_live(slot)).collect();
        self.bound = live.partition_point(|&slot| slot < self.bound) as u32;
        self.axis = live.iter().map(|&slot| self.axis[slot as usize]).collect();
        for (slot, &number) in self.axis.iter().enumerate() {
            self.slots[number as usize] = slot as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replacement::tests::{plain, references};

    proptest! {
        #[test]
        fn misses_as_a_list_does(pages in references(), size in 1..80_u64) {
            let mut shadow = Shadow::new(PageCount(size));
            // A short axis: it is drawn anew many times.
            shadow.slots_min = 16;
            let misses = pages.iter().filter(|&&page| !shadow.use_page(PageIndex(page))).count();
            prop_assert_eq!(misses as u64, plain::lru(&pages, size as usize));
        }
    }
}
