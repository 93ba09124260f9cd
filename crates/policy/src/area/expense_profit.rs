//! `expense-profit`: as tight as reads tell, after de Castro, do Lago and Da Silva (2003), section 3.

use super::{Area, AreaSizing, Relief, Resizing, Source};

/// How soon it acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sensitivity {
    /// Reads in a row from the expense list that lock the area against growth.
    pub lock_at: u32,
    /// Reads in a row that make it shrink.
    pub shrink_at: u32,
}

impl Sensitivity {
    /// The paper's own: the second read locks, the third shrinks.
    pub const REFERENCE: Self = Self { lock_at: 2, shrink_at: 3 };
    /// "less sensible to changes than reference, trying to take an action when there is stronger evidences". How much, the
    /// paper does not say; these are ours.
    pub const SLUGGISH: Self = Self { lock_at: 6, shrink_at: 9 };
    /// "trying to shrink the compressed cache at each access to the expense list".
    pub const AGGRESSIVE: Self = Self { lock_at: 1, shrink_at: 1 };
}

/// The policy's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpenseProfit {
    sensitivity: Sensitivity,
    /// Reads in a row from the expense list.
    expense_reads: u32,
    locked: bool,
}

impl ExpenseProfit {
    /// An area that may grow.
    pub const fn new(sensitivity: Sensitivity) -> Self {
        assert!(0 < sensitivity.lock_at && sensitivity.lock_at <= sensitivity.shrink_at);
        Self { sensitivity, expense_reads: 0, locked: false }
    }

    /// Whether it may not grow.
    pub const fn is_locked(&self) -> bool {
        self.locked
    }
}

impl AreaSizing for ExpenseProfit {
    fn full(&mut self, area: &Area) -> Relief {
        if self.locked || !area.can_grow() { Relief::ReleaseOldest } else { Relief::Grow }
    }

    fn read(&mut self, source: Source) -> Resizing {
        if source == Source::Profit {
            (self.expense_reads, self.locked) = (0, false);
            return Resizing::Keep;
        }
        self.expense_reads += 1;
        if self.expense_reads >= self.sensitivity.shrink_at {
            (self.expense_reads, self.locked) = (0, false);
            return Resizing::ShrinkOrRelease;
        }
        self.locked |= self.expense_reads >= self.sensitivity.lock_at;
        Resizing::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::area;
    use super::Resizing::{Keep, ShrinkOrRelease};
    use super::Source::{Expense, Profit};
    use super::*;

    /// What each read leads to, and whether the area is locked then.
    fn walk<const N: usize>(sensitivity: Sensitivity, reads: [Source; N]) -> [(Resizing, bool); N] {
        let mut policy = ExpenseProfit::new(sensitivity);
        reads.map(|source| (policy.read(source), policy.is_locked()))
    }

    /// "If two consecutive compressed pages are read from the expense list, the compressed cache is locked to growth […] If
    /// this scenario persists and the third consecutive compressed page from the expense list is reclaimed, we take the
    /// following action: (i) if we are able to relocate enough of the compressed pages from a cell to other cells, we do
    /// the relocation […]; otherwise, (ii) we free the oldest compressed page. Once one of these actions is taken, the
    /// growth barrier is removed and the analysis starts again."
    #[test]
    fn the_second_expense_locks_and_the_third_shrinks() {
        let expected = [
            (Keep, false),
            (Keep, true),
            (ShrinkOrRelease, false),
            (Keep, false),
            (Keep, true),
            (ShrinkOrRelease, false),
        ];
        assert_eq!(walk(Sensitivity::REFERENCE, [Expense; 6]), expected);
    }

    /// "If a page is read from the profit list, any existing growth barrier is removed".
    #[test]
    fn a_profit_unlocks() {
        let reads = [Expense, Expense, Profit, Expense, Expense, Expense];
        let expected =
            [(Keep, false), (Keep, true), (Keep, false), (Keep, false), (Keep, true), (ShrinkOrRelease, false)];
        assert_eq!(walk(Sensitivity::REFERENCE, reads), expected);
    }

    /// "two consecutive": a profit in between starts the count anew.
    #[test]
    fn only_reads_in_a_row_count() {
        for read in walk(Sensitivity::REFERENCE, [Expense, Profit, Expense, Profit, Expense, Profit]) {
            assert_eq!(read, (Keep, false));
        }
    }

    /// "The second policy, on the other hand, is more aggressive, trying to shrink the compressed cache at each access to
    /// the expense list."
    #[test]
    fn aggressive_shrinks_at_each_expense() {
        let reads = walk(Sensitivity::AGGRESSIVE, [Expense, Expense, Profit, Expense]);
        assert_eq!(reads.map(|(resizing, _)| resizing), [ShrinkOrRelease, ShrinkOrRelease, Keep, ShrinkOrRelease]);
    }

    #[test]
    fn sluggish_waits_longer() {
        let reads = walk(Sensitivity::SLUGGISH, [Expense; 9]);
        assert_eq!(
            reads.map(|(resizing, _)| resizing == ShrinkOrRelease).iter().filter(|&&shrinks| shrinks).count(),
            1
        );
        assert_eq!((reads[4], reads[5], reads[8]), ((Keep, false), (Keep, true), (ShrinkOrRelease, false)));
    }

    /// "The amount of memory allocated for compressed cache is only increased when it is full, compacted, and would have to
    /// release a compressed page in order to store a new page." "In other words, we only allocate if the memory pages we
    /// need are available at the allocation time."
    #[test]
    fn it_grows_only_into_memory_that_is_free() {
        let mut policy = ExpenseProfit::new(Sensitivity::REFERENCE);
        assert_eq!(policy.full(&area(8, 0, 4)), Relief::Grow);
        assert_eq!(policy.full(&area(8, 0, 3)), Relief::ReleaseOldest);
        assert_eq!(policy.look(&area(8, 0, 400)), Keep);
    }

    /// "the compressed cache will no longer increase its memory usage"
    #[test]
    fn a_locked_area_releases_its_oldest() {
        let mut policy = ExpenseProfit::new(Sensitivity::REFERENCE);
        let _ = (policy.read(Expense), policy.read(Expense));
        assert_eq!(policy.full(&area(8, 0, 400)), Relief::ReleaseOldest);
        policy.read(Profit);
        assert_eq!(policy.full(&area(8, 0, 400)), Relief::Grow);
    }
}
