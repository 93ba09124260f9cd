//! This process's turn, where the processes of a run work by turns (`policy::load_control`): until then its faults wait.
//!
//! The handler goes on reading messages meanwhile, and nobody waits for longer than some seconds.

use core::sync::atomic::{AtomicBool, Ordering};

use policy::load_control::{self, TURN_NS, WAIT_NS_MAX};
use policy::shares::Loss;
use sys::clock;

use crate::ledger::turns::Place;
use crate::ledger::{Counter, Ledger, Process};

/// Between two looks whether who has the turn works, ns.
const ACTIVE_LOOK_NS: u64 = 10_000_000;
/// Who has had less than this part of a processor between them does not, as a divisor.
const ACTIVE_DIVISOR: u64 = 10;

/// What the reclaimer's thread and the handler's tell each other.
#[derive(Debug)]
pub struct Standing {
    ledger: &'static Ledger,
    /// `PLEAT_FAULT=no-turns`: for comparison.
    is_off: bool,
    /// The process loses time, and works by turns where there are turns.
    is_concerned: AtomicBool,
    waits: AtomicBool,
}

impl Standing {
    /// Of a process that loses nothing yet; `is_off`: it never waits.
    pub fn new(ledger: &'static Ledger, is_off: bool) -> Self {
        Self { ledger, is_off, is_concerned: false.into(), waits: false.into() }
    }

    /// On the reclaimer's thread: what this process loses, and what each does.
    pub fn look(&self, own: Loss, all: impl Iterator<Item = Loss> + Clone, processors: u32, now_ns: u64) {
        if self.is_off {
            return;
        }
        self.is_concerned.store(load_control::is_concerned(own), Ordering::Relaxed);
        let turns = &self.ledger.turns;
        if !turns.are_on(now_ns) && turns.look(all.clone(), now_ns).is_thrashing(all, processors) {
            turns.begin(now_ns);
        }
    }

    /// Whether the process's faults wait.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// No fault waits.
    pub fn has_no_faults(&self) {
        self.set_waits(false);
    }

    fn set_waits(&self, waits: bool) {
        if self.waits() != waits {
            self.waits.store(waits, Ordering::Relaxed);
        }
    }
}

/// Who has a turn, as the ledger knows him.
#[derive(Clone, Copy, Debug)]
pub struct Party {
    /// The place of his entry.
    pub slot: u32,
    /// Whether the ledger's process ids are those that he sees.
    pub is_at_home: bool,
}

/// The handler's side.
#[derive(Debug, Default)]
pub struct Turn {
    ticket: Option<u32>,
    /// When this process's turn began, and what had been lost by then, ns.
    begun: Option<(u64, u64)>,
    /// Since when faults have waited.
    since_ns: Option<u64>,
    /// Who has waited for too long goes on until then.
    free_until_ns: u64,
    seen: Option<Seen>,
}

/// What was last seen of who has the turn: his ticket, what he had worked, when.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ticket: u32,
    worked_ns: u64,
    at_ns: u64,
}

impl Turn {
    /// Whether faults may be served now; `has_faults`: some are there.
    pub fn lets_serve(&mut self, standing: &Standing, own: Party, has_faults: bool, now_ns: u64) -> bool {
        let is_bound = standing.ledger.turns.are_on(now_ns)
            && now_ns >= self.free_until_ns
            && (self.ticket.is_some() || standing.is_concerned.load(Ordering::Relaxed));
        let may = !is_bound || self.has_come(standing.ledger, own, has_faults, now_ns);
        if !is_bound {
            self.ticket = None;
        }
        if may && let Some(since) = self.since_ns.take() {
            standing.ledger.processes[own.slot as usize].add(Counter::TurnWaitNs, now_ns - since);
        }
        standing.set_waits(!may && has_faults);
        may
    }

    fn has_come(&mut self, ledger: &Ledger, own: Party, has_faults: bool, now_ns: u64) -> bool {
        let turns = &ledger.turns;
        let ticket = match self.ticket.filter(|ticket| turns.place(*ticket) != Place::Passed) {
            Some(ticket) => ticket,
            None if !has_faults => return false,
            None => {
                self.begun = None;
                *self.ticket.insert(turns.take())
            }
        };
        if turns.place(ticket) == Place::Called {
            self.use_turn(ledger, ticket, own, now_ns);
            return true;
        }
        if now_ns - *self.since_ns.get_or_insert(now_ns) > WAIT_NS_MAX {
            (self.ticket, self.free_until_ns) = (None, now_ns + TURN_NS);
            return true;
        }
        let given_up = self.given_up(ledger, own, now_ns);
        turns.call_next(given_up, now_ns);
        false
    }

    fn use_turn(&mut self, ledger: &Ledger, ticket: u32, own: Party, now_ns: u64) {
        ledger.turns.claim(ticket, own.slot, now_ns);
        let lost_ns = ledger.processes[own.slot as usize].count(Counter::RefaultNs);
        let (begun_ns, lost_before) = *self.begun.get_or_insert((now_ns, lost_ns));
        let prolongation = load_control::prolongation(now_ns - begun_ns, lost_ns - lost_before);
        ledger.turns.prolong(ticket, now_ns + prolongation);
    }

    /// The ticket that is called, if who has it makes no use of it.
    fn given_up(&mut self, ledger: &Ledger, own: Party, now_ns: u64) -> Option<u32> {
        let (ticket, slot) = ledger.turns.holder()?;
        let before = self.seen.filter(|seen| seen.ticket == ticket);
        if before.is_some_and(|before| now_ns - before.at_ns < ACTIVE_LOOK_NS) {
            return None;
        }
        let holder = &ledger.processes[slot as usize];
        let Some(worked_ns) = worked_ns(holder, own.is_at_home) else { return Some(ticket) };
        self.seen = Some(Seen { ticket, worked_ns, at_ns: now_ns });
        let before = before?;
        let is_busy = holder.busy_since_ns.load(Ordering::Relaxed) != 0;
        let worked_ns = worked_ns.saturating_sub(before.worked_ns);
        (!is_busy && worked_ns < (now_ns - before.at_ns) / ACTIVE_DIVISOR).then_some(ticket)
    }
}

/// What a process has worked so far, and its handler waited for a device; `None` if it has ended.
fn worked_ns(process: &Process, is_at_home: bool) -> Option<u64> {
    let served = process.count(Counter::ServeNs);
    if !is_at_home {
        // Who is called by this number here is somebody else.
        return Some(served);
    }
    let pid = process.pid.load(Ordering::Relaxed);
    (pid != 0).then(|| clock::process_ns(pid))?.map(|worked| worked + served)
}

#[cfg(test)]
mod tests {
    use sys::host::SharedFile;

    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1_000_000_000_000;

    fn ledger() -> &'static Ledger {
        SharedFile::<Ledger>::create(c"test").unwrap().content()
    }

    fn concerned(ledger: &'static Ledger) -> Standing {
        Standing { is_concerned: true.into(), ..Standing::new(ledger, false) }
    }

    fn party(slot: u32) -> Party {
        Party { slot, is_at_home: true }
    }

    /// For how many ms one waits while the process `holder` has the turn; we are busy or not.
    fn waits_beside(holder: u32, busy: bool) -> u64 {
        let ledger = ledger();
        ledger.processes[1].pid.store(holder, Ordering::Relaxed);
        ledger.turns.begin(NOW);
        let (mut first, mut second, standing) = (Turn::default(), Turn::default(), concerned(ledger));
        assert!(first.lets_serve(&concerned(ledger), party(1), true, NOW));
        for ms in 0.. {
            if second.lets_serve(&standing, party(2), true, NOW + ms * MS) {
                assert!(!standing.waits());
                return ms;
            }
            assert!(standing.waits());
            let work = std::time::Instant::now();
            while busy && work.elapsed() < std::time::Duration::from_millis(1) {}
        }
        unreachable!()
    }

    #[test]
    fn one_goes_on_at_a_time() {
        let turn = TURN_NS / MS;
        let waited = waits_beside(std::process::id(), true);
        assert!((turn..turn + 5).contains(&waited), "{waited}");
        // Above the largest process id that Linux gives.
        assert!(waits_beside(5_000_000, false) < 5, "who has ended holds nobody up");
    }

    #[test]
    fn who_does_nothing_with_his_turn_holds_nobody_up() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let waited = waits_beside(sleeper.id(), false);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!((ACTIVE_LOOK_NS / MS..100).contains(&waited), "{waited}");
    }

    #[test]
    fn nobody_waits_for_ever_and_who_loses_nothing_not_at_all() {
        let ledger = ledger();
        let standing = concerned(ledger);
        let mut turn = Turn::default();
        assert!(turn.lets_serve(&standing, party(1), true, NOW), "there are no turns");
        // A thousand are before him, and none of them claims his turn.
        let mut waited_ms = 0;
        loop {
            let now = NOW + waited_ms * MS;
            if !ledger.turns.are_on(now) {
                ledger.turns.begin(now);
                (0..1000).for_each(|_| _ = ledger.turns.take());
            }
            if turn.lets_serve(&standing, party(1), true, now) {
                break;
            }
            waited_ms += 10;
            assert!(waited_ms * MS <= WAIT_NS_MAX + 10 * MS);
        }
        assert!(waited_ms > 0);
        let idle = Standing::new(ledger, false);
        assert!(Turn::default().lets_serve(&idle, party(1), true, NOW + waited_ms * MS));
    }

    #[test]
    fn messages_alone_take_no_ticket() {
        let ledger = ledger();
        ledger.turns.begin(NOW);
        let standing = concerned(ledger);
        assert!(!Turn::default().lets_serve(&standing, party(1), false, NOW));
        assert!(!standing.waits());
        assert_eq!(ledger.turns.place(ledger.turns.take()), Place::Called);
    }
}
