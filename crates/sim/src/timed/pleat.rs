//! `pleat run` on a clock of its own: the live cache, hand, ring, watermarks, prefetch and segment log.

use backing::{BackingError, BackingStore, SegmentLog};
use cache::{Cache, Lookup, Outcome, Place};
use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use policy::replacement::Age;
use policy::sizing::{self, Watermarks};
use store::Slabs;

use super::{Keeper, Run};
use crate::live::{ENCODE_BATCH, Live};

/// What an agent takes for itself, and the most that counts of it in small memories.
const AGENT_BYTES: u64 = 2 << 20;
const AGENT_DIVISOR: u64 = 8;
/// Address space of the store.
const STORE_BYTES_MAX: usize = 1 << 36;
/// The part of the pool that may lie idle before it is compacted, as in the pager.
const IDLE_DIVISOR: u64 = 16;
/// The segment log's place is never used again here: nothing reads back what was written.
const LOG_BYTES_MAX: u64 = 1 << 43;

/// A medium without content. What is read from it is never looked at: only times count.
struct Nothing;

impl BackingStore for Nothing {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), BackingError> {
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), BackingError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) {}

    fn bytes_max(&self) -> u64 {
        LOG_BYTES_MAX
    }
}

/// pleat.
pub(super) struct Pleat {
    share: ByteCount,
    marks: Watermarks,
    agent: ByteCount,
    live: Live,
    /// When the reclaimer has done what it was woken for.
    reclaimed_at_ns: f64,
    copy: Box<[u8; PAGE_BYTES]>,
}

impl Pleat {
    pub(super) fn new(share: ByteCount) -> Self {
        let store = Slabs::new(STORE_BYTES_MAX).expect("address space");
        let log = SegmentLog::new(Box::new(Nothing), [0; 32], LOG_BYTES_MAX);
        Self {
            share,
            marks: Watermarks::of(share),
            agent: ByteCount(AGENT_BYTES.min(share.0 / AGENT_DIVISOR)),
            live: Live::new(Cache::new(store, Some(log)), PageCount(share.0 / PAGE_BYTES as u64)),
            reclaimed_at_ns: 0.0,
            copy: Box::new([0; PAGE_BYTES]),
        }
    }

    fn free(&self) -> i64 {
        let held = self.live.held().bytes() + self.pool() + self.live.cache.metadata_bytes() + self.agent;
        self.share.0 as i64 - held.0 as i64
    }

    fn pool(&self) -> ByteCount {
        self.live.cache.store_figures().pool
    }

    /// Serves a fault on a page that is stored, and brings those behind it along.
    fn bring_stored(&mut self, run: &mut Run<'_>, page: PageIndex) {
        let machine = run.setup.machine;
        let window = self.live.streams.window(page);
        let is_stored = |place| matches!(place, Place::SameFilled(_) | Place::Compressed(_) | Place::Incompressible(_));
        let mut count = PageCount::ZERO;
        while count < window && is_stored(self.live.cache.place(page + count)) {
            let (next, is_asked_for) = (page + count, count == PageCount::ZERO);
            if matches!(self.live.cache.place(next), Place::Compressed(_)) {
                run.pass(&machine.decode);
            }
            run.pass(&machine.fill);
            run.prefetched += u64::from(!is_asked_for);
            self.live.cache.settle(next, if is_asked_for { Age::TOUCHED } else { Age::NONE });
            count += PageCount(1);
        }
        self.live.brought(page, count, window);
    }

    fn bring_below(&mut self, run: &mut Run<'_>, page: PageIndex) {
        let machine = run.setup.machine;
        let window = self.live.streams.window(page);
        match self.live.cache.look_up(page, &mut self.copy) {
            Lookup::Backed(job) => {
                run.faults.backed += 1;
                run.read(job.bytes() as u64);
                self.live.cache.finish_read(job);
            }
            _ => run.faults.compressed += 1,
        }
        run.pass(&machine.decode);
        run.pass(&machine.fill);
        self.live.cache.settle(page, Age::TOUCHED);
        self.live.brought(page, PageCount(1), window);
    }

    /// What the reclaimer does once it is woken: until the high mark is reached, or nothing helps.
    fn reclaim(&mut self, run: &mut Run<'_>) {
        let machine = run.setup.machine;
        let mut work_ns = 0.0;
        loop {
            let free = self.free();
            if free >= self.marks.high.0 as i64 {
                break;
            }
            let moved = if self.live.ring.is_stocked() { None } else { self.live.move_out() };
            work_ns += moved.map_or(0, |count| count.0) as f64 * machine.move_out.ns;
            let encoded = if moved.is_none() { self.encode(run, &mut work_ns) } else { 0 };
            let written = self.write_back(run, free);
            if moved.is_none() && encoded == 0 && !written {
                break;
            }
        }
        if machine.processors < 2 {
            run.now_ns += work_ns;
        }
        // What the reclaimer and the device are behind with lies in the room between the marks; then the program waits.
        let slack = PageCount((self.marks.low.0 - self.marks.min.0) / PAGE_BYTES as u64);
        let behind_ns = slack.0 as f64 * (machine.move_out.ns + machine.encode.ns);
        self.reclaimed_at_ns = self.reclaimed_at_ns.max(run.now_ns) + work_ns;
        if machine.processors >= 2 {
            run.wait_until(self.reclaimed_at_ns - behind_ns);
        }
        run.wait_until(run.queue.has_written_ns(slack.bytes().0));
    }

    /// Encodes a batch; returns its frames.
    fn encode(&mut self, run: &Run<'_>, work_ns: &mut f64) -> usize {
        let window = self.live.ring.take(ENCODE_BATCH);
        for frame in window.frames() {
            let Some(page) = self.live.ring.page(frame) else { continue };
            *work_ns += run.setup.machine.encode.ns;
            let raw = page::PageBytes::ZERO;
            let outcome = match run.lengths.of(page) {
                0 => Outcome::SameFilled(0),
                PAGE_BYTES.. => Outcome::Incompressible(&raw),
                length => Outcome::Encoded(&self.copy[..length]),
            };
            self.live.cache.publish(page, frame, outcome);
        }
        self.live.ring.freed(window);
        window.count
    }

    /// Writes back what the pool has no room for; says whether anything went.
    fn write_back(&mut self, run: &mut Run<'_>, free: i64) -> bool {
        let over = self.pool().saturating_sub(sizing::pool_bytes_max(self.share));
        let is_bare = self.live.held().bytes() <= ByteCount(self.share.0 / 64);
        let short = if is_bare { sizing::reclaim_goal(free, self.marks) } else { ByteCount::ZERO };
        let goal = over.max(short);
        if goal == ByteCount::ZERO {
            return false;
        }
        let before = self.live.cache.census().below;
        let done = self.live.cache.write_back(goal, u64::MAX);
        run.pages_swapped_out += (self.live.cache.census().below - before).0;
        while let Some(job) = self.live.cache.log().and_then(SegmentLog::write_job) {
            run.write(job.bytes() as u64);
            self.live.cache.log().expect("it gave the job").finish_write(job, Ok(()));
        }
        let figures = self.live.cache.store_figures();
        if figures.free.0 > figures.pool.0 / IDLE_DIVISOR {
            self.live.cache.compact(ENCODE_BATCH);
        }
        done.bytes > ByteCount::ZERO
    }
}

impl Keeper for Pleat {
    fn touch(&mut self, run: &mut Run<'_>, page: PageIndex, _: bool) {
        let machine = run.setup.machine;
        match self.live.cache.place(page) {
            Place::Resident => return,
            Place::Untouched => {
                run.faults.first_touch += 1;
                run.pass(&machine.first_touch);
                self.live.streams.window(page);
                self.live.cache.settle(page, Age::TOUCHED);
            }
            Place::Leaving(frame) => {
                run.faults.soft += 1;
                run.pass(&machine.fault);
                self.live.take_back(page, frame);
            }
            Place::Below(_) => {
                run.pass(&machine.fault);
                self.bring_below(run, page);
            }
            place => {
                let count = if matches!(place, Place::SameFilled(_)) {
                    &mut run.faults.same_filled
                } else {
                    &mut run.faults.compressed
                };
                *count += 1;
                run.pass(&machine.fault);
                self.bring_stored(run, page);
            }
        }
        if self.free() < self.marks.low.0 as i64 {
            self.reclaim(run);
        }
    }

    fn pool_bytes(&self) -> u64 {
        self.pool().0
    }
}
