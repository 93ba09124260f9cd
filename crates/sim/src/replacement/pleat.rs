//! pleat's own replacement: the code that `pleat run` uses, without the rest of it.
//!
//! Pages move out in runs until as many wait as should, and the one that has waited for longest is encoded when room is needed.
//! A page that is touched while it waits comes back without having left memory: no miss but a soft fault, which is what it
//! costs pleat to learn of use. Resident and waiting pages together fill the memory. Live, some of it is kept free for
//! growth (`policy::sizing`); here it is all in use, as with the other policies, and nothing is fetched ahead.
//!
//! Nothing counts here but misses, as if what leaves had to be read from the slowest of media. So far more pages wait than live, where it
//! costs more than it saves, from when memory is a tenth full on, so that it is known by then who has to leave first; and nearly all of
//! them beside a cliff, and where LRU misses less (docs/decisions/0048-beside-a-cliff-nearly-all-wait.md).

use cache::ring::Ring;
use cache::{Cache, Outcome, Place};
use page::{PageCount, PageIndex};
use policy::replacement::Arrival;
use store::Slabs;

use super::lru::Lru;
use super::{Contender, Touch};
use crate::live::{Live, MOVE_BATCH};
use crate::pages::Pages;

/// The part of the pages in memory that need not wait, at the most: nothing is known of their use.
const UNSEEN: (u64, u64) = (3, 10);
/// How often that is halved, at the most.
const HALVINGS: usize = 4;
/// Late soft faults, and misses: from more on it is halved.
const LATE: (u64, u64) = (1, 2);
/// Misses, and those that LRU would have: from more on it is halved as often as may be.
const BEHIND: (u64, u64) = (51, 50);
/// How full memory is when pages begin to wait, as a divisor.
const BEGINS_DIVISOR: u64 = 10;
/// Frames of the ring for each page of memory: many become vacant before the gaps are closed.
const FRAMES: u64 = 4;

/// One size of memory.
pub(super) struct Pleat {
    size: PageCount,
    live: Live<Slabs>,
    misses: u64,
    soft_faults: u64,
    late: Late,
    shadow: Shadow,
}

impl Pleat {
    pub(super) fn new(size: PageCount) -> Self {
        // All pages count as one repeated word: the store stays empty.
        let store = Slabs::new(1 << 24).expect("16 MiB of address space");
        let mut live = Live::new(Cache::new(store, None), size);
        live.ring = Ring::new(PageCount(size.0.saturating_mul(FRAMES).max(1)));
        Self { size, live, misses: 0, soft_faults: 0, late: Late::default(), shadow: Shadow::new(size) }
    }

    fn make_room(&mut self) {
        if self.live.held().0 < self.size.0 / BEGINS_DIVISOR {
            return;
        }
        self.stock();
        while self.live.held() >= self.size {
            if self.live.ring.held() > PageCount::ZERO || !self.move_out() {
                self.encode();
            }
        }
    }

    /// Moves pages out until no more are left than need not wait.
    fn stock(&mut self) {
        let is_behind = self.misses * BEHIND.1 > self.shadow.misses * BEHIND.0;
        let halvings = if is_behind { HALVINGS } else { self.late.halvings(self.misses) };
        let unseen = PageCount(unseen(self.live.held(), halvings).0.max(1));
        // Below the smallest budget, 4096 pages, the same part of memory as there; and little of what is left.
        self.live.move_batch = MOVE_BATCH.min(PageCount((self.size.0 / 128).min(unseen.0 / 4).max(1)));
        while self.live.cache.census().resident > unseen && self.move_out() {}
    }

    /// Moves a run to the ring, unless no page is left. Vacant frames must not make anybody leave: where few pages miss and many come back
    /// from waiting, they would be most of a ring of any size.
    fn move_out(&mut self) -> bool {
        let Live { ring, cache, .. } = &mut self.live;
        if ring.room(PageCount(1)).count == 0 {
            ring.close_gaps(|page, frame| cache.reframe(page, frame));
        }
        let Some(run) = self.live.move_out() else { return false };
        // They may have been used until now.
        (0..run.count.0).for_each(|step| self.shadow.use_page(run.start + PageCount(step)));
        true
    }

    fn encode(&mut self) {
        let Live { ring, cache, .. } = &mut self.live;
        let window = ring.take(1);
        for frame in window.frames() {
            if let Some(page) = ring.page(frame) {
                cache.publish(page, frame, Outcome::SameFilled(0));
            }
        }
        ring.freed(window);
    }

    fn touch(&mut self, page: PageIndex, is_first: bool) {
        let place = self.live.cache.place(page);
        if place != Place::Resident {
            self.shadow.touch(page);
        }
        match place {
            Place::Resident => {}
            Place::Leaving(frame) => {
                self.soft_faults += 1;
                self.late.soft_fault(self.live.ring.ahead(frame), self.size);
                self.live.take_back(page, frame);
                self.stock();
            }
            _ => {
                // Nothing is fetched ahead, but how much would be tells a walk.
                let window = self.live.streams.window(page);
                self.make_room();
                self.live.cache.settle(page, Arrival::Asked);
                if !is_first {
                    self.misses += 1;
                    self.live.streams.shortened(page, window, PageCount(1));
                    self.live.brought(page, PageCount(1), window);
                }
            }
        }
    }
}

/// Soft faults on pages that were about to leave. Where they are many and misses few, memory ends beside a cliff: LRU would keep just those
/// pages, and an order that is a little wrong lets them go.
#[derive(Default)]
struct Late {
    /// How many had fewer pages in front of them than need not wait, by halvings of that.
    counts: [u64; HALVINGS],
}

impl Late {
    /// A page with so many frames of the ring in front of it is touched in a memory of `size`.
    fn soft_fault(&mut self, ahead: u64, size: PageCount) {
        let counts = self.counts.iter_mut().enumerate();
        counts.take_while(|(halvings, _)| ahead < unseen(size, *halvings).0).for_each(|(_, count)| *count += 1);
    }

    fn halvings(&self, misses: u64) -> usize {
        self.counts.iter().take_while(|&&count| count * LATE.1 > misses * LATE.0).count()
    }
}

/// How many of `held` pages need not wait.
fn unseen(held: PageCount, halvings: usize) -> PageCount {
    PageCount((held.0.saturating_mul(UNSEEN.0) / UNSEEN.1) >> halvings)
}

/// LRU in a memory of the same size, as far as uses are seen.
struct Shadow {
    numbers: Pages,
    lru: Lru,
    /// Misses at the program's uses.
    misses: u64,
}

impl Shadow {
    fn new(size: PageCount) -> Self {
        Self { numbers: Pages::default(), lru: Lru::new(&[size]), misses: 0 }
    }

    /// The program uses a page.
    fn touch(&mut self, page: PageIndex) {
        let before = self.lru.misses_of_one();
        self.use_page(page);
        self.misses += self.lru.misses_of_one() - before;
    }

    /// A page is used, or may have been.
    fn use_page(&mut self, page: PageIndex) {
        let (number, is_first) = self.numbers.number(page);
        self.lru.play(&[Touch { page, number, is_first }]);
    }
}

impl Contender for Pleat {
    fn play(&mut self, touches: &[Touch]) {
        for touch in touches {
            self.touch(touch.page, touch.is_first);
        }
    }

    fn misses(&self) -> Vec<u64> {
        vec![self.misses]
    }

    fn soft_faults(&self) -> Option<u64> {
        Some(self.soft_faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::tests::touches;

    /// After each reference all pages are somewhere, and memory holds no more than it may.
    #[test]
    fn pages_are_conserved() {
        let mut number = 1_u64;
        for size in [1, 2, 7, 100, 3000] {
            let mut pleat = Pleat::new(PageCount(size));
            let mut seen = std::collections::HashSet::new();
            for step in 0..20_000_u64 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = if step % 3 == 0 { (number >> 33) % 5000 } else { step / 7 % 4000 };
                pleat.touch(PageIndex(page), seen.insert(page));
                let census = pleat.live.cache.census();
                let all = census.resident + census.leaving + census.same_filled;
                assert_eq!(all.0, seen.len() as u64);
                assert!(pleat.live.held() <= pleat.size && census.leaving == pleat.live.ring.held());
            }
            pleat.live.cache.check();
            assert!(pleat.misses > 0 && (size < 100 || pleat.soft_faults > 0));
        }
    }

    /// Thirty rounds over so many hundredths of memory, each in an order of its own, and so often a page that is used once: who was used
    /// longest ago is used again just before LRU would let it go.
    fn beside_a_cliff(size: u64, hundredths: u64, often: usize) -> Vec<Touch> {
        let mut number = size;
        let mut below = |end: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) as usize % end
        };
        let mut round: Vec<u64> = (0..size * hundredths / 100).collect();
        let mut pages = round.clone();
        for _ in 0..30 {
            (1..round.len()).rev().for_each(|at| round.swap(at, below(at + 1)));
            for some in round.chunks(often) {
                pages.push(10 * size + pages.len() as u64);
                pages.extend(some);
            }
        }
        touches(&pages)
    }

    #[test]
    fn beside_a_cliff_nobody_is_missed() {
        for (hundredths, often) in [(98, 100), (90, 18)] {
            for size in [600, 1000, 3000] {
                let touches = beside_a_cliff(size, hundredths, often);
                let misses = |contender: &mut dyn Contender| {
                    contender.play(&touches);
                    contender.misses()[0]
                };
                assert_eq!(misses(&mut Lru::new(&[PageCount(size)])), 0);
                assert_eq!(misses(&mut Pleat::new(PageCount(size))), 0, "{hundredths} % of {size} pages");
            }
        }
    }

    #[test]
    fn the_unseen_part_is_halved_while_late_soft_faults_are_many() {
        let mut late = Late::default();
        let held = PageCount(1000);
        assert_eq!([0, 1, 2, 3, 4].map(|halvings| unseen(held, halvings).0), [300, 150, 75, 37, 18]);
        assert!(unseen(PageCount(u64::MAX), 0) > PageCount(u64::MAX / 11));
        assert_eq!(late.halvings(0), 0);
        for ahead in [0, 18, 99, 149, 150, 299, 300] {
            late.soft_fault(ahead, held);
        }
        assert_eq!(late.counts, [6, 4, 2, 2]);
        assert_eq!([0, 3, 4, 7, 8, 11, 12].map(|misses| late.halvings(misses)), [4, 4, 2, 2, 1, 1, 0]);
    }

    #[test]
    fn where_lru_misses_less_nearly_all_wait() {
        let size = PageCount(1000);
        let mut pleat = Pleat::new(size);
        let mut number = 1_u64;
        let mut seen = std::collections::HashSet::new();
        let mut resident_max = |pleat: &mut Pleat| {
            let resident = |_| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = (number >> 33) % 2000;
                pleat.touch(PageIndex(page), seen.insert(page));
                pleat.live.cache.census().resident.0
            };
            // What has to wait from now on has been moved out by then.
            (0..20_000).map(resident).skip(1000).max()
        };
        // A page that misses comes to those that are resident.
        assert!(resident_max(&mut pleat) >= Some(300));
        assert!(pleat.misses * 50 <= pleat.shadow.misses * 51 && pleat.shadow.misses > 5000);
        pleat.misses *= 2;
        assert!(resident_max(&mut pleat) <= Some(18 + 1));
    }

    #[test]
    fn soft_faults_find_what_is_hot() {
        // Ten hot pages among a thousand that are walked over, with room for two hundred.
        let mut pleat = Pleat::new(PageCount(200));
        let mut missed = 0;
        for step in 0..200_000_u64 {
            let before = pleat.misses;
            pleat.touch(PageIndex(5000 + step % 10), step < 10);
            missed += pleat.misses - before;
            pleat.touch(PageIndex(step % 1000), step < 1000);
        }
        assert!(missed < 200, "{missed} misses of hot pages");
    }
}
