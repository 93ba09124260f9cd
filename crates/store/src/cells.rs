//! Cells: a few frames in a row, after de Castro, do Lago and Da Silva (2003), section 2.
//!
//! Encodings lie behind each other in a cell. A new one goes to the end of the cell where the least would be left behind
//! it; nothing moves when one goes. So holes arise, and only when no cell has room at its end is one compacted: that
//! with the least free space which is enough. A cell that becomes empty is given back at once. Cells of two frames hold
//! three pages that compress to 65 %, where cells of one hold one each.
//!
//! Nothing is lost to rounding; what is free lies in holes and at ends. Invariants: see `Cells::check`.

use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;

use crate::handle::Handle;
use crate::lists::{Link, List, NONE};
use crate::records::{Piece, Records, key, number};
use crate::shelves::Shelves;
use crate::units::Units;
use crate::{Blocked, Full, Resize, Store, StoreFigures, StoreKey};

/// Cells of equal size.
pub struct Cells {
    units: Units,
    table: Vec<Option<Cell>>,
    records: Records<Piece>,
    by_final: Shelves,
    by_free: Shelves,
    compacted: u64,
}

/// What is known of a cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Its encodings, in the order of their offsets.
    pieces: List,
    /// Bytes of encodings.
    used: u32,
    /// Where the final free space begins.
    end: u32,
}

impl Cell {
    const EMPTY: Self = Self { pieces: List::EMPTY, used: 0, end: 0 };
}

impl Cells {
    /// Reserves `bytes_max` of address space for cells of `cell_frames` frames each, and takes none yet. The paper's best
    /// is two.
    pub fn new(bytes_max: usize, cell_frames: usize) -> Result<Self, Errno> {
        let cell_bytes = cell_frames * PAGE_BYTES;
        Ok(Self {
            units: Units::reserve(bytes_max, cell_bytes)?,
            table: Vec::new(),
            records: Records::new(),
            by_final: Shelves::new(cell_bytes),
            by_free: Shelves::new(cell_bytes),
            compacted: 0,
        })
    }

    fn cell(&self, cell: u32) -> &Cell {
        self.table[cell as usize].as_ref().expect("a cell that is not there")
    }

    fn cell_mut(&mut self, cell: u32) -> &mut Cell {
        self.table[cell as usize].as_mut().expect("a cell that is not there")
    }

    /// "The final free space of a cell is the contiguous region at the end of the cell that does not store any compressed
    /// page."
    fn final_free(&self, cell: u32) -> usize {
        self.units.unit_bytes() - self.cell(cell).end as usize
    }

    /// "The free space of a cell consists of the sum of space in all regions in the cell not used to store any compressed
    /// page."
    fn free(&self, cell: u32) -> usize {
        self.units.unit_bytes() - self.cell(cell).used as usize
    }

    fn shelve(&mut self, cell: u32) {
        self.by_final.insert(cell, self.final_free(cell));
        self.by_free.insert(cell, self.free(cell));
        if cfg!(debug_assertions) {
            self.check_cell(cell);
        }
    }

    fn unshelve(&mut self, cell: u32) {
        self.by_final.remove(cell, self.final_free(cell));
        self.by_free.remove(cell, self.free(cell));
    }

    /// A cell with room for `length` bytes at its end, taken from the shelves; it may have been compacted for that.
    fn make_room(&mut self, length: usize) -> Option<u32> {
        if let Some(cell) = self.by_final.best_fit(length) {
            self.unshelve(cell);
            return Some(cell);
        }
        let cell = self.by_free.best_fit(length)?;
        self.unshelve(cell);
        self.compact_cell(cell);
        Some(cell)
    }

    /// Moves all encodings to the beginning of the cell, which is on no shelf.
    fn compact_cell(&mut self, cell: u32) {
        let (start, bytes) = (self.units.offset(cell), self.units.unit_bytes());
        let mut end = 0;
        let mut at = self.cell(cell).pieces.first;
        while at != NONE {
            let length = self.records.handle(at).length;
            let piece = self.records.place_mut(at);
            let from = core::mem::replace(&mut piece.offset, end) as usize;
            at = piece.link.next;
            self.units.pool.bytes_mut(start, bytes).copy_within(from..from + length, end as usize);
            end += length as u32;
        }
        self.cell_mut(cell).end = end;
        self.compacted += 1;
    }

    /// Makes `record` the last of the cell, which is on no shelf, and returns where in the pool its bytes belong.
    fn append(&mut self, cell: u32, record: u32) -> usize {
        let length = self.records.handle(record).length;
        let offset = self.cell(cell).end;
        *self.records.place_mut(record) = Piece { unit: cell, offset, link: Link::ALONE };
        let mut pieces = self.cell(cell).pieces;
        pieces.push(&mut self.records, record);
        *self.cell_mut(cell) = Cell { pieces, used: self.cell(cell).used + length as u32, end: offset + length as u32 };
        self.units.offset(cell) + offset as usize
    }

    /// Takes `record` out of its cell, which is on no shelf.
    fn take_out(&mut self, record: u32) {
        let Piece { unit: cell, .. } = self.records.place(record);
        let length = self.records.handle(record).length;
        let mut pieces = self.cell(cell).pieces;
        pieces.remove(&mut self.records, record);
        let end = match pieces.last {
            NONE => 0,
            last => self.records.place(last).offset + self.records.handle(last).length as u32,
        };
        *self.cell_mut(cell) = Cell { pieces, used: self.cell(cell).used - length as u32, end };
    }

    /// Gives back a cell that is on no shelf.
    fn give_back(&mut self, cell: u32) {
        assert_eq!(self.cell(cell).used, 0, "encodings in a cell that is given back");
        self.table[cell as usize] = None;
        self.units.give_back(cell);
    }

    fn free_bytes(&self) -> u64 {
        (self.units.taken() * self.units.unit_bytes()) as u64 - self.records.stored_bytes()
    }
}

impl Store for Cells {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        let cell = self.make_room(encoding.len()).ok_or(Full)?;
        let place = Piece { unit: cell, offset: 0, link: Link::ALONE };
        let record = self.records.insert(Handle { owner, length: encoding.len() }, place);
        let offset = self.append(cell, record);
        self.units.pool.bytes_mut(offset, encoding.len()).copy_from_slice(encoding);
        self.shelve(cell);
        Ok(key(record))
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
        self.records.handle(number(key)).owner
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        self.records.set_owner(number(key), owner);
    }

    fn remove(&mut self, key: StoreKey) {
        let record = number(key);
        let _ = self.records.handle(record);
        let cell = self.records.place(record).unit;
        self.unshelve(cell);
        self.take_out(record);
        self.records.remove(record);
        if self.cell(cell).used == 0 {
            self.give_back(cell);
        } else {
            self.shelve(cell);
        }
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        Some(self)
    }

    fn figures(&self) -> StoreFigures {
        let metadata = self.records.metadata_bytes()
            + size_of_val(&self.table[..])
            + self.by_final.metadata_bytes()
            + self.by_free.metadata_bytes()
            + self.units.metadata_bytes();
        StoreFigures {
            encodings: self.records.count(),
            stored: ByteCount(self.records.stored_bytes()),
            free: ByteCount(self.free_bytes()),
            pool: ByteCount((self.units.taken() * self.units.unit_bytes()) as u64),
            metadata: ByteCount(metadata as u64),
            cells_compacted: self.compacted,
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        self.records.check();
        let mut stored_bytes = 0;
        let mut encodings = 0;
        let mut count = 0;
        for (number, cell) in self.table.iter().enumerate() {
            let Some(cell) = cell else { continue };
            count += 1;
            encodings += self.check_cell(number as u32);
            stored_bytes += u64::from(cell.used);
        }
        assert_eq!((encodings, stored_bytes), (self.records.count(), self.records.stored_bytes()));
        assert_eq!(count, self.units.taken());
        assert_eq!(self.by_final.check(|cell| self.final_free(cell)), count);
        assert_eq!(self.by_free.check(|cell| self.free(cell)), count);
    }
}

impl Cells {
    fn get(&self, key: StoreKey) -> &[u8] {
        let length = self.records.handle(number(key)).length;
        let piece = self.records.place(number(key));
        self.units.pool.bytes(self.units.offset(piece.unit) + piece.offset as usize, length)
    }

    /// The encodings of a cell lie behind each other. Returns how many there are.
    fn check_cell(&self, number: u32) -> u64 {
        let cell = self.cell(number);
        let (mut used, mut end, mut count) = (0, 0, 0);
        for record in cell.pieces.members(&self.records) {
            let piece = self.records.place(record);
            let length = self.records.handle(record).length as u32;
            assert_eq!(piece.unit, number, "record {record} is in two cells");
            assert!(piece.offset >= end, "cell {number}: encodings overlap");
            used += length;
            end = piece.offset + length;
            count += 1;
        }
        assert_eq!((used, end), (cell.used, cell.end), "cell {number}");
        assert!(end as usize <= self.units.unit_bytes(), "cell {number}");
        count
    }
}

impl Resize for Cells {
    fn unit(&self) -> ByteCount {
        ByteCount(self.units.unit_bytes() as u64)
    }

    fn grow(&mut self) -> Result<(), Full> {
        let cell = self.units.take().ok_or(Full)?;
        if cell as usize == self.table.len() {
            self.table.push(None);
        }
        self.table[cell as usize] = Some(Cell::EMPTY);
        self.shelve(cell);
        Ok(())
    }

    /// "if we are able to relocate enough of the compressed pages from a cell to other cells, we do the relocation,
    /// decreasing the compressed cache memory usage by freeing the initial cell". The cell is the one with the most free
    /// space. Nobody hears of the moves: keys stay.
    fn shrink(&mut self, _: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked> {
        let source = self.by_free.roomiest().ok_or(Blocked)?;
        // Without that much room elsewhere it cannot succeed, and what it copies would be for nothing.
        if self.free_bytes() - (self.free(source) as u64) < u64::from(self.cell(source).used) {
            return Err(Blocked);
        }
        self.unshelve(source);
        while let Some(record) = self.cell(source).pieces.front() {
            let length = self.records.handle(record).length;
            let Some(target) = self.make_room(length) else {
                self.shelve(source);
                return Err(Blocked);
            };
            let from = self.units.offset(source) + self.records.place(record).offset as usize;
            self.take_out(record);
            let to = self.append(target, record);
            self.units.pool.copy(from, to, length);
            self.shelve(target);
        }
        self.give_back(source);
        Ok(())
    }

    fn oldest(&self) -> Option<StoreKey> {
        self.records.oldest()
    }

    fn would_be_resident(&mut self, key: StoreKey) -> bool {
        let frames = self.units.taken() * self.units.unit_bytes() / PAGE_BYTES;
        self.records.is_among_youngest(number(key), frames as u64)
    }
}
