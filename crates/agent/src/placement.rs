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
    faults: usize,
    processors: Option<Processors>,
    pinned_to: Option<usize>,
    last_thread: u32,
}

impl Placement {
    pub(crate) fn new() -> Self {
        Self { faults: 0, processors: Processors::allowed(), pinned_to: None, last_thread: 0 }
    }

    /// `faults` have been served, the last for `thread`.
    pub(crate) fn follow(&mut self, thread: u32, faults: usize) {
        self.faults += faults;
        if self.faults < FAULTS_PER_LOOK {
            return;
        }
        self.faults = 0;
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
