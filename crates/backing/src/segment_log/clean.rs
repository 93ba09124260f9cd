//! Cleaning: what is alive in a segment that is mostly dead moves to the open segment, and the place is free again.
//!
//! Greedy: the segment with the fewest live bytes first. (Cost-benefit selection by age, as in the paper, pays where
//! hot and cold data share segments; here the cache above has already kept what is hot.)

use alloc::vec::Vec;

use page::PageIndex;

use super::{RESERVE, SegmentLog, Totals};
use crate::job::{CleanJob, Survivor, Ticket};
use crate::segment::{BackingKey, Home, State};

/// Cleaning starts when fewer than 1/n of the places are free, or fewer than this many. What is kept free the live
/// entries cannot spread over: at 85 % utilisation a share of 1/16 made cleaning write 5.5 bytes for each byte
/// appended, 1/32 makes it 4.3.
const FREE_SHARE: u32 = 32;
const FREE_MAX: u32 = 16;
/// Or it starts when dead bytes on disk exceed the live ones by this many segments: the file is then twice what it need be.
const DEAD_SEGMENTS_MIN: u64 = 8;
/// A segment with less than 1/n to gain is not worth reading and writing.
const GAIN_SHARE: u32 = 16;

/// What cleaning a segment came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleaned {
    /// The segment holds nothing any more. Its place is free unless a reader or a child's pin keeps it.
    pub is_empty: bool,
    /// Live entries that stay in it: unreadable ones, and those for which there was no room.
    pub entries_left: u32,
}

impl SegmentLog {
    /// A segment to be cleaned, if free ones run low or too much of the file is dead. One at a time.
    pub fn clean(&mut self) -> Option<CleanJob> {
        if self.cleaning.is_some() || self.trouble.is_some() || !self.wants_cleaning() || self.search_is_vain() {
            return None;
        }
        let Some((number, home)) = self.victim() else {
            self.vain_search = Some((self.totals.own_disk_segments, self.totals.own_disk_live_bytes));
            return None;
        };
        let segment = self.segment(number);
        let mut survivors = Vec::with_capacity(segment.live_entries as usize);
        for (entry, word) in segment.entries.iter().enumerate() {
            if word.owner().is_some() {
                survivors.push(Survivor { entry: entry as u16, extent: word.extent(), sound: false });
            }
        }
        self.segment_mut(number).readers += 1;
        self.cleaning = Some(number);
        Some(CleanJob {
            ticket: Ticket { era: self.era, number },
            source: self.own_source().clone(),
            home,
            survivors,
            moved: 0,
            buffer: self.take_buffer(),
            has_run: false,
        })
    }

    /// Moves up to `entries_max` of the job's entries and tells each move: `moved(owner, from, to)`, where `from` is
    /// dead from then on. Entries that have been discarded meanwhile are passed over. False when there is nothing left
    /// to do but [`Self::finish_clean`]. Lets the caller give up its lock now and then.
    pub fn clean_some(
        &mut self,
        job: &mut CleanJob,
        entries_max: usize,
        moved: &mut dyn FnMut(PageIndex, BackingKey, BackingKey),
    ) -> bool {
        assert_eq!(job.ticket.era, self.era, "a clean job of before the fork");
        let number = job.ticket.number;
        for _ in 0..entries_max {
            let Some(survivor) = job.survivors.get(job.moved) else { return false };
            let entry = usize::from(survivor.entry);
            if let Some(owner) = self.segment(number).entries[entry].owner()
                && survivor.sound
            {
                let start = survivor.extent.start();
                let encoding = &job.buffer[start..start + survivor.extent.encoding_bytes()];
                let Ok(to) = self.append_leaving(0, owner, encoding) else { return false };
                let from = BackingKey::new(number, entry);
                self.discard(from);
                moved(owner, from, to);
            }
            job.moved += 1;
        }
        job.moved < job.survivors.len()
    }

    /// Moves the job's entries, as far as [`Self::clean_some`] has not, and takes the job back.
    pub fn finish_clean(
        &mut self,
        mut job: CleanJob,
        moved: &mut dyn FnMut(PageIndex, BackingKey, BackingKey),
    ) -> Cleaned {
        self.clean_some(&mut job, usize::MAX, moved);
        assert_eq!(self.cleaning.take(), Some(job.ticket.number), "one segment is cleaned at a time");
        if job.has_run {
            self.totals.read_bytes += job.bytes() as u64;
        }
        let is_unsound = job.has_run && job.survivors.iter().any(|survivor| !survivor.sound);
        let number = job.ticket.number;
        self.put_buffer(job.buffer);
        let segment = self.segment_mut(number);
        segment.damaged |= is_unsound;
        let entries_left = segment.live_entries;
        self.end_reading(number);
        Cleaned { is_empty: entries_left == 0, entries_left }
    }

    fn wants_cleaning(&self) -> bool {
        let is_short = self.places_to_spare() < (self.places.capacity() / FREE_SHARE).clamp(RESERVE + 2, FREE_MAX);
        let disk_bytes = self.totals.own_disk_segments * self.segment_bytes as u64;
        let live = self.totals.own_disk_live_bytes;
        is_short || disk_bytes - live > live + DEAD_SEGMENTS_MIN * self.segment_bytes as u64
    }

    /// Nothing has changed enough since the last search, which found nothing. Callers may ask after every page.
    fn search_is_vain(&self) -> bool {
        let gain = (self.segment_bytes / GAIN_SHARE as usize) as u64;
        let Totals { own_disk_segments, own_disk_live_bytes, .. } = self.totals;
        self.vain_search
            .is_some_and(|(segments, live)| segments == own_disk_segments && live < own_disk_live_bytes + gain)
    }

    /// The segment that gives most, if there is room for what is alive in it. One pass over the table for a segment's worth of cleaning.
    fn victim(&self) -> Option<(u32, Home)> {
        let live_bytes_max = self.segment_bytes as u32 / GAIN_SHARE * (GAIN_SHARE - 1);
        let mut best: Option<(u32, u32, Home)> = None;
        for (number, segment) in self.segments.iter().enumerate() {
            let Some(segment) = segment else { continue };
            let State::Disk(home) = segment.state else { continue };
            // A foreign place is not ours to free, a covered one would not become free, and one that is as good as
            // dead waits for its readers only.
            let is_ours = home.source == self.own && !self.places.is_covered(home.born);
            let best_bytes = best.map_or(live_bytes_max + 1, |(bytes, ..)| bytes);
            if is_ours && !segment.damaged && segment.live_entries > 0 && segment.live_bytes < best_bytes {
                best = Some((segment.live_bytes, number as u32, home));
            }
        }
        let (live_bytes, number, home) = best?;
        let live_entries = self.segment(number).live_entries as usize;
        self.has_room_to_clean(live_bytes as usize, live_entries).then_some((number, home))
    }
}
