//! What happens while the state must not change, because the program forks.

use crate::kernel::Memory;
use crate::rules::Rule;
use crate::table::{Record, Table};
use crate::{PAGES, Page};

/// Where a page's slot is found in the frozen state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traced {
    /// It is that of this page.
    At(Page),
    /// It has been filled since.
    Resident,
    /// It has been discarded since.
    Untouched,
}

/// Where the message about the fork came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Mark {
    place: usize,
    held: usize,
}

/// Records in the order of their deeds.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Journal {
    records: Vec<Record>,
    /// Of each record, which reading has told of it; 0 where that is not known.
    readings: Vec<u8>,
    /// How many messages have been read since the state was frozen.
    read: u8,
    mark: Option<Mark>,
}

impl Journal {
    /// Notes a deed.
    pub fn note(&mut self, record: Record, reading: u8) {
        self.records.push(record);
        self.readings.push(reading);
    }

    /// A message is read: which reading that is.
    pub fn read(&mut self) -> u8 {
        self.read += 1;
        self.read
    }

    /// How many have been.
    pub fn readings(&self) -> u8 {
        self.read
    }

    /// The message about the fork has been read, while so many others are held back.
    pub fn mark_fork(&mut self, held: usize) {
        self.mark = Some(Mark { place: self.records.len(), held });
    }

    /// The message that was held back at `place` has been noted.
    pub fn pass_mark(&mut self, place: usize) {
        let count = self.records.len();
        if let Some(mark) = self.mark.as_mut().filter(|mark| place < mark.held) {
            mark.place = count;
        }
    }

    /// What has happened.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Where a page's slot is.
    pub fn trace(&self, mut page: Page) -> Traced {
        for record in self.records.iter().rev() {
            match *record {
                Record::Filled(filled) if filled == page => return Traced::Resident,
                Record::Removed(gone) | Record::Unmapped(gone) if gone == page => return Traced::Untouched,
                Record::Moved { from, to } if to == page => page = from,
                Record::Moved { from, .. } if from == page => return Traced::Untouched,
                _ => {}
            }
        }
        Traced::At(page)
    }

    /// What is managed now, where `regions` are what was in the frozen state.
    pub fn regions(&self, mut regions: [bool; PAGES]) -> [bool; PAGES] {
        self.records.iter().for_each(|record| change(*record, &mut regions));
        regions
    }

    /// The layout messages that the child's memory has seen, in which there had been `read` readings. What they had told is before the place of the
    /// fork; behind that it is, of the places at which nothing is missing in the child that must be registered there, the one with the fewest pages that should
    /// not be registered and are, and the nearest to the mark. `None` if there is no such place.
    pub fn place_fork(&self, table: &Table, child: &Memory, read: u8, broken: Option<Rule>) -> Option<Vec<Record>> {
        let mark = self.mark.map_or(self.records.len(), |mark| mark.place);
        let is_read = |reading: &u8| *reading != 0 && *reading <= read;
        let asks_when = broken != Some(Rule::WhatIsReadLaterIsNotShared);
        let first = if asks_when { self.readings.iter().rposition(is_read).map_or(0, |at| at + 1) } else { 0 };
        let mut regions = table.regions;
        let mut best: Option<([usize; 2], usize)> = None;
        for place in 0..=self.records.len() {
            let witnesses = || (0..PAGES).filter(|page| self.is_witness(*page));
            let is_explained = witnesses().all(|page| !regions[page] || child.is_registered(page));
            let odd = witnesses().filter(|page| !regions[*page] && child.is_registered(*page)).count();
            let score = [odd, place.abs_diff(mark)];
            if place >= first && is_explained && best.is_none_or(|(least, _)| score <= least) {
                best = Some((score, place));
            }
            if let Some(record) = self.records.get(place) {
                change(*record, &mut regions);
            }
        }
        let place = if broken == Some(Rule::TheForkIsPlaced) { mark } else { best?.1 };
        let is_shared = |at: &usize| match self.records[*at] {
            Record::Filled(_) => false,
            Record::Removed(_) => !asks_when || self.readings[*at] <= read,
            Record::Unmapped(_) | Record::Moved { .. } => true,
        };
        Some((0..place).filter(is_shared).map(|at| self.records[at]).collect())
    }

    /// Whether a page's registration tells of a record.
    fn is_witness(&self, page: Page) -> bool {
        self.records.iter().any(|record| match *record {
            Record::Filled(_) | Record::Removed(_) => false,
            Record::Unmapped(gone) => gone == page,
            Record::Moved { from, to } => from == page || to == page,
        })
    }
}

fn change(record: Record, regions: &mut [bool; PAGES]) {
    match record {
        Record::Removed(_) => {}
        Record::Filled(page) => regions[page] = true,
        Record::Unmapped(page) => regions[page] = false,
        Record::Moved { from, to } => regions[to] = core::mem::take(&mut regions[from]),
    }
}
