//! Ranges of pages. By itself, for `pleat-model` compiles it, too.

use page::{PageCount, PageIndex};

/// Pages from `start` up to, not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// The first page.
    pub start: PageIndex,
    /// The page behind the last.
    pub end: PageIndex,
}

impl PageRange {
    /// The range of `count` pages at `start`.
    pub fn new(start: PageIndex, count: PageCount) -> Self {
        Self { start, end: start + count }
    }

    /// How many pages it has.
    pub fn count(self) -> PageCount {
        self.end - self.start
    }

    /// Whether `page` lies in it.
    pub fn contains(self, page: PageIndex) -> bool {
        self.start <= page && page < self.end
    }

    /// What both have in common, if anything.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let common = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (common.start < common.end).then_some(common)
    }
}
