//! The steps of a page where the store is an area: what is resident, leaving and free is told to the policy that sizes it.
//!
//! The default store sizes itself, and none of this runs.

use cache::{AreaCounters, Memory, Outcome, Published, WrittenBack};
use page::{ByteCount, FrameIndex, PageBytes, PageIndex};
use policy::replacement::Arrival;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::{Counter, Gauge, Process};
use crate::state::State;

/// Looks at the area in a row. One a hold of the lock: each may move a unit's encodings.
const LOOKS_MAX: usize = 16;
/// Pages that are let go under one hold of the lock.
const RELEASES_MAX: u64 = 16;

/// What has been added to the ledger already, so that a forked child does not count what its parent did.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    area: AreaCounters,
    cells_compacted: u64,
}

impl<S: Store> State<S> {
    /// What the sizing policy must know. Frames that wait to be encoded are free as soon as they have been. The area leaves
    /// to the program what the pool of slabs does.
    fn memory(&self) -> Memory {
        let available = ByteCount((self.free() + self.ring.held().bytes().0 as i64).max(0) as u64);
        Memory { available, total: self.accounts.share, area_max: self.pool_bytes_max() }
    }

    /// [`cache::Cache::publish`], with room made as the policy says.
    pub(crate) fn publish(
        &mut self,
        page: PageIndex,
        frame: FrameIndex,
        raw: &PageBytes,
        outcome: Outcome<'_>,
    ) -> Published {
        if self.area.is_none() {
            return self.cache.publish(page, frame, outcome);
        }
        let memory = self.memory();
        let Self { cache, area, .. } = self;
        let keeper = area.as_mut().expect("looked at above");
        let published = cache.publish_in_area(page, frame, raw, outcome, keeper, memory);
        // What goes below takes buffers first. Both threads publish, and only one of them looks at all the numbers.
        self.accounts.log_buffers = ByteCount(cache.log_figures().map_or(0, |figures| figures.buffer_bytes));
        published
    }

    /// [`cache::Cache::settle`], with the policy told where the page was.
    pub(crate) fn settle_from_store(&mut self, page: PageIndex, arrival: Arrival) {
        if self.area.is_none() {
            return self.cache.settle(page, arrival);
        }
        let memory = self.memory();
        let Self { cache, area, .. } = self;
        let keeper = area.as_mut().expect("looked at above");
        cache.settle_from_area(page, arrival, keeper, memory);
    }

    /// Moves encodings below: `goal` bytes of them, and what the area's own daemon wants gone.
    pub(crate) fn write_back(&mut self, goal: ByteCount, looks_max: u64) -> WrittenBack {
        match &mut self.area {
            None if goal == ByteCount::ZERO => WrittenBack { bytes: ByteCount::ZERO, refused: None },
            None => self.cache.write_back(goal, looks_max),
            Some(keeper) => self.cache.relieve_area(keeper, goal, RELEASES_MAX),
        }
    }

    /// In a forked child: what has been done so far is its parent's.
    pub(crate) fn forget_counted(&mut self) {
        self.area_counted = self.counted();
    }

    fn counted(&self) -> Counted {
        let area = self.area.as_ref().map_or_else(AreaCounters::default, cache::AreaKeeper::counters);
        Counted { area, cells_compacted: self.cache.store_figures().cells_compacted }
    }

    /// Adds what has been done to the area since the last time.
    pub(crate) fn publish_area(&mut self, entry: &Process) {
        if self.area.is_none() {
            return;
        }
        entry.set(Gauge::SectorsShared, self.cache.store_figures().sectors_shared);
        let (now, before) = (self.counted(), self.area_counted);
        self.area_counted = now;
        let (area, old) = (now.area, before.area);
        for (counter, now, before) in [
            (Counter::UnitsAdded, area.grown, old.grown),
            (Counter::UnitsDeleted, area.shrunk, old.shrunk),
            (Counter::PoolLimitHit, area.limit_hits, old.limit_hits),
            (Counter::PagesReleased, area.released, old.released),
            (Counter::PagesRefused, area.refused, old.refused),
            (Counter::PagesRejectedPoor, area.rejected_poor, old.rejected_poor),
            (Counter::ExpenseReads, area.expense_reads, old.expense_reads),
            (Counter::ProfitReads, area.profit_reads, old.profit_reads),
            (Counter::CellsCompacted, now.cells_compacted, before.cells_compacted),
        ] {
            entry.add(counter, now - before);
        }
    }
}

impl<K: Kernel, S: Store> Pager<K, S> {
    /// Lets the area grow and shrink as its policy says, until it is content.
    pub(crate) fn look_at_area(&self) {
        if !self.has_area {
            return;
        }
        for _ in 0..LOOKS_MAX {
            let mut state = self.lock();
            if state.frozen {
                return;
            }
            let memory = state.memory();
            let State { cache, area, .. } = &mut *state;
            if !cache.look_at_area(area.as_mut().expect("`has_area`"), memory) {
                return;
            }
        }
    }
}
