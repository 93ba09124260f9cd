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
use sys::Area;
use sys::kernel::{ForkedMemory, Message, PageRange};

use crate::records::Records;
use crate::regions::Regions;

/// Messages about forks while the state is frozen that fit. A child of one that does not fit is not the one that the state is
/// frozen for, or is ended.
pub(crate) const FORKS_MAX: usize = 256;

/// The latest readings whose first record is known.
const READINGS_MAX: usize = 256;

/// With more records than this those of different readings become one, where they can: the journal must not get full for what is seldom asked.
const APART_MAX: usize = 4096;

/// Records on either side of the mark among which the fork is looked for: messages that were on their way then.
const PLACES_MAX: usize = 64;

/// A deed to be done when the state thaws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// Pages have been filled.
    Filled(PageRange),
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

    /// Pages whose registration tells whether this has happened, where `managed` is what was managed just before.
    fn witnesses(self, managed: &Regions) -> [Option<PageIndex>; 2] {
        match self {
            Self::Filled(_) | Self::Removed(_) => [None, None],
            Self::Unmapped(range) => [managed.first_in(range), None],
            Self::Moved { from, to } => {
                let page = managed.first_in(from).unwrap_or(from.start);
                [Some(page), Some(to + (page - from.start))]
            }
        }
    }

    /// What is managed for certain afterwards: mremap may keep what it moves (`MREMAP_DONTUNMAP`).
    fn change(self, managed: &mut Regions) {
        match self {
            Self::Filled(_) | Self::Removed(_) => {}
            Self::Unmapped(range) => managed.cut(range),
            Self::Moved { from, to } => {
                let moved: Vec<_> = managed.iter().filter_map(|region| region.intersection(from)).collect();
                managed.cut(from);
                managed.cut(PageRange::new(to, from.count()));
                for part in moved {
                    managed.insert(PageRange::new(to + (part.start - from.start), part.count()));
                }
            }
        }
    }

    /// Where a page is after this that was at `page` before it.
    fn carry(self, page: PageIndex) -> PageIndex {
        match self {
            Self::Moved { from, to } if from.contains(page) => to + (page - from.start),
            _ => page,
        }
    }

    /// Pages at which afterwards something else may begin than was there before.
    fn borders(self) -> [Option<PageIndex>; 3] {
        match self {
            Self::Filled(_) | Self::Removed(_) => [None; 3],
            Self::Unmapped(range) => [Some(range.end), None, None],
            Self::Moved { from, to } => [Some(from.end), Some(to), Some(to + from.count())],
        }
    }
}

/// Whether reading `one` came after `other`.
fn is_later(one: u32, other: u32) -> bool {
    other.wrapping_sub(one).cast_signed() < 0
}

/// Records in the order of their deeds.
#[derive(Debug)]
pub(crate) struct Journal {
    records: Records,
    /// Readings, and the first record of each. Never grows, as `marks`.
    readings: Vec<(usize, u32)>,
    /// Records when the fork was placed for the first time.
    told: usize,
    /// Records that the forked child shares.
    before_fork: usize,
    /// Where among the records the messages about forks came. One of them is about the fork that the state is frozen for;
    /// others are about raw system calls of other threads. Never grows: a forked child's heap must not be copied in the middle
    /// of an allocation.
    marks: Vec<Mark>,
}

/// Where a message about a fork came.
#[derive(Clone, Copy, Debug)]
struct Mark {
    child: ForkedMemory,
    /// Records before it.
    place: usize,
    /// Layout messages before it that were held back when it came.
    held: usize,
}

impl Journal {
    pub(crate) fn new(area: Area) -> Self {
        Self {
            records: Records::new(area),
            readings: Vec::with_capacity(READINGS_MAX),
            told: 0,
            before_fork: 0,
            marks: Vec::with_capacity(FORKS_MAX),
        }
    }

    /// Whether so many deeds are sure to fit.
    pub(crate) fn has_room(&self, deeds: usize) -> bool {
        self.records.have_room(deeds)
    }

    /// Notes a deed.
    pub(crate) fn note(&mut self, record: Record) {
        self.records.note(record);
    }

    /// Notes what has been told by a reading; 0 where that is not known any more.
    pub(crate) fn note_told(&mut self, record: Record, reading: u32) {
        let reading = if self.records.len() < APART_MAX { reading } else { 0 };
        if self.readings.last().is_none_or(|(_, last)| *last != reading) {
            self.records.close();
            if self.readings.len() == READINGS_MAX {
                self.readings.remove(0);
            }
            self.readings.push((self.records.len(), reading));
        }
        self.note(record);
    }

    /// The message about a fork has been read, while `held` layout messages are held back: what is noted from now on, but
    /// for those, the forked child does not share, as far as we know yet.
    pub(crate) fn mark_fork(&mut self, child: ForkedMemory, held: usize) {
        self.records.close();
        if self.marks.len() < FORKS_MAX {
            self.marks.push(Mark { child, place: self.records.len(), held });
        }
    }

    /// The layout message that was held back at `place` has been noted.
    pub(crate) fn pass_marks(&mut self, place: usize) {
        let Self { records, marks, .. } = self;
        records.close();
        marks.iter_mut().filter(|mark| place < mark.held).for_each(|mark| mark.place = records.len());
    }

    /// No layout message is held back any more.
    pub(crate) fn settle_marks(&mut self) {
        self.marks.iter_mut().for_each(|mark| mark.held = 0);
    }

    /// Once no layout message is on its way: finds where among the records the memory was copied. Of the places at which
    /// nothing is missing in the child that must be registered there, it is the nearest to the mark; false if there is
    /// none. `managed` is what was managed in the frozen state, `kept` what of it the child does not have, which
    /// says nothing of the order; `is_registered` is `None` where the child cannot tell. A child of which no message has come
    /// since the state was frozen has no place.
    ///
    /// `readings`: how many there had been in the child's memory, once it has said so. What they had told is before the place, and of the records behind
    /// that the place leaves fewest behind it that have not happened: something that should not be registered and is. Mappings grow without a
    /// message, so that proves nothing of what was long before.
    pub(crate) fn place_fork(
        &mut self,
        child: ForkedMemory,
        readings: Option<u32>,
        mut managed: Regions,
        kept: &[PageRange],
        mut is_registered: impl FnMut(PageIndex) -> Option<bool>,
    ) -> bool {
        if readings.is_none() {
            // What is noted from now on is behind the fork.
            self.records.close();
            self.told = self.records.len();
        }
        // The last one: a descriptor's number is used again when that of a child that has ended is closed.
        let Some(mark) = self.marks.iter().rfind(|mark| mark.child == child).map(|mark| mark.place) else {
            return false;
        };
        for range in kept {
            managed.cut(*range);
        }
        let mut grown = self.grown(managed.clone(), kept);
        let (mut witnesses, mut now) = (Vec::new(), managed.clone());
        for record in &self.records[..self.told] {
            witnesses.extend(record.witnesses(&now).into_iter().flatten().map(|page| (page, None)));
            record.change(&mut now);
        }
        for (page, seen) in &mut witnesses {
            *seen = is_registered(*page);
        }
        let count = |regions: &Regions, managed, seen| {
            witnesses.iter().filter(|(page, is)| *is == Some(seen) && regions.contains(*page) == managed).count()
        };
        let is_missing = |regions: &Regions| count(regions, true, false) > 0;
        let first = mark.saturating_sub(PLACES_MAX).max(readings.map_or(0, |readings| self.read_by(readings)));
        let places = first..(mark + PLACES_MAX).min(self.told + 1);
        let mut explaining = Vec::new();
        for place in 0..places.end {
            if places.contains(&place) && !is_missing(&managed) {
                let odd = readings.map_or(0, |_| count(&managed, false, true));
                explaining.push((is_missing(&grown), odd, place));
            }
            for regions in [&mut managed, &mut grown] {
                self.records.get(place).into_iter().for_each(|record| record.change(regions));
            }
        }
        // The later one first: that a message comes late is likelier than that one overtakes the fork's.
        let likeliest =
            explaining.into_iter().rev().min_by_key(|(lacks, odd, place)| (*lacks, *odd, place.abs_diff(mark)));
        match likeliest {
            Some((.., place)) => self.before_fork = place,
            None if readings.is_none() => self.before_fork = mark,
            // What was found without them stays.
            None => {}
        }
        likeliest.is_some()
    }

    /// Records of which it is sure that they had been told of when there had been so many readings: one that was going on may have brought what
    /// came behind the fork.
    fn read_by(&self, readings: u32) -> usize {
        let last = self.readings.iter().rposition(|(_, reading)| *reading != 0 && is_later(readings, *reading));
        let next = last.map(|last| self.readings.get(last + 1).map_or(self.told, |(first, _)| *first));
        next.unwrap_or(0).min(self.told)
    }

    /// What moved though nobody had managed it: so it was registered, by a mapping that had grown, as a rule before the
    /// state was frozen.
    fn grown(&self, mut managed: Regions, kept: &[PageRange]) -> Regions {
        let mut grown = Regions::default();
        for (place, record) in self.records.iter().enumerate() {
            if let Record::Moved { from, .. } = *record
                && managed.first_in(from).is_none()
                && let Some(page) = origin(&self.records[..place], from.start)
                && !kept.iter().any(|range| range.contains(page))
            {
                grown.insert(PageRange::new(page, PageCount(1)));
            }
            record.change(&mut managed);
        }
        grown
    }

    /// Where what is registered at `page` now was in the frozen state, if it was anywhere.
    pub(crate) fn origin(&self, page: PageIndex) -> Option<PageIndex> {
        origin(&self.records, page)
    }

    /// Whether something in the range is managed now, where `regions` are what was in the frozen state. Does not allocate.
    pub(crate) fn is_managed_now(&self, regions: &Regions, range: PageRange) -> bool {
        let is_managed = |page| range.contains(page) && self.origin(page).is_some_and(|page| regions.contains(page));
        let carried = |page, behind| self.records.moves_from(behind).fold(page, |page, record| record.carry(page));
        let borders = self
            .records
            .iter()
            .enumerate()
            .flat_map(|(place, record)| record.borders().into_iter().flatten().map(move |page| (page, place + 1)));
        // The first managed page in the range is one of these, or was one where it began.
        let starts = regions.iter().map(|region| (region.start, 0));
        is_managed(range.start) || starts.chain(borders).any(|(page, behind)| is_managed(carried(page, behind)))
    }

    /// The layout changes that the forked child shares, in order; `readings` as for [`Journal::place_fork`]. madvise tells before it discards, and
    /// what was with us is missing in the child in either case: what was read after the memory had been copied was not discarded there.
    pub(crate) fn shared_layout(&self, readings: u32) -> impl Iterator<Item = Message> + '_ {
        self.records[..self.before_fork].iter().enumerate().filter_map(move |(place, record)| match *record {
            Record::Filled(_) => None,
            Record::Removed(range) => {
                let reading =
                    self.readings.iter().rfind(|(first, _)| *first <= place).map_or(0, |(_, reading)| *reading);
                (reading == 0 || !is_later(reading, readings)).then_some(Message::Remove(range))
            }
            Record::Unmapped(range) => Some(Message::Unmap(range)),
            Record::Moved { from, to } => Some(Message::Remap { from, to }),
        })
    }

    /// Where a page's slot is found in the frozen state: under which index, or that it is now with the program
    /// (`Resident`), or nothing (`Untouched`).
    pub(crate) fn trace(&self, page: PageIndex) -> Traced {
        match self.records.last_in_tail(PageRange::new(page, PageCount(1))) {
            Some(Record::Filled(_)) => Traced::Resident,
            Some(_) => Traced::Untouched,
            None => trace(self.records.before_tail().iter().copied(), Filled::Count, page),
        }
    }

    /// The same for a page that the forked child misses: so it has not been filled there, and what we noted after the
    /// fork is not its business.
    pub(crate) fn trace_for_child(&self, page: PageIndex) -> Traced {
        trace(self.records[..self.before_fork].iter().copied(), Filled::Ignored, page)
    }

    /// The records in order.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Forgets all. Does not allocate; nor does it mind, in a forked child, what the parent was noting when it was copied.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.before_fork = 0;
        self.readings.clear();
        self.told = 0;
        self.marks.clear();
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

/// Where a page was before these layout messages, in the order of the deeds; `None` if it has been discarded since.
pub(crate) fn before(messages: &[Message], page: PageIndex) -> Option<PageIndex> {
    let records = messages.iter().filter_map(|message| Record::of(*message));
    match trace(records, Filled::Ignored, page) {
        Traced::At(page) => Some(page),
        Traced::Resident | Traced::Untouched => None,
    }
}

fn trace(records: impl DoubleEndedIterator<Item = Record>, filled_pages: Filled, mut page: PageIndex) -> Traced {
    for record in records.rev() {
        match record {
            Record::Filled(range) if range.contains(page) && filled_pages == Filled::Count => {
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
    use proptest::prelude::*;

    use super::*;

    const CHILD: ForkedMemory = ForkedMemory(7);

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start: PageIndex(start), end: PageIndex(end) }
    }

    fn empty() -> Journal {
        Journal::new(Area::reserve(crate::JOURNAL_BYTES).unwrap())
    }

    fn filled(page: u64) -> Record {
        Record::Filled(range(page, page + 1))
    }

    #[test]
    fn the_last_deed_counts() {
        let mut journal = empty();
        assert_eq!(journal.trace(PageIndex(5)), Traced::At(PageIndex(5)));
        journal.note(filled(5));
        assert_eq!(journal.trace(PageIndex(5)), Traced::Resident);
        journal.note(Record::Removed(range(4, 6)));
        assert_eq!(journal.trace(PageIndex(5)), Traced::Untouched);
        journal.note(Record::Moved { from: range(4, 8), to: PageIndex(100) });
        assert_eq!(journal.trace(PageIndex(101)), Traced::Untouched);
        assert_eq!(journal.trace(PageIndex(103)), Traced::At(PageIndex(7)));
        assert_eq!(journal.trace(PageIndex(7)), Traced::Untouched);
        journal.note(filled(7));
        assert_eq!(journal.trace(PageIndex(7)), Traced::Resident);
    }

    #[test]
    fn deeds_are_replayed_once_and_in_order() {
        let mut journal = empty();
        let deeds = [filled(1), Record::Unmapped(range(1, 2)), filled(1)];
        for deed in deeds {
            journal.note(deed);
        }
        assert_eq!(journal.records(), deeds);
        journal.clear();
        assert_eq!(journal.records(), []);
    }

    /// A thread has moved a range and unmapped another. The child's memory says how much of that it shares, wherever the
    /// message about the fork came.
    #[test]
    fn the_fork_is_found_among_the_records() {
        let (old, new, gone) = (range(100, 110), range(200, 210), range(300, 310));
        let records = [filled(1), Record::Moved { from: old, to: new.start }, Record::Unmapped(gone)];
        let managed = regions(&[old, gone]);
        // How many of the two the child shares, and what it shares when the message came after so many records. That
        // `gone` is registered proves nothing.
        for (shares, found) in [(0, [0, 1, 1, 1]), (1, [2, 2, 2, 3]), (2, [3, 3, 3, 3])] {
            for (mark, found) in found.into_iter().enumerate() {
                let mut journal = empty();
                for record in records {
                    journal.note(record);
                }
                journal.marks.push(Mark { child: CHILD, place: mark, held: 0 });
                let is_registered = |page: PageIndex| match page.0 {
                    100 => Some(shares == 0),
                    200 => Some(shares > 0),
                    300 => Some(shares < 2),
                    _ => panic!("{page:?} is no witness"),
                };
                assert!(journal.place_fork(CHILD, None, managed.clone(), &[], is_registered));
                assert_eq!(journal.before_fork, found, "{shares} shared, mark {mark}");
            }
        }
    }

    /// A thread has moved a range, away and unmapped it there, all behind the fork and told before it. Where it was, it is still.
    #[test]
    fn what_was_read_says_where_the_fork_was() {
        let (old, new) = (range(100, 110), range(200, 210));
        let there_and_gone = [Record::Moved { from: old, to: new.start }, Record::Unmapped(new)];
        let is_registered = |is_gone: bool| move |page: PageIndex| Some(page.0 == 100 && !is_gone);
        for (readings, is_gone, found) in [(4, false, 0), (5, false, 0), (5, true, 2), (6, true, 2), (8, true, 2)] {
            let mut journal = empty();
            journal.note_told(there_and_gone[0], 5);
            journal.note_told(there_and_gone[1], 7);
            journal.mark_fork(CHILD, 0);
            for readings in [None, Some(readings)] {
                assert!(journal.place_fork(CHILD, readings, regions(&[old]), &[], is_registered(is_gone)));
            }
            assert_eq!(journal.before_fork, found, "{readings} readings");
        }
    }

    /// What contradicts itself takes nothing back.
    #[test]
    fn what_was_found_without_the_readings_stays() {
        let mut journal = empty();
        journal.note_told(Record::Moved { from: range(100, 110), to: PageIndex(200) }, 5);
        journal.mark_fork(CHILD, 0);
        for (readings, is_explained) in [(None, true), (Some(8), false)] {
            let is_registered = |page: PageIndex| Some(page.0 == 100);
            let is_placed = journal.place_fork(CHILD, readings, regions(&[range(100, 110)]), &[], is_registered);
            assert_eq!((is_placed, journal.before_fork), (is_explained, 0), "{readings:?}");
        }
    }

    /// Of what is not told apart any more it is not known when it was read: it does not count as read with the last that is known.
    #[test]
    fn a_long_journal_does_not_say_what_was_read_when() {
        let mut journal = empty();
        for page in 0..APART_MAX as u64 {
            journal.note_told(Record::Removed(range(2 * page, 2 * page + 1)), 5);
        }
        journal.mark_fork(CHILD, 0);
        journal.note_told(Record::Unmapped(range(90_000, 90_001)), 9);
        assert_eq!(journal.records().len(), APART_MAX + 1);
        for readings in [None, Some(6)] {
            assert!(journal.place_fork(CHILD, readings, regions(&[]), &[], |_| None));
            assert_eq!(journal.before_fork, APART_MAX, "{readings:?}");
        }
    }

    /// Readings are counted in 32 bits, and go round.
    #[test]
    fn a_discard_that_was_read_later_is_not_shared() {
        for (read, reading, is_shared) in
            [(4, 5, false), (5, 5, true), (6, 5, true), (u32::MAX - 1, 1, false), (2, u32::MAX, true)]
        {
            let mut journal = empty();
            journal.note_told(Record::Removed(range(1, 9)), reading);
            journal.note_told(Record::Unmapped(range(20, 30)), reading);
            journal.mark_fork(CHILD, 0);
            assert!(journal.place_fork(CHILD, None, regions(&[]), &[], |_| None));
            let shared: Vec<_> = journal.shared_layout(read).collect();
            assert_eq!(shared.contains(&Message::Remove(range(1, 9))), is_shared, "{read} {reading}");
            assert!(shared.contains(&Message::Unmap(range(20, 30))));
        }
    }

    #[test]
    fn a_fork_that_no_order_explains_is_not_placed() {
        let (region, other) = (range(100, 110), range(300, 310));
        let mut journal = empty();
        journal.mark_fork(CHILD, 0);
        journal.note(Record::Unmapped(region));
        journal.note(Record::Unmapped(other));
        assert!(journal.place_fork(CHILD, None, regions(&[region, other]), &[], |_| None));
        journal.note(Record::Moved { from: range(500, 510), to: PageIndex(100) });
        journal.note(Record::Moved { from: range(600, 610), to: PageIndex(500) });
        // The second move has happened and the first has not.
        let managed = regions(&[other, range(500, 510), range(600, 610)]);
        assert!(!journal.place_fork(CHILD, None, managed, &[], |page| Some(page.0 == 500)));
    }

    /// Other threads fork past libc at the same time: each child shares what came before the message about it, and what was
    /// held back then. Nobody can tell more, for discarded memory stays registered.
    #[test]
    fn each_of_several_forks_has_a_place_of_its_own() {
        let shared = |child| {
            let mut journal = empty();
            let note = |journal: &mut Journal, at| journal.note(Record::Removed(range(at, at + 1)));
            journal.mark_fork(ForkedMemory(1), 0);
            note(&mut journal, 1);
            journal.mark_fork(CHILD, 2);
            journal.mark_fork(ForkedMemory(2), 3);
            for (place, at) in [2, 3, 4].into_iter().enumerate() {
                note(&mut journal, at);
                journal.pass_marks(place);
            }
            journal.settle_marks();
            note(&mut journal, 5);
            journal.pass_marks(0);
            journal.place_fork(child, None, regions(&[]), &[], |_| None).then(|| journal.shared_layout(0).count())
        };
        let numbers = [1, CHILD.0, 2, 3];
        assert_eq!(numbers.map(|number| shared(ForkedMemory(number))), [Some(0), Some(3), Some(4), None]);
    }

    /// What is unmapped had been moved there a moment before, or is behind something that had been moved away: the child
    /// is asked about pages that were managed just before it happened, wherever they were when the state was frozen.
    #[test]
    fn the_child_is_asked_about_what_was_managed_just_before() {
        let (old, new) = (range(100, 110), range(200, 210));
        let moved = Record::Moved { from: old, to: new.start };
        let beside = Record::Moved { from: range(100, 104), to: new.start };
        for (first, then) in [(moved, Record::Unmapped(range(205, 215))), (beside, Record::Unmapped(old))] {
            for is_shared in [false, true] {
                let mut journal = empty();
                journal.note(first);
                journal.mark_fork(CHILD, 0);
                journal.note(then);
                let Record::Unmapped(gone) = then else { unreachable!() };
                let is_mapped = |page: PageIndex| old.contains(page) || new.contains(page);
                let is_there = |page: PageIndex| first.carry(page) == page && is_mapped(page);
                let is_registered = |page| Some(is_there(page) && !(is_shared && gone.contains(page)));
                assert!(journal.place_fork(CHILD, None, regions(&[old]), &[], is_registered));
                assert_eq!(journal.before_fork, 1 + usize::from(is_shared), "{first:?}, then {then:?}");
            }
        }
    }

    /// A part that a mapping has grown by, of which nobody knows yet, moves over managed memory. That it is missing where it
    /// was says that the child's memory was copied afterwards; unless the child was not to have it.
    #[test]
    fn what_has_grown_was_there_before_it_moved() {
        let (grown, target) = (range(500, 510), range(100, 110));
        for kept in [None, Some(grown)] {
            let mut journal = empty();
            journal.mark_fork(CHILD, 0);
            journal.note(Record::Unmapped(target));
            journal.note(Record::Moved { from: grown, to: target.start });
            let is_registered = |page: PageIndex| Some(target.contains(page));
            assert!(journal.place_fork(CHILD, None, regions(&[target]), kept.as_slice(), is_registered));
            assert_eq!(journal.before_fork, if kept.is_none() { 2 } else { 0 });
        }
    }

    fn regions(ranges: &[PageRange]) -> Regions {
        let mut regions = Regions::default();
        for range in ranges {
            regions.insert(*range);
        }
        regions
    }

    fn some_range() -> impl Strategy<Value = PageRange> {
        (0_u64..50, 1_u64..12).prop_map(|(start, count)| range(start, start + count))
    }

    fn some_record() -> impl Strategy<Value = Record> {
        let moved = (some_range(), 0_u64..50).prop_map(|(from, to)| Record::Moved { from, to: PageIndex(to) });
        let moved = moved.prop_filter("mremap refuses overlaps", |record| {
            !matches!(record, Record::Moved { from, to } if PageRange::new(*to, from.count()).intersection(*from).is_some())
        });
        prop_oneof![some_range().prop_map(Record::Unmapped), moved]
    }

    /// What a fork may see: a deed, or the message about the fork.
    fn some_deed() -> impl Strategy<Value = Option<Record>> {
        prop_oneof![
            5 => some_range().prop_map(|range| Some(Record::Filled(PageRange::new(range.start, PageCount(1))))),
            1 => some_range().prop_map(|range| Some(Record::Filled(range))),
            4 => some_range().prop_map(|range| Some(Record::Removed(range))),
            2 => some_record().prop_map(Some),
            1 => Just(None),
        ]
    }

    /// Where each page is after these deeds.
    fn done(records: &[Record]) -> Vec<Traced> {
        let mut pages: Vec<Traced> = (0..80).map(|page| Traced::At(PageIndex(page))).collect();
        let places = |range: PageRange| range.start.0 as usize..range.end.0 as usize;
        for record in records {
            match *record {
                Record::Filled(range) => pages[places(range)].fill(Traced::Resident),
                Record::Removed(range) | Record::Unmapped(range) => pages[places(range)].fill(Traced::Untouched),
                Record::Moved { from, to } => {
                    let moved = pages[places(from)].to_vec();
                    pages[places(from)].fill(Traced::Untouched);
                    pages[places(PageRange::new(to, from.count()))].copy_from_slice(&moved);
                }
            }
        }
        pages
    }

    proptest! {
        /// The journal, which joins deeds, against the deeds one by one: for the parent while it lasts and when it is replayed,
        /// and for a child whose fork's message came among them.
        #[test]
        fn what_is_joined_says_the_same(deeds in prop::collection::vec(some_deed(), 0..60), held in any::<bool>()) {
            let (mut journal, mut plain, mut childs) = (empty(), Vec::new(), None);
            for deed in deeds {
                if let Some(record) = deed {
                    journal.note(record);
                    plain.push(record);
                } else {
                    journal.mark_fork(CHILD, usize::from(held));
                    journal.pass_marks(0);
                    journal.settle_marks();
                    prop_assert!(journal.place_fork(CHILD, None, Regions::default(), &[], |_| None));
                    childs = Some(plain.len());
                }
                let expected = done(&plain);
                prop_assert_eq!(&done(journal.records()), &expected);
                for (page, expected) in (0..).map(PageIndex).zip(expected) {
                    prop_assert_eq!(journal.trace(page), expected);
                    let childs = &plain[..childs.unwrap_or(0)];
                    prop_assert_eq!(journal.trace_for_child(page), trace(childs.iter().copied(), Filled::Ignored, page));
                }
                prop_assert!(journal.records().len() <= 2 * plain.len());
            }
        }

        /// The search backwards, which does not allocate, against the records done one by one.
        #[test]
        fn what_is_managed_now_is_what_the_records_have_left(
            managed in prop::collection::vec(some_range(), 1..4),
            records in prop::collection::vec(some_record(), 0..8),
        ) {
            let frozen = regions(&managed);
            let (mut journal, mut now) = (empty(), frozen.clone());
            for record in records {
                journal.note(record);
                record.change(&mut now);
            }
            for start in 0..62 {
                let page = PageIndex(start);
                let origin = journal.origin(page).is_some_and(|page| frozen.contains(page));
                prop_assert_eq!(origin, now.contains(page));
                for asked in [range(start, start + 1), range(start, start + 7)] {
                    prop_assert_eq!(journal.is_managed_now(&frozen, asked), now.intersects(asked), "{:?}", asked);
                }
            }
        }
    }
}
