//! pleat's own replacement: the code that `pleat run` uses, without the rest of it.
//!
//! Pages move out in runs until as many wait as should, and the one that has waited for longest is encoded when room is needed.
//! A page that is touched while it waits comes back without having left memory: no miss but a soft fault, which is what it
//! costs pleat to learn of use. Resident and waiting pages together fill the memory. Live, some of it is kept free for
//! growth (`policy::sizing`); here it is all in use, as with the other policies, and nothing is fetched ahead.
//!
//! Nothing counts here but misses, as if what leaves had to be read from the slowest of media. So far more pages wait than live, where it
//! costs more than it saves, and from when memory is a tenth full on, so that it is known by then who has to leave first
//! (docs/decisions/0042-seven-tenths-wait.md).

use cache::ring::Ring;
use cache::{Cache, Outcome, Place};
use page::{PageCount, PageIndex};
use policy::replacement::Arrival;
use store::Slabs;

use super::{Contender, Touch};
use crate::live::{Live, MOVE_BATCH};

/// The part of the pages in memory that waits, and so tells of each use.
const WAITING: (u64, u64) = (7, 10);
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
}

impl Pleat {
    pub(super) fn new(size: PageCount) -> Self {
        // All pages count as one repeated word: the store stays empty.
        let store = Slabs::new(1 << 24).expect("16 MiB of address space");
        let mut live = Live::new(Cache::new(store, None), size);
        live.ring = Ring::new(PageCount(size.0.saturating_mul(FRAMES).max(1)));
        // Below the smallest budget, 4096 pages, the same part of memory as there.
        live.move_batch = MOVE_BATCH.min(PageCount((size.0 / 128).max(1)));
        Self { size, live, misses: 0, soft_faults: 0 }
    }

    fn make_room(&mut self) {
        if self.live.held().0 < self.size.0 / BEGINS_DIVISOR {
            return;
        }
        while !self.is_stocked() && self.move_out() {}
        while self.live.held() >= self.size {
            let has_waited = self.is_stocked() && self.live.ring.held() > PageCount::ZERO;
            if has_waited || !self.move_out() {
                self.encode();
            }
        }
    }

    /// Moves a run to the ring, unless no page is left. Vacant frames must not make anybody leave: where few pages miss and many come back
    /// from waiting, they would be most of a ring of any size.
    fn move_out(&mut self) -> bool {
        let Live { ring, cache, .. } = &mut self.live;
        if ring.room(PageCount(1)).count == 0 {
            ring.close_gaps(|page, frame| cache.reframe(page, frame));
        }
        self.live.move_out().is_some()
    }

    fn is_stocked(&self) -> bool {
        self.live.ring.held().0 >= self.live.held().0 * WAITING.0 / WAITING.1
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
        match self.live.cache.place(page) {
            Place::Resident => {}
            Place::Leaving(frame) => {
                self.soft_faults += 1;
                self.live.take_back(page, frame);
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
