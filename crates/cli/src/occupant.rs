//! The occupant: a thread of `pleat run` that keeps a processor busy, at the lowest priority, which a program leaves idle while
//! it faults page by page. Why that helps: docs/decisions/0021-an-idle-processor-is-occupied.md.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{Pid, getsid};
use pager::ledger::occupant::{Occupancy, Place};
use pager::ledger::{Gauge, Ledger};
use sys::clock::{now_ns, thread_ns};
use sys::sync::{Sharing, wait_while};
use sys::thread::{self, Processors};

/// A wake-up may be missed where the kernel ends the wait for another reason.
const WAIT: Duration = Duration::from_secs(10);
/// Up to here the lowest priority weighs a seventh of the program's at most.
const NICE_MAX: i32 = 10;
/// Turns between two looks at the time: some microseconds.
const TURNS: u32 = 64;
/// What the occupant gets of a processor is looked at after so long.
const WINDOW_NS: u64 = 50_000_000;
/// With less than this part of a window, in percent, it is in others' way. The reclaimer alone leaves it more.
const PART_MIN_PERCENT: u64 = 15;
/// Then it stays away for so long.
const REST: Duration = Duration::from_millis(250);

/// Starts it if that can help, and takes nothing that somebody counts.
pub(crate) fn start(ledger: &'static Ledger) {
    // Without it the program is slower, no more.
    if has_two_processors()
        && is_time_free()
        && std::thread::Builder::new().name("pleat-occupant".into()).spawn(move || attend(ledger)).is_ok()
    {
        ledger.occupancy.offer();
    }
}

/// With more of them another idle one would take the busy one's place, with one there is none. With a limit on processor time in
/// the cgroup the standard library sees fewer than are allowed: what the occupant takes the program would miss.
fn has_two_processors() -> bool {
    let whole = std::thread::available_parallelism().is_ok_and(|count| count.get() == 2);
    whole && Processors::allowed().is_some_and(|allowed| allowed.count() == 2)
}

/// `ulimit -t` ends `pleat run` with its time; and who has been made nice would share with the program.
fn is_time_free() -> bool {
    let unlimited = getrlimit(Resource::RLIMIT_CPU).is_ok_and(|(soft, _)| soft == RLIM_INFINITY);
    unlimited && thread::niceness() <= NICE_MAX
}

fn attend(ledger: &'static Ledger) {
    thread::lower_priority();
    let occupancy = &ledger.occupancy;
    let mut heard = 0;
    loop {
        wait_while(&occupancy.calls, heard, WAIT, Sharing::Machine);
        heard = occupancy.calls.load(Acquire);
        while let Some(place) = occupancy.wanted(now_ns()) {
            let may_stay = is_alone(ledger) && is_of_this_session(&place) && occupy(occupancy, place);
            if !may_stay {
                std::thread::sleep(REST);
            }
        }
    }
}

/// Whether the run has no more than one managed process. Behind a fork two of them need both processors to keep inside the budget.
fn is_alone(ledger: &Ledger) -> bool {
    let managed = ledger.claimed().iter().filter(|process| process.get(Gauge::ShareBytes) > 0);
    managed.take(2).count() < 2
}

/// Priorities count within a session only where the kernel groups processes by session (autogroup).
fn is_of_this_session(place: &Place) -> bool {
    getsid(Some(Pid::from_raw(place.process as i32))).is_ok_and(|session| getsid(None) == Ok(session))
}

/// Keeps it busy for a window, or until nobody asks for that any more. Says whether it was in nobody's way.
fn occupy(occupancy: &Occupancy, place: Place) -> bool {
    thread::pin_to(place.processor as usize);
    let (begun, had) = (now_ns(), thread_ns());
    let mut now = begun;
    while now < begun + WINDOW_NS && occupancy.wanted(now).is_some_and(|wanted| wanted.processor == place.processor) {
        for _ in 0..TURNS {
            std::hint::spin_loop();
        }
        now = now_ns();
    }
    let had = thread_ns() - had;
    occupancy.occupied_ns.fetch_add(had, Relaxed);
    now < begun + WINDOW_NS || had * 100 >= (now - begun) * PART_MIN_PERCENT
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// On a thread of its own, whose place and priority it changes.
    fn occupied(processor: u32, stay: Duration) -> (bool, u64) {
        let occupancy = Occupancy::default();
        let thread = std::thread::spawn(move || {
            thread::lower_priority();
            let now = now_ns();
            let place = Place { process: 1, processor, until_ns: now + stay.as_nanos() as u64 };
            occupancy.ask(place, now);
            let was_in_nobodys_way = occupy(&occupancy, place);
            (was_in_nobodys_way, occupancy.occupied_ns.load(Relaxed))
        });
        thread.join().unwrap()
    }

    /// One that this process may use.
    fn processor() -> u32 {
        thread::processor_of(thread::thread_id()).unwrap() as u32
    }

    #[test]
    fn a_processor_is_occupied_while_that_is_asked_for() {
        let begun = now_ns();
        let (_, occupied_ns) = occupied(processor(), Duration::from_millis(5));
        assert!(now_ns() - begun >= 5_000_000 && occupied_ns > 0, "{occupied_ns}");
    }

    /// A thread of usual priority wants the same processor all the time.
    #[test]
    fn a_processor_that_others_use_is_left_to_them() {
        let (processor, goes_on) = (processor(), Arc::new(AtomicBool::new(true)));
        let other = std::thread::spawn({
            let goes_on = goes_on.clone();
            move || {
                thread::pin_to(processor as usize);
                while goes_on.load(Relaxed) {}
            }
        });
        let stays = (0..5).filter(|_| occupied(processor, Duration::from_millis(500)).0).count();
        goes_on.store(false, Relaxed);
        other.join().unwrap();
        assert!(stays <= 1, "stayed {stays} times of 5");
    }
}
