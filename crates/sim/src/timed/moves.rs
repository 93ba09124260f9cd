//! What pages take that move out, and who moves them.
//!
//! A page that moves is flushed from the translation caches of all processors that run the program. Where pages go one by one that
//! is most of what it costs, unless the program waits for it (`crates/pager/src/stock.rs`, of which the numbers here are).

use page::PageCount;

use super::{Machine, Run};

/// Pages that one fault moves while the reclaimer rests, and how often it looks for some.
pub(super) const STOCK_BURST: PageCount = PageCount(8);
pub(super) const STOCK_TRIES_MAX: usize = 4;
/// Runs shorter than this, on average, are scattered.
const SCATTERED: f64 = 24.0;
/// How many of the latest runs that average is of.
const RUNS_REMEMBERED: f64 = 16.0;

/// What has moved out so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moves {
    /// When the first of them did, and how long the program had waited by then.
    begun_ns: Option<(f64, f64)>,
    pages: PageCount,
    ns: f64,
    /// The mean of the latest runs.
    run_pages: f64,
}

impl Moves {
    /// A run moves out while the program is at work for this part of the time; returns how long that takes.
    pub(super) fn note(&mut self, machine: &Machine, pages: PageCount, busy: f64) -> f64 {
        let ns = machine.moves_out_in_ns(pages, busy);
        self.pages += pages;
        self.ns += ns;
        if pages > PageCount::ZERO {
            self.run_pages += (pages.0 as f64 - self.run_pages) / RUNS_REMEMBERED;
        }
        ns
    }

    /// For which part of the time the program has been at work since the first.
    pub(super) fn busy(&mut self, run: &Run<'_>) -> f64 {
        let (begun_ns, idle_ns) = *self.begun_ns.get_or_insert((run.now_ns, run.idle_ns));
        let since_ns = run.now_ns - begun_ns;
        if since_ns > 0.0 { 1.0 - (run.idle_ns - idle_ns) / since_ns } else { 1.0 }
    }

    /// What a page has taken, its part of its run's included.
    pub(super) fn page_ns(self) -> f64 {
        self.ns / self.pages.0.max(1) as f64
    }

    pub(super) fn are_scattered(self) -> bool {
        self.pages > PageCount::ZERO && self.run_pages < SCATTERED
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Basis, Cost};
    use super::*;

    fn machine(processors: u32) -> Machine {
        let cost = |ns| Cost { ns, basis: Basis::Estimate, source: "a test".into() };
        let costs = (cost(100.0), cost(1000.0), cost(10_000.0));
        Machine { processors, move_out: costs.0, move_run: costs.1, interrupt: costs.2, ..Machine::ALL[0].clone() }
    }

    #[test]
    fn a_run_shares_its_call_and_its_interrupt() {
        let mut moves = Moves::default();
        let mut note =
            |processors, pages, busy| moves.note(&machine(processors), PageCount(pages), busy).round() as u64;
        assert_eq!([note(2, 1, 1.0), note(2, 10, 1.0), note(2, 1, 0.25)], [11_100, 12_000, 3_600]);
        // There is nobody to interrupt, or nothing has moved.
        assert_eq!([note(2, 1, 0.0), note(1, 1, 1.0), note(2, 0, 1.0)], [1_100, 1_100, 0]);
        assert_eq!(moves.page_ns().round() as u64, 28_900 / 14);
    }

    #[test]
    fn short_runs_are_scattered() {
        let mut moves = Moves::default();
        assert!(!moves.are_scattered(), "nothing has moved yet");
        let mut note = |pages| {
            (0..40).for_each(|_| _ = moves.note(&machine(2), PageCount(pages), 1.0));
            moves.are_scattered()
        };
        assert_eq!([1, 32, 2].map(&mut note), [true, false, true]);
    }
}
