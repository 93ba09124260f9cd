//! A segment in RAM: the words of its table, and its bytes until the medium has them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use page::PageIndex;

use crate::cipher::TAG_BYTES;

/// Extents start at multiples of this.
pub(crate) const UNIT_BYTES: usize = 16;
/// A longer encoding would be no encoding.
pub const ENCODING_BYTES_MAX: usize = 4096;
/// Bits of a [`BackingKey`] that tell the entry.
const ENTRY_BITS: u32 = 12;
const ENTRIES_MAX: usize = 1 << ENTRY_BITS;
/// Segments that a table can hold.
pub(crate) const SEGMENTS_MAX: usize = 1 << 24;
/// An owner of all ones marks a dead entry. As an address it is the last page of 48 bits, which no program gets.
const DEAD: u64 = (1 << 36) - 1;

/// Where the log keeps an encoding: the segment's number in the table, and the entry in it. Good until `discard`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BackingKey(u64);

impl BackingKey {
    /// Bits that [`Self::bits`] may set.
    pub const BITS: u32 = 36;

    pub(crate) fn new(number: u32, entry: usize) -> Self {
        assert!((number as usize) < SEGMENTS_MAX && entry < ENTRIES_MAX);
        Self(u64::from(number) << ENTRY_BITS | entry as u64)
    }

    /// A key from what [`Self::bits`] gave.
    pub fn from_bits(bits: u64) -> Self {
        assert!(bits >> Self::BITS == 0, "a backing key has 36 bits: {bits:#x}");
        Self(bits)
    }

    /// The key as a number of 36 bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn number(self) -> u32 {
        (self.0 >> ENTRY_BITS) as u32
    }

    pub(crate) fn entry(self) -> usize {
        self.0 as usize & (ENTRIES_MAX - 1)
    }
}

/// Where in a segment an encoding and its tag are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    unit: u16,
    encoding_bytes_less_one: u16,
}

impl Extent {
    pub(crate) fn new(start: usize, encoding_bytes: usize) -> Self {
        assert!((1..=ENCODING_BYTES_MAX).contains(&encoding_bytes) && start.is_multiple_of(UNIT_BYTES));
        let unit = u16::try_from(start / UNIT_BYTES).expect("a segment is at most 1 MiB");
        Self { unit, encoding_bytes_less_one: (encoding_bytes - 1) as u16 }
    }

    pub(crate) fn start(self) -> usize {
        usize::from(self.unit) * UNIT_BYTES
    }

    pub(crate) fn encoding_bytes(self) -> usize {
        usize::from(self.encoding_bytes_less_one) + 1
    }

    /// Behind the tag.
    pub(crate) fn end(self) -> usize {
        self.start() + self.encoding_bytes() + TAG_BYTES
    }

    /// What it takes of the segment, padding included.
    pub(crate) fn bytes(self) -> usize {
        extent_bytes(self.encoding_bytes())
    }
}

/// What an encoding takes of a segment.
pub(crate) const fn extent_bytes(encoding_bytes: usize) -> usize {
    (encoding_bytes + TAG_BYTES).next_multiple_of(UNIT_BYTES)
}

/// One word of a segment's table: owner (36 bits), extent's unit (16), encoding's length less one (12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) fn new(owner: PageIndex, extent: Extent) -> Self {
        let extent = u64::from(extent.unit) << 12 | u64::from(extent.encoding_bytes_less_one);
        Self(owner_bits(owner) << 28 | extent)
    }

    pub(crate) fn owner(self) -> Option<PageIndex> {
        let owner = self.0 >> 28;
        (owner != DEAD).then_some(PageIndex(owner))
    }

    pub(crate) fn extent(self) -> Extent {
        Extent { unit: (self.0 >> 12) as u16, encoding_bytes_less_one: self.0 as u16 & 0xfff }
    }

    pub(crate) fn set_owner(&mut self, owner: PageIndex) {
        self.0 = self.0 & 0xfff_ffff | owner_bits(owner) << 28;
    }

    pub(crate) fn kill(&mut self) {
        self.0 |= DEAD << 28;
    }
}

fn owner_bits(owner: PageIndex) -> u64 {
    assert!(owner.0 < DEAD, "{owner:?} is above all addresses");
    owner.0
}

/// The bytes of a segment that the medium does not have yet, in clear, each where it will be on the medium.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Plain {
    bytes: Vec<u8>,
    extents: Vec<Extent>,
    /// Extents end here.
    fill: usize,
}

impl Plain {
    pub(crate) fn new(segment_bytes: usize) -> Self {
        let entries_max = entries_max(segment_bytes);
        Self { bytes: alloc::vec![0; segment_bytes], extents: Vec::with_capacity(entries_max), fill: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.extents.clear();
        self.fill = 0;
    }

    pub(crate) fn has_room(&self, encoding_bytes: usize) -> bool {
        extent_bytes(encoding_bytes) <= self.bytes.len() - self.fill && self.extents.len() < ENTRIES_MAX
    }

    /// Bytes left, and entries left.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.bytes.len() - self.fill, ENTRIES_MAX - self.extents.len())
    }

    /// Appends where [`Self::has_room`].
    pub(crate) fn push(&mut self, encoding: &[u8]) -> Extent {
        assert!(self.has_room(encoding.len()));
        let extent = Extent::new(self.fill, encoding.len());
        self.bytes[self.fill..self.fill + encoding.len()].copy_from_slice(encoding);
        self.fill += extent.bytes();
        self.extents.push(extent);
        extent
    }

    pub(crate) fn encoding(&self, extent: Extent) -> &[u8] {
        &self.bytes[extent.start()..extent.start() + extent.encoding_bytes()]
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Extents end here.
    pub(crate) fn fill(&self) -> usize {
        self.fill
    }

    pub(crate) fn memory_bytes(segment_bytes: usize) -> usize {
        segment_bytes + entries_max(segment_bytes) * size_of::<Extent>()
    }
}

pub(crate) fn entries_max(segment_bytes: usize) -> usize {
    ENTRIES_MAX.min(segment_bytes / extent_bytes(1))
}

/// Where a segment's bytes are.
#[derive(Debug)]
pub(crate) enum State {
    /// In the log's open buffer, which grows.
    Open,
    /// Complete, and waiting to be written.
    Sealed(Arc<Plain>),
    /// In the hands of a write job.
    Writing(Arc<Plain>),
    /// On the medium.
    Disk(Home),
}

/// Where on a medium a segment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// Index of the store, among those the log can read.
    pub(crate) source: usize,
    pub(crate) place: u32,
    pub(crate) sequence: u64,
    /// How many child pins had been made when it got there.
    pub(crate) born: u64,
}

/// One segment's row in the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) state: State,
    pub(crate) entries: Vec<Entry>,
    pub(crate) live_entries: u32,
    /// Of the extents of its live entries.
    pub(crate) live_bytes: u32,
    /// Jobs that read it. While there are any, its place is not reused.
    pub(crate) readers: u32,
    /// Its last write failed.
    pub(crate) failed: bool,
    /// It could not be read whole, so it is not cleaned again.
    pub(crate) damaged: bool,
}

impl Segment {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let state = State::Open;
        Self { state, entries, live_entries: 0, live_bytes: 0, readers: 0, failed: false, damaged: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_parts() {
        let extent = Extent::new(65535 * 16, 4096);
        let mut entry = Entry::new(PageIndex(DEAD - 1), extent);
        assert_eq!((entry.owner(), entry.extent()), (Some(PageIndex(DEAD - 1)), extent));
        entry.set_owner(PageIndex(0));
        assert_eq!((entry.owner(), entry.extent()), (Some(PageIndex(0)), extent));
        entry.kill();
        assert_eq!((entry.owner(), entry.extent()), (None, extent));
        let key = BackingKey::new((1 << 24) - 1, 4095);
        assert_eq!(key.bits(), (1 << 36) - 1);
        assert_eq!((BackingKey::from_bits(key.bits()).number(), key.entry()), ((1 << 24) - 1, 4095));
    }

    #[test]
    fn no_extent_touches_three_blocks() {
        for start in (0..8192).step_by(UNIT_BYTES) {
            for encoding_bytes in [1, 15, 16, 17, 4079, 4080, 4081, 4096] {
                let extent = Extent::new(start, encoding_bytes);
                assert!(extent.end().div_ceil(4096) - extent.start() / 4096 <= 2);
                assert!(extent.end() <= extent.start() + extent.bytes());
                assert_eq!(extent.encoding_bytes(), encoding_bytes);
            }
        }
    }

    #[test]
    #[should_panic(expected = "above all addresses")]
    fn an_owner_that_would_look_dead_is_a_bug() {
        let _ = Entry::new(PageIndex(DEAD), Extent::new(0, 1));
    }
}
