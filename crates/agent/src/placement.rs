//! Placement: the handler on the faulting thread's processor.
//!
//! A message to a handler on the same processor costs a third of one to another (docs/userfaultfd.md): the faulting
//! thread sleeps anyhow, and a wake-up across processors means an interrupt and an idle processor to wake. The kernel
//! does not place the handler there by itself, so it asks now and then where its customer runs.

use pager::ledger::occupant::{Occupancy, Place};
use sys::clock::now_ns;
use sys::thread::{Processors, pin_to, process_id, processor_of, unpin};

/// Faults between two looks: a look costs some microseconds.
const FAULTS_PER_LOOK: usize = 64;
/// As many faults in this time follow each other so closely that the other processor is to be kept busy meanwhile.
const CLOSE_NS: u64 = 6_400_000;
/// Until then, unless we ask again.
const STAY_NS: u64 = 8_000_000;

/// Where the handler is and should be.
pub(crate) struct Placement {
    /// Faults that had been served at the last look, and when that was.
    looked_at: usize,
    looked_at_ns: u64,
    processors: Option<Processors>,
    pinned_to: Option<usize>,
    last_thread: u32,
}

impl Placement {
    pub(crate) fn new() -> Self {
        Self { looked_at: 0, looked_at_ns: 0, processors: Processors::allowed(), pinned_to: None, last_thread: 0 }
    }

    /// `served` faults have been served so far, the last for `thread`.
    pub(crate) fn follow(&mut self, thread: u32, served: usize, occupancy: &Occupancy) {
        if served - self.looked_at < FAULTS_PER_LOOK {
            return;
        }
        let now = now_ns();
        let is_close = now - self.looked_at_ns < CLOSE_NS;
        (self.looked_at, self.looked_at_ns) = (served, now);
        // With customers on several processors no place is right: let the scheduler choose.
        let target = if thread == self.last_thread { processor_of(thread) } else { None };
        self.last_thread = thread;
        if is_close && occupancy.is_there() {
            self.ask_for_occupant(target, occupancy, now);
        }
        if target == self.pinned_to {
            return;
        }
        match (target, &self.processors) {
            (Some(processor), _) => pin_to(processor),
            (None, Some(allowed)) => unpin(allowed),
            (None, None) => {}
        }
        self.pinned_to = target;
    }

    /// Has the processor kept busy to which the kernel would otherwise move the faulting thread.
    fn ask_for_occupant(&self, target: Option<usize>, occupancy: &Occupancy, now_ns: u64) {
        let Some(processors) = &self.processors else { return };
        if let Some(other) = target.and_then(|target| processors.other_than(target)) {
            let place = Place { process: process_id(), processor: other as u32, until_ns: now_ns + STAY_NS };
            occupancy.ask(place, now_ns);
        }
    }
}
