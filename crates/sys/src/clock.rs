//! The time that never jumps.

use core::time::Duration;

use rustix::fs::Timespec;

use crate::arch::{number, syscall};

/// Processor time that this thread has had, in ns. By a call of our own, for the vDSO makes one, too, and in user mode that
/// would be trapped.
pub fn thread_ns() -> u64 {
    const CLOCK_THREAD_CPUTIME_ID: usize = 3;
    ns_by_call(CLOCK_THREAD_CPUTIME_ID).expect("every kernel has this clock")
}

/// Processor time that this process has had, in ns; `None` where a sandbox forbids to ask. Not by a clock with a number in it, which more of
/// them do.
pub fn own_process_ns() -> Option<u64> {
    const CLOCK_PROCESS_CPUTIME_ID: usize = 2;
    ns_by_call(CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time that a process has had, in ns; `None` if there is none of that number, as this one sees numbers.
pub fn process_ns(pid: u32) -> Option<u64> {
    // include/linux/posix-timers.h: the clock of a process's scheduled time.
    const CPUCLOCK_SCHED: i32 = 2;
    ns_by_call((!(pid as i32) << 3 | CPUCLOCK_SCHED) as usize)
}

/// What a clock says; `None` if there is no such clock.
fn ns_by_call(clock: usize) -> Option<u64> {
    let mut time = [0_u64; 2];
    // SAFETY: a timespec has two words.
    let answer = unsafe { syscall(number::CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (answer == 0).then(|| time[0] * 1_000_000_000 + time[1])
}

/// A length of time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// The same as [`now_ns`], on a thread of the program's while it forks. In user mode by a call of our own: where the clock cannot
/// be read without the kernel the vDSO makes a call, which is trapped, and in the handler of SIGSYS that ends the program.
pub fn now_ns_in_fork() -> u64 {
    if crate::user_mode::is_armed() { now_ns_by_call() } else { now_ns() }
}

fn now_ns_by_call() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    ns_by_call(CLOCK_MONOTONIC).expect("every kernel has this clock")
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same_time() {
        let times = [now_ns(), now_ns_by_call(), now_ns(), now_ns_by_call()];
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn the_time_of_a_process() {
        let here = std::process::id();
        let before = process_ns(here).unwrap();
        while process_ns(here).unwrap() < before + 1_000_000 {}
        assert!(process_ns(here).unwrap() >= thread_ns());
        assert!(own_process_ns().unwrap() >= before + 1_000_000, "the same clock");
        // Above the largest process id that Linux gives.
        assert_eq!(process_ns(5_000_000), None);
    }
}
