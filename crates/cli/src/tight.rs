//! A budget of which little is left to work with, because most of it is memory that cannot leave: such a run is many times as slow, or has
//! no end, and nothing else says why. Where the budget cannot be met at all, that is said instead: what cannot leave then is what there
//! is no place for.

use std::time::Duration;

use page::ByteCount;

use crate::failure::say;
use crate::size::Human;

/// So much of the budget cannot leave.
const FIXED_PERCENT: u64 = 75;
/// So much of each second goes by over pages that had left, ns: a third.
const LOST_NS: u64 = 1_000_000_000 / 3;
/// For so long without a break.
const LASTING: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Tight {
    budget: ByteCount,
    lasts: Duration,
    /// How often the budget could not be met.
    exceeded: u64,
    has_told: bool,
}

impl Tight {
    pub(crate) fn new(budget: ByteCount) -> Self {
        Self { budget, lasts: Duration::ZERO, exceeded: 0, has_told: false }
    }

    /// At each look, `elapsed` after the last one: what of the run cannot leave, what it loses of each second, and how often it could
    /// not meet its budget so far. Says so once.
    pub(crate) fn look(&mut self, fixed: ByteCount, lost_ns: u64, exceeded: u64, elapsed: Duration) {
        if self.is_due(fixed, lost_ns, exceeded, elapsed) {
            say(format_args!(
                "{} of the budget of {} cannot leave memory (changed pages of libraries and files, pleat's own), and the \
                 program asks again and again for the rest: raise --ram",
                Human(fixed.0),
                Human(self.budget.0),
            ));
        }
    }

    fn is_due(&mut self, fixed: ByteCount, lost_ns: u64, exceeded: u64, elapsed: Duration) -> bool {
        let is_met = exceeded == core::mem::replace(&mut self.exceeded, exceeded);
        let is_tight = is_met && fixed.0 >= self.budget.0 / 100 * FIXED_PERCENT && lost_ns >= LOST_NS;
        self.lasts = if is_tight { self.lasts + elapsed } else { Duration::ZERO };
        let is_due = self.lasts >= LASTING && !self.has_told;
        self.has_told |= is_due;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// After how many seconds of so much each it says something, and how often in twenty.
    fn told(fixed_mib: u64, lost_ms: u64) -> (Option<usize>, usize) {
        let mut tight = Tight::new(ByteCount(16 << 20));
        let told: Vec<_> =
            (1..=20).filter(|_| tight.is_due(ByteCount(fixed_mib << 20), lost_ms * 1_000_000, 0, SECOND)).collect();
        (told.first().copied(), told.len())
    }

    #[test]
    fn it_is_told_once_where_little_is_left_and_much_is_lost() {
        assert_eq!(told(12, 334), (Some(5), 1));
        assert_eq!(told(16, 900), (Some(5), 1));
        assert_eq!(told(11, 900), (None, 0));
        assert_eq!(told(16, 333), (None, 0));
    }

    #[test]
    fn a_budget_that_cannot_be_met_is_told_of_elsewhere() {
        let mut tight = Tight::new(ByteCount(16 << 20));
        let mut look = |exceeded| tight.is_due(ByteCount(16 << 20), LOST_NS, exceeded, SECOND);
        assert!(!(1..=20).any(&mut look));
        assert_eq!([20; 5].map(look), [false, false, false, false, true]);
    }

    #[test]
    fn a_moment_without_loss_begins_anew() {
        let mut tight = Tight::new(ByteCount(16 << 20));
        let mut look = |lost_ns| tight.is_due(ByteCount(15 << 20), lost_ns, 0, SECOND);
        assert!(
            ![LOST_NS, LOST_NS, LOST_NS, LOST_NS, 0, LOST_NS, LOST_NS, LOST_NS, LOST_NS].map(&mut look).contains(&true)
        );
        assert!(look(LOST_NS));
    }
}
