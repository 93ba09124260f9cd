//! One zone: its block table and its comp page table, with a free list through each.

use alloc::boxed::Box;
use alloc::vec;

use super::ZoneShape;
use crate::handle::{Handle, YOUNG};
use crate::lists::{Link, NONE};

/// A block: two integers, as in Eq. 1 of the paper.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The next block of the page, or the next free one.
    next: u32,
    /// The entry of the page that the block is part of, or [`NONE`].
    entry: u32,
}

/// A compressed page: six integers, one for each field that section 3.1 names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The first block.
    pub(super) first: u32,
    /// The next page with the same hash value, or the next free entry.
    pub(super) next: u32,
    /// Neighbours in the list of all pages by age.
    pub(super) lru: Link,
    /// Swap handle and size, see `handle.rs`; zero where the entry is free.
    handle_and_size: [u32; 2],
}

const _: () = assert!(size_of::<Block>() == 2 * size_of::<u32>() && size_of::<Entry>() == 6 * size_of::<u32>());

impl Entry {
    const FREE: Self = Self { first: NONE, next: NONE, lru: Link::ALONE, handle_and_size: [0; 2] };

    pub(super) fn handle(&self) -> Option<Handle> {
        Handle::from_word(self.word())
    }

    pub(super) fn set_handle(&mut self, handle: Handle) {
        self.set_word(self.word() & YOUNG | handle.word());
    }

    pub(super) fn is_young(&self) -> bool {
        self.word() & YOUNG != 0
    }

    pub(super) fn set_young(&mut self, young: bool) {
        self.set_word(if young { self.word() | YOUNG } else { self.word() & !YOUNG });
    }

    fn word(&self) -> u64 {
        u64::from(self.handle_and_size[0]) << 32 | u64::from(self.handle_and_size[1])
    }

    fn set_word(&mut self, word: u64) {
        self.handle_and_size = [(word >> 32) as u32, word as u32];
    }
}

/// A zone's tables. Its memory is a unit of the pool.
pub(super) struct Zone {
    blocks: Box<[Block]>,
    entries: Box<[Entry]>,
    free_block: u32,
    free_entry: u32,
    used_blocks: u32,
    pages: u32,
}

impl Zone {
    pub(super) fn new(shape: ZoneShape) -> Self {
        let mut blocks = vec![Block { next: NONE, entry: NONE }; shape.blocks()];
        let mut entries = vec![Entry::FREE; shape.entries()];
        for (at, block) in blocks.iter_mut().enumerate().rev().skip(1) {
            block.next = at as u32 + 1;
        }
        for (at, entry) in entries.iter_mut().enumerate().rev().skip(1) {
            entry.next = at as u32 + 1;
        }
        let (blocks, entries) = (blocks.into(), entries.into());
        Self { blocks, entries, free_block: 0, free_entry: 0, used_blocks: 0, pages: 0 }
    }

    /// Takes the first free entry for `handle`, and the first free blocks for its encoding.
    pub(super) fn take(&mut self, blocks: usize, handle: Handle) -> u32 {
        assert!(self.has_room(blocks), "no room in a zone that was chosen for it");
        let entry = self.free_entry;
        let first = self.free_block;
        let mut last = first;
        for at in 0..blocks {
            if at > 0 {
                last = self.blocks[last as usize].next;
            }
            self.blocks[last as usize].entry = entry;
        }
        self.free_block = core::mem::replace(&mut self.blocks[last as usize].next, NONE);
        self.used_blocks += blocks as u32;
        self.pages += 1;
        let taken = &mut self.entries[entry as usize];
        self.free_entry = core::mem::replace(&mut taken.next, NONE);
        taken.first = first;
        taken.set_handle(handle);
        entry
    }

    /// Frees an entry that is in no list any more, and its blocks.
    pub(super) fn free(&mut self, entry: u32, blocks: usize) {
        let first = self.entries[entry as usize].first;
        let mut at = first;
        let mut last = first;
        let mut count = 0;
        while at != NONE {
            let block = &mut self.blocks[at as usize];
            assert_eq!(block.entry, entry, "block {at} belongs to another page");
            block.entry = NONE;
            (last, at) = (at, block.next);
            count += 1;
        }
        assert_eq!(count, blocks, "a page lost blocks");
        self.blocks[last as usize].next = core::mem::replace(&mut self.free_block, first);
        self.entries[entry as usize] = Entry { next: self.free_entry, ..Entry::FREE };
        self.free_entry = entry;
        self.used_blocks -= blocks as u32;
        self.pages -= 1;
    }

    pub(super) fn has_room(&self, blocks: usize) -> bool {
        self.blocks.len() - self.used_blocks() >= blocks && self.has_entry()
    }

    /// Whether another page could be stored here at all.
    pub(super) fn has_entry(&self) -> bool {
        self.free_entry != NONE
    }

    pub(super) fn used_blocks(&self) -> usize {
        self.used_blocks as usize
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }

    pub(super) fn entry_mut(&mut self, entry: u32) -> &mut Entry {
        &mut self.entries[entry as usize]
    }

    pub(super) fn next_block(&self, block: u32) -> u32 {
        self.blocks[block as usize].next
    }

    /// The overhead of Eq. 1.
    pub(super) fn table_bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.entries[..])
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.entries.iter().filter_map(Entry::handle)
    }

    /// Each block is in one page or on the free list, and each entry is used or on the other.
    pub(super) fn check(&self, shape: ZoneShape) {
        let mut used = 0;
        let mut pages = 0;
        for (number, entry) in self.entries.iter().enumerate() {
            let Some(Handle { length, .. }) = entry.handle() else { continue };
            pages += 1;
            let mut at = entry.first;
            for _ in 0..shape.blocks_for(length) {
                assert_eq!(self.blocks[at as usize].entry, number as u32, "block {at} belongs to another page");
                at = self.blocks[at as usize].next;
                used += 1;
            }
            assert_eq!(at, NONE, "entry {number} has too many blocks");
        }
        assert_eq!((used, pages), (self.used_blocks, self.pages));
        assert_eq!(self.blocks.iter().filter(|block| block.entry != NONE).count() as u32, used);
        let free_blocks = count(self.free_block, self.blocks.len(), |at| {
            assert_eq!(self.blocks[at].entry, NONE, "the used block {at} is listed as free");
            self.blocks[at].next
        });
        assert_eq!(free_blocks, self.blocks.len() - used as usize, "free blocks are lost");
        let free_entries = count(self.free_entry, self.entries.len(), |at| {
            assert_eq!(self.entries[at].handle(), None, "the used entry {at} is listed as free");
            self.entries[at].next
        });
        assert_eq!(free_entries, self.entries.len() - pages as usize, "free entries are lost");
    }
}

/// The length of a free list; panics if it is a ring.
fn count(first: u32, length_max: usize, next: impl Fn(usize) -> u32) -> usize {
    let mut at = first;
    let mut length = 0;
    while at != NONE {
        length += 1;
        assert!(length <= length_max, "a free list is a ring");
        at = next(at as usize);
    }
    length
}
