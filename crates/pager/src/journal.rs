//! The journal: what happens to pages while the state must not change, because the program forks.
//!
//! fork copies the agent's memory page by page. A state that changes meanwhile would reach the child torn. So from just
//! before the fork until the child has an agent of its own the state is frozen: faults are served from it, but what
//! they and the layout messages change is only noted here. A record is complete with the store of its first word, and
//! lies in one page, so the child's copy of the journal is never torn inside a record. Which pages have been filled the
//! child asks the kernel; from the journal it takes the layout messages that were read before the fork.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use page::PageIndex;
use sys::kernel::PageRange;

/// Deeds that fit. Forks last a fraction of a millisecond; a full journal makes faults wait for the fork.
pub(crate) const RECORDS_MAX: usize = 2048;

/// A deed to be done when the state thaws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// The page has been filled.
    Filled(PageIndex),
    /// Discarded by madvise.
    Removed(PageRange),
    /// Unmapped.
    Unmapped(PageRange),
    /// Moved.
    Moved { from: PageRange, to: PageIndex },
}

/// Four words, 32 bytes, so that none crosses a page of an aligned array. The first word, written last, is the tag.
#[repr(C, align(32))]
#[derive(Debug)]
struct Raw([AtomicU64; 4]);

/// Records in the order of their deeds.
#[derive(Debug)]
pub(crate) struct Journal {
    records: Box<[Raw]>,
    used: usize,
    /// Records that were there when the message about the fork was read.
    before_fork: usize,
}

impl Journal {
    pub(crate) fn new() -> Self {
        let records = (0..RECORDS_MAX).map(|_| Raw([const { AtomicU64::new(0) }; 4])).collect();
        Self { records, used: 0, before_fork: 0 }
    }

    /// Whether no more than `count` records fit any more.
    pub(crate) fn is_nearly_full(&self, count: usize) -> bool {
        self.used + count >= RECORDS_MAX
    }

    /// Notes a deed.
    pub(crate) fn note(&mut self, record: Record) {
        let [tag, first, second, third] = match record {
            Record::Filled(page) => [1, page.0, 0, 0],
            Record::Removed(range) => [2, range.start.0, range.end.0, 0],
            Record::Unmapped(range) => [3, range.start.0, range.end.0, 0],
            Record::Moved { from, to } => [4, from.start.0, from.end.0, to.0],
        };
        let raw = &self.records[self.used].0;
        raw[1].store(first, Ordering::Relaxed);
        raw[2].store(second, Ordering::Relaxed);
        raw[3].store(third, Ordering::Relaxed);
        // Release: whoever sees the tag, in this process or in a copy of its memory, sees the record.
        raw[0].store(tag, Ordering::Release);
        self.used += 1;
    }

    /// What is noted from now on the forked child does not share.
    pub(crate) fn mark_fork(&mut self) {
        self.before_fork = self.used;
    }

    fn get(&self, index: usize) -> Option<Record> {
        let raw = &self.records.get(index)?.0;
        let word = |field: usize| raw[field].load(Ordering::Relaxed);
        let range = || PageRange { start: PageIndex(word(1)), end: PageIndex(word(2)) };
        match raw[0].load(Ordering::Acquire) {
            1 => Some(Record::Filled(PageIndex(word(1)))),
            2 => Some(Record::Removed(range())),
            3 => Some(Record::Unmapped(range())),
            4 => Some(Record::Moved { from: range(), to: PageIndex(word(3)) }),
            _ => None,
        }
    }

    /// Where a page's slot is found in the frozen state: under which index, or that it is now with the program
    /// (`Resident`), or nothing (`Untouched`).
    pub(crate) fn trace(&self, page: PageIndex) -> Traced {
        self.trace_before(self.used, Filled::Count, page)
    }

    /// The same for a page that the forked child misses: so it has not been filled there, and what we noted after the
    /// fork is not its business.
    pub(crate) fn trace_for_child(&self, page: PageIndex) -> Traced {
        self.trace_before(self.before_fork, Filled::Ignored, page)
    }

    fn trace_before(&self, end: usize, filled_pages: Filled, mut page: PageIndex) -> Traced {
        for index in (0..end).rev() {
            match self.get(index) {
                Some(Record::Filled(filled)) if filled == page && filled_pages == Filled::Count => {
                    return Traced::Resident;
                }
                Some(Record::Removed(range) | Record::Unmapped(range)) if range.contains(page) => {
                    return Traced::Untouched;
                }
                Some(Record::Moved { from, to }) => {
                    let target = PageRange::new(to, from.count());
                    if target.contains(page) {
                        page = from.start + (page - to);
                    } else if from.contains(page) {
                        return Traced::Untouched;
                    }
                }
                _ => {}
            }
        }
        Traced::At(page)
    }

    /// The deeds in order, counted by what is there, not by `used`: in a child that is older than the records.
    pub(crate) fn replay(&mut self, mut visit: impl FnMut(Record)) {
        let mut index = 0;
        while let Some(record) = self.get(index) {
            visit(record);
            self.records[index].0[0].store(0, Ordering::Relaxed);
            index += 1;
        }
        // A child's copy may hold later records behind a missing one: they have not happened here.
        for raw in self.records[index..].iter().filter(|raw| raw.0[0].load(Ordering::Relaxed) != 0) {
            raw.0[0].store(0, Ordering::Relaxed);
        }
        self.used = 0;
        self.before_fork = 0;
    }
}

/// Whether a record of a filled page says that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Filled {
    Count,
    Ignored,
}

/// What the journal knows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traced {
    /// Its slot is that of this page in the frozen state.
    At(PageIndex),
    /// It has been filled since.
    Resident,
    /// It has been discarded since.
    Untouched,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start: PageIndex(start), end: PageIndex(end) }
    }

    #[test]
    fn the_last_deed_counts() {
        let mut journal = Journal::new();
        assert_eq!(journal.trace(PageIndex(5)), Traced::At(PageIndex(5)));
        journal.note(Record::Filled(PageIndex(5)));
        assert_eq!(journal.trace(PageIndex(5)), Traced::Resident);
        journal.note(Record::Removed(range(4, 6)));
        assert_eq!(journal.trace(PageIndex(5)), Traced::Untouched);
        journal.note(Record::Moved { from: range(4, 8), to: PageIndex(100) });
        assert_eq!(journal.trace(PageIndex(101)), Traced::Untouched);
        assert_eq!(journal.trace(PageIndex(103)), Traced::At(PageIndex(7)));
        assert_eq!(journal.trace(PageIndex(7)), Traced::Untouched);
        journal.note(Record::Filled(PageIndex(7)));
        assert_eq!(journal.trace(PageIndex(7)), Traced::Resident);
    }

    #[test]
    fn deeds_are_replayed_once_and_in_order() {
        let mut journal = Journal::new();
        let deeds = [Record::Filled(PageIndex(1)), Record::Unmapped(range(1, 2)), Record::Filled(PageIndex(1))];
        for deed in deeds {
            journal.note(deed);
        }
        let mut seen = alloc::vec::Vec::new();
        journal.replay(|record| seen.push(record));
        assert_eq!(seen, deeds);
        journal.replay(|_| panic!("replayed twice"));
    }

    #[test]
    fn a_torn_copy_ends_at_the_first_missing_record() {
        let mut journal = Journal::new();
        for page in 0..4 {
            journal.note(Record::Filled(PageIndex(page)));
        }
        journal.records[2].0[0].store(0, Ordering::Relaxed);
        let mut seen = alloc::vec::Vec::new();
        journal.replay(|record| seen.push(record));
        assert_eq!(seen.len(), 2);
        journal.replay(|_| panic!("a record behind the tear came back"));
    }
}
