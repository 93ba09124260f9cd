//! Encodings in RAM, one file per layout.
//!
//! A [`Store`] keeps the encodings of reclaimed pages, each under a [`StoreKey`] that fits beside a page's state in one
//! word of the page table. It knows whose encoding it keeps, so that it may move encodings about to give frames back
//! and tell the page table where they went. It is used under one lock, holds no pointers to anything outside itself,
//! and calls the kernel only to reserve address space and to give frames back; hence a fork simply copies it.
//!
//! The layout is [`Slabs`]: encodings of nearly equal length share a slab. See `slabs.rs`.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

use page::{ByteCount, PageIndex};

mod check;
mod class;
mod compact;
mod head;
mod pool;
mod slabs;
mod table;

pub use slabs::Slabs;

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

/// The store's address space is used up. Nothing was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("the store is full")
    }
}

impl core::error::Error for Full {}

/// What a store holds and what that costs. Everything in the pool is accounted for:
/// `stored + headers + rounding + free + tail = pool`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreFigures {
    /// How many encodings.
    pub encodings: u64,
    /// The sum of their lengths.
    pub stored: ByteCount,
    /// What is written beside them in the pool: owner and length.
    pub headers: ByteCount,
    /// Lost because slots come in certain lengths only.
    pub rounding: ByteCount,
    /// In frames that are held, but without an encoding. `compact` can give most of it back.
    pub free: ByteCount,
    /// At the ends of slabs, too short for a slot.
    pub tail: ByteCount,
    /// Frames held for encodings.
    pub pool: ByteCount,
    /// Tables outside the pool.
    pub metadata: ByteCount,
}

/// Keeps encodings.
pub trait Store {
    /// Keeps a copy of `encoding`, 1 to 4096 bytes, for the page `owner`.
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full>;

    /// The encoding under `key`.
    fn get(&self, key: StoreKey) -> &[u8];

    /// Whose encoding it is.
    fn owner(&self, key: StoreKey) -> PageIndex;

    /// Makes it another page's, after the program has moved its memory.
    fn set_owner(&mut self, key: StoreKey, owner: PageIndex);

    /// Forgets the encoding under `key`.
    fn remove(&mut self, key: StoreKey);

    /// Moves at most `encodings_max` encodings together so that frames can be given back. `moved` hears of each move:
    /// the owner, the key it had, and the key it has now. Returns how much smaller the pool has become.
    fn compact(&mut self, encodings_max: usize, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> ByteCount;

    /// What it holds and what that costs.
    fn figures(&self) -> StoreFigures;

    /// Asserts every invariant by looking at everything. For tests: it takes its time.
    fn check(&self);
}
