//! Zones: compressed pages in equal blocks, after Tuduce and Gross (2005), section 3.
//!
//! The area is a chain of equal zones, each cut into equal blocks. A page lives inside one zone, as a list of its blocks
//! (`zone.rs`), so a zone can be given back without looking at any other. A page goes to the first zone of the chain
//! that has enough free blocks; a hash table finds its zone again; one list over all zones keeps the pages by age. Two
//! things waste memory: the rest of each page's last block, and, where pages compress better than the compression
//! factor says, blocks of zones whose entries are used up.
//!
//! A key is the number of the zone and of the entry in its comp page table. The page table of pleat keeps it, so the
//! hash table is needed only by those who have no such table; it is kept because it is part of what this layout costs.
//!
//! Invariants: see `Zones::check` and `Zone::check`.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;

use crate::aged::{Aged, Marks};
use crate::handle::Handle;
use crate::lists::{Link, Links, NONE};
use crate::units::Units;
use crate::{Blocked, Full, Resize, Store, StoreFigures, StoreKey};

mod zone;

use zone::Zone;

/// What a zone is made of. The defaults are those of the paper's measurements (section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneShape {
    /// Bytes of a zone: a multiple of the page size.
    pub zone_bytes: usize,
    /// Bytes of a block: 64 to 1024, and a zone is a multiple of it.
    pub block_bytes: usize,
    /// Entries of a zone's comp page table, as a multiple of the pages that it would hold uncompressed.
    pub compression_factor: usize,
}

impl Default for ZoneShape {
    fn default() -> Self {
        Self { zone_bytes: 4 << 20, block_bytes: 128, compression_factor: 4 }
    }
}

impl ZoneShape {
    /// Entries that a key can tell apart in one zone.
    const ENTRIES_MAX: usize = 1 << ENTRY_BITS;

    fn assert_valid(self) {
        assert!(
            (64..=1024).contains(&self.block_bytes) && self.zone_bytes.is_multiple_of(self.block_bytes),
            "{self:?}"
        );
        assert!(self.zone_bytes > 0 && self.zone_bytes.is_multiple_of(PAGE_BYTES), "{self:?}");
        assert!((1..=Self::ENTRIES_MAX).contains(&self.entries()), "{self:?}");
    }

    /// Blocks of a zone.
    pub fn blocks(self) -> usize {
        self.zone_bytes / self.block_bytes
    }

    /// Pages that a zone can hold at most.
    pub fn entries(self) -> usize {
        self.compression_factor * self.zone_bytes / PAGE_BYTES
    }

    fn blocks_for(self, length: usize) -> usize {
        length.div_ceil(self.block_bytes)
    }
}

const ENTRY_BITS: u32 = 16;

/// A chain of zones.
pub struct Zones {
    shape: ZoneShape,
    units: Units,
    table: ZoneTable,
    /// The chain: numbers of zones, first fit first.
    chain: Vec<u32>,
    /// All compressed pages, the least recently used first.
    lru: Aged,
    /// The first page of each chain of pages with one hash value.
    hash: Box<[u32]>,
    sums: Sums,
}

/// The zones by number; none where a number is not used now.
struct ZoneTable(Vec<Option<Zone>>);

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    encodings: u64,
    stored_bytes: u64,
    blocks: u64,
}

/// An entry of a zone's comp page table, as a member of lists.
fn member(zone: u32, entry: u32) -> u32 {
    zone << ENTRY_BITS | entry
}

fn parts(member: u32) -> (u32, u32) {
    (member >> ENTRY_BITS, member & ((1 << ENTRY_BITS) - 1))
}

fn key(member: u32) -> StoreKey {
    StoreKey::from_bits(u64::from(member))
}

impl ZoneTable {
    fn zone(&self, zone: u32) -> &Zone {
        self.0.get(zone as usize).and_then(Option::as_ref).expect("nothing is stored in a zone that is not there")
    }

    fn zone_mut(&mut self, zone: u32) -> &mut Zone {
        self.0[zone as usize].as_mut().expect("nothing is stored in a zone that is not there")
    }
}

impl Links for ZoneTable {
    fn link(&self, member: u32) -> Link {
        let (zone, entry) = parts(member);
        self.zone(zone).entry(entry).lru
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        let (zone, entry) = parts(member);
        &mut self.zone_mut(zone).entry_mut(entry).lru
    }
}

impl Marks for ZoneTable {
    fn is_young(&self, member: u32) -> bool {
        let (zone, entry) = parts(member);
        self.zone(zone).entry(entry).is_young()
    }

    fn set_young(&mut self, member: u32, young: bool) {
        let (zone, entry) = parts(member);
        self.zone_mut(zone).entry_mut(entry).set_young(young);
    }
}

impl Zones {
    /// Reserves `bytes_max` of address space, for at most 65535 zones, and adds none yet.
    pub fn new(bytes_max: usize, shape: ZoneShape) -> Result<Self, Errno> {
        shape.assert_valid();
        let bytes_max = bytes_max.min(((1 << ENTRY_BITS) - 1) * shape.zone_bytes);
        Ok(Self {
            shape,
            units: Units::reserve(bytes_max, shape.zone_bytes)?,
            table: ZoneTable(Vec::new()),
            chain: Vec::new(),
            lru: Aged::EMPTY,
            hash: Box::default(),
            sums: Sums::default(),
        })
    }

    /// Where the encoding of `page` is, by the hash table.
    pub fn find(&self, page: PageIndex) -> Option<StoreKey> {
        let mut at = *self.hash.get(self.bucket(page))?;
        while at != NONE {
            let (zone, entry) = parts(at);
            let entry = self.table.zone(zone).entry(entry);
            if entry.handle().is_some_and(|handle| handle.owner == page) {
                return Some(key(at));
            }
            at = entry.next;
        }
        None
    }

    fn bucket(&self, page: PageIndex) -> usize {
        // Fibonacci hashing (Knuth): neighbours spread, and any power of two of buckets is used evenly.
        (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.hash.len().wrapping_sub(1)
    }

    /// Puts a page first in its chain of equal hash values.
    fn hash_in(&mut self, at: u32) {
        let (zone, entry) = parts(at);
        let bucket = self.bucket(self.used(key(at)).2.owner);
        self.table.zone_mut(zone).entry_mut(entry).next = core::mem::replace(&mut self.hash[bucket], at);
    }

    fn hash_out(&mut self, at: u32) {
        let (zone, entry) = parts(at);
        let &zone::Entry { next, .. } = self.table.zone(zone).entry(entry);
        let bucket = self.bucket(self.used(key(at)).2.owner);
        let mut before = self.hash[bucket];
        if before == at {
            self.hash[bucket] = next;
            return;
        }
        loop {
            let (zone, entry) = parts(before);
            let entry = self.table.zone_mut(zone).entry_mut(entry);
            if entry.next == at {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }

    /// One bucket for each page that the zones would hold uncompressed, or a little more.
    fn rehash(&mut self) {
        let buckets = (self.chain.len() * self.shape.zone_bytes / PAGE_BYTES).next_power_of_two();
        if buckets <= self.hash.len() {
            return;
        }
        self.hash = vec![NONE; buckets].into();
        let all: Vec<u32> = self.lru.members(&self.table).collect();
        for at in all {
            self.hash_in(at);
        }
    }

    /// The first zone of the chain that has room for `blocks` blocks and one more page.
    fn first_fit(&self, blocks: usize) -> Option<u32> {
        self.chain.iter().copied().find(|&zone| self.table.zone(zone).has_room(blocks))
    }

    /// Takes an entry and the blocks for it. It is in no list yet.
    fn take(&mut self, zone: u32, handle: Handle) -> u32 {
        let entry = self.table.zone_mut(zone).take(self.shape.blocks_for(handle.length), handle);
        self.count(handle.length, |sum, more| *sum += more);
        member(zone, entry)
    }

    fn free(&mut self, at: u32) {
        let (zone, entry, handle) = self.used(key(at));
        self.count(handle.length, |sum, less| *sum -= less);
        self.table.zone_mut(zone).free(entry, self.shape.blocks_for(handle.length));
        if cfg!(debug_assertions) {
            self.table.zone(zone).check(self.shape);
        }
    }

    fn count(&mut self, length: usize, add: impl Fn(&mut u64, u64)) {
        add(&mut self.sums.encodings, 1);
        add(&mut self.sums.stored_bytes, length as u64);
        add(&mut self.sums.blocks, self.shape.blocks_for(length) as u64);
    }

    fn used(&self, key: StoreKey) -> (u32, u32, Handle) {
        let (zone, entry) = parts(key.bits() as u32);
        let handle = self.table.zone(zone).entry(entry).handle();
        (zone, entry, handle.unwrap_or_else(|| panic!("nothing is stored under {key:?}")))
    }

    /// Where in the pool a block is.
    fn block_offset(&self, zone: u32, block: u32) -> usize {
        self.units.offset(zone) + block as usize * self.shape.block_bytes
    }

    /// Moves a page to the first other zone that has room for it. It keeps its place among the ages.
    fn relocate(&mut self, at: u32) -> Option<u32> {
        let (zone, entry, handle) = self.used(key(at));
        let to_zone = self.first_fit(self.shape.blocks_for(handle.length))?;
        self.hash_out(at);
        let to = self.take(to_zone, handle);
        self.lru.replace(&mut self.table, at, to);
        let mut from_block = self.table.zone(zone).entry(entry).first;
        let mut to_block = self.table.zone(to_zone).entry(parts(to).1).first;
        while from_block != NONE {
            let (from, to) = (self.block_offset(zone, from_block), self.block_offset(to_zone, to_block));
            self.units.pool.copy(from, to, self.shape.block_bytes);
            from_block = self.table.zone(zone).next_block(from_block);
            to_block = self.table.zone(to_zone).next_block(to_block);
        }
        self.hash_in(to);
        self.free(at);
        Some(to)
    }

    fn delete(&mut self, zone: u32) {
        assert_eq!(self.table.zone(zone).pages(), 0, "pages in a zone that is deleted");
        self.table.0[zone as usize] = None;
        self.units.give_back(zone);
    }
}

impl Store for Zones {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        assert!((1..=PAGE_BYTES).contains(&encoding.len()), "an encoding of {} bytes", encoding.len());
        let zone = self.first_fit(self.shape.blocks_for(encoding.len())).ok_or(Full)?;
        let at = self.take(zone, Handle { owner, length: encoding.len() });
        let mut block = self.table.zone(zone).entry(parts(at).1).first;
        for piece in encoding.chunks(self.shape.block_bytes) {
            let offset = self.block_offset(zone, block);
            self.units.pool.bytes_mut(offset, piece.len()).copy_from_slice(piece);
            block = self.table.zone(zone).next_block(block);
        }
        self.lru.push(&mut self.table, at);
        self.hash_in(at);
        if cfg!(debug_assertions) {
            self.table.zone(zone).check(self.shape);
        }
        Ok(key(at))
    }

    fn read(&self, key: StoreKey, copy: &mut [u8; PAGE_BYTES]) -> usize {
        let (zone, entry, Handle { length, .. }) = self.used(key);
        let mut block = self.table.zone(zone).entry(entry).first;
        for piece in copy[..length].chunks_mut(self.shape.block_bytes) {
            piece.copy_from_slice(self.units.pool.bytes(self.block_offset(zone, block), piece.len()));
            block = self.table.zone(zone).next_block(block);
        }
        length
    }

    fn owner(&self, key: StoreKey) -> PageIndex {
        self.used(key).2.owner
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        let (zone, entry, handle) = self.used(key);
        self.hash_out(member(zone, entry));
        self.table.zone_mut(zone).entry_mut(entry).set_handle(Handle { owner, ..handle });
        self.hash_in(member(zone, entry));
    }

    fn remove(&mut self, key: StoreKey) {
        let (zone, entry, _) = self.used(key);
        let at = member(zone, entry);
        self.hash_out(at);
        self.lru.remove(&mut self.table, at);
        self.free(at);
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        Some(self)
    }

    fn figures(&self) -> StoreFigures {
        let block_bytes = self.shape.block_bytes as u64;
        // One pass, for this is asked at each fault. Free where a page can still be put; the tables of all are alike.
        let (mut free, mut tail, mut tables) = (0, 0, 0);
        for zone in self.chain.iter().map(|&zone| self.table.zone(zone)) {
            let blocks = (self.shape.blocks() - zone.used_blocks()) as u64;
            if zone.has_entry() {
                free += blocks;
            } else {
                tail += blocks;
            }
            tables += zone.table_bytes();
        }
        let metadata = tables
            + size_of_val(&self.hash[..])
            + size_of_val(&self.table.0[..])
            + size_of_val(&self.chain[..])
            + self.units.metadata_bytes();
        StoreFigures {
            encodings: self.sums.encodings,
            stored: ByteCount(self.sums.stored_bytes),
            rounding: ByteCount(self.sums.blocks * block_bytes - self.sums.stored_bytes),
            free: ByteCount(free * block_bytes),
            tail: ByteCount(tail * block_bytes),
            pool: ByteCount((self.chain.len() * self.shape.zone_bytes) as u64),
            metadata: ByteCount(metadata as u64),
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        assert_eq!(self.chain.len(), self.units.taken());
        assert_eq!(self.chain.len(), self.table.0.iter().flatten().count());
        let mut sums = Sums::default();
        for &zone in &self.chain {
            self.table.zone(zone).check(self.shape);
            for handle in self.table.zone(zone).handles() {
                sums.encodings += 1;
                sums.stored_bytes += handle.length as u64;
                sums.blocks += self.shape.blocks_for(handle.length) as u64;
            }
        }
        assert_eq!(sums, self.sums);
        assert_eq!(self.lru.members(&self.table).count() as u64, sums.encodings);
        self.check_hash();
    }
}

impl Zones {
    /// The hash table's chains visit each page once, in the chain of its own hash value.
    fn check_hash(&self) {
        let mut count = 0;
        for (bucket, &first) in self.hash.iter().enumerate() {
            let mut at = first;
            while at != NONE {
                let (zone, entry, handle) = self.used(key(at));
                assert_eq!(self.bucket(handle.owner), bucket, "{:?} is in the wrong chain", handle.owner);
                count += 1;
                assert!(count <= self.sums.encodings, "a chain of equal hash values is a ring");
                at = self.table.zone(zone).entry(entry).next;
            }
        }
        assert_eq!(count, self.sums.encodings, "pages that the hash table does not find");
    }
}

impl Resize for Zones {
    fn unit(&self) -> ByteCount {
        ByteCount(self.units.unit_bytes() as u64)
    }

    fn grow(&mut self) -> Result<(), Full> {
        let zone = self.units.take().ok_or(Full)?;
        if zone as usize == self.table.0.len() {
            self.table.0.push(None);
        }
        self.table.0[zone as usize] = Some(Zone::new(self.shape));
        self.chain.push(zone);
        self.rehash();
        Ok(())
    }

    fn shrink(&mut self, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked> {
        let emptiest = |at: &usize| self.table.zone(self.chain[*at]).used_blocks();
        let Some(place) = (0..self.chain.len()).min_by_key(emptiest) else { return Err(Blocked) };
        // Off the chain, or its pages could be put into it again.
        let zone = self.chain.remove(place);
        for entry in 0..self.shape.entries() as u32 {
            let at = member(zone, entry);
            if self.table.zone(zone).entry(entry).handle().is_none() {
                continue;
            }
            let Some(to) = self.relocate(at) else {
                self.chain.insert(place, zone);
                return Err(Blocked);
            };
            moved(self.owner(key(to)), key(at), key(to));
        }
        self.delete(zone);
        Ok(())
    }

    fn oldest(&self) -> Option<StoreKey> {
        (self.lru.oldest() != NONE).then(|| key(self.lru.oldest()))
    }

    fn would_be_resident(&mut self, key: StoreKey) -> bool {
        let frames = self.chain.len() * self.shape.zone_bytes / PAGE_BYTES;
        self.lru.is_among_youngest(&mut self.table, key.bits() as u32, frames as u64)
    }
}
