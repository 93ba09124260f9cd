//! Jobs: all that touches a medium, or takes long. A job owns what it needs and runs without the log's lock.
//!
//! After a fork the jobs of the parent do not exist in the child: the threads that had them are gone. The child's log
//! forgets them (`SegmentLog::fork_child`); handing one to it is a bug that `Ticket` finds.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use sys::ring::Queue;

use crate::aside::{Aside, Blocks};
use crate::buffer::AlignedBytes;
use crate::cipher::{Cipher, Identity};
use crate::segment::{BackingKey, ENCODING_BYTES_MAX, Extent, Home, Plain, UNIT_BYTES, extent_bytes};
use crate::{BLOCK_BYTES, BackingError, BackingStore};

/// A store and its key.
pub(crate) struct Source {
    pub(crate) store: Box<dyn BackingStore>,
    pub(crate) cipher: Cipher,
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        write!(out, "Source({} bytes)", self.store.bytes_max())
    }
}

/// Which log a job belongs to, and which segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    /// Generations of forks.
    pub(crate) era: u32,
    pub(crate) number: u32,
}

/// Why an encoding could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The medium gave other bytes than were written.
    Damaged {
        /// The segment's place in the file.
        segment: u32,
        /// Which encoding in it.
        entry: u16,
        /// First byte in the file.
        offset: u64,
    },
    /// The medium gave nothing.
    Device(BackingError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { segment, entry, offset } => {
                write!(out, "swap file damaged: segment {segment}, entry {entry}, byte {offset}")
            }
            Self::Device(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for ReadError {}

/// A sealed segment on its way to the medium.
#[derive(Debug)]
#[must_use = "run it and hand it to `finish_write`"]
pub struct WriteJob {
    pub(crate) ticket: Ticket,
    pub(crate) source: Arc<Source>,
    pub(crate) place: u32,
    pub(crate) sequence: u64,
    pub(crate) plain: Arc<Plain>,
    /// As long as a segment. May hold another segment's ciphertext, never clear text.
    pub(crate) buffer: AlignedBytes,
}

impl WriteJob {
    /// Encrypts the segment and writes it, in one request.
    pub fn run(&mut self) -> Result<(), BackingError> {
        let mut end = 0;
        for (entry, &extent) in self.plain.extents().iter().enumerate() {
            let encoding = self.plain.encoding(extent);
            let bytes = encoding.len() as u32;
            let identity = Identity { place: self.place, sequence: self.sequence, entry: entry as u32, bytes };
            let room = &mut self.buffer[extent.start()..extent.end()];
            room[..encoding.len()].copy_from_slice(encoding);
            self.source.cipher.encrypt(identity, room);
            end = extent.start() + extent.bytes();
            self.buffer[extent.end()..end].fill(0);
        }
        let written = self.bytes();
        self.buffer[end..written].fill(0);
        self.source.store.write_at(place_offset(self.place, self.buffer.len()), &self.buffer[..written])
    }

    /// What it writes.
    pub fn bytes(&self) -> usize {
        self.plain.fill().next_multiple_of(BLOCK_BYTES)
    }
}

/// Where a place starts in its file.
pub(crate) fn place_offset(place: u32, segment_bytes: usize) -> u64 {
    u64::from(place) * segment_bytes as u64
}

/// Encodings that one request can read: no more, for jobs are handed on by value.
const READ_ENCODINGS_MAX: usize = 20;
/// Of the longest so many can be read in any case.
pub const READ_PAGES_MAX: usize = 16;
/// What one request can read: the longest encodings, one behind the other, from anywhere in a block on.
pub const READ_BYTES_MAX: usize =
    (BLOCK_BYTES - UNIT_BYTES + READ_PAGES_MAX * extent_bytes(ENCODING_BYTES_MAX)).next_multiple_of(BLOCK_BYTES);

/// What a thread needs to read encodings: 136 KiB.
#[derive(Debug)]
pub struct ReadBuffer {
    blocks: AlignedBytes,
    /// So much of it the last job has read.
    filled: usize,
    aside: Aside,
    queue: Queue,
}

impl ReadBuffer {
    /// Allocates; make it once for each thread that reads.
    pub fn new() -> Self {
        Self { blocks: AlignedBytes::new(READ_BYTES_MAX), filled: 0, aside: Aside::new(), queue: Queue::default() }
    }

    /// Forgets what lies aside. Returns all of its memory, which then holds nothing between two jobs.
    pub fn clear(&mut self) -> [&mut [u8]; 2] {
        [&mut self.blocks, self.aside.clear()]
    }

    /// Whether `job` finds what it wants here, and will not read.
    pub fn has(&self, job: &ReadJob) -> bool {
        job.others == 0 && self.aside.has(job.asked_for())
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// An encoding to be read, and others behind it in the same segment that come with the same request.
#[derive(Debug)]
#[must_use = "run it and hand it to `finish_read`"]
pub struct ReadJob {
    pub(crate) ticket: Ticket,
    pub(crate) source: Arc<Source>,
    pub(crate) home: Home,
    pub(crate) segment_bytes: usize,
    /// The one that is asked for, then `others` that are not, one behind the other.
    entries: [(u16, Extent); READ_ENCODINGS_MAX],
    others: usize,
    /// So many of them have been joined one by one; what is behind those is read ahead.
    joined: usize,
}

impl ReadJob {
    pub(crate) fn new(
        ticket: Ticket,
        source: Arc<Source>,
        home: Home,
        segment_bytes: usize,
        entry: (u16, Extent),
    ) -> Self {
        Self { ticket, source, home, segment_bytes, entries: [entry; READ_ENCODINGS_MAX], others: 0, joined: 0 }
    }

    /// Has one more encoding of its segment read, if that lies behind the last and can come with the same request.
    pub(crate) fn join(&mut self, entry: u16, extent: Extent) -> bool {
        debug_assert!(self.joined == self.others, "reading ahead comes last");
        let fits = self.read_ahead(entry, extent);
        self.joined = self.others;
        fits
    }

    /// The same for one of [`Self::ahead`].
    pub(crate) fn read_ahead(&mut self, entry: u16, extent: Extent) -> bool {
        let is_near = extent.end() <= self.first_block() + READ_BYTES_MAX;
        let fits = self.others + 1 < READ_ENCODINGS_MAX && extent.start() >= self.last().end() && is_near;
        if fits {
            self.others += 1;
            self.entries[self.others] = (entry, extent);
        }
        fits
    }

    /// Reads with one request, and checks and decrypts the encoding that is asked for. Where the others cannot be read,
    /// only that one is.
    pub fn run<'a>(&self, buffer: &'a mut ReadBuffer) -> Result<&'a [u8], ReadError> {
        let ReadBuffer { blocks, aside, filled, .. } = &mut *buffer;
        if self.others == 0 && aside.take(self.asked_for(), blocks) {
            *filled = self.asked_for().bytes;
            if self.check(0, blocks).is_ok() {
                return Ok(self.encoding(0, buffer));
            }
        }
        let mut bytes = self.bytes();
        let mut result = self.read(&mut buffer.blocks[..bytes]);
        if result.is_err() && self.others > 0 {
            bytes = self.bytes_to(self.entries[0].1);
            result = self.read(&mut buffer.blocks[..bytes]);
        }
        buffer.filled = if result.is_ok() { bytes } else { 0 };
        result.map_err(ReadError::Device)?;
        self.decrypt(0, buffer)
    }

    /// As [`Self::run`]. At the same time what each of `besides` is asked for is read, if it is in the same store, so that these
    /// find it when they run; they need not. What cannot be read beside is left to them.
    pub fn run_with<'a>(&self, besides: &[Option<Self>], buffer: &'a mut ReadBuffer) -> Result<&'a [u8], ReadError> {
        let ReadBuffer { blocks, filled, aside, queue } = &mut *buffer;
        let bytes = self.bytes();
        if aside.read_with(self, besides, &mut blocks[..bytes], queue) {
            *filled = bytes;
            return self.decrypt(0, buffer);
        }
        // A read of its own tells what is wrong.
        self.run(buffer)
    }

    /// One of the others, once the job has run: in the order in which they came to it, from 1 on. `None` if it could
    /// not be read or is damaged: that is for a job to tell that asks for it.
    pub fn other<'a>(&self, number: usize, buffer: &'a mut ReadBuffer) -> Option<&'a [u8]> {
        assert!((1..=self.others).contains(&number), "the job has {} others", self.others);
        let is_read = self.bytes_to(self.entries[number].1) <= buffer.filled;
        if is_read { self.decrypt(number, buffer).ok() } else { None }
    }

    /// Where the log keeps those that it is to read ahead, and how long they are: for a simulation, which reads nothing.
    pub fn asked_ahead(&self) -> impl Iterator<Item = (BackingKey, usize)> {
        (self.joined + 1..=self.others).map(|number| (self.key(number), self.entries[number].1.encoding_bytes()))
    }

    /// The numbers of the others that are read ahead, as far as these have come and are right.
    pub fn ahead(&self, buffer: &mut ReadBuffer) -> Range<usize> {
        let first = self.joined + 1;
        let wrong = (first..=self.others).find(|number| self.other(*number, buffer).is_none());
        first..wrong.unwrap_or(self.others + 1)
    }

    /// One of [`Self::ahead`], and where the log keeps it.
    pub fn one_ahead<'a>(&self, number: usize, buffer: &'a ReadBuffer) -> (BackingKey, &'a [u8]) {
        (self.key(number), self.encoding(number, buffer))
    }

    fn key(&self, number: usize) -> BackingKey {
        BackingKey::new(self.ticket.number, self.entries[number].0.into())
    }

    /// The last entry that it reads.
    pub(crate) fn last_entry(&self) -> u16 {
        self.entries[self.others].0
    }

    fn read(&self, blocks: &mut [u8]) -> Result<(), BackingError> {
        self.store().read_at(self.offset(), blocks)
    }

    pub(crate) fn store(&self) -> &dyn BackingStore {
        &*self.source.store
    }

    pub(crate) fn has_store_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }

    /// Where in the store it begins to read.
    pub(crate) fn offset(&self) -> u64 {
        place_offset(self.home.place, self.segment_bytes) + self.first_block() as u64
    }

    /// The blocks of the encoding that is asked for.
    pub(crate) fn asked_for(&self) -> Blocks {
        let Home { place, sequence, .. } = self.home;
        Blocks { place, sequence, first: self.first_block(), bytes: self.bytes_to(self.entries[0].1) }
    }

    fn decrypt<'a>(&self, number: usize, buffer: &'a mut ReadBuffer) -> Result<&'a [u8], ReadError> {
        self.check(number, &mut buffer.blocks)?;
        Ok(self.encoding(number, buffer))
    }

    /// Checks and decrypts one encoding where it lies.
    fn check(&self, number: usize, blocks: &mut [u8]) -> Result<(), ReadError> {
        let (entry, extent) = self.entries[number];
        let (cipher, first) = (&self.source.cipher, self.first_block());
        decrypt(cipher, self.home, self.segment_bytes, u32::from(entry), extent, first, blocks)
    }

    fn encoding<'a>(&self, number: usize, buffer: &'a ReadBuffer) -> &'a [u8] {
        let (_, extent) = self.entries[number];
        &buffer.blocks[extent.start() - self.first_block()..][..extent.encoding_bytes()]
    }

    /// What it reads.
    pub fn bytes(&self) -> usize {
        self.bytes_to(self.last())
    }

    fn last(&self) -> Extent {
        self.entries[self.others].1
    }

    fn bytes_to(&self, extent: Extent) -> usize {
        extent.end().next_multiple_of(BLOCK_BYTES) - self.first_block()
    }

    fn first_block(&self) -> usize {
        self.entries[0].1.start() / BLOCK_BYTES * BLOCK_BYTES
    }
}

/// Decrypts one extent in `blocks`, which hold the segment from byte `first` on.
fn decrypt(
    cipher: &Cipher,
    home: Home,
    segment_bytes: usize,
    entry: u32,
    extent: Extent,
    first: usize,
    blocks: &mut [u8],
) -> Result<(), ReadError> {
    let bytes = extent.encoding_bytes() as u32;
    let identity = Identity { place: home.place, sequence: home.sequence, entry, bytes };
    cipher.decrypt(identity, &mut blocks[extent.start() - first..extent.end() - first]).map_err(|_| {
        let offset = place_offset(home.place, segment_bytes) + extent.start() as u64;
        ReadError::Damaged { segment: home.place, entry: entry as u16, offset }
    })
}

/// An entry that was alive when its segment was chosen for cleaning.
#[derive(Debug)]
pub(crate) struct Survivor {
    pub(crate) entry: u16,
    pub(crate) extent: Extent,
    /// It has been read and is right.
    pub(crate) sound: bool,
}

/// A segment to be cleaned: its live entries are read here and appended again by `finish_clean`.
#[derive(Debug)]
#[must_use = "run it and hand it to `finish_clean`"]
pub struct CleanJob {
    pub(crate) ticket: Ticket,
    pub(crate) source: Arc<Source>,
    pub(crate) home: Home,
    /// In order of entries, and so of extents.
    pub(crate) survivors: Vec<Survivor>,
    /// Survivors before this one have been moved.
    pub(crate) moved: usize,
    pub(crate) buffer: AlignedBytes,
    pub(crate) has_run: bool,
}

impl CleanJob {
    /// Reads what is alive of the segment with one request, checks and decrypts it. After an error `finish_clean`
    /// moves what could be read, and leaves the rest where it is. Returns the first error.
    pub fn run(&mut self) -> Result<(), ReadError> {
        self.has_run = true;
        let (first, end) = self.range();
        let segment_bytes = self.buffer.len();
        let place = place_offset(self.home.place, segment_bytes);
        let blocks = &mut self.buffer[first..end];
        self.source.store.read_at(place + first as u64, blocks).map_err(ReadError::Device)?;
        let mut result = Ok(());
        for survivor in &mut self.survivors {
            let entry = u32::from(survivor.entry);
            let outcome = decrypt(&self.source.cipher, self.home, segment_bytes, entry, survivor.extent, first, blocks);
            survivor.sound = outcome.is_ok();
            result = result.and(outcome);
        }
        result
    }

    /// What it reads.
    pub fn bytes(&self) -> usize {
        let (first, end) = self.range();
        end - first
    }

    fn range(&self) -> (usize, usize) {
        let first = self.survivors.first().map_or(0, |survivor| survivor.extent.start());
        let end = self.survivors.last().map_or(0, |survivor| survivor.extent.end());
        (first / BLOCK_BYTES * BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES))
    }
}

/// A free place whose blocks go back to the file system.
#[derive(Debug)]
#[must_use = "run it and hand it to `finish_punch`"]
pub struct PunchJob {
    pub(crate) era: u32,
    pub(crate) source: Arc<Source>,
    pub(crate) place: u32,
    pub(crate) segment_bytes: usize,
}

impl PunchJob {
    /// Punches the place out.
    pub fn run(&mut self) {
        self.source.store.discard(place_offset(self.place, self.segment_bytes), self.segment_bytes as u64);
    }
}
