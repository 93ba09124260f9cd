//! Slabs: slots of one length together, after Bonwick (1994) and the kernel's zsmalloc.
//!
//! The pool is cut into spans of address space, one for each slab. A slab belongs to a size class as long as it holds
//! encodings: it is then a row of equal slots from the start of its span, each slot a head and an encoding (`class.rs`,
//! `head.rs`). Encodings cross frame borders freely, so a slab wastes less than a byte a slot at its end.
//!
//! What it costs, for encodings of 1500 bytes: 6 bytes of head, 15 of rounding, less than one of tail, and free slots. In
//! steady churn free slots fill again by themselves; what a shrinking or shifting load leaves is for `compact`.
//! The table costs 20 bytes a slab, about half a byte an encoding.
//!
//! Frames come with the first write: slots are taken in order, so that a slab that still grows holds only the frames
//! under its first slots. When the last encoding goes, the frames go too, but for a small reserve.
//!
//! A small pool has few encodings for each class, and nearly every class a slab half full. So a `put` that would open a
//! slab first looks for a free slot in classes a little above: further, the larger the share of free slots.
//!
//! Invariants: see `check.rs`.

use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use sys::Errno;

use crate::class::{CLASSES, Class, SLAB_FRAMES_MAX, SLOTS_MAX, WHOLE, WHOLE_SLOTS, class_of};
use crate::head::{HEAD_BYTES, Head, NO_SLOT};
use crate::pool::Pool;
use crate::table::{NO_CLASS, NO_SLAB, Slab, Table};
use crate::{Full, Store, StoreFigures, StoreKey};

/// Address space of one slab.
pub(crate) const SPAN_BYTES: usize = SLAB_FRAMES_MAX * PAGE_BYTES;
const SLOT_BITS: u32 = SLOTS_MAX.ilog2();
/// Slabs that a key can tell apart: 4 TiB of them.
const SLABS_MAX: usize = 1 << (StoreKey::BITS - SLOT_BITS);

/// Empty slabs that keep their frames, so that a put and a remove at a slab's border do not call the kernel each time.
pub(crate) const RESERVE_SLABS_MAX: usize = 4;
/// How many classes above its own an encoding may be put, for each whole of the pool that is free slots: one class,
/// which adds 2 %, when 1.6 % are free.
const REACH_SHARE: u64 = 64;

/// The heads of a slab of class `WHOLE`.
pub(crate) type WholeHeads = [[u8; HEAD_BYTES]; WHOLE_SLOTS];

/// The default layout.
pub struct Slabs {
    pub(crate) pool: Pool,
    /// How many slabs the address space has room for.
    pub(crate) spans: usize,
    pub(crate) table: Table,
    pub(crate) whole_heads: Vec<WholeHeads>,
    pub(crate) whole_heads_free: Vec<u32>,
    /// Empty slabs that hold frames, linked by `next`.
    pub(crate) reserve: u32,
    pub(crate) reserve_count: usize,
    /// Empty slabs that hold none.
    pub(crate) released: u32,
    pub(crate) sums: Sums,
}

/// Running sums; the figures follow from them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    pub(crate) encodings: u64,
    /// Encodings in class `WHOLE`.
    pub(crate) whole: u64,
    /// Lengths of the encodings.
    pub(crate) stored_bytes: u64,
    /// Lengths of their slots.
    pub(crate) slot_bytes: u64,
    /// Behind the last slot of slabs that hold all their frames.
    pub(crate) tail_bytes: u64,
    pub(crate) frames: u64,
}

/// Slot `slot` of slab `slab`. Its key is made of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) slab: u32,
    pub(crate) slot: u16,
}

impl Place {
    pub(crate) fn of(key: StoreKey) -> Self {
        Self { slab: (key.bits() >> SLOT_BITS) as u32, slot: (key.bits() & (SLOTS_MAX as u64 - 1)) as u16 }
    }

    pub(crate) fn key(self) -> StoreKey {
        StoreKey::from_bits(u64::from(self.slab) << SLOT_BITS | u64::from(self.slot))
    }
}

impl Slabs {
    /// Reserves `bytes_max` of address space, which costs nothing. Slabs fill between half and all of theirs, so twice
    /// the largest pool is always enough.
    pub fn new(bytes_max: usize) -> Result<Self, Errno> {
        Ok(Self {
            pool: Pool::reserve(bytes_max)?,
            spans: (bytes_max / SPAN_BYTES).min(SLABS_MAX),
            table: Table::new(),
            whole_heads: Vec::new(),
            whole_heads_free: Vec::new(),
            reserve: NO_SLAB,
            reserve_count: 0,
            released: NO_SLAB,
            sums: Sums::default(),
        })
    }

    /// The encoding under `key`, which is always in one piece.
    pub fn get(&self, key: StoreKey) -> &[u8] {
        let (_, length) = self.used(key);
        self.pool.bytes(self.offset(Place::of(key)), length)
    }

    /// Takes a slot for an encoding of `length` bytes of `owner` and writes its head.
    pub(crate) fn take(&mut self, slab: u32, owner: PageIndex, length: usize) -> Place {
        let was = self.table.listed(slab);
        let slot = match self.table[slab].free {
            NO_SLOT => self.take_fresh_slot(slab),
            slot => {
                let Head::Free { next } = self.head(Place { slab, slot }) else { panic!("a used slot listed as free") };
                self.table[slab].free = next;
                *self.table.room_mut(usize::from(self.table[slab].class)) -= 1;
                slot
            }
        };
        self.table[slab].used += 1;
        self.table.relist(slab, was);
        let place = Place { slab, slot };
        self.set_head(place, Head::Used { owner, length });
        self.count(place, length, |sum, more| *sum += more);
        place
    }

    fn take_fresh_slot(&mut self, slab: u32) -> u16 {
        let class = self.class(slab);
        let slab = &mut self.table[slab];
        assert!(slab.fresh < class.slots, "no slot in a slab listed as partial");
        let slot = slab.fresh;
        slab.fresh += 1;
        let frames = class.frames_under(usize::from(slab.fresh)) as u8;
        if frames > slab.held {
            self.sums.frames += u64::from(frames - slab.held);
            slab.held = frames;
            if frames == class.frames {
                self.sums.tail_bytes += class.tail_bytes() as u64;
            }
        }
        slot
    }

    /// Makes the slot free. The slab may be empty then; the caller sees to that and to the lists.
    pub(crate) fn free(&mut self, place: Place) {
        let Head::Used { length, .. } = self.head(place) else { panic!("nothing is stored under {:?}", place.key()) };
        self.count(place, length, |sum, less| *sum -= less);
        let next = core::mem::replace(&mut self.table[place.slab].free, place.slot);
        self.set_head(place, Head::Free { next });
        self.table[place.slab].used -= 1;
        *self.table.room_mut(usize::from(self.table[place.slab].class)) += 1;
    }

    fn count(&mut self, place: Place, length: usize, add: impl Fn(&mut u64, u64)) {
        let class = self.class(place.slab);
        let whole = usize::from(self.table[place.slab].class) == WHOLE;
        add(&mut self.sums.encodings, 1);
        add(&mut self.sums.whole, u64::from(whole));
        add(&mut self.sums.stored_bytes, length as u64);
        add(&mut self.sums.slot_bytes, u64::from(class.slot_bytes));
    }

    /// A slab with room for an encoding of class `class`.
    fn slab_for(&mut self, class: usize) -> Result<u32, Full> {
        if let Some(slab) = self.table.fullest(class) {
            return Ok(slab);
        }
        self.partial(class, class + self.reach())
            .or_else(|| self.open(class))
            // When no slab can be opened, any slot that is long enough is better than none.
            .or_else(|| self.partial(class, WHOLE))
            .ok_or(Full)
    }

    /// How many classes above its own an encoding may be put.
    pub(crate) fn reach(&self) -> usize {
        let pool_bytes = self.sums.frames * PAGE_BYTES as u64;
        (self.free_bytes() * REACH_SHARE).checked_div(pool_bytes).map_or(0, |reach| reach as usize)
    }

    /// The fullest partial slab of the first class that has one.
    pub(crate) fn partial(&self, class: usize, last: usize) -> Option<u32> {
        self.table.fullest(self.table.class_with_room(class, last)?)
    }

    /// Gives an empty slab to `class`. Those that hold frames first.
    fn open(&mut self, class: usize) -> Option<u32> {
        let slab = if self.reserve != NO_SLAB {
            self.reserve_count -= 1;
            let slab = self.reserve;
            self.reserve = self.table[slab].next;
            self.trim(slab, CLASSES[class].frames);
            slab
        } else if self.released != NO_SLAB {
            let slab = self.released;
            self.released = self.table[slab].next;
            slab
        } else if self.table.len() < self.spans {
            self.pool.open_to((self.table.len() + 1) * SPAN_BYTES).ok()?;
            self.table.push()
        } else {
            return None;
        };
        let held = self.table[slab].held;
        let heads = if class == WHOLE { self.take_whole_heads() } else { 0 };
        self.table[slab] = Slab { class: class as u8, held, heads, ..Slab::EMPTY };
        if held == CLASSES[class].frames {
            self.sums.tail_bytes += CLASSES[class].tail_bytes() as u64;
        }
        let listed = self.table.listed(slab);
        self.table.list(slab, listed);
        Some(slab)
    }

    fn take_whole_heads(&mut self) -> u32 {
        self.whole_heads_free.pop().unwrap_or_else(|| {
            self.whole_heads.push([[0; HEAD_BYTES]; WHOLE_SLOTS]);
            // Room for every block on the free list, so that a remove never allocates.
            self.whole_heads_free.reserve(self.whole_heads.len());
            self.whole_heads.len() as u32 - 1
        })
    }

    /// Takes its class from a slab that has no encodings left and is on no list. Its frames stay.
    pub(crate) fn retire(&mut self, slab: u32) {
        let class = self.class(slab);
        let Slab { class: number, held, used, fresh, heads, .. } = self.table[slab];
        assert_eq!(used, 0, "encodings in a slab that is given up");
        *self.table.room_mut(usize::from(number)) -= u32::from(fresh);
        if held == class.frames {
            self.sums.tail_bytes -= class.tail_bytes() as u64;
        }
        if usize::from(number) == WHOLE {
            self.whole_heads_free.push(heads);
        }
        self.table[slab] = Slab { held, ..Slab::EMPTY };
    }

    /// Keeps the frames of a slab without a class for the next one that is opened.
    fn keep_in_reserve(&mut self, slab: u32) {
        self.table[slab].next = core::mem::replace(&mut self.reserve, slab);
        self.reserve_count += 1;
    }

    /// Gives all frames of a slab without a class back.
    pub(crate) fn release(&mut self, slab: u32) {
        self.trim(slab, 0);
        self.table[slab].next = core::mem::replace(&mut self.released, slab);
    }

    /// Gives back the frames of `slab` that are beyond its first `frames`.
    fn trim(&mut self, slab: u32, frames: u8) {
        let held = self.table[slab].held;
        if held > frames {
            let offset = slab as usize * SPAN_BYTES + usize::from(frames) * PAGE_BYTES;
            self.pool.release(offset, usize::from(held - frames));
            self.sums.frames -= u64::from(held - frames);
            self.table[slab].held = frames;
        }
    }

    pub(crate) fn class(&self, slab: u32) -> &'static Class {
        let class = self.table[slab].class;
        assert!(class != NO_CLASS, "slab {slab} is empty");
        &CLASSES[usize::from(class)]
    }

    fn slot_offset(&self, place: Place) -> usize {
        let slot_bytes = usize::from(self.class(place.slab).slot_bytes);
        place.slab as usize * SPAN_BYTES + usize::from(place.slot) * slot_bytes
    }

    /// Where the encoding starts.
    pub(crate) fn offset(&self, place: Place) -> usize {
        let whole = usize::from(self.table[place.slab].class) == WHOLE;
        self.slot_offset(place) + if whole { 0 } else { HEAD_BYTES }
    }

    pub(crate) fn head(&self, place: Place) -> Head {
        let slab = &self.table[place.slab];
        assert!(place.slot < slab.fresh, "a slot that was never used");
        Head::from_bytes(if usize::from(slab.class) == WHOLE {
            self.whole_heads[slab.heads as usize][usize::from(place.slot)]
        } else {
            let bytes = self.pool.bytes(self.slot_offset(place), HEAD_BYTES);
            core::array::from_fn(|at| bytes[at])
        })
    }

    fn set_head(&mut self, place: Place, head: Head) {
        let slab = &self.table[place.slab];
        if usize::from(slab.class) == WHOLE {
            self.whole_heads[slab.heads as usize][usize::from(place.slot)] = head.to_bytes();
        } else {
            self.pool.bytes_mut(self.slot_offset(place), HEAD_BYTES).copy_from_slice(&head.to_bytes());
        }
    }

    pub(crate) fn used(&self, key: StoreKey) -> (PageIndex, usize) {
        match self.head(Place::of(key)) {
            Head::Used { owner, length } => (owner, length),
            Head::Free { .. } => panic!("nothing is stored under {key:?}"),
        }
    }

    fn header_bytes(&self) -> u64 {
        (self.sums.encodings - self.sums.whole) * HEAD_BYTES as u64
    }

    fn free_bytes(&self) -> u64 {
        self.sums.frames * PAGE_BYTES as u64 - self.sums.slot_bytes - self.sums.tail_bytes
    }
}

impl Store for Slabs {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        assert!((1..=PAGE_BYTES).contains(&encoding.len()), "an encoding of {} bytes", encoding.len());
        let slab = self.slab_for(class_of(encoding.len()))?;
        let place = self.take(slab, owner, encoding.len());
        let offset = self.offset(place);
        self.pool.bytes_mut(offset, encoding.len()).copy_from_slice(encoding);
        self.check_now_and_then(slab);
        Ok(place.key())
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
        self.used(key).0
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        let (_, length) = self.used(key);
        self.set_head(Place::of(key), Head::Used { owner, length });
    }

    fn remove(&mut self, key: StoreKey) {
        let place = Place::of(key);
        let was = self.table.listed(place.slab);
        self.free(place);
        if self.table[place.slab].used > 0 {
            self.table.relist(place.slab, was);
            self.check_now_and_then(place.slab);
            return;
        }
        self.table.unlist(place.slab, was);
        self.retire(place.slab);
        if self.reserve_count < RESERVE_SLABS_MAX {
            self.keep_in_reserve(place.slab);
        } else {
            self.release(place.slab);
        }
    }

    fn compact(&mut self, encodings_max: usize, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> ByteCount {
        self.compact_slabs(encodings_max, moved)
    }

    fn figures(&self) -> StoreFigures {
        let headers = self.header_bytes();
        let metadata =
            self.table.bytes() + size_of_val(&self.whole_heads[..]) + size_of_val(&self.whole_heads_free[..]);
        StoreFigures {
            encodings: self.sums.encodings,
            stored: ByteCount(self.sums.stored_bytes),
            headers: ByteCount(headers),
            rounding: ByteCount(self.sums.slot_bytes - self.sums.stored_bytes - headers),
            free: ByteCount(self.free_bytes()),
            tail: ByteCount(self.sums.tail_bytes),
            pool: PageCount(self.sums.frames).bytes(),
            metadata: ByteCount(metadata as u64),
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        self.check_slabs();
    }
}
