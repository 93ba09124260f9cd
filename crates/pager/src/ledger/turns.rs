//! Turns: which process of a run goes on where they work by turns (`policy::load_control`).
//!
//! As at a counter: who waits takes a ticket, and the tickets are called one after the other. Nobody is trusted to call the next one:
//! whoever waits does, when the turn is over, or when who has it does nothing with it, has ended, or does not claim it.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use policy::load_control::{self, CLAIM_NS, Load, SPELL_NS_MAX, TURN_NS, TURN_NS_MAX};
use policy::shares::{Claim, Loss};

const MS: u64 = 1_000_000;

/// See the module. Zero is valid: no turns, and nobody waits.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Turns {
    /// Until when there are turns: ns of `CLOCK_MONOTONIC`.
    until_ns: AtomicU64,
    /// For how long there are, or were last, ns.
    spell_ns: AtomicU64,
    /// What all lose without them: all and others of [`Load`], and when that was last looked at, ns.
    load: AtomicU64,
    looked_at_ns: AtomicU64,
    /// The ticket that is called, and the low half of the millisecond when its turn ends.
    called: AtomicU64,
    /// The ticket of who has claimed his turn, and the number of his entry, counted from 1.
    holder: AtomicU64,
    /// The next ticket.
    next: AtomicU32,
    _unused: AtomicU32,
}

/// Where a ticket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It is this one's turn.
    Called,
    /// Not yet.
    Waits,
    /// It has been, or nobody claimed it in time.
    Passed,
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

const fn halves(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// The millisecond at `ns`. Half of its bits are enough for turns.
const fn ms(ns: u64) -> u32 {
    (ns / MS) as u32
}

/// Whether turns that last until then have not ended. A time that is further away is that of another clock (time namespaces).
const fn is_ahead(until_ns: u64, now_ns: u64) -> bool {
    now_ns < until_ns && until_ns - now_ns <= SPELL_NS_MAX
}

impl Turns {
    /// From now on there are turns, for some seconds. Tickets of before are void.
    pub fn begin(&self, now_ns: u64) {
        let before = self.until_ns.load(Relaxed);
        if is_ahead(before, now_ns) {
            // Somebody else has begun them meanwhile.
            return;
        }
        let spell_ns = load_control::spell(self.spell_ns.load(Relaxed), now_ns.saturating_sub(before));
        if self.until_ns.compare_exchange(before, now_ns + spell_ns, AcqRel, Relaxed).is_ok() {
            self.spell_ns.store(spell_ns, Relaxed);
            self.load.store(0, Relaxed);
            let next = self.next.load(Acquire);
            self.called.store(pair(next, ms(now_ns + CLAIM_NS)), Relaxed);
        }
    }

    /// Whether there are turns now.
    pub fn are_on(&self, now_ns: u64) -> bool {
        is_ahead(self.until_ns.load(Relaxed), now_ns)
    }

    /// What all lose where there are no turns, as a mean; `losses`: what each loses now. Who comes first when a look is due looks for all.
    pub fn look(&self, losses: impl Iterator<Item = Loss>, now_ns: u64) -> Load {
        let (all, others) = halves(self.load.load(Relaxed));
        let load = Load { all, others };
        let looked_at = self.looked_at_ns.load(Relaxed);
        // One that is far ahead was that of another clock.
        let is_known = looked_at <= now_ns + SPELL_NS_MAX;
        let passed = if is_known { now_ns.saturating_sub(looked_at) } else { Claim::LOOK_NS };
        if passed < Claim::LOOK_NS || self.looked_at_ns.compare_exchange(looked_at, now_ns, Relaxed, Relaxed).is_err() {
            return load;
        }
        // Over what came between, such as turns, nobody has looked.
        let load = load.looked(losses, passed.min(2 * Claim::LOOK_NS));
        self.load.store(pair(load.all, load.others), Relaxed);
        load
    }

    /// A ticket.
    pub fn take(&self) -> u32 {
        self.next.fetch_add(1, AcqRel)
    }

    /// Where a ticket is.
    pub fn place(&self, ticket: u32) -> Place {
        let (called, _) = halves(self.called.load(Acquire));
        match ticket.wrapping_sub(called) as i32 {
            0 => Place::Called,
            1.. => Place::Waits,
            _ => Place::Passed,
        }
    }

    /// For who is called: his turn begins, if it has not yet.
    pub fn claim(&self, ticket: u32, slot: u32, now_ns: u64) {
        if self.holder.load(Relaxed) != pair(ticket, slot + 1) {
            self.holder.store(pair(ticket, slot + 1), Relaxed);
            let before = self.called.load(Acquire);
            let begun = pair(ticket, ms(now_ns + TURN_NS));
            if halves(before).0 == ticket {
                // Who has called the next one meanwhile has.
                let _ = self.called.compare_exchange(before, begun, AcqRel, Relaxed);
            }
        }
    }

    /// For who has the turn: it does not end before `end_ns`.
    pub fn prolong(&self, ticket: u32, end_ns: u64) {
        let before = self.called.load(Acquire);
        let (called, end) = halves(before);
        if called == ticket && (ms(end_ns).wrapping_sub(end) as i32) > 0 {
            let _ = self.called.compare_exchange(before, pair(ticket, ms(end_ns)), AcqRel, Relaxed);
        }
    }

    /// Who has the turn that is called, if he has claimed it: his ticket and the place of his entry.
    pub fn holder(&self) -> Option<(u32, u32)> {
        let (ticket, number) = halves(self.holder.load(Relaxed));
        let is_called = ticket == halves(self.called.load(Acquire)).0;
        number.checked_sub(1).filter(|_| is_called).map(|slot| (ticket, slot))
    }

    /// For who waits: calls the next ticket if this turn is over, or if the ticket that is called is the one `given_up`.
    pub fn call_next(&self, given_up: Option<u32>, now_ns: u64) {
        let before = self.called.load(Acquire);
        let (ticket, end) = halves(before);
        let left = end.wrapping_sub(ms(now_ns)) as i32;
        // A time that is further away than any turn is that of another clock, or of long ago.
        let is_over = left <= 0 || i64::from(left) * MS as i64 > TURN_NS_MAX as i64;
        if is_over || given_up == Some(ticket) {
            let next = pair(ticket.wrapping_add(1), ms(now_ns + CLAIM_NS));
            let _ = self.called.compare_exchange(before, next, AcqRel, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_called_in_order() {
        let turns = Turns::default();
        let now = 5_000_000_000_000_000;
        let tickets = [0; 3].map(|_| turns.take());
        assert_eq!(tickets.map(|ticket| turns.place(ticket)), [Place::Called, Place::Waits, Place::Waits]);
        turns.claim(tickets[0], 70, now);
        assert_eq!(turns.holder(), Some((tickets[0], 70)));
        turns.call_next(None, now + TURN_NS - 10 * MS);
        assert_eq!(turns.place(tickets[0]), Place::Called, "his turn is not over");
        turns.call_next(None, now + TURN_NS + MS);
        assert_eq!(tickets.map(|ticket| turns.place(ticket)), [Place::Passed, Place::Called, Place::Waits]);
        // One who does not claim his turn, and one who does nothing with it.
        assert_eq!(turns.holder(), None);
        turns.call_next(None, now + TURN_NS + CLAIM_NS + 3 * MS);
        turns.claim(tickets[2], 71, now + TURN_NS + CLAIM_NS + 3 * MS);
        assert_eq!(turns.holder(), Some((tickets[2], 71)));
        turns.call_next(Some(tickets[1]), now + TURN_NS + CLAIM_NS + 4 * MS);
        assert_eq!(turns.place(tickets[2]), Place::Called, "somebody else has called since");
        turns.call_next(Some(tickets[2]), now + TURN_NS + CLAIM_NS + 4 * MS);
        assert_eq!(turns.place(tickets[2]), Place::Passed);
        assert_eq!(turns.place(turns.take()), Place::Called, "who comes alone need not wait");
    }

    #[test]
    fn a_turn_is_claimed_once() {
        let turns = Turns::default();
        let now = 1_000_000_000_000;
        let ticket = turns.take();
        turns.claim(ticket, 70, now);
        turns.claim(ticket, 70, now + TURN_NS);
        turns.call_next(None, now + TURN_NS + 10 * MS);
        assert_eq!(turns.place(ticket), Place::Passed);
    }

    #[test]
    fn a_turn_can_be_prolonged_by_who_has_it() {
        let turns = Turns::default();
        let now = 1_000_000_000_000;
        let tickets = [0; 2].map(|_| turns.take());
        turns.claim(tickets[0], 70, now);
        turns.prolong(tickets[1], now + 2 * TURN_NS);
        turns.prolong(tickets[0], now + TURN_NS + 40 * MS);
        turns.prolong(tickets[0], now + TURN_NS + 20 * MS);
        turns.call_next(None, now + TURN_NS + 30 * MS);
        assert_eq!(turns.place(tickets[0]), Place::Called);
        turns.call_next(None, now + TURN_NS + 41 * MS);
        assert_eq!(tickets.map(|ticket| turns.place(ticket)), [Place::Passed, Place::Called]);
    }

    #[test]
    fn turns_end_by_themselves_and_on_other_clocks_there_are_none() {
        let turns = Turns::default();
        let now = 1_000_000_000_000;
        assert!(!turns.are_on(now));
        turns.begin(now);
        let first = turns.spell_ns.load(Relaxed);
        assert!(turns.are_on(now) && turns.are_on(now + first - 1));
        assert!(!turns.are_on(now + first) && !turns.are_on(now - 10_000_000_000));
        turns.begin(now + 1);
        assert!(!turns.are_on(now + first), "who finds them begun does not prolong them");
        let before = [0; 3].map(|_| turns.take());
        turns.begin(now + first);
        assert!(turns.are_on(now + 2 * first), "they thrash as soon as all have gone on: for longer");
        assert_eq!(before.map(|ticket| turns.place(ticket)), [Place::Passed; 3], "they are void");
        assert_eq!(turns.place(turns.take()), Place::Called);
    }

    /// A mean of what is lost while there are no turns, and all processes look together no more often than each of them.
    #[test]
    fn what_all_lose_is_looked_at_by_one_of_them() {
        let turns = Turns::default();
        let now = 1_000_000_000_000;
        let losses = [Loss { ns: 900 * MS, held: 1 << 20 }; 4];
        let look = |now_ns| turns.look(losses.into_iter(), now_ns);
        let first = look(now);
        assert_eq!(
            first,
            Load::default().looked(losses.into_iter(), 2 * Claim::LOOK_NS),
            "over the time before nobody has looked"
        );
        assert_eq!(look(now + Claim::LOOK_NS - 1), first);
        let second = look(now + Claim::LOOK_NS);
        assert_eq!(second, first.looked(losses.into_iter(), Claim::LOOK_NS));
        assert!(second.all > first.all && second.is_thrashing(losses.into_iter(), 2));
        assert!(look(now / 2).all > second.all, "a process with a clock of its own");
        turns.begin(now + Claim::LOOK_NS);
        assert_eq!(look(now / 2), Load::default(), "what was lost before turns says nothing of what is behind them");
    }

    /// Whoever waits calls; of several that do at the same time one does.
    #[test]
    fn of_many_threads_one_has_the_turn() {
        let turns = Turns::default();
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for pid in 1..=4 {
                let (turns, inside, most) = (&turns, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let ticket = turns.take();
                        while turns.place(ticket) != Place::Called {
                            std::thread::yield_now();
                        }
                        turns.claim(ticket, pid, 0);
                        most.fetch_max(inside.fetch_add(1, AcqRel) + 1, AcqRel);
                        inside.fetch_sub(1, AcqRel);
                        turns.call_next(Some(ticket), 0);
                    }
                });
            }
        });
        assert_eq!(most.load(Acquire), 1);
    }
}
