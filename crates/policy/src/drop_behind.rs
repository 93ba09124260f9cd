//! Drop-behind: what a walk has just passed goes first, where that turns out well.
//!
//! A walk round more memory than may be resident makes a clock lose everything: each page goes shortly before the walk
//! comes to it again. What the walk has just passed is what it will want last, so with that in their place the others stay
//! (Belady's rule, for a loop). Other programs use again what they have just used. Which holds is measured: of both
//! kinds of victims some are remembered, and how many pages are brought back until they are. The kind that stays away
//! longer is taken; the other is tried now and then.

use page::{PageCount, PageIndex};

use crate::prefetch::WINDOW_MAX;

/// A fault that brings half of the widest window or more continues a walk.
const WALK: PageCount = PageCount(WINDOW_MAX.0 / 2);
/// Runs remembered close behind the walks, and beyond that.
const RUNS: usize = 256;
/// Victims remembered, by the page's number.
const SAMPLES: usize = 512;
/// One run in so many is remembered.
const SAMPLED: u32 = 4;
/// One run in so many is of the kind that stays away less.
const TRIED: u32 = 32;
/// How much one distance weighs against those before, as a divisor.
const MEMORY: u64 = 32;
/// Distances before a kind is believed to be better, and how many eighths of the other's mean its own must be.
const BELIEVED: u64 = 32;
/// A distance that is long as long as nothing is known.
const LONG: u64 = 1 << 14;
const MARGIN_EIGHTHS: u64 = 9;

/// Why a page was chosen to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The clock's hand came to it.
    Hand,
    /// A walk has passed it.
    Passed,
}

/// Neighbouring pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// The first.
    pub start: PageIndex,
    /// How many.
    pub count: PageCount,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    page: PageIndex,
    victim: Victim,
    at: u64,
}

/// How long the victims of one kind have stayed away: a mean, times [`MEMORY`], and of how many.
#[derive(Clone, Copy, Debug, Default)]
struct Away {
    mean: u64,
    count: u64,
}

impl Away {
    fn note(&mut self, distance: u64) {
        self.count += 1;
        self.mean = if self.count == 1 { distance * MEMORY } else { self.mean - self.mean / MEMORY + distance };
    }
}

/// Runs in the order in which they were passed. When there is no room, the oldest is forgotten.
#[derive(Debug)]
struct Runs {
    slots: [Run; RUNS],
    /// Runs ever taken from the old end, and put to the new one.
    old: usize,
    new: usize,
    pages: PageCount,
}

impl Runs {
    const EMPTY: Self =
        Self { slots: [Run { start: PageIndex(0), count: PageCount(0) }; RUNS], old: 0, new: 0, pages: PageCount(0) };

    fn push(&mut self, run: Run) {
        if self.new - self.old == RUNS {
            self.take_oldest();
        }
        self.slots[self.new % RUNS] = run;
        self.new += 1;
        self.pages += run.count;
    }

    fn take_oldest(&mut self) -> Option<Run> {
        let run = (self.old < self.new).then(|| self.slots[self.old % RUNS])?;
        self.old += 1;
        self.pages -= run.count;
        Some(run)
    }

    fn take_newest(&mut self) -> Option<Run> {
        let run = (self.old < self.new).then(|| self.slots[(self.new - 1) % RUNS])?;
        self.new -= 1;
        self.pages -= run.count;
        Some(run)
    }
}

/// Follows walks, and says what to move out behind them.
#[derive(Debug)]
pub struct DropBehind {
    /// What a walk may use again: so many pages.
    near: Runs,
    lag: PageCount,
    /// What it has left behind.
    passed: Runs,
    samples: [Option<Sample>; SAMPLES],
    /// Pages brought back so far: the clock of distances.
    brought: u64,
    hand: Away,
    behind: Away,
    turns: u32,
    evicted: u32,
}

impl DropBehind {
    /// Leaves `lag` pages behind each walk, at most what can be remembered.
    pub const fn new(lag: PageCount) -> Self {
        let most = RUNS as u64 * WINDOW_MAX.0 / 2;
        Self {
            near: Runs::EMPTY,
            lag: if lag.0 < most { lag } else { PageCount(most) },
            passed: Runs::EMPTY,
            samples: [None; SAMPLES],
            brought: 0,
            hand: Away { mean: 0, count: 0 },
            behind: Away { mean: 0, count: 0 },
            turns: 0,
            evicted: 0,
        }
    }

    /// A fault has brought `run` back; `window` is what was asked for.
    pub fn brought(&mut self, run: Run, window: PageCount) {
        self.brought += run.count.0;
        for step in 0..run.count.0 {
            self.came_back(run.start + PageCount(step));
        }
        if window >= WALK {
            self.near.push(run);
            while self.near.pages > self.lag
                && let Some(run) = self.near.take_oldest()
            {
                self.passed.push(run);
            }
        }
    }

    fn came_back(&mut self, page: PageIndex) {
        let place = &mut self.samples[place_of(page)];
        if let Some(sample) = place.take_if(|sample| sample.page == page) {
            self.note(sample);
        }
    }

    fn note(&mut self, sample: Sample) {
        let away = match sample.victim {
            Victim::Hand => &mut self.hand,
            Victim::Passed => &mut self.behind,
        };
        away.note(self.brought - sample.at);
    }

    /// What to move out now, if it is to be what a walk has passed.
    pub fn next_run(&mut self) -> Option<Run> {
        self.turns = self.turns.wrapping_add(1);
        let is_trial = self.turns.is_multiple_of(TRIED);
        if self.is_better() == is_trial {
            return None;
        }
        self.passed.take_newest()
    }

    /// Whether what a walk has passed stays away longer than what the hand finds.
    pub fn is_better(&self) -> bool {
        let known = self.hand.count >= BELIEVED && self.behind.count >= BELIEVED;
        known && self.behind.mean * 8 > self.hand.mean * MARGIN_EIGHTHS
    }

    /// A run that starts with `page` has been moved out.
    pub fn evicted(&mut self, page: PageIndex, victim: Victim) {
        self.evicted = self.evicted.wrapping_add(1);
        // The kind that is only tried is remembered each time.
        if self.is_better() == (victim == Victim::Passed) && !self.evicted.is_multiple_of(SAMPLED) {
            return;
        }
        let place = place_of(page);
        if let Some(old) = self.samples[place] {
            // It keeps its place until it is back, or has stayed away for so long that the mean should know.
            let away = self.brought - old.at;
            let mean = if old.victim == Victim::Hand { self.hand.mean } else { self.behind.mean };
            if away * MEMORY < 2 * mean.max(LONG * MEMORY) {
                return;
            }
            self.note(old);
        }
        self.samples[place] = Some(Sample { page, victim, at: self.brought });
    }
}

fn place_of(page: PageIndex) -> usize {
    // Fibonacci hashing: neighbours spread.
    (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SAMPLES
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    /// A program's memory with room for `room` pages: a hand that takes the oldest, and what is passed. Returns pages
    /// brought for each 100 used, in the second half of `steps` uses.
    fn misses(room: usize, steps: usize, mut next: impl FnMut(usize) -> (u64, bool)) -> usize {
        let mut policy = DropBehind::new(PageCount(32));
        let (mut resident, mut order) = (BTreeSet::new(), VecDeque::new());
        let mut missed = 0;
        for step in 0..steps {
            let (page, is_walk) = next(step);
            if resident.contains(&page) {
                continue;
            }
            missed += usize::from(step >= steps / 2);
            while resident.len() >= room {
                let (page, victim) = match policy.next_run() {
                    Some(run) => (run.start.0, Victim::Passed),
                    None => (order.pop_front().expect("what is resident is in order"), Victim::Hand),
                };
                if resident.remove(&page) {
                    policy.evicted(PageIndex(page), victim);
                }
            }
            resident.insert(page);
            order.push_back(page);
            let run = Run { start: PageIndex(page), count: PageCount(1) };
            policy.brought(run, if is_walk { WINDOW_MAX } else { PageCount(1) });
        }
        missed * 100 / (steps / 2)
    }

    #[test]
    fn a_loop_keeps_what_has_room() {
        // Belady's rule would miss 50 of 100; a clock misses each.
        let missed = misses(500, 200_000, |step| (step as u64 % 1000, true));
        assert!((50..56).contains(&missed), "{missed}");
    }

    #[test]
    fn a_walk_that_turns_round_is_left_to_the_hand() {
        // Up and down again: what has just been passed is wanted next, and the oldest is right.
        let zigzag = |step: usize| {
            let at = step as u64 % 2000;
            (if at < 1000 { at } else { 1999 - at }, true)
        };
        let missed = misses(500, 200_000, zigzag);
        assert!(missed < 60, "{missed}");
    }

    #[test]
    fn without_walks_there_is_nothing_to_drop() {
        let mut number = 1_u64;
        let random = |_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % 1000
        };
        let mut random = random;
        let missed = misses(500, 100_000, |step| (random(step), false));
        assert!((48..53).contains(&missed), "{missed}");
    }

    #[test]
    fn a_walk_keeps_its_lag() {
        let mut policy = DropBehind::new(PageCount(32));
        for run in 0..3 {
            policy.brought(Run { start: PageIndex(run * 16), count: PageCount(16) }, WINDOW_MAX);
        }
        let given: Vec<_> = (0..4 * TRIED).filter_map(|_| policy.next_run()).collect();
        assert_eq!(given, [Run { start: PageIndex(0), count: PageCount(16) }], "the others are too near");
    }
}
