//! What LRU does for certain, where not every use is seen: what it misses at the least, and whom it lets go by the uses that are seen.
//!
//! A page is *watched* from when it has moved out until it is used again: in between it has not been used. If as many other pages as memory
//! holds have been seen in use meanwhile, LRU has let it go by then, whatever else was used unseen. Such uses are misses of LRU's for
//! certain; of the others nobody knows.

use std::collections::VecDeque;

use page::{PageCount, PageIndex};

use crate::pages::Pages;

/// Entries beyond twice those that count before the others are dropped.
const STALE_MAX: usize = 1024;

/// LRU in a memory of one size, as far as is seen.
pub(super) struct Floor {
    size: u64,
    numbers: Pages,
    /// By the pages' numbers.
    pages: Vec<Seen>,
    /// Uses that were seen: the time.
    now: u64,
    /// The uses since the oldest that counts. The first one is not stale.
    uses: VecDeque<Use>,
    /// Of them, those that are not stale: as many as memory holds, at the most.
    distinct: u64,
    /// Those that counted before, unless they were stale by then.
    gone: VecDeque<Use>,
    misses: u64,
}

/// When things were seen of a page.
struct Seen {
    /// Its last use.
    used: u64,
    /// It has not been used since. In the future if nobody watches.
    watched: u64,
}

/// A use. It is stale when its page has been used again.
#[derive(Clone, Copy)]
struct Use {
    page: PageIndex,
    number: u32,
    at: u64,
}

impl Floor {
    pub(super) fn new(size: PageCount) -> Self {
        let (uses, gone) = (VecDeque::new(), VecDeque::new());
        Self { size: size.0, numbers: Pages::default(), pages: vec![], now: 0, uses, distinct: 0, gone, misses: 0 }
    }

    /// Misses that LRU certainly has had.
    pub(super) fn misses(&self) -> u64 {
        self.misses
    }

    /// A page moves out: its next use will be seen.
    pub(super) fn watch(&mut self, page: PageIndex) {
        let number = self.number(page);
        self.pages[number as usize].watched = self.now;
    }

    /// A page is seen in use, and no longer watched.
    pub(super) fn used(&mut self, page: PageIndex) {
        self.now += 1;
        let number = self.number(page);
        let oldest = self.uses.front().map_or(u64::MAX, |oldest| oldest.at);
        let seen = std::mem::replace(&mut self.pages[number as usize], Seen { used: self.now, watched: u64::MAX });
        self.misses += u64::from(self.distinct == self.size && seen.watched < oldest);
        self.distinct += u64::from(seen.used < oldest);
        self.uses.push_back(Use { page, number, at: self.now });
        self.let_go();
    }

    /// Drops what is stale in front, and the oldest use if memory does not hold as many pages.
    fn let_go(&mut self) {
        while let Some(&oldest) = self.uses.front() {
            let is_stale = is_stale(&self.pages, &oldest);
            if !is_stale && self.distinct <= self.size {
                break;
            }
            if !is_stale {
                self.distinct -= 1;
                self.gone.push_back(oldest);
            }
            self.uses.pop_front();
        }
        if self.uses.len() > 2 * self.distinct as usize + STALE_MAX {
            self.uses.retain(|other| !is_stale(&self.pages, other));
        }
    }

    /// Of those whom LRU lets go by the uses that are seen, who was used longest ago; each is named once. Who is not `here` is left out.
    pub(super) fn next_gone(&mut self, is_here: impl Fn(PageIndex) -> bool) -> Option<PageIndex> {
        while let Some(gone) = self.gone.pop_front() {
            if !is_stale(&self.pages, &gone) && is_here(gone.page) {
                return Some(gone.page);
            }
        }
        None
    }

    /// Forgets whom LRU has let go and who is not `here`, when that has become worth while.
    pub(super) fn forget_gone(&mut self, is_here: impl Fn(PageIndex) -> bool) {
        if self.gone.len() > 2 * self.size as usize + STALE_MAX {
            self.gone.retain(|gone| !is_stale(&self.pages, gone) && is_here(gone.page));
        }
    }

    /// Those whom LRU would have in memory by the uses that are seen.
    #[cfg(test)]
    pub(super) fn counted(&self) -> impl Iterator<Item = PageIndex> {
        self.uses.iter().filter(|use_| !is_stale(&self.pages, use_)).map(|use_| use_.page)
    }

    fn number(&mut self, page: PageIndex) -> u32 {
        let (number, is_first) = self.numbers.number(page);
        if is_first {
            self.pages.push(Seen { used: 0, watched: u64::MAX });
        }
        number
    }
}

fn is_stale(pages: &[Seen], use_: &Use) -> bool {
    pages[use_.number as usize].used != use_.at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::Contender;
    use crate::replacement::lru::Lru;
    use crate::replacement::tests::touches;

    /// References at random, few of them to many pages, and none to the page of the one before, which `touches` leaves out.
    fn references() -> Vec<u64> {
        let mut draw = 7_u64;
        let page = |step: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (range, page) = (draw >> 60, draw >> 20 & 0xffff);
            if range == 0 { page % 500 } else { page % (20 + step / 1000) }
        };
        let mut pages: Vec<_> = (0..40_000).map(page).collect();
        pages.dedup();
        pages
    }

    /// What LRU misses of them in a memory of `size`, after each.
    fn lru_misses(references: &[u64], size: u64) -> Vec<u64> {
        let mut lru = Lru::new(&[PageCount(size)]);
        let after = |touch| {
            lru.play(&[touch]);
            lru.misses()[0]
        };
        touches(references).into_iter().map(after).collect()
    }

    #[test]
    fn where_all_is_seen_it_is_lru() {
        let references = references();
        for size in [1, 2, 10, 40, 200] {
            let mut floor = Floor::new(PageCount(size));
            let after = |&page: &u64| {
                floor.used(PageIndex(page));
                floor.watch(PageIndex(page));
                floor.misses()
            };
            assert_eq!(references.iter().map(after).collect::<Vec<_>>(), lru_misses(&references, size));
        }
    }

    /// However long pages go unseen: one in a hundred up to all but one are watched again after a reference.
    #[test]
    fn it_is_never_above_lru() {
        let references = references();
        for (size, often) in [(1, 2), (10, 2), (10, 50), (40, 100), (40, 3), (200, 2)] {
            let mut floor = Floor::new(PageCount(size));
            let mut unwatched = vec![];
            let expected = lru_misses(&references, size);
            for (step, (&page, &lru)) in references.iter().zip(&expected).enumerate() {
                if !unwatched.contains(&page) {
                    floor.used(PageIndex(page));
                    unwatched.push(page);
                }
                if step % often == 0 {
                    floor.watch(PageIndex(unwatched.swap_remove(step * 7 % unwatched.len())));
                }
                assert!(floor.misses() <= lru, "{} of {lru}", floor.misses());
            }
            assert!(floor.misses() > 0 || often > 3, "{size} pages, watched each {often}");
        }
    }

    /// And lets the same pages go: a list that is searched from end to end is LRU's memory, who was used longest ago first.
    #[test]
    fn who_is_gone_is_whom_lru_lets_go() {
        for size in [1, 2, 10, 40] {
            let mut floor = Floor::new(PageCount(size));
            let mut memory = vec![];
            for page in references().into_iter().map(PageIndex) {
                floor.used(page);
                memory.retain(|&other| other != page);
                memory.push(page);
                let is_full = memory.len() as u64 > size;
                assert_eq!(floor.next_gone(|_| true), is_full.then(|| memory.remove(0)));
                assert!(floor.counted().eq(memory.iter().copied()));
            }
        }
    }

    #[test]
    fn who_is_gone_is_named_unless_seen_again_or_not_here() {
        let mut floor = Floor::new(PageCount(1));
        for page in [1, 2, 3, 4, 2, 5] {
            floor.used(PageIndex(page));
        }
        assert_eq!(floor.next_gone(|page| page != PageIndex(1)), Some(PageIndex(3)));
        floor.used(PageIndex(4));
        assert_eq!(floor.next_gone(|_| true), Some(PageIndex(2)));
        assert_eq!(floor.next_gone(|_| true), Some(PageIndex(5)));
        assert_eq!(floor.next_gone(|_| true), None);
    }

    #[test]
    fn what_is_kept_of_uses_is_bounded() {
        let mut floor = Floor::new(PageCount(10));
        for step in 0..100_000 {
            floor.used(PageIndex(if step == 0 { 99 } else { step % 5 }));
            assert!(floor.uses.len() < 2 * 10 + STALE_MAX + 2);
        }
        assert_eq!((floor.distinct, floor.misses()), (6, 0));
        for step in 0..100_000 {
            floor.used(PageIndex(step % 50));
            floor.forget_gone(|page| page < PageIndex(10));
            assert!(floor.gone.len() <= 2 * 10 + STALE_MAX);
        }
        assert_eq!(floor.next_gone(|_| true).map(|page| page < PageIndex(10)), Some(true));
    }
}
