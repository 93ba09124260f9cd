//! The time of one call, less what asking for the time takes.

use std::time::Instant;

/// Calls of the clock that its own cost is taken from.
const PROBES: usize = 10_001;

/// Times single calls that take tens of nanoseconds and more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What an empty call seems to take.
    cost_ns: u64,
}

impl Clock {
    /// Measures what the clock costs.
    pub(crate) fn new() -> Self {
        let free = Self { cost_ns: 0 };
        let mut costs: Vec<u64> = (0..PROBES).map(|_| free.time(|| ()).1).collect();
        costs.sort_unstable();
        Self { cost_ns: costs[PROBES / 2] }
    }

    /// What `call` returns, and the nanoseconds it took.
    #[inline]
    pub(crate) fn time<T>(self, call: impl FnOnce() -> T) -> (T, u64) {
        let start = Instant::now();
        let value = call();
        let ns = start.elapsed().as_nanos() as u64;
        (value, ns.saturating_sub(self.cost_ns))
    }
}
