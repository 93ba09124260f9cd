//! Sharing: what of a forked process's memory counts for it.
//!
//! After a fork parent and child share their pages until one of them writes. Counted twice they would halve the budget, so
//! a shared page counts in proportion. The kernel knows the proportion, but walks over all memory to say it; between two
//! looks every minor fault that is not the server's may have been such a write, and counts as one.

use page::{ByteCount, PageCount};
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;

/// Shortest time between two looks.
pub(crate) const LOOK_NS_MIN: u64 = 5_000_000;
/// A look takes the kernel some nanoseconds a page: that may be one part in so many of our time. Of the processor's, for where
/// there is more to do than processors a look of a millisecond lasts for fifty, and what others give up counts here meanwhile.
pub(crate) const LOOK_SHARE: u64 = 20;
/// That part is for the looks of all processes together where next to nothing has changed: no more than this part of what is shared may
/// have been written, and no more than this part of all processes has ended, as a divisor.
const CHANGED_DIVISOR: u64 = 8;

/// What is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sharing {
    /// The program has forked: some of its memory may be its child's or parent's too.
    may_share: bool,
    /// A look has been taken since.
    has_looked: bool,
    /// What of the resident memory counted elsewhere, as of the last look.
    shared: ByteCount,
    /// Faults at the last look.
    faults: u64,
    /// Those of now.
    faults_now: u64,
    /// How many processes the run has, now and at the last look.
    processes: u64,
    processes_then: u64,
    looked_at_ns: u64,
    took_ns: u64,
}

impl Sharing {
    /// The program has forked, or was forked.
    pub(crate) fn begin(&mut self) {
        let Self { shared, faults, processes, .. } = *self;
        *self = Self { may_share: true, shared, faults, processes, ..Self::default() };
    }

    /// How many processes the run has.
    pub(crate) fn set_processes(&mut self, count: u64) {
        self.processes = count;
    }

    /// The same.
    pub(crate) fn processes(&self) -> u64 {
        self.processes
    }

    /// Faults of the program's that may have been writes to shared pages, since it was started; 0 where it shares none.
    pub(crate) fn faults(&self) -> u64 {
        if self.may_share { self.faults_now } else { 0 }
    }

    /// What of the resident memory belongs to others, too, as of the last look; `None` where nobody has looked since a fork.
    pub(crate) fn shared(&self) -> Option<ByteCount> {
        match (self.may_share, self.has_looked) {
            (false, _) => Some(ByteCount::ZERO),
            (true, true) => Some(self.shared),
            (true, false) => None,
        }
    }

    /// What counts of `resident` bytes.
    pub(crate) fn counted<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        resident: ByteCount,
        now: u64,
    ) -> ByteCount {
        if !self.may_share {
            return resident;
        }
        self.faults_now = own_faults(pager);
        if !self.has_looked || now >= self.looked_at_ns + self.pause_ns() {
            self.look(pager, resident, now);
        }
        resident.saturating_sub(self.shared.saturating_sub(self.written()))
    }

    /// What may have been written since the last look.
    fn written(&self) -> ByteCount {
        PageCount(self.faults_now.saturating_sub(self.faults)).bytes()
    }

    /// Between two looks.
    fn pause_ns(&self) -> u64 {
        let have_many_ended = self.processes < self.processes_then - self.processes_then / CHANGED_DIVISOR;
        let has_changed = have_many_ended || self.written().0 > self.shared.0 / CHANGED_DIVISOR;
        let lookers = if has_changed { 1 } else { self.processes.max(1) };
        (self.took_ns * LOOK_SHARE * lookers).max(LOOK_NS_MIN)
    }

    fn look<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, resident: ByteCount, now: u64) {
        let begun_ns = pager.kernel.thread_ns();
        // Before the look: what is written during it counts twice, not never.
        self.faults = self.faults_now;
        let proportional = pager.kernel.proportional_anonymous().unwrap_or(resident);
        self.shared = resident.saturating_sub(proportional);
        self.took_ns = pager.kernel.thread_ns() - begun_ns;
        self.looked_at_ns = now;
        self.processes_then = self.processes;
        self.may_share = self.shared > ByteCount::ZERO || !self.has_looked;
        self.has_looked = true;
    }
}

/// Minor faults that are not the server's.
fn own_faults<K: Kernel, S: Store>(pager: &Pager<K, S>) -> u64 {
    let served: u64 = pager.entry.faults.iter().map(crate::ledger::Histogram::count).sum();
    pager.kernel.minor_faults().saturating_sub(served)
}
