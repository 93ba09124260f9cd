//! What agents tell the occupant of `pleat run`: which processor to keep busy, and how long (decision 21).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use sys::sync::{Sharing, wake_all};

/// A processor that is to be kept busy, for one process at a time. All zeros: none.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Occupancy {
    /// Until then (`CLOCK_MONOTONIC`, ns).
    until_ns: AtomicU64,
    /// Processor time that the occupant has had, in ns.
    pub occupied_ns: AtomicU64,
    /// The process that has asked for it.
    process: AtomicU32,
    processor: AtomicU32,
    /// How often somebody has asked who had not before, or not for a while; a futex.
    pub calls: AtomicU32,
    /// 1 if there is somebody to ask.
    is_there: AtomicU32,
}

/// Nobody asks for longer: such a time is not to be believed. It may be of another namespace of times, whose clock is ahead.
const STAY_MAX_NS: u64 = 1_000_000_000;

fn is_near(until_ns: u64, now_ns: u64) -> bool {
    now_ns < until_ns && until_ns - now_ns < STAY_MAX_NS
}

/// What the occupant is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// By this process.
    pub process: u32,
    /// To keep this one busy.
    pub processor: u32,
    /// Until then.
    pub until_ns: u64,
}

impl Occupancy {
    /// From now on it can be asked for.
    pub fn offer(&self) {
        self.is_there.store(1, Relaxed);
    }

    /// Whether it is worth asking.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Relaxed) == 1
    }

    /// Asks for a processor to be kept busy, unless it is at work for another process.
    pub fn ask(&self, wanted: Place, now_ns: u64) {
        let until = self.until_ns.load(Relaxed);
        let is_at_work = is_near(until, now_ns);
        // Two processes that ask at the same time: one of them gets it. Nothing is wrong either way.
        if is_at_work && self.process.load(Relaxed) != wanted.process {
            return;
        }
        self.process.store(wanted.process, Relaxed);
        self.processor.store(wanted.processor, Relaxed);
        // Release: who sees the time sees the rest.
        self.until_ns.store(wanted.until_ns, Release);
        if !is_at_work {
            self.calls.fetch_add(1, Release);
            wake_all(&self.calls, Sharing::Machine);
        }
    }

    /// What is asked for now.
    pub fn wanted(&self, now_ns: u64) -> Option<Place> {
        let until_ns = self.until_ns.load(Acquire);
        is_near(until_ns, now_ns).then(|| Place {
            process: self.process.load(Relaxed),
            processor: self.processor.load(Relaxed),
            until_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_it() {
        let occupancy = Occupancy::default();
        let place = |process, until_ns| Place { process, processor: process + 10, until_ns };
        assert_eq!(occupancy.wanted(0), None);
        occupancy.ask(place(1, 500), 100);
        occupancy.ask(place(2, 900), 200);
        assert_eq!(occupancy.wanted(300), Some(place(1, 500)));
        occupancy.ask(place(1, 600), 400);
        assert_eq!((occupancy.wanted(550), occupancy.wanted(600)), (Some(place(1, 600)), None));
        assert_eq!(occupancy.calls.load(Relaxed), 1, "who goes on asking need not wake it");
        occupancy.ask(place(2, 900), 700);
        assert_eq!((occupancy.wanted(800), occupancy.calls.load(Relaxed)), (Some(place(2, 900)), 2));
    }

    #[test]
    fn a_clock_that_is_ahead_keeps_it_from_nobody() {
        let occupancy = Occupancy::default();
        let place = |process, until_ns| Place { process, processor: process + 10, until_ns };
        occupancy.ask(place(1, 90 * STAY_MAX_NS + 500), 90 * STAY_MAX_NS);
        assert_eq!(occupancy.wanted(100), None);
        occupancy.ask(place(2, 500), 100);
        assert_eq!(occupancy.wanted(300), Some(place(2, 500)));
    }
}
