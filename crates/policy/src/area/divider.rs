//! The divider: what joins [`Ghosts`] and [`Marginal`] to say how large the pool may become, in parts of the memory for pages.
//!
//! It starts with about what a pool may take without one ([`sizing::pool_bytes_max`]), and goes where measured costs are less.
//! While pages shrink that is upwards, unless by far the most of what faults cost would be saved: a program that touches
//! anything at all gains nothing from resident pages, and each frame that they give up holds several pages which would be
//! below. A pool of pages that do not shrink, or that nobody asks for any more, only takes memory from those that are asked
//! for again and again: they fault although nothing more would be below without it.

use core::ops::Range;

use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};

use super::Resizing;
use super::ghosts::{Depth, Ghosts};
use super::marginal::{Advice, Costs, Division, FORGOTTEN, Marginal};
use crate::sizing;

/// From one look to the next.
pub const LOOK_NS: u64 = 250_000_000;
/// Parts of the memory for pages. The pool grows and shrinks by one, or by half of the way where [`GAIN_FIRM_PERCENT`] would be saved.
const PARTS: u64 = 32;
/// What it starts with: four fifths, about.
const PARTS_USUAL: u64 = 26;
/// The most.
const PARTS_MOST: u64 = 30;
/// Depths are seen to so many times the share: what a pool can hold at most, and as much again.
const DEPTH_FACTOR: u64 = 4;
/// The least that the pool may take: the default store keeps a little memory although nothing is in it.
const POOL_BYTES_MIN: ByteCount = ByteCount(512 << 10);
/// So many pages in a frame of the pool, in thousandths, are as good as one: a smaller pool leaves hardly more of them below.
/// Where there are more it would, and depths are no good guide any more: they are those of an exact order of use, to which
/// the hand only comes near, so that part of the faults just behind the border would be there with more resident pages, too.
const RATIO_POOR: u64 = 1250;
/// What must be saved there all the same, in percent of what reads cost: then hardly anybody asks for the pages that go below.
const GAIN_FIRM_PERCENT: u64 = 60;
/// Where pages shrink, so many times what a step risks must have been lost without it: a step that was wrong then adds about a third
/// to that, if each page is read once, for what a read is thought to cost. Where they do not, once as much.
const LOSS_FACTOR: u64 = 3;
/// A share that has changed by this factor is another.
const OTHER_SHARE: u64 = 2;

/// What is held at the time of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// What resident pages and pool may take together, without those on their way from one to the other.
    pub memory: ByteCount,
    /// Frames of the pool.
    pub pool: ByteCount,
    /// Pages in it.
    pub pages: PageCount,
    /// Pages of one repeated word, which take no room.
    pub filled: PageCount,
}

/// The most that the pool may take of the memory for pages, with a divider or without.
pub fn pool_bytes_max(divider: Option<&Divider>, memory: ByteCount) -> ByteCount {
    let usual = sizing::pool_bytes_max(memory);
    let Some(divider) = divider else { return usual };
    let asked = divider.fixed.map_or(part(memory, divider.parts), |fixed| fixed.min(part(memory, PARTS_MOST)));
    asked.max(POOL_BYTES_MIN.min(usual))
}

/// See the top of the file.
#[derive(Debug)]
pub struct Divider {
    marginal: Marginal,
    ghosts: Ghosts,
    /// The share that these were made for.
    share: ByteCount,
    /// The most that the pool may take, in parts of the memory for pages.
    parts: u64,
    /// Whether it has shrunk below what it starts with although pages shrink, and nothing has spoken against that.
    is_firm: bool,
    /// Pages asked for since the last look.
    asked: u64,
    /// What has been lost because the pool was not smaller, and paid for no step yet.
    lost_ns: u64,
    /// What was asked for instead, which nothing changes.
    fixed: Option<ByteCount>,
}

impl Divider {
    /// For a share.
    pub fn new(share: ByteCount) -> Self {
        let depth = depth_of(share);
        let (marginal, ghosts) = (Marginal::new(depth), Ghosts::reaching(depth));
        Self { marginal, ghosts, share, parts: PARTS_USUAL, is_firm: false, asked: 0, lost_ns: 0, fixed: None }
    }

    /// For a share of which the pool may take so much, if that leaves something to live in.
    pub fn fixed(share: ByteCount, pool: ByteCount) -> Self {
        Self { fixed: Some(pool), ..Self::new(share) }
    }

    /// A page has left the resident set for the pool, or for what is below.
    pub fn left(&mut self, page: PageIndex) {
        self.ghosts.left(page);
    }

    /// A page that had left has been asked for, while so many were resident.
    pub fn asked(&mut self, page: PageIndex, resident: PageCount) {
        self.asked += 1;
        match self.ghosts.asked(page) {
            Depth::Behind(depth) => self.marginal.asked(resident + depth),
            Depth::Forgotten => self.marginal.asked(PageCount(u64::MAX)),
            Depth::Unsampled => {}
        }
    }

    /// A page that had left has come back although nobody asked for it.
    pub fn returned(&mut self, page: PageIndex) {
        self.ghosts.returned(page);
    }

    /// Pages are no more.
    pub fn discarded(&mut self, pages: Range<PageIndex>) {
        self.ghosts.discarded(pages);
    }

    /// A look, every [`LOOK_NS`].
    pub fn look(&mut self, share: ByteCount, held: Held, costs: Costs) {
        if self.fixed.is_some() {
            return;
        }
        if share.0 > self.share.0 * OTHER_SHARE || share.0 < self.share.0 / OTHER_SHARE {
            let depth = depth_of(share);
            self.marginal = Marginal::new(depth);
            self.ghosts.restart(depth);
            self.lost_ns = 0;
            self.share = share;
        }
        let unit = part(held.memory, 1);
        let frames = |bytes: ByteCount| PageCount(bytes.0 / PAGE_BYTES as u64);
        if frames(unit) == PageCount::ZERO {
            return;
        }
        // A pool may be smaller than it might.
        let pool = held.pool.min(pool_bytes_max(Some(self), held.memory));
        let in_a_frame = |pages: PageCount| (pages.0 * 1000).checked_div(frames(held.pool).0).unwrap_or(1000);
        let ratio_thousandths = in_a_frame(held.pages + held.filled);
        let now = Division { frames: frames(held.memory), area: frames(pool), unit: frames(unit), ratio_thousandths };
        let Advice { resizing, best, gain_percent } = self.marginal.look(now, costs);
        let gains_most = resizing == Resizing::Shrink && gain_percent >= GAIN_FIRM_PERCENT;
        self.is_firm = (self.is_firm || gains_most) && resizing != Resizing::Grow;
        let is_poor = in_a_frame(held.pages) <= RATIO_POOR;
        let least = if is_poor || gains_most {
            1
        } else if self.is_firm {
            self.parts.min(PARTS_USUAL)
        } else {
            PARTS_USUAL
        };
        self.note_loss(resizing, gain_percent, costs);
        let best = best.0 / frames(unit).0;
        // All of it would be too far: counts from before say more of depths that are resident now than is true.
        let half_way = |parts: u64| if gain_percent >= GAIN_FIRM_PERCENT { parts.midpoint(best) } else { parts };
        self.parts = match resizing {
            _ if self.parts < least => self.parts + 1,
            Resizing::Grow => half_way(self.parts).max(self.parts + 1).min(PARTS_MOST),
            Resizing::Shrink => {
                let parts = (pool.0 / unit.0).min(self.parts);
                let fewer = half_way(parts).min(parts.saturating_sub(1)).max(least).min(parts);
                let pages = in_a_frame(held.pages) * frames(unit).0 / 1000;
                let risk_ns = pages * costs.below_ns.saturating_sub(costs.compressed_ns);
                let paid = self.pay(parts - fewer, if is_poor { risk_ns } else { risk_ns * LOSS_FACTOR });
                if paid == 0 { self.parts } else { parts - paid }
            }
            Resizing::Keep | Resizing::ShrinkOrRelease | Resizing::ReleaseOldest => self.parts,
        };
    }

    /// Adds what a pool of the best size would have saved since the last look.
    fn note_loss(&mut self, resizing: Resizing, gain_percent: u64, costs: Costs) {
        let spent_ns = core::mem::take(&mut self.asked).saturating_mul(costs.compressed_ns);
        self.lost_ns = match resizing {
            Resizing::Shrink => self.lost_ns.saturating_add(spent_ns / 100 * gain_percent),
            Resizing::Grow => 0,
            Resizing::Keep | Resizing::ShrinkOrRelease | Resizing::ReleaseOldest => {
                self.lost_ns - self.lost_ns / u64::from(FORGOTTEN)
            }
        };
    }

    /// How many of so many parts the pool may give up at this price for each, which is about what it costs if all that goes below is
    /// asked for after all. What is lost by waiting pays for them, as for skis that are hired until the hire has come to their price.
    fn pay(&mut self, parts: u64, price_ns: u64) -> u64 {
        let parts = parts.min(self.lost_ns.checked_div(price_ns).unwrap_or(parts));
        self.lost_ns -= parts * price_ns;
        parts
    }
}

/// How deep the order of use is looked at.
fn depth_of(share: ByteCount) -> PageCount {
    PageCount((share.0 / PAGE_BYTES as u64).max(1) * DEPTH_FACTOR)
}

fn part(memory: ByteCount, parts: u64) -> ByteCount {
    ByteCount(memory.0 / PARTS * parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SHARE: ByteCount = ByteCount(16 << 20);
    const FRAMES: u64 = SHARE.0 / PAGE_BYTES as u64;
    const STEPS: u64 = 120_000;
    const COSTS: Costs = Costs { compressed_ns: 20_000, below_ns: 150_000 };

    /// Pages in the order of use: the first are resident, then come those of a pool, in which `ratio` of them take a frame.
    struct Memory {
        order: Vec<u64>,
        ratio: f64,
        divider: Divider,
    }

    impl Memory {
        fn new(ratio: f64) -> Self {
            Self { order: Vec::new(), ratio, divider: Divider::new(SHARE) }
        }

        /// Pages that are resident, and those in the pool, if so many are used.
        fn held(&self) -> (u64, u64) {
            let pages = self.order.len() as u64;
            let most = pool_bytes_max(Some(&self.divider), SHARE).0 / PAGE_BYTES as u64;
            if pages <= FRAMES {
                return (pages, 0);
            }
            // As few in the pool as let all be held, if that is possible.
            let needed = ((pages - FRAMES) as f64 / (self.ratio - 1.0)).min(most as f64) as u64;
            (FRAMES - needed, (needed as f64 * self.ratio) as u64)
        }

        /// What it costs.
        fn ask(&mut self, page: u64) -> u64 {
            let (resident, pooled) = self.held();
            let depth = self.order.iter().rposition(|other| *other == page).map(|at| {
                self.order.remove(at);
                (self.order.len() - at) as u64
            });
            self.order.push(page);
            let cost = match depth {
                None => 0,
                Some(depth) if depth < resident => return 0,
                Some(depth) => {
                    self.divider.asked(PageIndex(page), PageCount(resident));
                    if depth < resident + pooled { COSTS.compressed_ns } else { COSTS.below_ns }
                }
            };
            if self.order.len() as u64 > resident {
                self.divider.left(PageIndex(self.order[self.order.len() - 1 - resident as usize]));
            }
            cost
        }

        fn look(&mut self) {
            let (_, pooled) = self.held();
            let pool = ByteCount((pooled as f64 / self.ratio) as u64 * PAGE_BYTES as u64);
            self.divider.look(
                SHARE,
                Held { memory: SHARE, pool, pages: PageCount(pooled), filled: PageCount::ZERO },
                COSTS,
            );
        }
    }

    /// Costs of the second half of a run that asks for nine pages in ten from `hot` ones and for others from `all`.
    fn run(memory: &mut Memory, hot: u64, all: u64, looks: bool) -> u64 {
        let mut random = 0x1234_5678_9abc_def1_u64;
        let mut below = |end: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % end
        };
        let mut costs = BTreeMap::new();
        for step in 0..STEPS {
            let page = if below(10) > 0 { below(hot) } else { below(all) };
            *costs.entry(step * 2 / STEPS).or_insert(0) += memory.ask(page);
            if looks && step % 1000 == 0 {
                memory.look();
            }
        }
        costs[&1]
    }

    /// A hot part of half the share, and pages that do not shrink: with four fifths as a pool each access to the hot part is
    /// a fault.
    #[test]
    fn a_pool_of_what_does_not_shrink_is_given_up() {
        let (mut fixed, mut divided) = (Memory::new(1.01), Memory::new(1.01));
        let (hot, all) = (FRAMES / 2, FRAMES * 2);
        let (before, after) = (run(&mut fixed, hot, all, false), run(&mut divided, hot, all, true));
        let pool = pool_bytes_max(Some(&divided.divider), SHARE);
        assert!(pool < ByteCount(SHARE.0 / 2) && after * 10 < before * 8, "{pool:?}: {after} against {before}");
    }

    /// Pages that shrink to a third: a pool that was made smaller when they did not gets its size back.
    #[test]
    fn a_pool_of_what_shrinks_gets_its_size_back() {
        let mut divider = Divider { parts: 3, ..Divider::new(SHARE) };
        let held = Held { memory: SHARE, pool: ByteCount(1 << 20), pages: PageCount(3 * 256), filled: PageCount::ZERO };
        for _ in 0..PARTS {
            divider.look(SHARE, held, COSTS);
        }
        assert_eq!(divider.parts, PARTS_USUAL);
    }

    #[test]
    fn a_fixed_pool_stays_as_it_was_asked_for_and_leaves_something_to_live_in() {
        let held = Held { memory: SHARE, pool: ByteCount(1 << 20), pages: PageCount(256), filled: PageCount::ZERO };
        for (asked, given) in [(1, POOL_BYTES_MIN.0), (3 << 20, 3 << 20), (1 << 40, SHARE.0 / PARTS * PARTS_MOST)] {
            let mut divider = Divider::fixed(SHARE, ByteCount(asked));
            for _ in 0..PARTS {
                divider.look(SHARE, held, COSTS);
            }
            assert_eq!(pool_bytes_max(Some(&divider), SHARE).0, given);
        }
    }

    /// Pages that shrink to a third, asked for anywhere in so many that not all of them fit: resident ones gain little.
    #[test]
    fn a_pool_of_what_shrinks_takes_the_most_from_who_asks_anywhere() {
        let (mut fixed, mut divided) = (Memory::new(3.0), Memory::new(3.0));
        let all = FRAMES * 3;
        let (before, after) = (run(&mut fixed, all, all, false), run(&mut divided, all, all, true));
        assert_eq!(divided.divider.parts, PARTS_MOST);
        assert!(after * 10 < before * 8, "{after} against {before}");
    }

    /// The same where a part is asked for nearly all the time, and hardly fits into what the usual pool leaves.
    #[test]
    fn a_pool_leaves_room_for_a_hot_part() {
        let mut divided = Memory::new(3.0);
        run(&mut divided, FRAMES / 6, FRAMES * 3, true);
        assert_eq!(divided.divider.parts, PARTS_USUAL);
    }

    /// Pages that shrink to a third and were used once, and others that are used again and again and do not fit beside the usual
    /// pool: it makes room for them once it has cost enough, and stays so small until it is asked for more again.
    #[test]
    fn a_pool_of_what_nobody_asks_for_any_more_makes_room() {
        let mut memory = Memory::new(3.0);
        (0..FRAMES * 13 / 5).for_each(|page| {
            memory.ask(page);
        });
        let mut last_fault = 0;
        for step in 0..2 * STEPS {
            // Anywhere in half of the share, evenly.
            last_fault = if memory.ask(step * 7919 % (FRAMES / 2)) > 0 { step } else { last_fault };
            if step % 1000 == 0 {
                memory.look();
            }
        }
        assert!(memory.divider.parts < PARTS_USUAL * 3 / 4, "{}", memory.divider.parts);
        // What it gave up was some 13 parts of 128 frames, of three pages: three times 13 * 384 * 130 us, in faults of 20 us.
        assert!((1000 * 70..1000 * 98).contains(&last_fault), "{last_fault}");
        (0..STEPS).for_each(|step| {
            memory.ask(step * 7919 % (FRAMES * 13 / 5));
            if step % 1000 == 0 {
                memory.look();
            }
        });
        assert!(memory.divider.parts >= PARTS_USUAL, "{}", memory.divider.parts);
    }

    /// Pages that shrink to a third, of which all fit: nothing below is worth a smaller pool.
    #[test]
    fn a_pool_that_holds_everything_stays() {
        let (mut fixed, mut divided) = (Memory::new(3.0), Memory::new(3.0));
        let (hot, all) = (FRAMES, FRAMES * 2);
        let (before, after) = (run(&mut fixed, hot, all, false), run(&mut divided, hot, all, true));
        assert!(after * 100 <= before * 102, "{after} against {before}");
    }

    /// The same for a while only: all of it is wanted again soon, as by a sort that has just read its input, and is there.
    #[test]
    fn a_pool_that_has_cost_little_stays() {
        let mut memory = Memory::new(3.0);
        let all = FRAMES * 5 / 2;
        (0..all).for_each(|page| {
            memory.ask(page);
        });
        for step in 0..15_000 {
            memory.ask(step * 7919 % (FRAMES / 2));
            if step % 1000 == 0 {
                memory.look();
            }
        }
        assert!(memory.divider.parts >= PARTS_USUAL, "{}", memory.divider.parts);
        assert_eq!((0..all).filter(|page| memory.ask(*page) == COSTS.below_ns).count(), 0);
    }

    /// What goes below may be asked for after all: a read each. So it stays until as much has been lost by keeping it.
    #[test]
    fn what_shrinking_risks_is_lost_first() {
        let mut divider = Divider::new(SHARE);
        let mut look = |asked: u64, resizing, gain_percent| {
            divider.asked = asked;
            divider.note_loss(resizing, gain_percent, COSTS);
            [divider.lost_ns, divider.pay(13, 1_000_000), divider.lost_ns]
        };
        assert_eq!(
            look(100, Resizing::Shrink, 40),
            [800_000, 0, 800_000],
            "100 faults of 20 us, of which 40 % were saved"
        );
        assert_eq!(look(400, Resizing::Shrink, 50), [4_800_000, 4, 800_000]);
        assert_eq!(look(400, Resizing::Keep, 0), [750_000, 0, 750_000], "forgotten as counts are");
        assert_eq!(look(10_000, Resizing::Shrink, 90), [180_750_000, 13, 167_750_000], "no more than is asked for");
        assert_eq!(look(400, Resizing::Grow, 10), [0, 0, 0]);
        assert_eq!(divider.pay(13, 0), 13, "a read that costs no more than a decode risks nothing");
    }

    #[test]
    fn a_share_that_changes_keeps_the_division() {
        let mut divider = Divider { parts: 10, lost_ns: 1_000_000, ..Divider::new(SHARE) };
        let held = Held { memory: SHARE, pool: ByteCount::ZERO, pages: PageCount::ZERO, filled: PageCount::ZERO };
        divider.look(ByteCount(SHARE.0 * 3), held, COSTS);
        assert_eq!((divider.share, divider.parts), (ByteCount(SHARE.0 * 3), 10));
        assert_eq!(divider.lost_ns, 0, "what was lost in another share pays for nothing in this one");
        assert_eq!(pool_bytes_max(Some(&divider), SHARE), ByteCount(SHARE.0 / 32 * 10));
    }

    #[test]
    fn a_small_share_leaves_what_a_store_needs() {
        let divider = Divider { parts: 1, ..Divider::new(SHARE) };
        let most = [100 << 10, 4 << 20, 64 << 20].map(|memory| pool_bytes_max(Some(&divider), ByteCount(memory)).0);
        assert_eq!(most, [80 << 10, 512 << 10, 2 << 20]);
    }

    #[test]
    fn shares_of_nothing_and_of_a_page_are_looked_at() {
        for share in [0, 1, 4096, 32 * 4096] {
            let share = ByteCount(share);
            let mut divider = Divider::new(share);
            for page in (0..200).map(PageIndex) {
                divider.left(page);
                divider.asked(page, PageCount(1));
            }
            divider.look(
                share,
                Held { memory: share, pool: ByteCount(1 << 20), pages: PageCount(3), filled: PageCount(9) },
                COSTS,
            );
            assert!(pool_bytes_max(Some(&divider), share) <= share);
        }
    }
}
