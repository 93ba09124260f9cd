//! The page table: from page to slot.
//!
//! A leaf holds the slots of 512 neighbouring pages and counts what is in them, so that a sweep passes over leaves
//! without anything for it. A directory holds 512 leaves, 1 GiB of address space; programs use few directories. Leaves
//! without a slot in use are freed: a program that maps terabytes pays for what it touches.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use page::{PageCount, PageIndex};

use crate::slot::{Place, Slot};

const FANOUT: u64 = 512;

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
    used: u16,
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
        let directory = self
            .directories
            .entry(directory_index)
            .or_insert_with(|| Box::new(Directory { leaves: [const { None }; FANOUT as usize], used: 0 }));
        if directory.leaves[leaf_index].is_none() {
            directory.used += 1;
            self.leaves += 1;
        }
        let leaf = directory.leaves[leaf_index].get_or_insert_with(Leaf::new);
        let old = leaf.slots[slot_index].place();
        leaf.slots[slot_index] = new;
        leaf.count(old, |count| count - 1);
        leaf.count(new.place(), |count| count + 1);
        self.counts[old.kind()] = self.counts[old.kind()].wrapping_sub(1);
        self.counts[new.place().kind()] = self.counts[new.place().kind()].wrapping_add(1);
        if leaf.used == 0 {
            directory.leaves[leaf_index] = None;
            directory.used -= 1;
            self.leaves -= 1;
            if directory.used == 0 {
                self.directories.remove(&directory_index);
            }
        }
    }

    /// The first page at or after `from` and before `end` that is looked for. Slots looked at are taken off `looks`;
    /// with none left the answer is `None`, and `from` says where to go on.
    pub(crate) fn next(&self, from: &mut PageIndex, end: PageIndex, looking: Looking) -> Option<PageIndex> {
        while *from < end {
            let (directory_index, leaf_index, slot_index) = split(*from);
            let Some((found, directory)) = self.directories.range(directory_index..).next() else {
                *from = end;
                return None;
            };
            if *found != directory_index {
                *from = PageIndex(found * FANOUT * FANOUT);
                continue;
            }
            let leaf = directory.leaves[leaf_index].as_ref().filter(|leaf| looking.leaf_has_any(leaf));
            let hit =
                leaf.and_then(|leaf| leaf.slots[slot_index..].iter().position(|slot| looking.wants(slot.place())));
            if let Some(skip) = hit {
                *from = PageIndex(from.0 + skip as u64);
                return (*from < end).then_some(*from);
            }
            *from = PageIndex((from.0 / FANOUT + 1) * FANOUT);
        }
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
        table.set(PageIndex(1 << 34), Slot::new(Place::Resident, Age::HOT));
        assert!(table.metadata_bytes() > 4096);
        table.set(PageIndex(1 << 34), Slot::default());
        assert_eq!(table.metadata_bytes(), 0);
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
