//! The page table: from page to slot.
//!
//! A leaf holds the slots of 512 neighbouring pages and counts what is in them. A directory holds 512 leaves, 1 GiB of
//! address space, and keeps for each thing that a sweep looks for which leaves have some of it, so that a sweep passes
//! over the others without a look, however far apart a program's pages are. Leaves without a slot in use are freed: a
//! program that maps terabytes pays for what it touches.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use page::{PageCount, PageIndex};

use crate::slot::{Place, Slot};

const FANOUT: u64 = 512;
/// Words of a bit for each leaf of a directory.
const WORDS: usize = FANOUT as usize / 64;

/// Slots of 512 neighbouring pages.
#[derive(Debug)]
pub(crate) struct Leaf {
    slots: [Slot; FANOUT as usize],
    /// Slots that are not `Untouched`.
    used: u16,
    /// Slots that are `Resident`.
    resident: u16,
    /// Slots whose bytes are in the store.
    stored: u16,
}

impl Leaf {
    fn new() -> Box<Self> {
        Box::new(Self { slots: [Slot::default(); FANOUT as usize], used: 0, resident: 0, stored: 0 })
    }

    fn count(&mut self, place: Place, step: impl Fn(u16) -> u16) {
        if place != Place::Untouched {
            self.used = step(self.used);
        }
        if place == Place::Resident {
            self.resident = step(self.resident);
        }
        if place.is_stored() {
            self.stored = step(self.stored);
        }
    }
}

#[derive(Debug)]
struct Directory {
    leaves: [Option<Box<Leaf>>; FANOUT as usize],
    /// For each thing to look for: a bit for each leaf that has some.
    having: [[u64; WORDS]; LOOKINGS.len()],
}

impl Directory {
    fn new() -> Box<Self> {
        Box::new(Self { leaves: [const { None }; FANOUT as usize], having: [[0; WORDS]; LOOKINGS.len()] })
    }

    fn note(&mut self, index: usize) {
        let leaf = self.leaves[index].as_ref();
        for looking in LOOKINGS {
            let bit = 1 << (index % 64);
            let word = &mut self.having[looking as usize][index / 64];
            *word = if leaf.is_some_and(|leaf| looking.leaf_has_any(leaf)) { *word | bit } else { *word & !bit };
        }
    }

    /// The first leaf from `from` on that has some of what is looked for.
    fn next_leaf(&self, from: usize, looking: Looking) -> Option<usize> {
        let having = &self.having[looking as usize];
        let first = having.get(from / 64)? & (u64::MAX << (from % 64));
        let mut words = core::iter::once(&first).chain(&having[from / 64 + 1..]).enumerate();
        words.find(|(_, word)| **word != 0).map(|(at, word)| (from / 64 + at) * 64 + word.trailing_zeros() as usize)
    }
}

/// What a sweep looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looking {
    /// Any page that is not untouched.
    Used,
    /// Resident pages.
    Resident,
    /// Pages in the store.
    Stored,
}

const LOOKINGS: [Looking; 3] = [Looking::Used, Looking::Resident, Looking::Stored];

impl Looking {
    fn leaf_has_any(self, leaf: &Leaf) -> bool {
        match self {
            Self::Used => leaf.used > 0,
            Self::Resident => leaf.resident > 0,
            Self::Stored => leaf.stored > 0,
        }
    }

    fn wants(self, place: Place) -> bool {
        match self {
            Self::Used => place != Place::Untouched,
            Self::Resident => place == Place::Resident,
            Self::Stored => place.is_stored(),
        }
    }
}

/// The page table.
#[derive(Debug, Default)]
pub(crate) struct PageTable {
    directories: BTreeMap<u64, Box<Directory>>,
    leaves: u64,
    /// Pages by [`Place::kind`]; untouched ones are not counted.
    counts: [u64; Place::KINDS],
}

impl PageTable {
    /// The slot of `page`.
    pub(crate) fn get(&self, page: PageIndex) -> Slot {
        let (directory, leaf, slot) = split(page);
        self.directories
            .get(&directory)
            .and_then(|directory| directory.leaves[leaf].as_ref())
            .map_or(Slot::default(), |leaf| leaf.slots[slot])
    }

    /// Replaces the slot of `page`.
    pub(crate) fn set(&mut self, page: PageIndex, new: Slot) {
        let (directory_index, leaf_index, slot_index) = split(page);
        let directory = self.directories.entry(directory_index).or_insert_with(Directory::new);
        self.leaves += u64::from(directory.leaves[leaf_index].is_none());
        let leaf = directory.leaves[leaf_index].get_or_insert_with(Leaf::new);
        let old = leaf.slots[slot_index].place();
        leaf.slots[slot_index] = new;
        let had = LOOKINGS.map(|looking| looking.leaf_has_any(leaf));
        leaf.count(old, |count| count - 1);
        leaf.count(new.place(), |count| count + 1);
        let has = LOOKINGS.map(|looking| looking.leaf_has_any(leaf));
        let is_used = leaf.used > 0;
        self.counts[old.kind()] = self.counts[old.kind()].wrapping_sub(1);
        self.counts[new.place().kind()] = self.counts[new.place().kind()].wrapping_add(1);
        if !is_used {
            directory.leaves[leaf_index] = None;
            self.leaves -= 1;
        }
        if had != has || !is_used {
            directory.note(leaf_index);
        }
        if !is_used && directory.next_leaf(0, Looking::Used).is_none() {
            self.directories.remove(&directory_index);
        }
    }

    /// The first page at or after `from` and before `end` that is looked for; `from` then says where it is, or that
    /// there is none before `end`.
    pub(crate) fn next(&self, from: &mut PageIndex, end: PageIndex, looking: Looking) -> Option<PageIndex> {
        let (directory_index, mut leaf_index, mut slot_index) = split(*from);
        for (found, directory) in self.directories.range(directory_index..) {
            if *found != directory_index {
                (leaf_index, slot_index) = (0, 0);
            }
            while let Some(next) = directory.next_leaf(leaf_index, looking) {
                if next != leaf_index {
                    slot_index = 0;
                }
                let start = (found * FANOUT + next as u64) * FANOUT;
                if start >= end.0 {
                    break;
                }
                let leaf = directory.leaves[next].as_ref();
                let slots = leaf.map_or(&[][..], |leaf| &leaf.slots[slot_index..]);
                if let Some(skip) = slots.iter().position(|slot| looking.wants(slot.place())) {
                    *from = PageIndex(start + (slot_index + skip) as u64);
                    return (*from < end).then_some(*from);
                }
                (leaf_index, slot_index) = (next + 1, 0);
            }
            if (found + 1) * FANOUT * FANOUT >= end.0 {
                break;
            }
        }
        *from = (*from).max(end);
        None
    }

    /// Pages whose place has this kind.
    pub(crate) fn count(&self, kind: usize) -> PageCount {
        assert!(kind != Place::Untouched.kind(), "untouched pages are not counted");
        PageCount(self.counts[kind])
    }

    /// What the table takes.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.leaves * size_of::<Leaf>() as u64 + self.directories.len() as u64 * size_of::<Directory>() as u64
    }
}

fn split(page: PageIndex) -> (u64, usize, usize) {
    (page.0 / FANOUT / FANOUT, (page.0 / FANOUT % FANOUT) as usize, (page.0 % FANOUT) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Plain;

    use policy::replacement::Age;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_leaves_are_given_back() {
        let mut table = PageTable::default();
        table.set(PageIndex(1 << 34), Slot::new(Place::Resident, Age::BESIDE));
        assert!(table.metadata_bytes() > 4096);
        table.set(PageIndex(1 << 34), Slot::default());
        assert_eq!(table.metadata_bytes(), 0);
    }

    /// Pages that lie far apart and are all of another kind: thousands of sweeps find nothing, in no time.
    #[test]
    fn a_sweep_over_terabytes_is_short() {
        const STRIDE: u64 = 1 << 16;
        let mut table = PageTable::default();
        for at in 0..4096 {
            let word = crate::words::WordIndex(0);
            table.set(PageIndex(at * STRIDE), Slot::new(Place::SameFilled(word), Age::NONE));
        }
        let begun = std::time::Instant::now();
        for _ in 0..1000 {
            let mut from = PageIndex(0);
            assert_eq!(table.next(&mut from, PageIndex(1 << 36), Looking::Resident), None);
        }
        // Less than a second without optimisation; a look at each leaf's place took half an hour.
        assert!(begun.elapsed().as_secs() < 20, "{:.1?}", begun.elapsed());
    }

    fn found(table: &PageTable, end: PageIndex, looking: Looking) -> Vec<PageIndex> {
        let mut from = PageIndex(0);
        let mut pages = vec![];
        while let Some(page) = table.next(&mut from, end, looking) {
            pages.push(page);
            from = page + PageCount(1);
        }
        pages
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_map(steps in prop::collection::vec((0_u64..3000, 0_u8..4), 1..400)) {
            let mut table = PageTable::default();
            let mut plain = Plain::new();
            for (page, place) in steps {
                // Spread over leaves and directories.
                let page = PageIndex(page * page * 37);
                let place = match place {
                    0 => Place::Untouched,
                    1 => Place::Resident,
                    2 => Place::Compressed(store::StoreKey::from_bits(page.0)),
                    _ => Place::Below(backing::BackingKey::from_bits(3)),
                };
                table.set(page, Slot::new(place, Age::TOUCHED));
                plain.insert(page, place);
            }
            for (page, place) in &plain {
                prop_assert_eq!(table.get(*page).place(), *place);
            }
            let end = PageIndex(1 << 35);
            for looking in [Looking::Used, Looking::Resident, Looking::Stored] {
                let expected: Vec<_> =
                    plain.iter().filter(|(_, place)| looking.wants(**place)).map(|(page, _)| *page).collect();
                prop_assert_eq!(found(&table, end, looking), expected);
            }
            let resident = plain.values().filter(|place| **place == Place::Resident).count() as u64;
            prop_assert_eq!(table.count(Place::Resident.kind()), PageCount(resident));
        }
    }
}
