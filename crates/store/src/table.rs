//! The table of slabs, and the lists that find one with room.
//!
//! Each class keeps its partial slabs in lists by how full they are, so that `put` fills the fullest and the sparse
//! ones drain. Full slabs are on no list. Links are indices, not pointers: a fork may copy the table as it is.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::class::{CLASS_COUNT, CLASSES, ClassSet};
use crate::head::NO_SLOT;

/// No slab: the end of a list.
pub(crate) const NO_SLAB: u32 = u32::MAX;
/// The class of a slab without encodings. It belongs to whoever takes it first.
pub(crate) const NO_CLASS: u8 = u8::MAX;

/// Lists for each class: enough to tell sparse from full, few enough that most puts and removes stay in one.
const GROUPS: usize = 8;

/// What is known of one slab. Its index says where in the pool it lies.
#[derive(Clone, Copy)]
pub(crate) struct Slab {
    pub(crate) class: u8,
    /// Frames held, from the first on.
    pub(crate) held: u8,
    /// Slots with an encoding.
    pub(crate) used: u16,
    /// Slots that were ever used since the slab got its class; those behind were never written.
    pub(crate) fresh: u16,
    /// The first free slot before `fresh`.
    pub(crate) free: u16,
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// Where the heads are, if the class is `WHOLE`.
    pub(crate) heads: u32,
}

impl Slab {
    pub(crate) const EMPTY: Self =
        Self { class: NO_CLASS, held: 0, used: 0, fresh: 0, free: NO_SLOT, previous: NO_SLAB, next: NO_SLAB, heads: 0 };

    /// The list this slab belongs on.
    fn group(&self) -> Option<usize> {
        let slots = CLASSES.get(usize::from(self.class))?.slots;
        (self.used < slots).then(|| usize::from(self.used) * GROUPS / usize::from(slots))
    }
}

#[derive(Clone, Copy)]
struct Lists {
    first: [u32; GROUPS],
    /// A bit for each list that is not empty.
    nonempty: u8,
    /// Free slots before `fresh` in all slabs of the class: room that costs no new frames.
    room: u32,
}

/// All slabs.
pub(crate) struct Table {
    slabs: Vec<Slab>,
    lists: Box<[Lists]>,
    /// Classes with a partial slab.
    partial: ClassSet,
}

/// Where a slab is listed; kept while its counts change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed(Option<usize>);

impl Table {
    pub(crate) fn new() -> Self {
        let none = Lists { first: [NO_SLAB; GROUPS], nonempty: 0, room: 0 };
        Self { slabs: Vec::new(), lists: alloc::vec![none; CLASS_COUNT].into(), partial: ClassSet::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slabs.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.slabs[..]) + size_of_val(&self.lists[..])
    }

    /// Adds one empty slab, on no list.
    pub(crate) fn push(&mut self) -> u32 {
        self.slabs.push(Slab::EMPTY);
        self.slabs.len() as u32 - 1
    }

    /// The class from `class` on to `last` whose slots are shortest among those with a partial slab.
    pub(crate) fn class_with_room(&self, class: usize, last: usize) -> Option<usize> {
        self.partial.first_from(class).filter(|&found| found <= last)
    }

    /// A partial slab of `class`, from the fullest group.
    pub(crate) fn fullest(&self, class: usize) -> Option<u32> {
        let lists = &self.lists[class];
        lists.nonempty.checked_ilog2().map(|group| lists.first[group as usize])
    }

    /// A partial slab of `class`, from the sparsest group.
    pub(crate) fn sparsest(&self, class: usize) -> Option<u32> {
        let lists = &self.lists[class];
        (lists.nonempty != 0).then(|| lists.first[lists.nonempty.trailing_zeros() as usize])
    }

    pub(crate) fn room(&self, class: usize) -> u32 {
        self.lists[class].room
    }

    pub(crate) fn room_mut(&mut self, class: usize) -> &mut u32 {
        &mut self.lists[class].room
    }

    /// On which list `slab` is, to be told to [`relist`](Self::relist) after its counts have changed.
    pub(crate) fn listed(&self, slab: u32) -> Listed {
        Listed(self[slab].group())
    }

    /// Moves `slab` from the list it `was` on to the one its counts now ask for.
    pub(crate) fn relist(&mut self, slab: u32, was: Listed) {
        let now = self.listed(slab);
        if was != now {
            self.unlist(slab, was);
            self.list(slab, now);
        }
    }

    pub(crate) fn list(&mut self, slab: u32, listed: Listed) {
        let Listed(Some(group)) = listed else { return };
        let class = usize::from(self[slab].class);
        let lists = &mut self.lists[class];
        let next = core::mem::replace(&mut lists.first[group], slab);
        lists.nonempty |= 1 << group;
        self.partial.insert(class);
        self[slab].previous = NO_SLAB;
        self[slab].next = next;
        if next != NO_SLAB {
            self[next].previous = slab;
        }
    }

    pub(crate) fn unlist(&mut self, slab: u32, listed: Listed) {
        let Listed(Some(group)) = listed else { return };
        let Slab { class, previous, next, .. } = self[slab];
        if next != NO_SLAB {
            self[next].previous = previous;
        }
        if previous != NO_SLAB {
            self[previous].next = next;
            return;
        }
        let lists = &mut self.lists[usize::from(class)];
        lists.first[group] = next;
        if next == NO_SLAB {
            lists.nonempty &= !(1 << group);
            if lists.nonempty == 0 {
                self.partial.remove(usize::from(class));
            }
        }
    }

    /// Asserts that the lists hold exactly the partial slabs, each on the right one.
    pub(crate) fn check(&self) {
        let mut listed_count = 0;
        for (class, lists) in self.lists.iter().enumerate() {
            assert_eq!(self.partial.contains(class), lists.nonempty != 0, "class {class}");
            for group in 0..GROUPS {
                assert_eq!(lists.nonempty >> group & 1 == 1, lists.first[group] != NO_SLAB);
                let (mut previous, mut at) = (NO_SLAB, lists.first[group]);
                while at != NO_SLAB {
                    let slab = &self[at];
                    assert_eq!((usize::from(slab.class), slab.group()), (class, Some(group)), "slab {at}");
                    assert_eq!(slab.previous, previous, "slab {at}");
                    listed_count += 1;
                    (previous, at) = (at, slab.next);
                }
            }
        }
        assert_eq!(listed_count, self.slabs.iter().filter(|slab| slab.group().is_some()).count());
    }
}

impl Index<u32> for Table {
    type Output = Slab;
    fn index(&self, slab: u32) -> &Slab {
        &self.slabs[slab as usize]
    }
}

impl IndexMut<u32> for Table {
    fn index_mut(&mut self, slab: u32) -> &mut Slab {
        &mut self.slabs[slab as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{WHOLE, WHOLE_SLOTS};

    /// One slab of class `WHOLE` for each of `used`, listed.
    fn table(used: &[u16]) -> Table {
        let mut table = Table::new();
        for &used in used {
            let slab = table.push();
            table[slab] = Slab { class: WHOLE as u8, used, fresh: WHOLE_SLOTS as u16, ..Slab::EMPTY };
            let listed = table.listed(slab);
            table.list(slab, listed);
        }
        table.check();
        table
    }

    #[test]
    fn the_fullest_and_the_sparsest_are_found() {
        let mut table = table(&[9, 16, 2, 14, 4, 16]);
        assert_eq!((table.fullest(WHOLE), table.sparsest(WHOLE)), (Some(3), Some(2)));
        // The fullest becomes full, the sparsest fuller than the next.
        for (slab, used) in [(3, 16), (2, 8)] {
            let was = table.listed(slab);
            table[slab].used = used;
            table.relist(slab, was);
            table.check();
        }
        // Slabs 0 and 2 share a group; the last that came is the first.
        assert_eq!((table.fullest(WHOLE), table.sparsest(WHOLE)), (Some(2), Some(4)));
        for slab in [2, 0, 4] {
            let was = table.listed(slab);
            table.unlist(slab, was);
        }
        assert_eq!((table.fullest(WHOLE), table.sparsest(WHOLE)), (None, None));
        assert_eq!(table.class_with_room(0, WHOLE), None);
    }

    #[test]
    fn a_slab_leaves_the_middle_of_its_list() {
        for gone in 0..3 {
            let mut table = table(&[5, 5, 5]);
            let was = table.listed(gone);
            table[gone].used = WHOLE_SLOTS as u16;
            table.relist(gone, was);
            table.check();
            assert_eq!(table.class_with_room(0, WHOLE), Some(WHOLE));
        }
    }
}
