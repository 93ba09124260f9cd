//! Encodings in RAM, one file per layout.
//!
//! A [`Store`] keeps the encodings of reclaimed pages, each under a [`StoreKey`] that fits beside a page's state in one
//! word of the page table. It knows whose encoding it keeps, so that it may move encodings about to give frames back
//! and tell the page table where they went. It is used under one lock, holds no pointers to anything outside itself,
//! and calls the kernel only to reserve address space and to give frames back; hence a fork simply copies it.
//!
//! The default layout is [`Slabs`]: encodings of nearly equal length share a slab, and the pool grows and shrinks with what
//! is put and removed. The layouts of the papers have an area whose size somebody else decides ([`Resize`]).
#![cfg_attr(not(test), no_std)]

extern crate alloc;

use page::{ByteCount, PAGE_BYTES, PageIndex};

mod aged;
mod any;
mod buddies;
mod cells;
mod check;
mod chunks;
mod class;
mod compact;
mod handle;
mod head;
mod lists;
mod pool;
mod records;
mod sectors;
mod shelves;
mod slabs;
mod table;
mod units;
mod zones;

pub use any::AnyStore;
pub use buddies::Buddies;
pub use cells::Cells;
pub use chunks::Chunks;
pub use sectors::{DivideLines, LINES, Sectors, sectors_of};
pub use slabs::Slabs;
pub use zones::{ZoneShape, Zones};

/// Where an encoding lies. Only its store can read it. Valid until `remove`, or until `compact` reports another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreKey(u64);

impl StoreKey {
    /// Bits that a key needs in a page-table slot.
    pub const BITS: u32 = 36;

    /// The key that `bits` came from.
    pub const fn from_bits(bits: u64) -> Self {
        assert!(bits >> Self::BITS == 0, "more bits than a key has");
        Self(bits)
    }

    /// The key as a number below 2^[`BITS`](Self::BITS).
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// There is no room: the store's address space or, in a store of the papers, its area is used up. Nothing was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("the store is full")
    }
}

impl core::error::Error for Full {}

/// What a store holds and what that costs. Everything in the pool is accounted for:
/// `stored + headers + rounding + free + tail = pool + in_tables`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreFigures {
    /// How many encodings.
    pub encodings: u64,
    /// The sum of their lengths.
    pub stored: ByteCount,
    /// Of that, what is kept in the tables instead of the pool: trivial lines of sectors, nothing elsewhere.
    pub in_tables: ByteCount,
    /// What is written beside them in the pool: owner and length.
    pub headers: ByteCount,
    /// Lost because room is given in certain lengths only: the rest of a slot, of a last block, of a last sector.
    pub rounding: ByteCount,
    /// In frames that are held, but without an encoding.
    pub free: ByteCount,
    /// The same, where no encoding can be put as things are: ends of slabs, blocks of a zone that has no entry free.
    pub tail: ByteCount,
    /// Frames held for encodings.
    pub pool: ByteCount,
    /// Tables outside the pool.
    pub metadata: ByteCount,
    /// Cells compacted so far; nothing elsewhere.
    pub cells_compacted: u64,
    /// Sectors that two lines share now; nothing elsewhere.
    pub sectors_shared: u64,
}

/// The part of the pool that may lie idle before it is worth compacting, as a divisor, ...
const IDLE_DIVISOR: u64 = 20;
/// ... and what may in any case: a few slabs of each size that is in use.
const IDLE_BYTES: u64 = 128 << 10;

impl StoreFigures {
    /// Whether so much of the pool lies idle that it should be compacted.
    pub fn is_sparse(&self) -> bool {
        self.free.0 > self.pool.0 / IDLE_DIVISOR + IDLE_BYTES
    }

    /// Waste inside the room that encodings have: what the papers call internal fragmentation, and headers.
    pub fn internal_waste(&self) -> ByteCount {
        self.headers + self.rounding
    }

    /// Waste between them: external fragmentation, and room that nobody has asked for yet.
    pub fn external_waste(&self) -> ByteCount {
        self.free + self.tail
    }
}

/// Keeps encodings.
pub trait Store {
    /// Keeps a copy of `encoding`, 1 to 4096 bytes, for the page `owner`.
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full>;

    /// Copies the encoding under `key` to the start of `copy` and returns its length.
    fn read(&self, key: StoreKey, copy: &mut [u8; PAGE_BYTES]) -> usize;

    /// The encoding under `key` for a look: where it lies if that is in one piece, else gathered in `room`.
    fn view<'a>(&'a self, key: StoreKey, room: &'a mut [u8; PAGE_BYTES]) -> &'a [u8] {
        let length = self.read(key, room);
        &room[..length]
    }

    /// Whose encoding it is.
    fn owner(&self, key: StoreKey) -> PageIndex;

    /// Makes it another page's, after the program has moved its memory.
    fn set_owner(&mut self, key: StoreKey, owner: PageIndex);

    /// Forgets the encoding under `key`.
    fn remove(&mut self, key: StoreKey);

    /// Moves at most `encodings_max` encodings together so that frames can be given back. `moved` hears of each move:
    /// the owner, the key it had, and the key it has now. Returns how much smaller the pool has become: nothing, where
    /// the size of the pool is not the store's to decide.
    fn compact(&mut self, encodings_max: usize, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> ByteCount {
        let _ = (encodings_max, moved);
        ByteCount::ZERO
    }

    /// The same store as one whose size somebody else decides; `None` if it decides by itself.
    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        None
    }

    /// What it holds and what that costs.
    fn figures(&self) -> StoreFigures;

    /// Asserts every invariant by looking at everything. For tests: it takes its time.
    fn check(&self);
}

/// No unit can be given back as long as these encodings are in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked;

/// A store of the papers: its area consists of equal units, and a sizing policy says how many there are.
///
/// `put` never takes a unit by itself. It says [`Full`], and who asks decides whether the area grows or encodings go, the
/// oldest first.
pub trait Resize: Store {
    /// By how much the area grows and shrinks.
    fn unit(&self) -> ByteCount;

    /// The longest encoding that it takes.
    fn encoding_bytes_max(&self) -> usize {
        PAGE_BYTES
    }

    /// Adds a unit.
    fn grow(&mut self) -> Result<(), Full>;

    /// Gives a unit back, which one the layout says, and moves what is in it to others. `moved` hears of each move, as
    /// in `compact`. If that does not fit, encodings must be removed before the next try, the oldest first; what has been
    /// moved already stays where it is now.
    fn shrink(&mut self, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked>;

    /// The encoding that has been here longest.
    fn oldest(&self) -> Option<StoreKey>;

    /// Whether the page would be in memory if the area held pages as they are: whether it is among the youngest, as many
    /// as the area has frames.
    fn would_be_resident(&mut self, key: StoreKey) -> bool;
}
