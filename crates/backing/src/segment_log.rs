//! The segment log: encodings appended to segments, segments written whole, after Rosenblum and Ousterhout (1992).
//!
//! A segment goes open → sealed → writing → disk, and leaves the table when its last live entry is gone. Until it is on
//! disk its bytes stay in memory and are read from there, so that a write may fail, be late, or be tried again. The
//! caller's one lock protects the log; what touches the medium is a job, run without it. Cleaning is in `clean.rs`,
//! fork in `fork.rs`. Invariants: see `SegmentLog::check`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use page::PageIndex;

use crate::buffer::AlignedBytes;
use crate::cipher::Cipher;
use crate::job::{PunchJob, ReadJob, Source, Ticket, WriteJob};
use crate::places::Places;
use crate::segment::{BackingKey, Entry, Extent, Home, Plain, SEGMENTS_MAX, Segment, State};
use crate::{BLOCK_BYTES, BackingError, BackingStore};

mod clean;
#[cfg(test)]
mod copy;
mod figures;
mod fork;
mod segments;

pub use clean::Cleaned;
pub use figures::LogFigures;

/// A segment: long enough that a disk's seek costs less than its transfer, short enough to keep some in memory.
pub const SEGMENT_BYTES: usize = 1 << 20;
/// Two, so that the medium has a request while the next segment is being encrypted.
const WRITES_MAX: usize = 2;
/// Segments in memory: one open, two being written, one waiting. Behind that, appends are pushed back.
const PLAINS_MAX: usize = 4;
/// How many segments a medium has to take, once one has failed, before it is trusted to take all that it is to hold.
pub(crate) const DOUBT: u32 = 16;
/// Free places that appends leave to the cleaner, without which it could not make more of them.
const RESERVE: u32 = 1;
/// Idle memory kept for the next segments: an open one, and as many on their way as there may be writes.
const SPARE_PLAINS_MAX: usize = 1;
const SPARE_BUFFERS_MAX: usize = WRITES_MAX;
/// Free places that keep their blocks at least, and the share (1/n) of the segments on disk: punching out and
/// allocating again costs more than the few blocks.
const STORED_MIN: usize = 8;
const STORED_SHARE: usize = 8;

/// Why an encoding was not taken. None of these loses anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFull {
    /// No free segment: clean, or discard.
    NoSegment,
    /// The medium is slower than the appends: run the write jobs first.
    WritesBehind,
    /// A write has failed, and has not been repeated with success yet.
    Trouble(BackingError),
}

impl fmt::Display for LogFull {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSegment => write!(out, "no free segment in the swap file"),
            Self::WritesBehind => write!(out, "writes to the swap file are behind"),
            Self::Trouble(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for LogFull {}

/// Where an encoding is.
#[derive(Debug)]
pub enum Located<'a> {
    /// Here.
    Memory(&'a [u8]),
    /// On the medium. Hand the job to `finish_read` in any case, or its segment is never free again.
    Disk(ReadJob),
}

/// Where an encoding is that would come along with one that is asked for.
#[derive(Debug)]
pub enum Beside<'a> {
    /// Here.
    Memory(&'a [u8]),
    /// On the medium, near enough: the job reads it, too.
    Joined,
    /// On the medium, elsewhere.
    Apart,
}

/// A store the log can read.
#[derive(Debug)]
struct Readable {
    source: Arc<Source>,
    /// Segments of ours that are on it.
    segments: u32,
}

#[derive(Debug)]
struct Open {
    number: u32,
    plain: Plain,
}

/// See the top of the file.
#[derive(Debug)]
pub struct SegmentLog {
    segment_bytes: usize,
    /// Rows for free numbers are `None`.
    segments: Vec<Option<Segment>>,
    free_numbers: Vec<u32>,
    open: Option<Open>,
    /// In the order of writing.
    sealed: VecDeque<u32>,
    writing: usize,
    /// Our own store, and the ancestors' that we still read.
    readables: Vec<Option<Readable>>,
    own: usize,
    places: Places,
    /// Of the last write. Never goes back: it is part of the nonce.
    sequence: u64,
    era: u32,

    trouble: Option<BackingError>,
    /// Segments whose last write failed.
    failed: usize,
    /// No write before `retry`.
    is_held: bool,
    /// Segments that have to be written before the medium is trusted again.
    doubt: u32,
    cleaning: Option<u32>,
    /// Our segments on disk and the live bytes in them when the last search for one to clean found none.
    vain_search: Option<(u64, u64)>,

    spare_plains: Vec<Plain>,
    spare_buffers: Vec<AlignedBytes>,
    totals: Totals,
}

/// Sums over the table, kept up to date, and counters that only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    live_entries: u64,
    live_bytes: u64,
    /// Live entries that no medium has.
    memory_entries: u64,
    own_disk_segments: u64,
    own_disk_live_bytes: u64,
    foreign_segments: u64,
    /// Capacity of the segments' tables.
    table_entries: u64,
    /// Buffers that exist, lent out or lost with a thread at a fork included.
    plains: u64,
    buffers: u64,
    written_bytes: u64,
    read_bytes: u64,
}

impl SegmentLog {
    /// An empty log on `store`, of which it uses `bytes_max` at most. `key` is fresh randomness, used for nothing else.
    pub fn new(store: Box<dyn BackingStore>, key: [u8; 32], bytes_max: u64) -> Self {
        Self::with_segment_bytes(store, key, bytes_max, SEGMENT_BYTES)
    }

    /// The same with smaller segments, for tests.
    pub fn with_segment_bytes(
        store: Box<dyn BackingStore>,
        key: [u8; 32],
        bytes_max: u64,
        segment_bytes: usize,
    ) -> Self {
        assert!(segment_bytes.is_multiple_of(BLOCK_BYTES));
        assert!((2 * BLOCK_BYTES..=SEGMENT_BYTES).contains(&segment_bytes));
        let places = places_max(bytes_max.min(store.bytes_max()), segment_bytes);
        let source = Arc::new(Source { store, cipher: Cipher::new(key) });
        Self {
            segment_bytes,
            segments: Vec::new(),
            free_numbers: Vec::new(),
            open: None,
            sealed: VecDeque::with_capacity(PLAINS_MAX),
            writing: 0,
            readables: alloc::vec![Some(Readable { source, segments: 0 })],
            own: 0,
            places: Places::new(places),
            sequence: 0,
            era: 0,
            trouble: None,
            failed: 0,
            is_held: false,
            doubt: 0,
            cleaning: None,
            vain_search: None,
            spare_plains: Vec::with_capacity(SPARE_PLAINS_MAX),
            spare_buffers: Vec::with_capacity(SPARE_BUFFERS_MAX),
            totals: Totals::default(),
        }
    }

    /// Takes a copy of an encoding of 1 to 4096 bytes that belongs to page `owner`.
    pub fn append(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<BackingKey, LogFull> {
        self.append_leaving(RESERVE, owner, encoding)
    }

    /// Whether [`Self::append`] takes an encoding of so many bytes, be it when the medium has caught up.
    pub fn has_room(&self, encoding_bytes: usize) -> bool {
        let fits = self.open.as_ref().is_some_and(|open| open.plain.has_room(encoding_bytes));
        self.trouble.is_none() && (fits || self.has_free_segment(RESERVE))
    }

    /// Whether encodings should be kept in memory until they can be appended: there is room, and where a write has failed lately nothing
    /// else waits for a medium that may fail again.
    pub fn is_worth_waiting_for(&self, encoding_bytes: usize) -> bool {
        let is_behind = self.writing > 0 || !self.sealed.is_empty();
        self.has_room(encoding_bytes) && !(self.doubt > 0 && is_behind)
    }

    /// Appends, and leaves `reserve` places free if a new segment must be opened.
    fn append_leaving(&mut self, reserve: u32, owner: PageIndex, encoding: &[u8]) -> Result<BackingKey, LogFull> {
        if let Some(error) = self.trouble {
            return Err(LogFull::Trouble(error));
        }
        if !self.open.as_ref().is_some_and(|open| open.plain.has_room(encoding.len())) {
            self.seal();
            self.open_segment(reserve)?;
        }
        let open = self.open.as_mut().expect("opened above");
        let number = open.number;
        let extent = open.plain.push(encoding);
        let segment = self.segment_mut(number);
        let key = BackingKey::new(number, segment.entries.len());
        segment.entries.push(Entry::new(owner, extent));
        segment.live_entries += 1;
        segment.live_bytes += extent.bytes() as u32;
        self.totals.live_entries += 1;
        self.totals.live_bytes += extent.bytes() as u64;
        self.totals.memory_entries += 1;
        Ok(key)
    }

    /// Completes the open segment although it is not full, so that `write_job` offers it.
    pub fn seal(&mut self) {
        let Some(open) = self.open.take_if(|open| open.plain.fill() > 0) else { return };
        let segment = self.segment_mut(open.number);
        let spare = segment.entries.capacity();
        segment.entries.shrink_to_fit();
        let freed = spare - segment.entries.capacity();
        segment.state = State::Sealed(Arc::new(open.plain));
        self.totals.table_entries -= freed as u64;
        self.sealed.push_back(open.number);
    }

    /// A sealed segment to be written, if the medium should have one more now.
    pub fn write_job(&mut self) -> Option<WriteJob> {
        if self.is_held || self.writing >= WRITES_MAX || self.sealed.is_empty() {
            return None;
        }
        // None only in a forked child whose own store is too small; its segments then stay in memory.
        let place = self.places.take()?;
        let number = self.sealed.pop_front()?;
        let segment = self.segment_mut(number);
        let State::Sealed(plain) = &segment.state else { unreachable!("segment {number} is in the queue") };
        let plain = plain.clone();
        segment.state = State::Writing(plain.clone());
        self.writing += 1;
        self.sequence = self.sequence.checked_add(1).expect("2^64 writes take longer than any machine lasts");
        Some(WriteJob {
            ticket: Ticket { era: self.era, number },
            source: self.own_source().clone(),
            place,
            sequence: self.sequence,
            plain,
            buffer: self.take_buffer(),
        })
    }

    /// Takes a write job back, with what its `run` returned. After an error the segment stays in memory, appends are
    /// refused, and nothing is written before [`Self::retry`].
    pub fn finish_write(&mut self, job: WriteJob, result: Result<(), BackingError>) {
        let written_bytes = job.bytes() as u64;
        let WriteJob { ticket, place, sequence, plain, buffer, source: _ } = job;
        assert_eq!(ticket.era, self.era, "a write job of before the fork");
        self.put_buffer(buffer);
        self.writing -= 1;
        let number = ticket.number;
        if let Err(error) = result {
            // What is on the medium now nobody will read: the next attempt has another sequence number.
            self.places.put_back(place);
            self.trouble = Some(error);
            self.is_held = true;
            self.doubt = DOUBT;
            let segment = self.segment_mut(number);
            segment.state = State::Sealed(plain);
            let failed_before = core::mem::replace(&mut segment.failed, true);
            self.failed += usize::from(!failed_before);
            self.sealed.push_front(number);
            self.free_if_idle(number);
            return;
        }
        drop(plain);
        self.totals.written_bytes += written_bytes;
        self.arrive(number, place, sequence);
    }

    /// A segment has reached the medium.
    fn arrive(&mut self, number: u32, place: u32, sequence: u64) {
        let home = Home { source: self.own, place, sequence, born: self.places.now() };
        let segment = self.segment_mut(number);
        let State::Writing(plain) = core::mem::replace(&mut segment.state, State::Disk(home)) else {
            unreachable!("segment {number} was being written")
        };
        let (live_entries, live_bytes) = (segment.live_entries, segment.live_bytes);
        self.recycle(plain);
        self.forgive(number);
        self.doubt = self.doubt.saturating_sub(1);
        self.totals.memory_entries -= u64::from(live_entries);
        self.totals.own_disk_live_bytes += u64::from(live_bytes);
        self.totals.own_disk_segments += 1;
        self.own_readable().segments += 1;
        self.free_if_idle(number);
    }

    /// Why appends are refused, if a write has failed.
    pub fn trouble(&self) -> Option<BackingError> {
        self.trouble
    }

    /// Lets `write_job` offer the segments whose write failed once more.
    pub fn retry(&mut self) {
        self.is_held = false;
    }

    /// Finds an encoding.
    pub fn locate(&mut self, key: BackingKey) -> Located<'_> {
        let (number, extent) = (key.number(), self.extent(key));
        if let &State::Disk(home) = &self.segment(number).state {
            self.segment_mut(number).readers += 1;
            let readable = self.readables[home.source].as_ref().expect("its segments keep a store");
            let ticket = Ticket { era: self.era, number };
            let entry = (key.entry() as u16, extent);
            return Located::Disk(ReadJob::new(ticket, readable.source.clone(), home, self.segment_bytes, entry));
        }
        Located::Memory(self.in_memory(number, extent))
    }

    /// Finds an encoding that is not asked for, and has `job` read it where that costs no request.
    pub fn locate_beside(&self, key: BackingKey, job: Option<&mut ReadJob>) -> Beside<'_> {
        let (number, extent) = (key.number(), self.extent(key));
        if !matches!(self.segment(number).state, State::Disk(_)) {
            return Beside::Memory(self.in_memory(number, extent));
        }
        let here = Ticket { era: self.era, number };
        let is_joined = job.is_some_and(|job| job.ticket == here && job.join(key.entry() as u16, extent));
        if is_joined { Beside::Joined } else { Beside::Apart }
    }

    /// Has `job` read ahead: what lies behind the last encoding that it reads, as far as that costs no request.
    pub fn read_ahead(&self, job: &mut ReadJob) {
        let entries = self.segment(job.ticket.number).entries.iter().enumerate();
        let behind = entries.skip(usize::from(job.last_entry()) + 1);
        for (number, entry) in behind.filter(|(_, entry)| entry.owner().is_some()) {
            if !job.read_ahead(number as u16, entry.extent()) {
                break;
            }
        }
    }

    fn extent(&self, key: BackingKey) -> Extent {
        let entry = self.segment(key.number()).entries[key.entry()];
        assert!(entry.owner().is_some(), "{key:?} has been discarded");
        entry.extent()
    }

    /// An encoding of a segment that is not on disk.
    fn in_memory(&self, number: u32, extent: Extent) -> &[u8] {
        match &self.segment(number).state {
            State::Open => self.open.as_ref().expect("a segment is open").plain.encoding(extent),
            State::Sealed(plain) | State::Writing(plain) => plain.encoding(extent),
            State::Disk(_) => unreachable!("segment {number} is on disk"),
        }
    }

    /// Takes a read job back, whatever came of it.
    pub fn finish_read(&mut self, job: ReadJob) {
        self.totals.read_bytes += job.bytes() as u64;
        self.forgo_read(job);
    }

    /// Takes a read job back that has not read anything.
    pub fn forgo_read(&mut self, job: ReadJob) {
        assert_eq!(job.ticket.era, self.era, "a read job of before the fork");
        let number = job.ticket.number;
        drop(job);
        self.end_reading(number);
    }

    fn end_reading(&mut self, number: u32) {
        self.segment_mut(number).readers -= 1;
        self.free_if_idle(number);
    }

    /// Whose encoding it is.
    pub fn owner(&self, key: BackingKey) -> PageIndex {
        self.live_owner(key).expect("a key of a live entry")
    }

    /// The same, if it has not been discarded; while a job is out that reads it.
    pub fn live_owner(&self, key: BackingKey) -> Option<PageIndex> {
        self.segment(key.number()).entries[key.entry()].owner()
    }

    /// Gives an encoding to another page.
    pub fn set_owner(&mut self, key: BackingKey, owner: PageIndex) {
        let entry = &mut self.segment_mut(key.number()).entries[key.entry()];
        assert!(entry.owner().is_some(), "{key:?} has been discarded");
        entry.set_owner(owner);
    }

    /// Forgets an encoding. Its key must not be used again.
    pub fn discard(&mut self, key: BackingKey) {
        let number = key.number();
        let segment = self.segment_mut(number);
        let entry = &mut segment.entries[key.entry()];
        assert!(entry.owner().is_some(), "{key:?} has been discarded");
        entry.kill();
        let bytes = entry.extent().bytes() as u32;
        segment.live_entries -= 1;
        segment.live_bytes -= bytes;
        let source = if let State::Disk(home) = segment.state { Some(home.source) } else { None };
        if source.is_none() {
            self.totals.memory_entries -= 1;
        } else if source == Some(self.own) {
            self.totals.own_disk_live_bytes -= u64::from(bytes);
        }
        self.totals.live_entries -= 1;
        self.totals.live_bytes -= u64::from(bytes);
        self.free_if_idle(number);
    }

    /// Frees the buffers that no job has, up to 3 MiB: for when nothing is being written.
    pub fn release_spares(&mut self) {
        self.totals.plains -= self.spare_plains.drain(..).len() as u64;
        self.totals.buffers -= self.spare_buffers.drain(..).len() as u64;
    }

    /// A free place to be punched out, if the file has more of them than the next writes want.
    pub fn punch_job(&mut self) -> Option<PunchJob> {
        let keep = STORED_MIN.max(self.totals.own_disk_segments as usize / STORED_SHARE);
        let place = self.places.take_surplus(keep)?;
        let source = self.own_source().clone();
        Some(PunchJob { era: self.era, source, place, segment_bytes: self.segment_bytes })
    }

    /// Takes a punch job back.
    pub fn finish_punch(&mut self, job: PunchJob) {
        let PunchJob { era, place, source, segment_bytes: _ } = job;
        assert_eq!(era, self.era, "a punch job of before the fork");
        drop(source);
        self.places.punched(place);
    }
}

fn places_max(bytes_max: u64, segment_bytes: usize) -> u32 {
    (bytes_max / segment_bytes as u64).min(SEGMENTS_MAX as u64) as u32
}
