//! Records: what a store knows of each of its encodings. The number of the record is the key.
//!
//! A record keeps its number however often the encoding moves, so that moves need not be reported. All records are in
//! the order in which they came.

use alloc::vec::Vec;

use page::PageIndex;

use crate::StoreKey;
use crate::aged::{Aged, Marks};
use crate::handle::{Handle, YOUNG};
use crate::lists::{Link, Links, NONE};

/// An encoding; `P` says where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<P> {
    /// Zero where the record is free; `order.next` is the next free one then.
    handle: u64,
    order: Link,
    place: P,
}

/// Records by number.
pub(crate) struct Records<P> {
    all: Vec<Record<P>>,
    free: u32,
    order: Aged,
    count: u64,
    stored_bytes: u64,
}

impl<P> Links for Vec<Record<P>> {
    fn link(&self, member: u32) -> Link {
        self[member as usize].order
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        &mut self[member as usize].order
    }
}

impl<P> Marks for Vec<Record<P>> {
    fn is_young(&self, member: u32) -> bool {
        self[member as usize].handle & YOUNG != 0
    }

    fn set_young(&mut self, member: u32, young: bool) {
        let handle = &mut self[member as usize].handle;
        *handle = if young { *handle | YOUNG } else { *handle & !YOUNG };
    }
}

impl<P: Copy> Records<P> {
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), free: NONE, order: Aged::EMPTY, count: 0, stored_bytes: 0 }
    }

    /// Adds an encoding, the youngest.
    pub(crate) fn insert(&mut self, handle: Handle, place: P) -> u32 {
        let record = Record { handle: handle.word(), order: Link::ALONE, place };
        let number = if self.free == NONE {
            self.all.push(record);
            self.all.len() as u32 - 1
        } else {
            let number = self.free;
            self.free = self.all[number as usize].order.next;
            self.all[number as usize] = record;
            number
        };
        self.order.push(&mut self.all, number);
        self.count += 1;
        self.stored_bytes += handle.length as u64;
        number
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let handle = self.handle(number);
        self.order.remove(&mut self.all, number);
        let record = &mut self.all[number as usize];
        record.handle = 0;
        record.order = Link { previous: NONE, next: core::mem::replace(&mut self.free, number) };
        self.count -= 1;
        self.stored_bytes -= handle.length as u64;
    }

    pub(crate) fn handle(&self, number: u32) -> Handle {
        self.all
            .get(number as usize)
            .and_then(|record| Handle::from_word(record.handle))
            .unwrap_or_else(|| panic!("nothing is stored under {:?}", key(number)))
    }

    pub(crate) fn place(&self, number: u32) -> P {
        self.all[number as usize].place
    }

    pub(crate) fn place_mut(&mut self, number: u32) -> &mut P {
        &mut self.all[number as usize].place
    }

    pub(crate) fn set_owner(&mut self, number: u32, owner: PageIndex) {
        let word = Handle { owner, ..self.handle(number) }.word();
        let handle = &mut self.all[number as usize].handle;
        *handle = *handle & YOUNG | word;
    }

    /// The number is another encoding's now, and the youngest.
    pub(crate) fn renew(&mut self, number: u32, handle: Handle) {
        self.stored_bytes -= self.handle(number).length as u64;
        self.stored_bytes += handle.length as u64;
        self.order.remove(&mut self.all, number);
        self.all[number as usize].handle = handle.word();
        self.order.push(&mut self.all, number);
    }

    pub(crate) fn is_among_youngest(&mut self, number: u32, young_max: u64) -> bool {
        self.order.is_among_youngest(&mut self.all, number, young_max)
    }

    pub(crate) fn oldest(&self) -> Option<StoreKey> {
        (self.order.oldest() != NONE).then(|| key(self.order.oldest()))
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all lengths.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of_val(&self.all[..])
    }

    /// The numbers in use, the oldest first.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.order.members(&self.all)
    }

    /// Each record is in the order of age or free, and the sums are right.
    pub(crate) fn check(&self) {
        let mut count = 0;
        let mut stored_bytes = 0;
        for number in self.numbers() {
            count += 1;
            stored_bytes += self.handle(number).length as u64;
        }
        assert_eq!((count, stored_bytes), (self.count, self.stored_bytes));
        let mut at = self.free;
        while at != NONE {
            assert_eq!(self.all[at as usize].handle, 0, "the used record {at} is listed as free");
            count += 1;
            assert!(count <= self.all.len() as u64, "the free list is a ring");
            at = self.all[at as usize].order.next;
        }
        assert_eq!(count, self.all.len() as u64, "records are lost");
    }
}

pub(crate) fn key(number: u32) -> StoreKey {
    StoreKey::from_bits(u64::from(number))
}

pub(crate) fn number(key: StoreKey) -> u32 {
    key.bits() as u32
}

/// An encoding in one piece, in some unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) unit: u32,
    /// Where it starts in the unit.
    pub(crate) offset: u32,
    /// Its neighbours in the unit's list of pieces.
    pub(crate) link: Link,
}

impl Links for Records<Piece> {
    fn link(&self, member: u32) -> Link {
        self.all[member as usize].place.link
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        &mut self.all[member as usize].place.link
    }
}
