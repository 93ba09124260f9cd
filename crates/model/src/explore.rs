//! All schedules of a scenario.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use loom::model::Builder;

use crate::futex;

/// Whether a wait with a limit ends by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Never: all that is waited for is told.
    TillWoken,
    /// Once nobody else goes on, as it is meant to where this is said.
    ForALook,
}

/// Fewer schedules would mean that the scenario is not what it is meant to be.
const SCHEDULES_MIN: u32 = 20;

/// Goes through all schedules in which a thread is interrupted at most `interruptions` times, and goes on elsewhere only
/// where it waits. `LOOM_MAX_PREEMPTIONS` allows others.
pub(crate) fn explore(interruptions: usize, waits: Waits, scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(interruptions));
    let schedules = Arc::new(AtomicU32::new(0));
    let count = schedules.clone();
    builder.check(move || {
        // Relaxed: loom's threads are one thread of the system.
        count.fetch_add(1, Ordering::Relaxed);
        futex::begin(waits == Waits::ForALook);
        scenario();
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules >= SCHEDULES_MIN);
}
