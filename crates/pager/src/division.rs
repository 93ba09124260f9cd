//! The share between resident pages and the pool: what the divider must know, and looks at it now and then.
//!
//! Where the system has no divider none of this does anything.

use page::{ByteCount, PageIndex};
use policy::area::divider::{self, Held, LOOK_NS};
use policy::area::marginal::Costs;
use policy::replacement::Arrival;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::{Counter, FaultKind, Process};
use crate::state::State;

/// Faults of a kind since the last look that make a mean.
const FAULTS_MIN: u64 = 16;
/// What they count for until there has been one.
const COSTS_AT_FIRST: Costs = Costs { compressed_ns: 10_000, below_ns: 200_000 };
/// What a fault takes beside: its way through the kernel, two changes of thread, and moving another page out
/// (docs/userfaultfd.md).
const FAULT_NS: u64 = 8_000;

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

/// How many, and what they took together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn of_faults(entry: &Process, kind: FaultKind) -> Self {
        let histogram = &entry.faults[kind as usize];
        Self { count: histogram.count(), ns: histogram.sum_ns() }
    }

    fn of_encodings(entry: &Process) -> Self {
        Self { count: entry.count(Counter::Encoded), ns: entry.count(Counter::EncodeNs) }
    }

    /// The mean since `before`, if that is long enough ago.
    fn mean_since(self, before: &mut Self) -> Option<u64> {
        let count = self.count.saturating_sub(before.count);
        let mean = (count >= FAULTS_MIN).then(|| self.ns.saturating_sub(before.ns) / count);
        if mean.is_some() {
            *before = self;
        }
        mean
    }
}

/// The reclaimer's looks at the division, and what it has found out about costs.
#[derive(Debug)]
pub(crate) struct Looks {
    next_ns: u64,
    costs: Costs,
    encode_ns: u64,
    compressed: Sum,
    below: Sum,
    encoded: Sum,
}

impl Default for Looks {
    fn default() -> Self {
        let (costs, none) = (COSTS_AT_FIRST, Sum::default());
        let [compressed, below, encoded] = [none; 3];
        Self { next_ns: 0, costs, encode_ns: 0, compressed, below, encoded }
    }
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
        self.measure(pager.entry);
        let Costs { compressed_ns, below_ns } = self.costs;
        // Whatever comes back makes another page leave, which has to be encoded.
        let beside = FAULT_NS + self.encode_ns;
        let costs = Costs { compressed_ns: compressed_ns + beside, below_ns: below_ns + beside };
        let mut state = pager.lock();
        if !state.frozen {
            state.divide(costs);
        }
    }

    fn measure(&mut self, entry: &Process) {
        let compressed = Sum::of_faults(entry, FaultKind::Compressed).mean_since(&mut self.compressed);
        let below = Sum::of_faults(entry, FaultKind::Backed).mean_since(&mut self.below);
        let encoded = Sum::of_encodings(entry).mean_since(&mut self.encoded);
        self.costs.compressed_ns = compressed.unwrap_or(self.costs.compressed_ns);
        self.costs.below_ns = below.unwrap_or(self.costs.below_ns);
        self.encode_ns = encoded.unwrap_or(self.encode_ns);
    }
}
