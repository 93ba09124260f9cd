//! Real and physical memory: frames of pages as the operating system sees them, and the sectors behind them.
//!
//! "A 1 KB cache line (real) address is mapped to 0 to 4 sector (physical) addresses". Any free sector is as good as any
//! other, so how many are in use says it all: as many as the store of the live system takes for lines of these lengths.

use std::collections::HashMap;

use page::{ByteCount, PAGE_BYTES};
use store::{LINES, sectors_of};

use super::cache::LINE_BYTES;

/// "The unit of storage in compressed memory is a 256 byte sector."
pub(super) const SECTOR_BYTES: u64 = 256;
/// "each CTT entry is 16 bytes long"; a page has four.
const TABLE_BYTES_PER_PAGE: u64 = 16 * LINES as u64;
/// Of encodings up to this length the translation table holds all ("less than 120 bits").
const TRIVIAL_BYTES_MAX: u16 = 14;

/// A frame of real memory.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Whose it is; nobody's if it is free.
    page: Option<u64>,
    /// Of its lines' encodings, as they are in memory.
    lengths: [u16; LINES],
    /// Since the hand has passed.
    is_used: bool,
    /// Since it came, or if the device does not have it.
    is_written: bool,
}

/// The memory.
#[derive(Debug)]
pub(super) struct Memory {
    frames: Vec<Frame>,
    places: HashMap<u64, u32>,
    free: Vec<u32>,
    frames_max: u64,
    hand: usize,
    sectors: u64,
    sectors_used: u64,
}

/// Whether a line of this length has to be decoded: not one that is in the translation table, nor one that is as it was.
pub(super) fn is_decoded(length: u16) -> bool {
    length > TRIVIAL_BYTES_MAX && u64::from(length) < LINE_BYTES
}

impl Memory {
    /// "The Compression Translation Table is placed by BIOS at the end of the physical memory": it has entries for all real lines.
    pub(super) fn new(physical: ByteCount, real: ByteCount) -> Self {
        let frames_max = real.0 / PAGE_BYTES as u64;
        let sectors = (physical.0 - frames_max * TABLE_BYTES_PER_PAGE) / SECTOR_BYTES;
        let (frames, places, free) = (Vec::new(), HashMap::new(), Vec::new());
        Self { frames, places, free, frames_max, hand: 0, sectors, sectors_used: 0 }
    }

    /// The number in real memory of a line of a frame.
    pub(super) const fn line(frame: u32, line: usize) -> u32 {
        frame * LINES as u32 + line as u32
    }

    pub(super) fn frame_of(&self, page: u64) -> Option<u32> {
        self.places.get(&page).copied()
    }

    /// Sectors that there are.
    pub(super) const fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) const fn free_sectors(&self) -> u64 {
        self.sectors - self.sectors_used
    }

    /// Pages that real memory has room for.
    pub(super) const fn pages_max(&self) -> u64 {
        self.frames_max
    }

    /// Pages that have a frame.
    pub(super) fn pages(&self) -> u64 {
        self.places.len() as u64
    }

    pub(super) fn real_bytes(&self) -> u64 {
        self.pages() * PAGE_BYTES as u64
    }

    /// What the register of sectors in use tells, and the table's entries for pages that are given out.
    pub(super) fn physical_bytes(&self) -> u64 {
        self.sectors_used * SECTOR_BYTES + self.pages() * TABLE_BYTES_PER_PAGE
    }

    /// A frame for a page; there must be one. `is_new` is a page that the device does not have.
    pub(super) fn take(&mut self, page: u64, is_new: bool) -> u32 {
        let frame = self.free.pop().unwrap_or(self.frames.len() as u32);
        let taken = Frame { page: Some(page), lengths: [0; LINES], is_used: true, is_written: is_new };
        if frame as usize == self.frames.len() {
            assert!(u64::from(frame) < self.frames_max, "more pages than real memory");
            self.frames.push(taken);
        } else {
            self.frames[frame as usize] = taken;
        }
        self.places.insert(page, frame);
        frame
    }

    pub(super) fn note_use(&mut self, frame: u32, is_write: bool) {
        let frame = &mut self.frames[frame as usize];
        frame.is_used = true;
        frame.is_written |= is_write;
    }

    pub(super) fn length(&self, line: u32) -> u16 {
        self.frames[line as usize / LINES].lengths[line as usize % LINES]
    }

    /// A line is written back.
    pub(super) fn set_length(&mut self, line: u32, length: u16) {
        let lengths = &mut self.frames[line as usize / LINES].lengths;
        self.sectors_used -= sectors_of(*lengths);
        lengths[line as usize % LINES] = length;
        self.sectors_used += sectors_of(*lengths);
        assert!(self.sectors_used <= self.sectors, "physical memory is exhausted");
    }

    /// Turns the hand to the frame that goes next: one that was not used since it last passed. None if there is no page.
    pub(super) fn turn(&mut self) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        loop {
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if frame.page.is_some() && !std::mem::take(&mut frame.is_used) {
                return Some(self.hand as u32);
            }
        }
    }

    /// Whether the device does not have the page as it is now.
    pub(super) fn is_written(&self, frame: u32) -> bool {
        self.frames[frame as usize].is_written
    }

    /// "Fills those freed pages with zeros to reduce physical memory utilization": at once, the zeros do not wait in the cache.
    /// Returns whose the frame was.
    pub(super) fn zero(&mut self, frame: u32) -> u64 {
        let freed = &mut self.frames[frame as usize];
        let page = freed.page.take().expect("a frame that is somebody's");
        self.sectors_used -= sectors_of(freed.lengths);
        freed.lengths = [0; LINES];
        self.places.remove(&page);
        self.free.push(frame);
        page
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The register of sectors in use is the sum over all pages, whatever happened.
        #[test]
        fn sectors_add_up(steps in prop::collection::vec((0_u64..30, 0_usize..LINES, 0_u16..=1024, 0_u8..8), 1..300)) {
            let mut memory = Memory::new(ByteCount(1 << 20), ByteCount(2 << 20));
            let mut plain: HashMap<u64, [u16; LINES]> = HashMap::new();
            for (page, line, length, kind) in steps {
                match (memory.frame_of(page), kind) {
                    (Some(frame), 0) => {
                        prop_assert_eq!(memory.zero(frame), page);
                        plain.remove(&page);
                    }
                    (frame, _) => {
                        let frame = frame.unwrap_or_else(|| memory.take(page, true));
                        memory.set_length(Memory::line(frame, line), length);
                        plain.entry(page).or_default()[line] = length;
                    }
                }
                let sectors: u64 = plain.values().map(|lengths| sectors_of(*lengths)).sum();
                prop_assert_eq!(memory.sectors() - memory.free_sectors(), sectors);
                prop_assert_eq!(memory.physical_bytes(), sectors * 256 + plain.len() as u64 * 64);
                prop_assert_eq!(memory.real_bytes(), plain.len() as u64 * 4096);
            }
        }
    }

    /// "The Compression Translation Table ... occupies about 8 MB space (16 bytes/cache line or 64 bytes/page) in the physical
    /// memory": of 512 MB for 1 GB that are 16 MB; the paper's 8 MB are one entry for each physical line.
    #[test]
    fn the_table_has_an_entry_for_each_real_line() {
        let memory = Memory::new(ByteCount(512 << 20), ByteCount(1 << 30));
        assert_eq!(memory.sectors() * SECTOR_BYTES, (512 << 20) - (1 << 20) * 16);
    }

    /// The hand takes what was not used since it passed, and tells what the device does not have.
    #[test]
    fn used_pages_stay() {
        let mut memory = Memory::new(ByteCount(1 << 20), ByteCount(2 << 20));
        let frames: Vec<u32> = (0..4).map(|page| memory.take(page, page == 3)).collect();
        assert_eq!(memory.turn(), Some(frames[1]));
        assert!(!memory.is_written(frames[1]) && memory.is_written(frames[3]));
        assert_eq!(memory.zero(frames[1]), 1);
        memory.note_use(frames[2], true);
        assert_eq!((memory.turn(), memory.zero(frames[3])), (Some(frames[3]), 3));
        assert_eq!((memory.turn(), memory.zero(frames[0])), (Some(frames[0]), 0));
        assert!(memory.is_written(frames[2]));
        assert_eq!((memory.turn(), memory.zero(frames[2])), (Some(frames[2]), 2));
        assert_eq!((memory.turn(), memory.pages()), (None, 0));
    }
}
