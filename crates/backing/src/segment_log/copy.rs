//! A fork as the log sees it: a copy of everything, in which the files are the same ones and the jobs are nobody's.

use alloc::sync::Arc;

use super::{Open, Readable, SegmentLog};
use crate::segment::{Plain, Segment, State};

impl SegmentLog {
    /// What a forked child finds, before it calls `fork_child`.
    pub(crate) fn forked_copy(&self) -> Self {
        let mut totals = self.totals;
        totals.buffers -= self.spare_buffers.len() as u64;
        Self {
            segment_bytes: self.segment_bytes,
            segments: self.segments.iter().map(|segment| segment.as_ref().map(copy_of_segment)).collect(),
            free_numbers: self.free_numbers.clone(),
            open: self.open.as_ref().map(|open| Open { number: open.number, plain: open.plain.clone() }),
            sealed: self.sealed.clone(),
            writing: self.writing,
            readables: self
                .readables
                .iter()
                .map(|readable| {
                    let readable = readable.as_ref()?;
                    Some(Readable { source: readable.source.clone(), segments: readable.segments })
                })
                .collect(),
            own: self.own,
            places: self.places.clone(),
            sequence: self.sequence,
            era: self.era,
            trouble: self.trouble,
            failed: self.failed,
            is_held: self.is_held,
            doubt: self.doubt,
            cleaning: self.cleaning,
            vain_search: self.vain_search,
            spare_plains: self.spare_plains.clone(),
            spare_buffers: alloc::vec::Vec::new(),
            totals,
        }
    }

    /// The sequence number of the last write.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }
}

fn copy_of_segment(segment: &Segment) -> Segment {
    let copy = |plain: &Plain| Arc::new(plain.clone());
    let state = match &segment.state {
        State::Open => State::Open,
        State::Sealed(plain) => State::Sealed(copy(plain)),
        State::Writing(plain) => {
            let plain = copy(plain);
            // The writer's reference is copied too, and the writer is not.
            core::mem::forget(plain.clone());
            State::Writing(plain)
        }
        State::Disk(home) => State::Disk(*home),
    };
    let mut entries = alloc::vec::Vec::with_capacity(segment.entries.capacity());
    entries.extend_from_slice(&segment.entries);
    Segment { state, entries, ..*segment }
}
