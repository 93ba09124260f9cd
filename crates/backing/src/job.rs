//! Jobs: all that touches a medium, or takes long. A job owns what it needs and runs without the log's lock.
//!
//! After a fork the jobs of the parent do not exist in the child: the threads that had them are gone. The child's log
//! forgets them (`SegmentLog::fork_child`); handing one to it is a bug that `Ticket` finds.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::buffer::AlignedBytes;
use crate::cipher::{Cipher, Identity};
use crate::segment::{Extent, Home, Plain};
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

/// What a thread needs to read encodings: two blocks.
#[derive(Debug)]
pub struct ReadBuffer(AlignedBytes);

impl ReadBuffer {
    /// Allocates; make it once for each thread that reads.
    pub fn new() -> Self {
        Self(AlignedBytes::new(2 * BLOCK_BYTES))
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// An encoding to be read.
#[derive(Debug)]
#[must_use = "run it and hand it to `finish_read`"]
pub struct ReadJob {
    pub(crate) ticket: Ticket,
    pub(crate) source: Arc<Source>,
    pub(crate) home: Home,
    pub(crate) segment_bytes: usize,
    pub(crate) entry: u32,
    pub(crate) extent: Extent,
}

impl ReadJob {
    /// Reads the encoding with one request, checks it and decrypts it.
    pub fn run<'a>(&self, buffer: &'a mut ReadBuffer) -> Result<&'a [u8], ReadError> {
        let first = self.first_block();
        let place = place_offset(self.home.place, self.segment_bytes);
        let blocks = &mut buffer.0[..self.bytes()];
        self.source.store.read_at(place + first as u64, blocks).map_err(ReadError::Device)?;
        decrypt(&self.source.cipher, self.home, self.segment_bytes, self.entry, self.extent, first, blocks)?;
        let start = self.extent.start() - first;
        Ok(&buffer.0[start..start + self.extent.encoding_bytes()])
    }

    /// What it reads.
    pub fn bytes(&self) -> usize {
        self.extent.end().next_multiple_of(BLOCK_BYTES) - self.first_block()
    }

    fn first_block(&self) -> usize {
        self.extent.start() / BLOCK_BYTES * BLOCK_BYTES
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
