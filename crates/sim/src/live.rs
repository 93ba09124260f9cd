//! The live pager's parts, driven in its order: what moves out, what waits, what comes back.
//!
//! Hand, page table and ring are those of `cache`; ages, streams and what is dropped behind walks those of `policy`. Only the
//! order of calls is told again here, from `crates/pager`, and its numbers, which it keeps to itself.

use cache::ring::{Ring, frames_for};
use cache::{Cache, Hand};
use page::{FrameIndex, PageCount, PageIndex};
use policy::drop_behind::{DropBehind, Run, Victim};
use policy::prefetch::{Descents, Streams};
use policy::replacement::{Age, Arrival};
use store::Store;
use trace::Reference;

use crate::PlayError;

/// Pages encoded at a time.
pub const ENCODE_BATCH: usize = 64;
/// Pages moved at a time, live.
pub const MOVE_BATCH: PageCount = PageCount(32);
/// Pages that the hand passes at a time.
const LOOKS_MAX: u64 = 4096;
/// The part of what may wait that a walk may use again, as a divisor.
const LAG_DIVISOR: u64 = 2;

/// Whether pleat's page table has room for these pages.
pub(crate) fn check_addresses(batch: &[Reference]) -> Result<(), PlayError> {
    let beyond = batch.iter().find(|reference| reference.page >= PageIndex::END);
    beyond.map_or(Ok(()), |reference| Err(PlayError::Beyond(reference.page)))
}

/// A program's memory under pleat.
pub struct Live<S> {
    /// Where its pages are.
    pub cache: Cache<S>,
    /// Those that wait to be encoded.
    pub ring: Ring,
    /// Walks upwards, by their faults.
    pub streams: Streams,
    /// Walks downwards.
    pub descents: Descents,
    /// Pages moved at a time.
    pub move_batch: PageCount,
    hand: Hand,
    behind: DropBehind,
}

impl<S: Store> Live<S> {
    /// For a memory of `size`. Below the smallest budget, 4096 pages, which is for comparisons only, a quarter may wait.
    pub fn new(cache: Cache<S>, size: PageCount) -> Self {
        let frames = frames_for(size).min(PageCount((size.0 / 4).max(1)));
        let behind = DropBehind::new(PageCount(frames.0 / LAG_DIVISOR));
        let ring = Ring::new(frames);
        let (streams, descents) = (Streams::default(), Descents::default());
        Self { cache, ring, streams, descents, hand: Hand::default(), behind, move_batch: MOVE_BATCH }
    }

    /// Pages in memory as they are.
    pub fn held(&self) -> PageCount {
        self.cache.census().resident + self.ring.held()
    }

    /// Moves a run of pages to the ring and returns it, of no length if the hand only made pages younger; `None` if the ring is
    /// full or no page is left.
    pub fn move_out(&mut self) -> Option<Run> {
        let room = self.ring.room(self.move_batch);
        if room.count == 0 || self.cache.census().resident == PageCount::ZERO {
            return None;
        }
        let Some((first, count, victim)) = self.victims(PageCount(room.count as u64)) else {
            return Some(Run { start: PageIndex(0), count: PageCount::ZERO });
        };
        self.wait(Run { start: first, count });
        self.behind.evicted(first, victim);
        Some(Run { start: first, count })
    }

    /// Moves a run of resident pages to the ring, which has room in a row for them.
    pub fn wait(&mut self, run: Run) {
        let room = self.ring.room(run.count);
        for (step, frame) in room.frames().enumerate() {
            self.cache.leave(run.start + PageCount(step as u64), frame);
        }
        self.ring.filled(room.first, run.start, run.count);
    }

    /// The next run to go, and who has chosen it.
    fn victims(&mut self, run_max: PageCount) -> Option<(PageIndex, PageCount, Victim)> {
        while let Some(passed) = self.behind.next_run() {
            if let Some((page, count)) = self.cache.resident_run(passed.start, passed.count, Age::TOUCHED) {
                return Some((page, count.min(run_max), Victim::Passed));
            }
        }
        let (page, count) = self.cache.victims(&mut self.hand, run_max, LOOKS_MAX)?;
        Some((page, count, Victim::Hand))
    }

    /// A page that waits in `frame` is touched.
    pub fn take_back(&mut self, page: PageIndex, frame: FrameIndex) {
        self.windows(page);
        self.ring.vacate(frame);
        self.cache.settle(page, Arrival::Recalled);
        self.behind.brought(Run { start: page, count: PageCount(1) }, PageCount(1));
    }

    /// Pages wanted for a fault, from it on and below it.
    pub fn windows(&mut self, page: PageIndex) -> (PageCount, PageCount) {
        (self.streams.window(page), self.descents.window(page))
    }

    /// Pages from `start` on have been brought back, where `window` were wanted.
    pub fn brought(&mut self, start: PageIndex, count: PageCount, window: PageCount) {
        self.behind.brought(Run { start, count }, window);
    }
}
