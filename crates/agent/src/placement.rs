//! Placement: the handler on the faulting thread's processor.
//!
//! A message to a handler on the same processor costs a third of one to another (docs/userfaultfd.md): the faulting
//! thread sleeps anyhow, and a wake-up across processors means an interrupt and an idle processor to wake. The kernel
//! does not place the handler there by itself, so it asks now and then where its customer runs.

use sys::thread::{Processors, pin_to, processor_of, unpin};

/// Faults between two looks: a look costs some microseconds.
const FAULTS_PER_LOOK: usize = 64;

/// Where the handler is and should be.
pub(crate) struct Placement {
    /// Faults that had been served at the last look.
    looked_at: usize,
    processors: Option<Processors>,
    pinned_to: Option<usize>,
    last_thread: u32,
}

impl Placement {
    pub(crate) fn new() -> Self {
        Self { looked_at: 0, processors: Processors::allowed(), pinned_to: None, last_thread: 0 }
    }

    /// `served` faults have been served so far, the last for `thread`.
    pub(crate) fn follow(&mut self, thread: u32, served: usize) {
        if served - self.looked_at < FAULTS_PER_LOOK {
            return;
        }
        self.looked_at = served;
        // With customers on several processors no place is right: let the scheduler choose.
        let target = if thread == self.last_thread { processor_of(thread) } else { None };
        self.last_thread = thread;
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
}
