//! The time that never jumps.

use core::time::Duration;

use rustix::fs::Timespec;

/// Processor time that this thread has had, in ns.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A length of time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Time in which this process has been running: a long step is one that it spent stopped, or the machine suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningTime {
    last_look_ns: u64,
}

impl RunningTime {
    /// The longest step that counts.
    pub const STEP_NS_MAX: u64 = 100_000_000;

    /// What has passed of it since the last look. A clock that is behind that has stood still: a child's may be another one.
    pub fn step_ns(&mut self, now_ns: u64) -> u64 {
        let step = now_ns.saturating_sub(self.last_look_ns).min(Self::STEP_NS_MAX);
        self.last_look_ns = now_ns;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::RunningTime;

    #[test]
    fn a_jump_counts_as_one_step() {
        const MS: u64 = 1_000_000;
        let mut running = RunningTime::default();
        running.step_ns(7 * MS);
        let steps = [8, 20, 90_000_000, 90_000_050, 50, 60].map(|at| running.step_ns(at * MS));
        assert_eq!(steps, [MS, 12 * MS, RunningTime::STEP_NS_MAX, 50 * MS, 0, 10 * MS]);
    }
}
