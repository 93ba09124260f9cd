//! Segments as they are opened, freed, and given new buffers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{LogFull, Open, PLAINS_MAX, Readable, SPARE_BUFFERS_MAX, SPARE_PLAINS_MAX, SegmentLog};
use crate::buffer::AlignedBytes;
use crate::job::Source;
use crate::segment::{Home, Plain, SEGMENTS_MAX, Segment, State, entries_max, extent_bytes};

impl SegmentLog {
    pub(super) fn segment(&self, number: u32) -> &Segment {
        self.segments[number as usize].as_ref().expect("a segment in use")
    }

    pub(super) fn segment_mut(&mut self, number: u32) -> &mut Segment {
        self.segments[number as usize].as_mut().expect("a segment in use")
    }

    pub(super) fn own_readable(&mut self) -> &mut Readable {
        self.readables[self.own].as_mut().expect("our own store stays")
    }

    pub(super) fn own_source(&mut self) -> &Arc<Source> {
        &self.own_readable().source
    }

    /// Free places that no segment in memory will need.
    pub(super) fn places_to_spare(&self) -> u32 {
        let wanted = self.sealed.len() + usize::from(self.open.is_some());
        self.places.free().saturating_sub(wanted as u32)
    }

    /// Whether there are a place and a number for one more segment, with `reserve` places to be left.
    pub(super) fn has_free_segment(&self, reserve: u32) -> bool {
        let has_number = !self.free_numbers.is_empty() || self.segments.len() < SEGMENTS_MAX;
        self.places_to_spare() > reserve && has_number
    }

    pub(super) fn open_segment(&mut self, reserve: u32) -> Result<(), LogFull> {
        assert!(self.open.is_none());
        if !self.has_free_segment(reserve) {
            return Err(LogFull::NoSegment);
        }
        if self.sealed.len() + self.writing + 1 >= PLAINS_MAX {
            return Err(LogFull::WritesBehind);
        }
        let number = self.free_numbers.pop().unwrap_or(self.segments.len() as u32);
        if number as usize == self.segments.len() {
            self.segments.push(None);
            // Room for all that may be freed, so that `discard` does not allocate.
            self.free_numbers.reserve(self.segments.len() - self.free_numbers.len());
        }
        let entries = Vec::with_capacity(entries_max(self.segment_bytes));
        self.totals.table_entries += entries.capacity() as u64;
        self.segments[number as usize] = Some(Segment::new(entries));
        let plain = self.spare_plains.pop().unwrap_or_else(|| {
            self.totals.plains += 1;
            Plain::new(self.segment_bytes)
        });
        self.open = Some(Open { number, plain });
        Ok(())
    }

    /// Frees a segment that nobody needs any more.
    pub(super) fn free_if_idle(&mut self, number: u32) {
        let is_last_to_fail = self.failed == 1;
        let segment = self.segment_mut(number);
        if segment.live_entries > 0 || segment.readers > 0 {
            return;
        }
        match segment.state {
            State::Open => {
                // It starts again: all keys of its entries are dead.
                segment.entries.clear();
                self.open.as_mut().expect("a segment is open").plain.clear();
            }
            State::Writing(_) => {} // `finish_write` will come back here.
            // It is written all the same: nothing else shows whether the medium takes segments again.
            State::Sealed(_) if segment.failed && is_last_to_fail => {}
            State::Sealed(_) | State::Disk(_) => self.free_segment(number),
        }
    }

    pub(super) fn free_segment(&mut self, number: u32) {
        self.forgive(number);
        let segment = self.segments[number as usize].take().expect("a segment in use");
        self.totals.table_entries -= segment.entries.capacity() as u64;
        self.free_numbers.push(number);
        match segment.state {
            State::Sealed(plain) => {
                self.sealed.retain(|&waiting| waiting != number);
                self.recycle(plain);
            }
            State::Disk(home) => self.leave(home),
            State::Open | State::Writing(_) => unreachable!("segment {number} is still needed"),
        }
    }

    /// A segment's bytes on a medium are not needed any more.
    pub(super) fn leave(&mut self, home: Home) {
        let slot = &mut self.readables[home.source];
        let readable = slot.as_mut().expect("its segments keep a store");
        readable.segments -= 1;
        if home.source == self.own {
            self.totals.own_disk_segments -= 1;
            self.places.release(home.place, home.born);
            return;
        }
        if readable.segments == 0 {
            *slot = None; // The last we needed of an ancestor's file.
        }
        self.totals.foreign_segments -= 1;
    }

    /// The segment's failed write does not matter any more.
    pub(super) fn forgive(&mut self, number: u32) {
        if core::mem::take(&mut self.segment_mut(number).failed) {
            self.failed -= 1;
        }
        if self.failed == 0 {
            self.trouble = None;
            self.is_held = false;
        }
    }

    pub(super) fn recycle(&mut self, plain: Arc<Plain>) {
        // Shared still: its other holder is a thread that the fork left behind. Then it is lost, and stays counted.
        let Some(mut plain) = Arc::into_inner(plain) else { return };
        if self.spare_plains.len() < SPARE_PLAINS_MAX {
            plain.clear();
            self.spare_plains.push(plain);
        } else {
            self.totals.plains -= 1;
        }
    }

    pub(super) fn take_buffer(&mut self) -> AlignedBytes {
        self.spare_buffers.pop().unwrap_or_else(|| {
            self.totals.buffers += 1;
            AlignedBytes::new(self.segment_bytes)
        })
    }

    pub(super) fn put_buffer(&mut self, buffer: AlignedBytes) {
        if self.spare_buffers.len() < SPARE_BUFFERS_MAX {
            self.spare_buffers.push(buffer);
        } else {
            self.totals.buffers -= 1;
        }
    }

    /// Whether the cleaner could append that much: in the open segment, or in one more.
    pub(super) fn has_room_to_clean(&self, bytes: usize, entries: usize) -> bool {
        let fits = |open: &Open| {
            let (bytes_left, entries_left) = open.plain.room();
            // An encoding does not cross into the next segment, so that the end may stay unused.
            bytes + extent_bytes(crate::ENCODING_BYTES_MAX) <= bytes_left && entries <= entries_left
        };
        self.open.as_ref().is_some_and(fits)
            || (self.places_to_spare() > 0 && self.sealed.len() + self.writing + 1 < PLAINS_MAX)
    }
}
