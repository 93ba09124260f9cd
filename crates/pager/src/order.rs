//! Order: what to make of layout messages that are told in another order than the deeds happened.
//!
//! A thread changes the layout first, and posts its message when it has let go of the lock on the memory. Before A, who
//! has unmapped X, comes to that, B may move Z to X, say so, and go on. Followed by the letter, A's message then discards
//! what has come from Z. Nothing is lost by waiting, because the kernel moves and fills nothing while a message is on its
//! way: so what is *doubtful* is held back with all that comes behind it. Once no message is on its way the one order is
//! chosen that explains best what is registered now, and what is there. What is not doubtful is followed at once.
//!
//! Doubtful is a move to where something is managed still. The *window* ends when the kernel has moved or filled a page for
//! us, or a scan has found that no message is on its way.

mod judge;

use alloc::vec::Vec;

use page::{PageCount, PageIndex};
use sys::kernel::{Kernel, PageRange};

use crate::journal::Record;
use crate::regions::Regions;
use judge::{Order, Step};

/// Messages held back. When there are so many they are followed by what can be told without the kernel.
pub(crate) const HELD_MAX: usize = 16;
/// Ranges that have been left; rarely there are more than two.
const VACATED_MAX: usize = 64;
/// Pages by which orders are compared.
const WITNESSES_MAX: usize = 160;
/// Of those, pages of a range that has moved of which it is asked whether they are there.
const SAMPLES_MAX: u64 = 16;
/// Times that nothing is read, about 100 us each, after a move to where something is managed still. Who has moved waits
/// for a second message to be read: so the late one has time to come before anything else happens to that place.
const LOOKS_MAX: u32 = 100;

/// What this window has brought.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Ranges that mremap has left: a message about their unmapping follows, and by then another mapping may have moved
    /// there.
    vacated: Vec<PageRange>,
    /// As they were told.
    held: Vec<Record>,
    looks: u32,
}

/// What the kernel says about pages.
pub(crate) struct Witnesses {
    pages: [Witness; WITNESSES_MAX],
    count: usize,
}

/// What the kernel says about a page, where it has been asked.
#[derive(Clone, Copy, Debug)]
struct Witness {
    page: PageIndex,
    is_registered: Option<bool>,
    is_present: Option<bool>,
}

/// What can be asked about a page.
pub(crate) trait Ask {
    /// Whether it is registered; `None` if that cannot be told now.
    fn is_registered(&self, page: PageIndex) -> Option<bool>;
    /// Whether it is there.
    fn is_present(&self, page: PageIndex) -> Option<bool>;
}

/// The kernel.
pub(crate) struct Asked<'a, K>(pub(crate) &'a K);

/// Who knows nothing.
pub(crate) struct Nobody;

impl Ask for Nobody {
    fn is_registered(&self, _page: PageIndex) -> Option<bool> {
        None
    }

    fn is_present(&self, _page: PageIndex) -> Option<bool> {
        None
    }
}

/// What is known of a page from before the messages that are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// Nobody manages it.
    Unmanaged,
    /// It is managed, and nothing else is known of it.
    Managed,
    /// It was with the program.
    Resident,
    /// It was with us.
    Away,
}

impl Window {
    pub(crate) fn new() -> Self {
        // As a rule none of them grows: a forked child's heap must not be copied in the middle of an allocation.
        let (vacated, held) = (Vec::with_capacity(VACATED_MAX), Vec::with_capacity(HELD_MAX));
        Self { vacated, held, looks: 0 }
    }

    /// No message is on its way: the kernel has moved or filled a page, or says so.
    pub(crate) fn end(&mut self) {
        if self.held.is_empty() {
            self.vacated.clear();
        }
    }

    /// Whether messages are held back: then nothing may be moved or filled.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// How many are held back.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    /// Whether no more can be.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX
    }

    /// To be asked before each reading: whether a late message shall have some more time.
    pub(crate) fn is_patient(&mut self) -> bool {
        self.looks = if self.is_holding() { self.looks.saturating_sub(1) } else { 0 };
        self.looks > 0
    }

    /// What has been read, if it is to be followed now. `is_managed`: whether something in a range is.
    pub(crate) fn take(&mut self, record: Record, is_managed: impl Fn(PageRange) -> bool) -> Option<Record> {
        if self.is_rest_of_a_move(record) {
            return None;
        }
        let meets = matches!(record, Record::Moved { from, to } if is_managed(PageRange::new(to, from.count())));
        if meets && !self.is_holding() {
            self.looks = LOOKS_MAX;
        }
        if meets || self.is_holding() {
            self.held.push(record);
            return None;
        }
        if let Record::Moved { from, .. } = record {
            self.vacated.push(from);
        }
        Some(record)
    }

    fn is_rest_of_a_move(&mut self, record: Record) -> bool {
        let Record::Unmapped(range) = record else { return false };
        let Some(at) = self.vacated.iter().position(|vacated| *vacated == range) else { return false };
        self.vacated.swap_remove(at);
        true
    }

    /// What tells the order of what is held back: where it begins and ends, and where what is managed does.
    pub(crate) fn witnesses(&self, regions: &Regions, ask: &impl Ask) -> Witnesses {
        let none = Witness { page: PageIndex(0), is_registered: None, is_present: None };
        let mut witnesses = Witnesses { pages: [none; WITNESSES_MAX], count: 0 };
        for record in &self.held {
            let ranges = match *record {
                Record::Unmapped(range) => [Some(range), None],
                Record::Moved { from, to } => [Some(from), Some(PageRange::new(to, from.count()))],
                Record::Filled(_) | Record::Removed(_) => [None, None],
            };
            for range in ranges.into_iter().flatten() {
                witnesses.add(range.start, ask);
                witnesses.add(range.end, ask);
                let parts = regions.iter().filter_map(|part| part.intersection(range));
                parts.flat_map(|part| [part.start, part.end]).for_each(|page| witnesses.add(page, ask));
            }
        }
        for record in &self.held {
            if let Record::Moved { from, to } = *record {
                witnesses.sample(PageRange::new(to, from.count()), ask);
            }
        }
        witnesses
    }

    /// The order that explains best what is seen; nothing is held back any more.
    pub(crate) fn sort(&mut self, witnesses: &Witnesses, before: impl Fn(PageIndex) -> Before) -> Order {
        let order = judge::best(&self.held, witnesses, &before);
        self.held.clear();
        order
    }

    /// A record that has been held back is followed now.
    pub(crate) fn note(&mut self, step: Step) {
        if let Record::Moved { from, .. } = step.record
            && !step.has_rest
        {
            self.vacated.push(from);
        }
    }
}

impl<K: Kernel> Ask for Asked<'_, K> {
    fn is_registered(&self, page: PageIndex) -> Option<bool> {
        self.0.registration(page)
    }

    fn is_present(&self, page: PageIndex) -> Option<bool> {
        let mut is_present = false;
        self.0.resident(PageRange::new(page, PageCount(1)), &mut |_| is_present = true).ok()?;
        Some(is_present)
    }
}

impl Witnesses {
    fn add(&mut self, page: PageIndex, ask: &impl Ask) {
        let is_known = self.all().iter().any(|witness| witness.page == page);
        if !is_known && self.count < WITNESSES_MAX {
            self.pages[self.count] = Witness { page, is_registered: ask.is_registered(page), is_present: None };
            self.count += 1;
        }
    }

    /// Some pages of a range that has moved.
    fn sample(&mut self, range: PageRange, ask: &impl Ask) {
        let samples = range.count().0.min(SAMPLES_MAX);
        for sample in 0..samples {
            let page = range.start + PageCount(sample * range.count().0 / samples);
            self.add(page, ask);
            if let Some(witness) = self.pages[..self.count].iter_mut().find(|witness| witness.page == page) {
                witness.is_present = ask.is_present(page);
            }
        }
    }

    fn all(&self) -> &[Witness] {
        &self.pages[..self.count]
    }
}
