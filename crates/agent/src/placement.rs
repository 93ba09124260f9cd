//! Placement: the handler on the faulting thread's processor.
//!
//! A message to a handler on the same processor costs a third of one to another (docs/userfaultfd.md): the faulting
//! thread sleeps anyhow, and a wake-up across processors means an interrupt and an idle processor to wake. The kernel
//! does not place the handler there by itself, so it asks now and then where its customer runs.

use core::sync::atomic::{AtomicI32, Ordering};

use sys::thread::{Processors, pin_to, processor_of, unpin};

/// No processor in particular.
const ANYWHERE: i32 = -1;

/// Where the handler is, for the keeper.
pub(crate) struct Place(AtomicI32);

impl Place {
    pub(crate) fn new() -> Self {
        Self(AtomicI32::new(ANYWHERE))
    }
}

/// Keeps the keeper where it works best: with the handler, or anywhere.
pub(crate) struct Company {
    processors: Option<Processors>,
    pinned_to: i32,
}

impl Company {
    pub(crate) fn new() -> Self {
        Self { processors: Processors::allowed(), pinned_to: ANYWHERE }
    }

    pub(crate) fn seek(&mut self, handler: &Place, is_wanted: bool) {
        // Relaxed: a hint.
        let target = if is_wanted { handler.0.load(Ordering::Relaxed) } else { ANYWHERE };
        if target == self.pinned_to {
            return;
        }
        match (usize::try_from(target), &self.processors) {
            (Ok(processor), _) => pin_to(processor),
            (Err(_), Some(allowed)) => unpin(allowed),
            (Err(_), None) => {}
        }
        self.pinned_to = target;
    }
}

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
    pub(crate) fn follow(&mut self, thread: u32, faults: usize, place: &Place) {
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
        place.0.store(target.map_or(ANYWHERE, |processor| processor as i32), Ordering::Relaxed);
        self.pinned_to = target;
    }
}
