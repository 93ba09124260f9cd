//! Layout messages that are told in another order than the deeds happened.

use crate::kernel::Memory;
use crate::table::Record;
use crate::{PAGES, Page};

/// What is known of a page from before the messages that are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nobody manages it.
    Unmanaged,
    /// It is managed, and nothing else is known of it.
    Managed,
    /// It was with the program.
    Resident,
    /// It was with us.
    Away,
}

/// What has been read since the kernel has last filled or moved a page for us.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    vacated: Vec<Page>,
    held: Vec<Record>,
}

impl Window {
    /// Whether messages are held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// No message is on its way.
    pub fn end(&mut self) {
        if self.held.is_empty() {
            self.vacated.clear();
        }
    }

    /// What has been read, if it is to be followed now.
    pub fn take(&mut self, record: Record, is_managed: impl Fn(Page) -> bool, holds_back: bool) -> Option<Record> {
        let is_doubtful = matches!(record, Record::Moved { to, .. } if is_managed(to));
        if self.is_holding() || is_doubtful && holds_back {
            self.held.push(record);
            return None;
        }
        self.follow(record)
    }

    /// A record that is followed; `None` if it is the rest of a move.
    fn follow(&mut self, record: Record) -> Option<Record> {
        match record {
            Record::Unmapped(page) if self.vacated.contains(&page) => {
                self.vacated.retain(|vacated| *vacated != page);
                None
            }
            Record::Moved { from, .. } => {
                self.vacated.push(from);
                Some(record)
            }
            _ => Some(record),
        }
    }

    /// What has been held back, in the order that explains best what is registered and present, each with its place among
    /// the messages. Nothing is held back any more.
    pub fn sort(&mut self, before: [Before; PAGES], memory: &Memory) -> Vec<(usize, Record)> {
        let deeds = self.deeds();
        // What is told before it is done is done after all that has been told before it.
        let is_possible = |order: &Vec<usize>| {
            let is_removal = |at: usize| matches!(deeds[at].record, Record::Removed(_));
            let overtakes =
                |(place, at): (usize, &usize)| is_removal(*at) && order[place..].iter().any(|other| other < at);
            !order.iter().enumerate().any(overtakes)
        };
        let orders = permutations(deeds.len()).into_iter().filter(is_possible);
        let best = orders.min_by_key(|order| score(order.iter().map(|at| deeds[*at].record), order, before, memory));
        self.held.clear();
        let steps: Vec<Deed> = best.unwrap_or_default().into_iter().map(|at| deeds[at]).collect();
        for deed in &steps {
            if let Record::Moved { from, .. } = deed.record
                && !deed.has_rest
            {
                self.vacated.push(from);
            }
        }
        steps.into_iter().map(|deed| (deed.place, deed.record)).collect()
    }

    /// What is held back, without the messages about what a move has left: of each the next that has its range.
    fn deeds(&self) -> Vec<Deed> {
        let mut deeds: Vec<Deed> = Vec::new();
        for (place, record) in self.held.iter().enumerate() {
            let is_its = |deed: &&mut Deed| matches!((deed.record, *record), (Record::Moved { from, .. }, Record::Unmapped(page)) if from == page);
            match deeds.iter_mut().filter(|deed| !deed.has_rest).find(is_its) {
                Some(deed) => deed.has_rest = true,
                None => deeds.push(Deed { record: *record, place, has_rest: false }),
            }
        }
        deeds
    }
}

/// What is held back.
#[derive(Clone, Copy, Debug)]
struct Deed {
    record: Record,
    place: usize,
    /// The message about what it has left has been read.
    has_rest: bool,
}

/// What is impossible in an order, what is misplaced, and how far it is from the order of the messages.
fn score(
    records: impl Iterator<Item = Record>,
    order: &[usize],
    mut pages: [Before; PAGES],
    memory: &Memory,
) -> [usize; 3] {
    let mut impossible = 0;
    for record in records {
        match record {
            Record::Moved { from, to } => {
                impossible += usize::from(pages[to] != Before::Unmanaged);
                pages[to] = core::mem::replace(&mut pages[from], Before::Unmanaged);
            }
            Record::Unmapped(page) => pages[page] = Before::Unmanaged,
            Record::Removed(page) if pages[page] != Before::Unmanaged => pages[page] = Before::Managed,
            Record::Removed(_) | Record::Filled(_) => {}
        }
    }
    let mut misplaced = 0;
    for (page, before) in pages.into_iter().enumerate() {
        impossible += usize::from(before != Before::Unmanaged && !memory.is_registered(page));
        let is_present = memory.present(page).is_some();
        misplaced += usize::from([(Before::Resident, false), (Before::Away, true)].contains(&(before, is_present)));
    }
    let pairs = (0..order.len()).flat_map(|at| order[..at].iter().filter(move |place| **place > order[at]));
    [impossible, misplaced, pairs.count()]
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = permutations(last);
    let with_last = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, last);
        order
    };
    (0..=last).rev().flat_map(|at| shorter.iter().map(move |order| with_last(order, at))).collect()
}
