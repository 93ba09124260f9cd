//! The share between resident pages and the pool: what the divider must know, and looks at it now and then.
//!
//! Where the system has no divider none of this does anything.

use page::{ByteCount, PageIndex};
use policy::area::divider::{self, Held, LOOK_NS};
use policy::area::marginal::Costs;
use policy::area::measured::{Measured, Sum, Sums};
use policy::replacement::Arrival;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::{Counter, FaultKind, Process};
use crate::state::State;

impl<S: Store> State<S> {
    /// The most that the pool may take.
    pub(crate) fn pool_bytes_max(&self) -> ByteCount {
        divider::pool_bytes_max(self.divider.as_deref(), self.memory_for_pages())
    }

    /// What resident pages and pool may take together: what tables, the agent, memory that nobody manages and the room that is
    /// kept free leave of the share.
    pub(crate) fn memory_for_pages(&self) -> ByteCount {
        let others = self.accounts.others() + self.holdings().metadata + self.accounts.marks.high;
        self.accounts.share.saturating_sub(others)
    }

    /// A page has left the resident set.
    pub(crate) fn note_leave(&mut self, page: PageIndex) {
        if let Some(divider) = &mut self.divider {
            divider.left(page);
        }
    }

    /// A page that had left comes back: asked for, or brought along.
    pub(crate) fn note_return(&mut self, page: PageIndex, arrival: Arrival) {
        let Self { divider: Some(divider), cache, frozen: false, .. } = self else { return };
        if arrival == Arrival::Along {
            divider.returned(page);
        } else {
            divider.asked(page, cache.census().resident);
        }
    }

    fn divide(&mut self, costs: Costs) {
        let (share, pool) = (self.accounts.share, self.holdings().pool);
        let census = self.cache.census();
        let pages = census.compressed + census.incompressible;
        let memory = self.memory_for_pages().saturating_sub(self.ring.held().bytes());
        let held = Held { memory, pool, pages, filled: census.same_filled };
        if let Some(divider) = &mut self.divider {
            divider.look(share, held, costs);
        }
    }
}

fn faults(entry: &Process, kind: FaultKind) -> Sum {
    let histogram = &entry.faults[kind as usize];
    Sum { count: histogram.count(), ns: histogram.sum_ns() }
}

/// The reclaimer's looks at the division, and what it has found out about costs.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    next_ns: u64,
    measured: Measured,
}

impl Looks {
    /// A look, if it is time.
    pub(crate) fn look<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, now: u64) {
        if now < self.next_ns {
            return;
        }
        self.next_ns = now + LOOK_NS;
        if pager.lock().divider.is_none() {
            return;
        }
        let entry = pager.entry;
        let costs = self.measured.costs(&Sums {
            compressed: faults(entry, FaultKind::Compressed),
            below: faults(entry, FaultKind::Backed),
            encoded: Sum { count: entry.count(Counter::Encoded), ns: entry.count(Counter::EncodeNs) },
        });
        let mut state = pager.lock();
        if !state.frozen {
            state.divide(costs);
        }
    }
}
