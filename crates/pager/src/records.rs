//! Records: what the journal holds, in the order of the deeds, in one row that never moves.
//!
//! A thread that holds a lock of malloc's, which the forking thread waits for, may fill and discard for as long as it likes.
//! So the *tail*, what has been filled and discarded since the last other deed or mark, is kept in its shortest form: first
//! what has been discarded, then what has been filled since it was discarded last, each sorted, and neighbours joined.
//! That says the same of every page, and is never longer than the ranges it is about; however often they are filled and
//! discarded. What is before the tail never changes.

use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::{Deref, Range};

use page::ByteCount;
use sys::Area;
use sys::kernel::PageRange;

use crate::journal::Record;

/// Records that fit.
const RECORDS_MAX: usize = 1 << 16;
/// Moves that fit: with each the work to find out what is managed grows ([`crate::journal::Journal::is_managed_now`]).
const MOVES_MAX: usize = 2048;
/// The most that a deed makes of them: a discard in the middle of what has been filled.
const GROWTH_MAX: usize = 2;
/// Addresses that a pager's journal takes.
pub const JOURNAL_BYTES: usize = RECORDS_MAX * size_of::<Record>();
/// What may stay resident between two forks.
const KEPT_BYTES: usize = 64 << 10;
pub(crate) const KEPT: ByteCount = ByteCount(KEPT_BYTES as u64);

/// Records in the order of their deeds.
#[derive(Debug)]
pub(crate) struct Records {
    /// Not of the heap: a forked child's must not be copied in the middle of an allocation, and what is not used takes no frame.
    area: Area,
    count: usize,
    /// The most there have been since they were cleared.
    count_max: usize,
    /// Where the tail begins, and what has been filled in it.
    tail: usize,
    filled: usize,
    /// Where the moves are. Never grows.
    moves: Vec<u32>,
}

impl Records {
    /// In an area of [`JOURNAL_BYTES`].
    pub(crate) fn new(area: Area) -> Self {
        assert!(area.bytes() >= JOURNAL_BYTES, "too small for the records");
        Self { area, count: 0, count_max: 0, tail: 0, filled: 0, moves: Vec::with_capacity(MOVES_MAX) }
    }

    /// Whether so many deeds are sure to fit.
    pub(crate) fn have_room(&self, deeds: usize) -> bool {
        self.count + deeds * GROWTH_MAX <= RECORDS_MAX && self.moves.len() + deeds <= MOVES_MAX
    }

    /// Notes a deed.
    pub(crate) fn note(&mut self, record: Record) {
        assert!(self.have_room(1), "a fork lasts for more changes of memory than can be noted");
        if matches!(record, Record::Moved { .. }) {
            self.moves.push(self.count as u32);
        }
        match record {
            Record::Filled(range) => self.insert(self.filled..self.count, range, Record::Filled),
            Record::Removed(range) => {
                self.cut_filled(range);
                let before = self.count;
                self.insert(self.tail..self.filled, range, Record::Removed);
                self.filled = self.filled + self.count - before;
            }
            Record::Unmapped(_) | Record::Moved { .. } => {
                self.replace(self.count..self.count, &[record]);
                self.close();
            }
        }
    }

    /// Nothing is joined from here on with what is there.
    pub(crate) fn close(&mut self) {
        self.tail = self.count;
        self.filled = self.count;
    }

    /// Forgets all. In a forked child, too, whose copy may be torn: no record is looked at.
    pub(crate) fn clear(&mut self) {
        let bytes = (self.count_max * size_of::<Record>()).next_multiple_of(page::PAGE_BYTES).min(self.area.bytes());
        if bytes > KEPT_BYTES {
            self.area.release(KEPT_BYTES, bytes - KEPT_BYTES);
        }
        (self.count, self.count_max) = (0, 0);
        self.moves.clear();
        self.close();
    }

    /// Those before the tail.
    pub(crate) fn before_tail(&self) -> &[Record] {
        &self[..self.tail]
    }

    /// The moves among those from `place` on.
    pub(crate) fn moves_from(&self, place: usize) -> impl Iterator<Item = Record> + '_ {
        let first = self.moves.partition_point(|at| (*at as usize) < place);
        self.moves[first..].iter().map(|at| self[*at as usize])
    }

    /// What the tail has of these pages' fills or, where there is none, of their discards.
    pub(crate) fn last_in_tail(&self, pages: PageRange) -> Option<Record> {
        [self.filled..self.count, self.tail..self.filled].into_iter().find_map(|part| {
            let part = &self[part];
            let at = part.partition_point(|record| span(*record).end <= pages.start);
            part.get(at).copied().filter(|record| span(*record).start < pages.end)
        })
    }

    /// Adds a range to a sorted part, joined with what it touches or overlaps; as `Regions::insert` does.
    fn insert(&mut self, part: Range<usize>, range: PageRange, record: fn(PageRange) -> Record) {
        let records = &self[part.clone()];
        let first = records.partition_point(|record| span(*record).end < range.start);
        let last = records.partition_point(|record| span(*record).start <= range.end);
        let mut joined = range;
        for other in records[first..last].iter().map(|record| span(*record)) {
            joined = PageRange { start: joined.start.min(other.start), end: joined.end.max(other.end) };
        }
        self.replace(part.start + first..part.start + last, &[record(joined)]);
    }

    /// Takes a range out of what has been filled in the tail; as `Regions::cut` does.
    fn cut_filled(&mut self, range: PageRange) {
        let records = &self[self.filled..];
        let first = records.partition_point(|record| span(*record).end <= range.start);
        let last = records.partition_point(|record| span(*record).start < range.end);
        if first == last {
            return;
        }
        let (left, right) = (span(records[first]), span(records[last - 1]));
        let left = PageRange { start: left.start, end: range.start };
        let right = PageRange { start: range.end, end: right.end };
        let kept = [Record::Filled(left), Record::Filled(right)];
        let from = usize::from(left.start >= left.end);
        let to = 1 + usize::from(right.start < right.end);
        self.replace(self.filled + first..self.filled + last, if from < to { &kept[from..to] } else { &[] });
    }

    /// Puts others in the place of some.
    fn replace(&mut self, range: Range<usize>, others: &[Record]) {
        let (old, behind) = (range.end..self.count, range.start + others.len());
        self.count = behind + old.len();
        self.count_max = self.count_max.max(self.count);
        let places = self.places();
        if old.start != behind {
            places.copy_within(old, behind);
        }
        for (place, record) in places[range.start..].iter_mut().zip(others) {
            place.write(*record);
        }
    }

    fn places(&mut self) -> &mut [MaybeUninit<Record>] {
        // SAFETY: the area has so many bytes, begins with a page, and nobody else knows it; any bytes will do for places
        // where perhaps nothing is.
        unsafe { core::slice::from_raw_parts_mut(self.area.base().cast(), RECORDS_MAX) }
    }
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        // SAFETY: the first `count` places of the area have been written, and are written by `&mut self` alone.
        unsafe { core::slice::from_raw_parts(self.area.base().cast(), self.count) }
    }
}

/// The pages of a record of the tail.
fn span(record: Record) -> PageRange {
    match record {
        Record::Filled(range) | Record::Removed(range) | Record::Unmapped(range) => range,
        Record::Moved { from, .. } => from,
    }
}

#[cfg(test)]
mod tests {
    use page::{PageCount, PageIndex};

    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start: PageIndex(start), end: PageIndex(end) }
    }

    fn empty() -> Records {
        Records::new(Area::reserve(JOURNAL_BYTES).unwrap())
    }

    #[test]
    fn what_is_filled_and_discarded_over_and_over_takes_no_more_room() {
        let mut records = empty();
        for round in 0..20 {
            for page in (0..5000).map(|step| step * 7 % 5000) {
                records.note(Record::Filled(range(page, page + 1)));
            }
            assert_eq!(records.last(), Some(&Record::Filled(range(0, 5000))));
            assert_eq!(records.len(), if round == 0 { 1 } else { 2 });
            for page in (0..5000).map(|step| step * 7 % 5000) {
                records.note(Record::Removed(range(page, page + 1)));
            }
            assert_eq!(*records, [Record::Removed(range(0, 5000))]);
        }
    }

    #[test]
    fn nothing_is_joined_with_what_is_closed() {
        let mut records = empty();
        let removed = Record::Removed(range(3, 5));
        records.note(removed);
        records.close();
        records.note(removed);
        records.note(Record::Unmapped(range(9, 10)));
        records.note(removed);
        assert_eq!(*records, [removed, removed, Record::Unmapped(range(9, 10)), removed]);
    }

    #[test]
    fn a_full_row_is_given_back() {
        let mut records = empty();
        for round in 0..2 {
            let count = RECORDS_MAX as u64 - 1;
            (0..count).for_each(|at| records.note(Record::Filled(range(round + 2 * at, round + 2 * at + 1))));
            assert_eq!(records.len() as u64, count);
            let last = records.last_in_tail(PageRange::new(PageIndex(round + 2 * count - 3), PageCount(2)));
            assert_eq!(last, records.last().copied());
            records.clear();
            assert!(records.is_empty() && records.last_in_tail(range(0, 1 << 20)).is_none());
        }
    }

    #[test]
    #[should_panic(expected = "more changes of memory")]
    fn a_full_row_takes_nothing() {
        let mut records = empty();
        (0..=RECORDS_MAX as u64).for_each(|at| records.note(Record::Unmapped(range(at, at + 1))));
    }
}
