//! Entries of the ledger: whose processes live, and how one is made new.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pager::ledger::tracing::Traceable;
use pager::ledger::{Ledger, Phase, Process};

use crate::proc::{self, Stat};

/// The entries whose processes live.
pub(crate) fn living(ledger: &Ledger) -> impl Iterator<Item = &Process> {
    ledger.claimed().iter().filter(|entry| lives(entry))
}

/// Makes those of all others new: behind the run nobody else does.
pub(crate) fn bury_the_dead(ledger: &Ledger) {
    // Acquire: what its agent wrote before it claimed the entry.
    let claimed = ledger.claimed().iter().filter(|entry| entry.pid.load(Acquire) != 0);
    claimed.filter(|entry| !lives(entry)).for_each(free);
}

/// Whether a process of this number has, or had, an entry.
pub(crate) fn is_in(ledger: &Ledger, pid: u32) -> bool {
    pid != 0 && ledger.claimed().iter().any(|entry| entry.pid.load(Relaxed) == pid)
}

/// Whether this is a process that has an entry, not one of its number.
pub(crate) fn is_of_living(ledger: &Ledger, pid: u32) -> bool {
    ledger.claimed().iter().any(|entry| entry.pid.load(Acquire) == pid && lives(entry))
}

fn lives(entry: &Process) -> bool {
    let pid = entry.pid.load(Acquire);
    pid != 0 && proc::lives(pid, entry.start_ticks.load(Relaxed), Stat::of(pid))
}

/// Makes an entry new. Its process has ended, so nobody else writes to it.
pub(crate) fn free(entry: &Process) {
    entry.phase.store(Phase::Free as u32, Relaxed);
    let words = [
        &entry.start_ticks,
        &entry.watcher,
        &entry.promised_bytes,
        &entry.main_has_ended,
        &entry.busy_since_ns,
        &entry.reads,
        &entry.footprint_peak,
    ];
    let rows = entry.gauges.iter().chain(&entry.peaks).chain(&entry.counters).chain(&entry.failure);
    words.into_iter().chain(rows).for_each(|word| word.store(0, Relaxed));
    entry.faults.iter().flat_map(|histogram| &histogram.buckets).for_each(|bucket| bucket.store(0, Relaxed));
    entry.tracing.threads.iter().for_each(Traceable::forget);
    // Release: whoever claims the entry next finds the zeros.
    entry.pid.store(0, Release);
}
