//! The log in numbers, and its invariants.

use alloc::vec::Vec;

use super::{Readable, SegmentLog, Totals};
use crate::buffer::AlignedBytes;
use crate::segment::{Entry, Plain, Segment, State};

/// The log in numbers. The first group is now, the last two count from the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogFigures {
    /// Live encodings.
    pub entries: u64,
    /// Of these, not yet on any medium.
    pub memory_entries: u64,
    /// What live encodings take, with tags and padding.
    pub live_bytes: u64,
    /// Bytes of our segments on disk that hold nothing live.
    pub dead_bytes: u64,
    /// Blocks of our file that the file system holds for us, those of free places included.
    pub file_bytes: u64,
    /// The most that our file may take.
    pub file_bytes_max: u64,
    /// Our segments on disk.
    pub segments: u64,
    /// Segments in files of ancestors. At zero they may release their pins.
    pub foreign_segments: u64,
    /// RAM: buffers of segments on their way.
    pub buffer_bytes: u64,
    /// RAM: tables.
    pub metadata_bytes: u64,
    /// Written to the medium.
    pub written_bytes: u64,
    /// Read from the medium.
    pub read_bytes: u64,
}

impl SegmentLog {
    /// The log in numbers.
    pub fn figures(&self) -> LogFigures {
        let totals = &self.totals;
        let segment_bytes = self.segment_bytes as u64;
        let stored_places = totals.own_disk_segments + (self.places.stored() + self.places.in_limbo()) as u64;
        let buffer_bytes = AlignedBytes::memory_bytes(self.segment_bytes) as u64;
        let plain_bytes = Plain::memory_bytes(self.segment_bytes) as u64;
        LogFigures {
            entries: totals.live_entries,
            memory_entries: totals.memory_entries,
            live_bytes: totals.live_bytes,
            dead_bytes: totals.own_disk_segments * segment_bytes - totals.own_disk_live_bytes,
            file_bytes: stored_places * segment_bytes,
            file_bytes_max: u64::from(self.places.capacity()) * segment_bytes,
            segments: totals.own_disk_segments,
            foreign_segments: totals.foreign_segments,
            buffer_bytes: totals.plains * plain_bytes + totals.buffers * buffer_bytes,
            metadata_bytes: self.metadata_bytes(),
            written_bytes: totals.written_bytes,
            read_bytes: totals.read_bytes,
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let rows = self.segments.capacity() * size_of::<Option<Segment>>();
        let numbers = self.free_numbers.capacity() * size_of::<u32>();
        let readables = self.readables.capacity() * size_of::<Option<Readable>>();
        let tables = self.totals.table_entries * size_of::<Entry>() as u64;
        tables + (rows + numbers + readables + self.places.memory_bytes()) as u64
    }

    /// Asserts what must hold between the calls. Walks everything.
    pub fn check(&self) {
        let mut sums = Totals::default();
        let mut home_counts = alloc::vec![0; self.readables.len()];
        let (mut writing, mut failed) = (0, 0);
        let mut places = alloc::vec![false; self.places.capacity() as usize];
        for (number, segment) in self.segments.iter().enumerate() {
            let Some(segment) = segment else { continue };
            self.check_segment(number as u32, segment);
            failed += usize::from(segment.failed);
            sums.live_entries += u64::from(segment.live_entries);
            sums.live_bytes += u64::from(segment.live_bytes);
            sums.table_entries += segment.entries.capacity() as u64;
            let State::Disk(home) = segment.state else {
                sums.memory_entries += u64::from(segment.live_entries);
                writing += usize::from(matches!(segment.state, State::Writing(_)));
                continue;
            };
            home_counts[home.source] += 1;
            if home.source == self.own {
                sums.own_disk_segments += 1;
                sums.own_disk_live_bytes += u64::from(segment.live_bytes);
                assert!(!core::mem::replace(&mut places[home.place as usize], true), "two segments in one place");
            } else {
                sums.foreign_segments += 1;
            }
        }
        let Totals { plains, buffers, written_bytes, read_bytes, .. } = self.totals;
        assert_eq!(self.totals, Totals { plains, buffers, written_bytes, read_bytes, ..sums });
        assert_eq!((writing, failed), (self.writing, self.failed));
        assert!(self.trouble.is_some() == (failed > 0) && (!self.is_held || failed > 0));
        self.places.for_each_idle(|place| {
            assert!(!core::mem::replace(&mut places[place as usize], true), "place {place} is free twice, or in use");
        });
        for (readable, count) in self.readables.iter().zip(home_counts) {
            assert_eq!(readable.as_ref().map_or(0, |readable| readable.segments), count);
        }
        let used: Vec<_> = self.segments.iter().flatten().collect();
        assert_eq!(used.len() + self.free_numbers.len(), self.segments.len());
    }

    fn check_segment(&self, number: u32, segment: &Segment) {
        let (mut entries, mut bytes, mut end) = (0, 0, 0);
        for entry in &segment.entries {
            let extent = entry.extent();
            assert!(extent.start() >= end, "extents overlap");
            end = extent.start() + extent.bytes();
            if entry.owner().is_some() {
                entries += 1;
                bytes += extent.bytes();
            }
        }
        assert!(end <= self.segment_bytes);
        assert_eq!((entries, bytes), (segment.live_entries, segment.live_bytes as usize), "segment {number}");
        let is_open = self.open.as_ref().is_some_and(|open| open.number == number);
        assert_eq!(matches!(segment.state, State::Open), is_open);
        assert_eq!(matches!(segment.state, State::Sealed(_)), self.sealed.contains(&number));
        let may_be_dead = is_open || segment.readers > 0 || matches!(segment.state, State::Writing(_));
        // The last one to fail is kept for the next attempt, and goes with that where another one has failed since.
        assert!(entries > 0 || may_be_dead || segment.failed, "segment {number} holds nothing and is not free");
        if let State::Sealed(plain) | State::Writing(plain) = &segment.state {
            assert_eq!(plain.extents().len(), segment.entries.len());
        }
    }
}
