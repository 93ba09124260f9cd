//! Buddies: at most two encodings to a frame, after zbud, which zswap used when the `zswap` paper measured it.
//!
//! A frame begins with a header of one chunk of 64 bytes; one encoding, the first buddy, lies behind that, another, the
//! last buddy, at the frame's end. Frames with one buddy are listed by how many chunks they have free; a new encoding goes
//! to the fullest of them that it fits. What pairs badly wastes up to half a frame, but a frame is free as soon as two
//! encodings are gone, without moving any.
//!
//! The paper only names zbud; the rules are those of the kernel's mm/zbud.c (removed in Linux 6.15). Frames are in the
//! order in which they last got a buddy, and leave in that order.
//! Invariants: see `Buddies::check`.

use alloc::vec::Vec;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use sys::Errno;

use crate::aged::{Aged, Marks};
use crate::handle::Handle;
use crate::lists::{Link, Links, List, NONE};
use crate::units::Units;
use crate::{Blocked, Full, Resize, Store, StoreFigures, StoreKey};

/// Room is given in chunks of this size.
const CHUNK_BYTES: usize = 64;
/// Chunks of a frame without its header.
const CHUNKS: usize = PAGE_BYTES / CHUNK_BYTES - 1;

/// Frames of at most two encodings.
pub struct Buddies {
    units: Units,
    frames: Vec<Frame>,
    /// Frames with at most one buddy, by free chunks.
    unbuddied: [List; CHUNKS + 1],
    /// Frames with a buddy, those first that have not got one for longest.
    lru: Aged,
    sums: Sums,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    taken: bool,
    young: bool,
    lru: Link,
    /// Neighbours in one of the unbuddied lists.
    unbuddied: Link,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    encodings: u64,
    stored_bytes: u64,
    chunks: u64,
    /// Chunks that are free in frames with two buddies.
    lost_chunks: u64,
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Buddy {
    First = 0,
    Last = 1,
}

/// The frame's header: whose the two are.
type Header = [Option<Handle>; 2];

/// The frames as members of the unbuddied lists.
struct Unbuddied<'a>(&'a mut [Frame]);

impl Links for Unbuddied<'_> {
    fn link(&self, member: u32) -> Link {
        self.0[member as usize].unbuddied
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        &mut self.0[member as usize].unbuddied
    }
}

impl Links for Vec<Frame> {
    fn link(&self, member: u32) -> Link {
        self[member as usize].lru
    }

    fn link_mut(&mut self, member: u32) -> &mut Link {
        &mut self[member as usize].lru
    }
}

impl Marks for Vec<Frame> {
    fn is_young(&self, member: u32) -> bool {
        self[member as usize].young
    }

    fn set_young(&mut self, member: u32, young: bool) {
        self[member as usize].young = young;
    }
}

fn chunks(length: usize) -> usize {
    length.div_ceil(CHUNK_BYTES)
}

fn free_chunks(header: Header) -> usize {
    CHUNKS - header.iter().flatten().map(|handle| chunks(handle.length)).sum::<usize>()
}

fn key(frame: u32, buddy: Buddy) -> StoreKey {
    StoreKey::from_bits(u64::from(frame) << 1 | buddy as u64)
}

fn parts(key: StoreKey) -> (u32, Buddy) {
    ((key.bits() >> 1) as u32, if key.bits() & 1 == 0 { Buddy::First } else { Buddy::Last })
}

impl Buddies {
    /// Reserves `bytes_max` of address space, and takes no frame yet.
    pub fn new(bytes_max: usize) -> Result<Self, Errno> {
        Ok(Self {
            units: Units::reserve(bytes_max, PAGE_BYTES)?,
            frames: Vec::new(),
            unbuddied: [List::EMPTY; CHUNKS + 1],
            lru: Aged::EMPTY,
            sums: Sums::default(),
        })
    }

    fn header(&self, frame: u32) -> Header {
        let (words, _) = self.units.pool.bytes(self.units.offset(frame), 16).as_chunks::<8>();
        [0, 1].map(|buddy| Handle::from_word(u64::from_le_bytes(words[buddy])))
    }

    fn set_header(&mut self, frame: u32, header: Header) {
        let offset = self.units.offset(frame);
        for (buddy, handle) in header.into_iter().enumerate() {
            let word = handle.map_or(0, Handle::word);
            self.units.pool.bytes_mut(offset + buddy * 8, 8).copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Where in the pool a buddy starts.
    fn offset(&self, frame: u32, buddy: Buddy, length: usize) -> usize {
        self.units.offset(frame)
            + match buddy {
                Buddy::First => CHUNK_BYTES,
                Buddy::Last => PAGE_BYTES - chunks(length) * CHUNK_BYTES,
            }
    }

    fn used(&self, key: StoreKey) -> (u32, Buddy, Handle) {
        let (frame, buddy) = parts(key);
        let taken = self.frames.get(frame as usize).is_some_and(|frame| frame.taken);
        let handle = if taken { self.header(frame)[buddy as usize] } else { None };
        (frame, buddy, handle.unwrap_or_else(|| panic!("nothing is stored under {key:?}")))
    }

    fn get(&self, key: StoreKey) -> &[u8] {
        let (frame, buddy, Handle { length, .. }) = self.used(key);
        self.units.pool.bytes(self.offset(frame, buddy, length), length)
    }

    /// Takes the frame off its unbuddied list, if it is on one.
    fn unlist(&mut self, frame: u32, header: Header) {
        if header.iter().flatten().count() < 2 {
            self.unbuddied[free_chunks(header)].remove(&mut Unbuddied(&mut self.frames), frame);
        } else {
            self.sums.lost_chunks -= free_chunks(header) as u64;
        }
    }

    fn list(&mut self, frame: u32, header: Header) {
        if header.iter().flatten().count() < 2 {
            self.unbuddied[free_chunks(header)].push(&mut Unbuddied(&mut self.frames), frame);
        } else {
            self.sums.lost_chunks += free_chunks(header) as u64;
        }
        if cfg!(debug_assertions) {
            self.check_frame(frame);
        }
    }

    /// A frame with at most one buddy and just enough free chunks; the one listed last, as in zbud.
    fn fitting(&self, chunks: usize) -> Option<u32> {
        self.unbuddied[chunks..].iter().map(|list| list.last).find(|&frame| frame != NONE)
    }

    fn count(&mut self, length: usize, add: impl Fn(&mut u64, u64)) {
        add(&mut self.sums.encodings, 1);
        add(&mut self.sums.stored_bytes, length as u64);
        add(&mut self.sums.chunks, chunks(length) as u64);
    }

    /// Makes room for an encoding in a frame that is on no unbuddied list and has room.
    fn add_buddy(&mut self, frame: u32, handle: Handle) -> Buddy {
        let mut header = self.header(frame);
        let buddy = if header[0].is_none() { Buddy::First } else { Buddy::Last };
        header[buddy as usize] = Some(handle);
        self.set_header(frame, header);
        self.count(handle.length, |sum, more| *sum += more);
        buddy
    }

    /// Frees one of the two, in a frame that is on no unbuddied list. Returns what is left.
    fn remove_buddy(&mut self, frame: u32, buddy: Buddy) -> Header {
        let mut header = self.header(frame);
        let handle = header[buddy as usize].take().expect("a buddy that is not there");
        self.set_header(frame, header);
        self.count(handle.length, |sum, less| *sum -= less);
        header
    }

    /// Gives back a frame that is in no list.
    fn give_back(&mut self, frame: u32) {
        self.frames[frame as usize].taken = false;
        self.units.give_back(frame);
    }

    fn check_frame(&self, frame: u32) {
        let header = self.header(frame);
        let used: usize = header.iter().flatten().map(|handle| chunks(handle.length)).sum();
        assert!(used <= CHUNKS, "the buddies of frame {frame} overlap");
    }
}

impl Store for Buddies {
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        assert!(encoding.len() <= self.encoding_bytes_max(), "an encoding of {} bytes in a frame", encoding.len());
        let frame = self.fitting(chunks(encoding.len())).ok_or(Full)?;
        let before = self.header(frame);
        self.unlist(frame, before);
        if before != [None; 2] {
            self.lru.remove(&mut self.frames, frame);
        }
        self.lru.push(&mut self.frames, frame);
        let buddy = self.add_buddy(frame, Handle { owner, length: encoding.len() });
        let offset = self.offset(frame, buddy, encoding.len());
        self.units.pool.bytes_mut(offset, encoding.len()).copy_from_slice(encoding);
        self.list(frame, self.header(frame));
        Ok(key(frame, buddy))
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
        self.used(key).2.owner
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        let (frame, buddy, handle) = self.used(key);
        let mut header = self.header(frame);
        header[buddy as usize] = Some(Handle { owner, ..handle });
        self.set_header(frame, header);
    }

    fn remove(&mut self, key: StoreKey) {
        let (frame, buddy, _) = self.used(key);
        self.unlist(frame, self.header(frame));
        let left = self.remove_buddy(frame, buddy);
        if left == [None; 2] {
            self.lru.remove(&mut self.frames, frame);
            self.give_back(frame);
        } else {
            self.list(frame, left);
        }
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        Some(self)
    }

    fn figures(&self) -> StoreFigures {
        let frames = self.units.taken();
        let chunk_bytes = |chunks: u64| ByteCount(chunks * CHUNK_BYTES as u64);
        let free_chunks = (frames * CHUNKS) as u64 - self.sums.chunks - self.sums.lost_chunks;
        StoreFigures {
            encodings: self.sums.encodings,
            stored: ByteCount(self.sums.stored_bytes),
            headers: ByteCount((frames * CHUNK_BYTES) as u64),
            rounding: chunk_bytes(self.sums.chunks) - ByteCount(self.sums.stored_bytes),
            free: chunk_bytes(free_chunks),
            tail: chunk_bytes(self.sums.lost_chunks),
            pool: ByteCount((frames * PAGE_BYTES) as u64),
            metadata: ByteCount((size_of_val(&self.frames[..]) + self.units.metadata_bytes()) as u64),
            ..StoreFigures::default()
        }
    }

    fn check(&self) {
        let mut sums = Sums::default();
        let mut taken = 0;
        let mut unbuddied = 0;
        let mut in_use = 0;
        for frame in (0..self.frames.len() as u32).filter(|&frame| self.frames[frame as usize].taken) {
            self.check_frame(frame);
            taken += 1;
            let header = self.header(frame);
            for handle in header.iter().flatten() {
                sums.encodings += 1;
                sums.stored_bytes += handle.length as u64;
                sums.chunks += chunks(handle.length) as u64;
            }
            match header.iter().flatten().count() {
                2 => sums.lost_chunks += free_chunks(header) as u64,
                _ => unbuddied += 1,
            }
            in_use += usize::from(header != [None; 2]);
        }
        assert_eq!(sums, self.sums);
        assert_eq!(taken, self.units.taken());
        assert_eq!(self.lru.members(&self.frames).count(), in_use);
        // A copy, because the view of the frames as members of these lists can change them.
        let mut frames = self.frames.clone();
        for (free, list) in self.unbuddied.iter().enumerate() {
            for frame in list.members(&Unbuddied(&mut frames)) {
                assert_eq!(free_chunks(self.header(frame)), free, "frame {frame} is on the wrong list");
                unbuddied -= 1;
            }
        }
        assert_eq!(unbuddied, 0, "frames with one buddy are on no list");
    }
}

impl Resize for Buddies {
    fn unit(&self) -> ByteCount {
        ByteCount(PAGE_BYTES as u64)
    }

    /// zbud refuses what would leave no room for a second buddy, a chunk beside the header and itself.
    fn encoding_bytes_max(&self) -> usize {
        PAGE_BYTES - 2 * CHUNK_BYTES
    }

    fn grow(&mut self) -> Result<(), Full> {
        let frame = self.units.take().ok_or(Full)?;
        let new = Frame { taken: true, young: false, lru: Link::ALONE, unbuddied: Link::ALONE };
        if frame as usize == self.frames.len() {
            self.frames.push(new);
        } else {
            self.frames[frame as usize] = new;
        }
        self.list(frame, [None; 2]);
        Ok(())
    }

    /// An empty frame, or the one with the shortest single buddy, which moves to another frame.
    fn shrink(&mut self, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> Result<(), Blocked> {
        let roomiest = self.unbuddied.iter().rev().map(|list| list.first).find(|&frame| frame != NONE);
        let source = roomiest.ok_or(Blocked)?;
        let header = self.header(source);
        // Off its list, or it could be chosen as its own target.
        self.unlist(source, header);
        let Some(buddy) = [Buddy::First, Buddy::Last].into_iter().find(|&buddy| header[buddy as usize].is_some())
        else {
            self.give_back(source);
            return Ok(());
        };
        let (_, _, handle) = self.used(key(source, buddy));
        let Some(target) = self.fitting(chunks(handle.length)) else {
            self.list(source, header);
            return Err(Blocked);
        };
        self.unlist(target, self.header(target));
        let to = self.add_buddy(target, handle);
        let places = [(source, buddy), (target, to)].map(|(frame, buddy)| self.offset(frame, buddy, handle.length));
        self.units.pool.copy(places[0], places[1], handle.length);
        self.list(target, self.header(target));
        self.remove_buddy(source, buddy);
        self.lru.remove(&mut self.frames, source);
        self.give_back(source);
        moved(handle.owner, key(source, buddy), key(target, to));
        Ok(())
    }

    fn oldest(&self) -> Option<StoreKey> {
        let frame = self.lru.oldest();
        if frame == NONE {
            return None;
        }
        let buddy = if self.header(frame)[0].is_some() { Buddy::First } else { Buddy::Last };
        Some(key(frame, buddy))
    }
    /// As far as the order of frames tells: the youngest frames are taken that hold as many pages as there are frames.
    fn would_be_resident(&mut self, key: StoreKey) -> bool {
        let frames = self.units.taken() as u64;
        let youngest = (frames * frames).div_ceil(self.sums.encodings.max(1));
        self.lru.is_among_youngest(&mut self.frames, parts(key).0, youngest)
    }
}
