//! Chunks: memory that a compressed block device has asked for, divided by resource maps, after Yang, Dick, Lekatsas and
//! Chakradhar (CRAMES).
//!
//! The device asks for memory in equal chunks, which it keeps in a linked list. Each has a resource map: a list of what
//! is free in it, in the order of addresses, with neighbours always merged. An encoding goes to the first hole of the
//! first chunk that is long enough. An index mapping table says for each block of the device where its encoding lies; a
//! key is a number of that table, and a block that is written again gives the room of its old encoding back.
//!
//! The slides name the resource map and no more; the map here is that of Vahalia's UNIX Internals, which the field means
//! by the name. They also do not say when a chunk is given back: here when a sizing policy asks, the emptiest.
//! Invariants: see `Chunks::check`.

use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;

use crate::handle::Handle;
use crate::lists::{Link, Links, List, NONE};
use crate::records::{Piece, Records, key, number};
use crate::units::Units;
use crate::{Blocked, Full, Resize, Store, StoreFigures, StoreKey};

mod map;

use map::{GRAIN_BYTES, ResourceMap};

/// A linked list of chunks.
pub struct Chunks {
    units: Units,
    table: ChunkTable,
    list: List,
    /// The index mapping table.
    blocks: Records<Piece>,
    sums: Sums,
}

/// Sums over all resource maps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    free_bytes: usize,
    /// What the maps take.
    map_bytes: usize,
}

/// The chunks by number; none where a number is not used now.
struct ChunkTable(Vec<Option<Chunk>>);

struct Chunk {
    map: ResourceMap,
    /// Its encodings.
    pieces: List,
    /// Its neighbours in the list of chunks.
    link: Link,
}

impl Sums {
    fn join(&mut self, map: &ResourceMap) {
        self.free_bytes += map.free_bytes();
        self.map_bytes += map.bytes();
    }

    fn leave(&mut self, map: &ResourceMap) {
        self.free_bytes -= map.free_bytes();
        self.map_bytes -= map.bytes();
    }
}

impl ChunkTable {
    fn chunk(&self, chunk: u32) -> &Chunk {
        self.0[chunk as usize].as_ref().expect("a chunk that is not there")
    }

    fn chunk_mut(&mut self, chunk: u32) -> &mut Chunk {
        self.0[chunk as usize].as_mut().expect("a chunk that is not there")
    }
}

impl Links for ChunkTable {
    fn link(&self, member: u32) -> Link {
        self.chunk(member).link
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        &mut self.chunk_mut(member).link
    }
}

impl Chunks {
    /// Reserves `bytes_max` of address space for chunks of `chunk_bytes` each, and takes none yet.
    pub fn new(bytes_max: usize, chunk_bytes: usize) -> Result<Self, Errno> {
        assert!(u32::try_from(chunk_bytes).is_ok(), "a chunk of {chunk_bytes} bytes");
        Ok(Self {
            units: Units::reserve(bytes_max, chunk_bytes)?,
            table: ChunkTable(Vec::new()),
            list: List::EMPTY,
            blocks: Records::new(),
            sums: Sums::default(),
        })
    }

    /// Writes a block again. Its old encoding gives its room back, and is still there if there is no room for the new one.
    pub fn overwrite(&mut self, key: StoreKey, encoding: &[u8]) -> Result<(), Full> {
        let block = number(key);
        let old = self.blocks.place(block);
        let Handle { owner, length } = self.blocks.handle(block);
        self.give_back(block);
        let Some((unit, offset)) = self.first_fit(encoding.len(), NONE) else {
            let taken = self.change(old.unit, |map| map.take_at(old.offset as usize, length));
            assert!(taken, "the room of the old encoding is gone");
            self.place(block, old.unit, old.offset);
            return Err(Full);
        };
        self.blocks.renew(block, Handle { owner, length: encoding.len() });
        self.place(block, unit, offset);
        self.write(block, encoding);
        Ok(())
    }

    /// Changes the resource map of a chunk.
    fn change<R>(&mut self, chunk: u32, change: impl FnOnce(&mut ResourceMap) -> R) -> R {
        let map = &mut self.table.chunk_mut(chunk).map;
        self.sums.leave(map);
        let result = change(map);
        self.sums.join(map);
        result
    }

    /// Takes room in the first chunk, other than `but`, with a hole that is long enough.
    fn first_fit(&mut self, length: usize, but: u32) -> Option<(u32, u32)> {
        let mut chunk = self.list.first;
        while chunk != NONE {
            if chunk != but
                && let Some(offset) = self.change(chunk, |map| map.take(length))
            {
                return Some((chunk, offset as u32));
            }
            chunk = self.table.chunk(chunk).link.next;
        }
        None
    }

    /// Notes that `block` is in room that has been taken for it.
    fn place(&mut self, block: u32, unit: u32, offset: u32) {
        *self.blocks.place_mut(block) = Piece { unit, offset, link: Link::ALONE };
        self.table.chunk_mut(unit).pieces.push(&mut self.blocks, block);
        if cfg!(debug_assertions) {
            self.check_chunk(unit);
        }
    }

    /// Gives the room of `block` back to its chunk.
    fn give_back(&mut self, block: u32) {
        let length = self.blocks.handle(block).length;
        let Piece { unit, offset, .. } = self.blocks.place(block);
        self.table.chunk_mut(unit).pieces.remove(&mut self.blocks, block);
        self.change(unit, |map| map.give(offset as usize, length));
        if cfg!(debug_assertions) {
            self.check_chunk(unit);
        }
    }

    fn write(&mut self, block: u32, encoding: &[u8]) {
        let offset = self.offset(self.blocks.place(block));
        self.units.pool.bytes_mut(offset, encoding.len()).copy_from_slice(encoding);
    }

    fn offset(&self, piece: Piece) -> usize {
        self.units.offset(piece.unit) + piece.offset as usize
    }

    fn get(&self, key: StoreKey) -> &[u8] {
        let length = self.blocks.handle(number(key)).length;
        self.units.pool.bytes(self.offset(self.blocks.place(number(key))), length)
    }

    /// Every byte of a chunk is in one encoding or in one hole. Returns how many encodings there are.
    fn check_chunk(&self, number: u32) -> u64 {
        let chunk = self.table.chunk(number);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for block in chunk.pieces.members(&self.blocks) {
            let piece = self.blocks.place(block);
            assert_eq!(piece.unit, number, "block {block} is in two chunks");
            taken.push((piece.offset as usize, self.blocks.handle(block).length.next_multiple_of(GRAIN_BYTES)));
        }
        let encodings = taken.len() as u64;
        chunk.map.check(taken, self.units.unit_bytes());
        encodings
    }
}

impl Store for Chunks {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        let (unit, offset) = self.first_fit(encoding.len(), NONE).ok_or(Full)?;
        let place = Piece { unit, offset, link: Link::ALONE };
        let block = self.blocks.insert(Handle { owner, length: encoding.len() }, place);
        self.place(block, unit, offset);
        self.write(block, encoding);
        Ok(key(block))
    }

    fn read(&self, key: StoreKey, copy: &mut [u8; PAGE_BYTES]) -> usize {
        let encoding = self.get(key);
        copy[..encoding.len()].copy_from_slice(encoding);
        encoding.len()
    }

    fn view<'a>(&'a self, key: StoreKey, _: &'a mut [u8; PAGE_BYTES]) -> &'a [u8] {
        self.get(key)
    }

    fn owner(&self, key: StoreKey) -> PageIndex {
        self.blocks.handle(number(key)).owner
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        self.blocks.set_owner(number(key), owner);
    }

    fn remove(&mut self, key: StoreKey) {
        self.give_back(number(key));
        self.blocks.remove(number(key));
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        Some(self)
    }

    fn figures(&self) -> StoreFigures {
        let pool = self.units.taken() * self.units.unit_bytes();
        let Sums { free_bytes: free, map_bytes } = self.sums;
        let metadata =
            self.blocks.metadata_bytes() + size_of_val(&self.table.0[..]) + map_bytes + self.units.metadata_bytes();
        StoreFigures {
            encodings: self.blocks.count(),
            stored: ByteCount(self.blocks.stored_bytes()),
            rounding: ByteCount((pool - free) as u64 - self.blocks.stored_bytes()),
            free: ByteCount(free as u64),
            pool: ByteCount(pool as u64),
            metadata: ByteCount(metadata as u64),
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        self.blocks.check();
        let chunks: Vec<u32> = self.list.members(&self.table).collect();
        assert_eq!(chunks.len(), self.units.taken());
        assert_eq!(chunks.len(), self.table.0.iter().flatten().count());
        let encodings: u64 = chunks.iter().map(|&chunk| self.check_chunk(chunk)).sum();
        assert_eq!(encodings, self.blocks.count(), "blocks that are in no chunk");
        let mut sums = Sums::default();
        for &chunk in &chunks {
            sums.join(&self.table.chunk(chunk).map);
        }
        assert_eq!(sums, self.sums);
    }
}

impl Resize for Chunks {
    fn unit(&self) -> ByteCount {
        ByteCount(self.units.unit_bytes() as u64)
    }

    fn grow(&mut self) -> Result<(), Full> {
        let chunk = self.units.take().ok_or(Full)?;
        if chunk as usize == self.table.0.len() {
            self.table.0.push(None);
        }
        let map = ResourceMap::new(self.units.unit_bytes());
        self.sums.join(&map);
        self.table.0[chunk as usize] = Some(Chunk { map, pieces: List::EMPTY, link: Link::ALONE });
        self.list.push(&mut self.table, chunk);
        Ok(())
    }

    /// Nobody hears of the moves: keys stay.
    fn shrink(&mut self, _: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked> {
        let free_of = |&chunk: &u32| self.table.chunk(chunk).map.free_bytes();
        let source = self.list.members(&self.table).max_by_key(free_of).ok_or(Blocked)?;
        let free = self.table.chunk(source).map.free_bytes();
        if self.sums.free_bytes - free < self.units.unit_bytes() - free {
            return Err(Blocked);
        }
        while let Some(block) = self.table.chunk(source).pieces.front() {
            let length = self.blocks.handle(block).length;
            let (unit, offset) = self.first_fit(length, source).ok_or(Blocked)?;
            let from = self.offset(self.blocks.place(block));
            self.give_back(block);
            self.place(block, unit, offset);
            self.units.pool.copy(from, self.offset(self.blocks.place(block)), length);
        }
        self.list.remove(&mut self.table, source);
        self.sums.leave(&self.table.chunk(source).map);
        self.table.0[source as usize] = None;
        self.units.give_back(source);
        Ok(())
    }

    fn oldest(&self) -> Option<StoreKey> {
        self.blocks.oldest()
    }

    fn would_be_resident(&mut self, key: StoreKey) -> bool {
        let frames = self.units.taken() * self.units.unit_bytes() / PAGE_BYTES;
        self.blocks.is_among_youngest(number(key), frames as u64)
    }
}
