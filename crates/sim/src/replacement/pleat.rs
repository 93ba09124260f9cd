//! pleat's own replacement: the code that `pleat run` uses, without the rest of it.
//!
//! Pages move out in runs until as many wait as should, and the one that has waited for longest is encoded when room is needed.
//! A page that is touched while it waits comes back without having left memory: no miss but a soft fault, which is what it
//! costs pleat to learn of use. Resident and waiting pages together fill the memory. Live, some of it is kept free for
//! growth (`policy::sizing`); here it is all in use, as with the other policies, and nothing is fetched ahead.
//!
//! Nothing counts here but misses, as if what leaves had to be read from the slowest of media. So far more pages wait than live, where it
//! costs more than it saves. Nothing is known of how the others are used, and they may cost misses that LRU does not have. So they are
//! unseen on credit: what pleat may miss, a thirtieth more than LRU does for certain, and has not missed yet. Without credit it is LRU,
//! but for a 256th of the memory (docs/decisions/0049-unseen-on-credit.md).

use cache::ring::Ring;
use cache::{Cache, Outcome, Place};
use page::{PageCount, PageIndex};
use policy::drop_behind::Run;
use policy::replacement::Arrival;

use super::empty::Empty;
use super::floor::Floor;
use super::{Contender, Touch};
use crate::live::{Live, MOVE_BATCH};

/// What may be missed for what LRU certainly misses.
const ALLOWED: (u64, u64) = (31, 30);
/// Pages that may be unseen for each miss that is left of it: most of them cost none.
const UNSEEN_FOR_A_MISS: u64 = 4;
/// The part of memory that may be unseen without credit, as a divisor: the hottest pages, of whose use to hear each time costs most.
const UNSEEN_DIVISOR: u64 = 256;
/// Frames of the ring for each page of memory: many become vacant before the gaps are closed.
const FRAMES: u64 = 4;

/// One size of memory.
pub(super) struct Pleat {
    size: PageCount,
    live: Live<Empty>,
    misses: u64,
    soft_faults: u64,
    floor: Floor,
}

impl Pleat {
    pub(super) fn new(size: PageCount) -> Self {
        let mut live = Live::new(Cache::new(Empty, None), size);
        live.ring = Ring::new(PageCount(size.0.saturating_mul(FRAMES).max(1)));
        Self { size, live, misses: 0, soft_faults: 0, floor: Floor::new(size) }
    }

    fn make_room(&mut self) {
        while self.live.held() >= self.size {
            if let Some(page) = self.let_go_first() {
                self.let_go(page);
            } else if self.live.ring.held() > PageCount::ZERO || !self.move_out() {
                self.encode();
            }
        }
    }

    /// Without credit those leave first whom LRU would not have any more by the uses that were seen. They are here because they may have
    /// been used unseen; if they were not, and memory is just large enough without them, each round would miss all others.
    fn let_go_first(&mut self) -> Option<PageIndex> {
        let has_credit = self.unseen() > self.unseen_min();
        let is_here = |page| is_in_memory(&self.live.cache, page);
        if has_credit {
            self.floor.forget_gone(is_here);
            return None;
        }
        self.floor.next_gone(is_here)
    }

    /// Encodes a page out of its turn.
    fn let_go(&mut self, page: PageIndex) {
        if self.live.cache.place(page) == Place::Resident {
            self.wait(page);
        }
        if let Place::Leaving(frame) = self.live.cache.place(page) {
            self.live.cache.publish(page, frame, Outcome::SameFilled(0));
            self.live.ring.vacate(frame);
        }
    }

    /// Moves this page to the ring.
    fn wait(&mut self, page: PageIndex) {
        self.close_gaps();
        self.live.wait(Run { start: page, count: PageCount(1) });
        self.floor.watch(page);
    }

    /// Moves pages out until no more are unseen than may be: if none, `page` is moved last, which was used last.
    fn stock(&mut self, page: PageIndex) {
        let unseen = self.unseen();
        // Below the smallest budget, 4096 pages, the same part of memory as there; and little of what is left.
        self.live.move_batch = MOVE_BATCH.min(PageCount((self.size.0 / 128).min(unseen.0 / 4).max(1)));
        self.move_out_to(unseen.max(PageCount(1)));
        if unseen == PageCount::ZERO && self.live.cache.place(page) == Place::Resident {
            self.wait(page);
        }
        self.move_out_to(unseen);
    }

    /// How many pages may be unseen.
    fn unseen(&self) -> PageCount {
        let allowed = self.floor.misses().saturating_mul(ALLOWED.0) / ALLOWED.1;
        let on_credit = allowed.saturating_sub(self.misses).saturating_mul(UNSEEN_FOR_A_MISS);
        PageCount(on_credit).max(self.unseen_min())
    }

    fn unseen_min(&self) -> PageCount {
        PageCount(self.size.0 / UNSEEN_DIVISOR)
    }

    /// Moves pages out until so many are resident.
    fn move_out_to(&mut self, resident: PageCount) {
        while self.live.cache.census().resident > resident && self.move_out() {}
    }

    /// Moves a run to the ring, unless no page is left.
    fn move_out(&mut self) -> bool {
        self.close_gaps();
        let Some(run) = self.live.move_out() else { return false };
        (0..run.count.0).for_each(|step| self.floor.watch(run.start + PageCount(step)));
        true
    }

    /// Makes a full ring room of its vacant frames. They must not make anybody leave: where few pages miss and many come back from waiting,
    /// they would be most of a ring of any size.
    fn close_gaps(&mut self) {
        let Live { ring, cache, .. } = &mut self.live;
        if ring.room(PageCount(1)).count == 0 {
            ring.close_gaps(|page, frame| cache.reframe(page, frame));
        }
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
            self.floor.used(page);
        }
        match place {
            Place::Resident => {}
            Place::Leaving(frame) => {
                self.soft_faults += 1;
                self.live.take_back(page, frame);
                self.stock(page);
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
                self.stock(page);
            }
        }
    }
}

fn is_in_memory(cache: &Cache<Empty>, page: PageIndex) -> bool {
    matches!(cache.place(page), Place::Resident | Place::Leaving(_))
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
    use proptest::prelude::*;

    use super::*;
    use crate::replacement::lru::Lru;
    use crate::replacement::tests::{references, touches};

    /// The misses of both.
    fn lru_and_pleat(touches: &[Touch], size: u64) -> (u64, u64) {
        let misses = |contender: &mut dyn Contender| {
            contender.play(touches);
            contender.misses()[0]
        };
        (misses(&mut Lru::new(&[PageCount(size)])), misses(&mut Pleat::new(PageCount(size))))
    }

    proptest! {
        /// Until LRU has missed thirty times nothing may be unseen in a small memory.
        #[test]
        fn without_credit_it_is_lru(pages in references(), size in 1..60_u64) {
            let (lru, pleat) = lru_and_pleat(&touches(&pages), size);
            prop_assert!(pleat == lru || lru >= ALLOWED.1, "{pleat} and {lru}");
        }
    }

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
                let misses = lru_and_pleat(&beside_a_cliff(size, hundredths, often), size);
                assert_eq!(misses, (0, 0), "{hundredths} % of {size} pages");
            }
        }
    }

    /// A few pages are hot, and a walk that LRU misses for certain lets them be unseen for long. Then rounds over whom LRU has in memory by
    /// the uses that were seen, and no credit: it misses none of them.
    #[test]
    fn without_credit_those_leave_first_whom_lru_has_let_go() {
        let mut pleat = Pleat::new(PageCount(1000));
        let mut number = 1_u64;
        let mut seen = std::collections::HashSet::new();
        for step in 0..30_000_u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = (number >> 33) % (100 << (number >> 61)) % 3000;
            let page = if step.is_multiple_of(2) { step / 2 % 2000 } else { other };
            pleat.touch(PageIndex(page), seen.insert(page));
        }
        let round: Vec<_> = pleat.floor.counted().collect();
        let is_away = |page: &&PageIndex| !is_in_memory(&pleat.live.cache, **page);
        let away = round.iter().filter(is_away).count() as u64;
        assert!(away > 20 && round.len() == 1000, "{away} of {}", round.len());
        pleat.misses *= 2;
        let before = pleat.misses;
        (0..5).flat_map(|_| &round).for_each(|&page| pleat.touch(page, false));
        assert_eq!(pleat.misses - before, away, "those who were away have been missed once, and nobody else has");
    }

    /// Half of the references are a walk over twice the memory, which LRU misses for certain, the others are to any of its pages.
    #[test]
    fn pages_are_unseen_on_credit_only() {
        let mut pleat = Pleat::new(PageCount(1000));
        let mut number = 1_u64;
        let mut seen = std::collections::HashSet::new();
        let mut unseen_max = |pleat: &mut Pleat| {
            let unseen = |step: u64| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = if step.is_multiple_of(2) { step / 2 % 2000 } else { (number >> 33) % 2000 };
                pleat.touch(PageIndex(page), seen.insert(page));
                let (resident, unseen) = (pleat.live.cache.census().resident, pleat.unseen());
                assert!(resident <= unseen, "{resident:?} for {unseen:?}");
                resident.0
            };
            (0..20_000).map(unseen).max()
        };
        let freely = unseen_max(&mut pleat);
        assert!(freely > Some(50), "{freely:?} are hardly more than without credit");
        assert!(pleat.misses * ALLOWED.1 <= pleat.floor.misses() * ALLOWED.0);
        pleat.misses *= 2;
        assert_eq!(unseen_max(&mut pleat), Some(3));
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
