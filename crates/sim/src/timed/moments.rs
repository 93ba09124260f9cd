//! A run over time: some hundred moments, evenly apart, however long it takes.

use serde::Serialize;

use super::Faults;

/// How many are kept before every other one is dropped.
const MOMENTS_MAX: usize = 256;
/// How far apart they are at first.
const APART_NS: f64 = 1000.0;

/// What a run has come to at one time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Moment {
    /// On the run's clock.
    pub seconds: f64,
    /// The pool.
    pub pool_bytes: u64,
    /// Pages in memory as they are, those included that are about to leave.
    pub resident_bytes: u64,
    /// Faults so far.
    pub faults: Faults,
}

/// Those of a run.
pub(crate) struct Moments<T = Moment> {
    kept: Vec<T>,
    apart_ns: f64,
    due_ns: f64,
}

impl<T: PartialEq> Moments<T> {
    pub(crate) const fn new() -> Self {
        Self { kept: Vec::new(), apart_ns: APART_NS, due_ns: 0.0 }
    }

    /// Whether the next one is due.
    pub(crate) fn is_due(&self, now_ns: f64) -> bool {
        now_ns >= self.due_ns
    }

    pub(crate) fn push(&mut self, now_ns: f64, moment: T) {
        self.kept.push(moment);
        if self.kept.len() == MOMENTS_MAX {
            let mut is_kept = false;
            self.kept.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.apart_ns *= 2.0;
        }
        self.due_ns = now_ns + self.apart_ns;
    }

    /// All of them; the run has ended with the last.
    pub(crate) fn finish(mut self, last: T) -> Vec<T> {
        if self.kept.last() != Some(&last) {
            self.kept.push(last);
        }
        self.kept
    }
}
