//! The journal: what happens to pages while the state must not change, because the program forks.
//!
//! fork copies the agent's memory page by page. A state that changes meanwhile would reach the child torn. So from just
//! before the fork until the child has an agent of its own the state is frozen: faults are served from it, but what
//! they and the layout messages change is only noted here. Which pages have been filled the child asks the kernel; which
//! layout messages it shares its parent tells it. In its copy of the journal those are missing that were on their way
//! when the memory was copied.
//!
//! A thread changes the layout first and posts its message afterwards, and so does the one that forks. So the order of
//! the messages says roughly where among them the memory was copied; what is registered in the child says it exactly
//! ([`Journal::place_fork`]).

use alloc::vec::Vec;

use page::{PageCount, PageIndex};
use sys::kernel::{Message, PageRange};

/// Deeds that fit. Forks last a fraction of a millisecond; a full journal makes faults wait for the fork.
pub(crate) const RECORDS_MAX: usize = 2048;

/// Records on either side of the mark among which the fork is looked for: messages that were on their way then.
const PLACES_MAX: usize = 64;

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

impl Record {
    /// What a layout message says; `None` for the others.
    pub(crate) fn of(message: Message) -> Option<Self> {
        match message {
            Message::Remove(range) => Some(Self::Removed(range)),
            Message::Unmap(range) => Some(Self::Unmapped(range)),
            Message::Remap { from, to } => Some(Self::Moved { from, to }),
            Message::Fault { .. } | Message::Fork(_) => None,
        }
    }

    /// Pages whose registration tells whether this has happened.
    fn witnesses(self, managed: &impl Fn(PageRange) -> Option<PageIndex>) -> [Option<PageIndex>; 2] {
        match self {
            Self::Filled(_) | Self::Removed(_) => [None, None],
            Self::Unmapped(range) => [managed(range), None],
            Self::Moved { from, to } => {
                let page = managed(from).unwrap_or(from.start);
                [Some(page), Some(to + (page - from.start))]
            }
        }
    }
}

/// Records in the order of their deeds.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Never grows: a forked child's heap must not be copied in the middle of an allocation.
    records: Vec<Record>,
    /// Records that the forked child shares.
    before_fork: usize,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { records: Vec::with_capacity(RECORDS_MAX), before_fork: 0 }
    }

    /// Whether no more than `count` records fit any more.
    pub(crate) fn is_nearly_full(&self, count: usize) -> bool {
        self.records.len() + count >= RECORDS_MAX
    }

    /// Notes a deed.
    pub(crate) fn note(&mut self, record: Record) {
        assert!(self.records.len() < RECORDS_MAX, "a fork lasts for more than {RECORDS_MAX} layout messages");
        self.records.push(record);
    }

    /// The message about the fork has been read: what is noted from now on the forked child does not share, as far as we
    /// know yet.
    pub(crate) fn mark_fork(&mut self) {
        self.before_fork = self.records.len();
    }

    /// Once no layout message is on its way: finds where among the records the memory was copied. Of the places at which
    /// nothing is missing in the child that must be registered there, it is the nearest to the mark; false if there is
    /// none. The opposite, something that should not be registered and is, proves nothing: mappings grow without a
    /// message. `managed` is the first page of a range that was in the frozen state, `is_registered` `None` where the
    /// child cannot tell.
    pub(crate) fn place_fork(
        &mut self,
        managed: impl Fn(PageRange) -> Option<PageIndex>,
        mut is_registered: impl FnMut(PageIndex) -> Option<bool>,
    ) -> bool {
        let mut missing: Vec<PageIndex> =
            self.records.iter().flat_map(|record| record.witnesses(&managed)).flatten().collect();
        missing.retain(|page| is_registered(*page) == Some(false));
        let explains = |end: usize| !missing.iter().any(|page| self.must_be_registered(end, *page, &managed));
        let (mark, end) = (self.before_fork, self.records.len());
        // The later one first: that a message comes late is likelier than that one overtakes the fork's.
        let nearest = (0..PLACES_MAX).flat_map(|step| [Some(mark + step), mark.checked_sub(step)]).flatten();
        let place = nearest.filter(|place| *place <= end).find(|place| explains(*place));
        self.before_fork = place.unwrap_or(mark);
        place.is_some()
    }

    /// Whether a page was registered for certain after the first `end` records.
    fn must_be_registered(
        &self,
        end: usize,
        page: PageIndex,
        managed: &impl Fn(PageRange) -> Option<PageIndex>,
    ) -> bool {
        let origin = origin(&self.records[..end], page);
        origin.is_some_and(|page| managed(PageRange::new(page, PageCount(1))).is_some())
    }

    /// Where what is registered at `page` now was in the frozen state, if it was anywhere.
    pub(crate) fn origin(&self, page: PageIndex) -> Option<PageIndex> {
        origin(&self.records, page)
    }

    /// Pages at which ranges begin that have moved, or may begin because what was before them has gone.
    pub(crate) fn borders(&self) -> impl Iterator<Item = PageIndex> + '_ {
        let borders = self.records.iter().map(|record| match *record {
            Record::Unmapped(range) => [Some(range.end), None],
            Record::Moved { from, to } => [Some(from.end), Some(to)],
            Record::Filled(_) | Record::Removed(_) => [None, None],
        });
        borders.flatten().flatten()
    }

    /// The layout changes that the forked child shares, in order.
    pub(crate) fn shared_layout(&self) -> impl Iterator<Item = Message> + '_ {
        self.records[..self.before_fork].iter().filter_map(|record| match *record {
            Record::Filled(_) => None,
            Record::Removed(range) => Some(Message::Remove(range)),
            Record::Unmapped(range) => Some(Message::Unmap(range)),
            Record::Moved { from, to } => Some(Message::Remap { from, to }),
        })
    }

    /// Where a page's slot is found in the frozen state: under which index, or that it is now with the program
    /// (`Resident`), or nothing (`Untouched`).
    pub(crate) fn trace(&self, page: PageIndex) -> Traced {
        trace(&self.records, Filled::Count, page)
    }

    /// The same for a page that the forked child misses: so it has not been filled there, and what we noted after the
    /// fork is not its business.
    pub(crate) fn trace_for_child(&self, page: PageIndex) -> Traced {
        trace(&self.records[..self.before_fork], Filled::Ignored, page)
    }

    /// The deeds in order, each once.
    pub(crate) fn replay(&mut self, visit: impl FnMut(Record)) {
        self.records.drain(..).for_each(visit);
        self.before_fork = 0;
    }
}

/// Unless mremap keeps what it moves (`MREMAP_DONTUNMAP`).
fn origin(records: &[Record], mut page: PageIndex) -> Option<PageIndex> {
    for record in records.iter().rev() {
        match *record {
            Record::Unmapped(range) if range.contains(page) => return None,
            Record::Moved { from, to } if PageRange::new(to, from.count()).contains(page) => {
                page = from.start + (page - to);
            }
            Record::Moved { from, .. } if from.contains(page) => return None,
            _ => {}
        }
    }
    Some(page)
}

fn trace(records: &[Record], filled_pages: Filled, mut page: PageIndex) -> Traced {
    for record in records.iter().rev() {
        match *record {
            Record::Filled(filled) if filled == page && filled_pages == Filled::Count => {
                return Traced::Resident;
            }
            Record::Removed(range) | Record::Unmapped(range) if range.contains(page) => {
                return Traced::Untouched;
            }
            Record::Moved { from, to } => {
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

    /// A thread has moved a range and unmapped another. The child's memory says how much of that it shares, wherever the
    /// message about the fork came.
    #[test]
    fn the_fork_is_found_among_the_records() {
        let (old, new, gone) = (range(100, 110), range(200, 210), range(300, 310));
        let records =
            [Record::Filled(PageIndex(1)), Record::Moved { from: old, to: new.start }, Record::Unmapped(gone)];
        let managed = |asked: PageRange| {
            [old, gone].into_iter().find_map(|region| region.intersection(asked)).map(|common| common.start)
        };
        // How many of the two the child shares, and what it shares when the message came after so many records. That
        // `gone` is registered proves nothing.
        for (shares, found) in [(0, [0, 1, 1, 1]), (1, [2, 2, 2, 3]), (2, [3, 3, 3, 3])] {
            for (mark, found) in found.into_iter().enumerate() {
                let mut journal = Journal::new();
                for record in records {
                    journal.note(record);
                }
                journal.before_fork = mark;
                let is_registered = |page: PageIndex| match page.0 {
                    100 => Some(shares == 0),
                    200 => Some(shares > 0),
                    300 => Some(shares < 2),
                    _ => panic!("{page:?} is no witness"),
                };
                assert!(journal.place_fork(managed, is_registered));
                assert_eq!(journal.before_fork, found, "{shares} shared, mark {mark}");
            }
        }
    }

    #[test]
    fn a_fork_that_no_order_explains_is_not_placed() {
        let (region, other) = (range(100, 110), range(300, 310));
        let mut journal = Journal::new();
        journal.note(Record::Unmapped(region));
        journal.note(Record::Unmapped(other));
        let managed = |asked: PageRange| {
            [region, other].into_iter().find_map(|region| region.intersection(asked)).map(|common| common.start)
        };
        assert!(journal.place_fork(managed, |_| None));
        journal.note(Record::Moved { from: range(500, 510), to: PageIndex(100) });
        journal.note(Record::Moved { from: range(600, 610), to: PageIndex(500) });
        // The second move has happened and the first has not.
        let managed = |asked: PageRange| Some(asked.start).filter(|page| page.0 >= 300);
        assert!(!journal.place_fork(managed, |page| Some(page.0 == 500)));
    }
}
