//! Exhaustion: when the budget counts as out of reach.
//!
//! A budget that cannot be met must not hold faults up for ever, so after some rounds without any gain they are served
//! beyond it, and the user hears of it, or the program is stopped. A device that takes its time is no reason for that, nor
//! a ring that fills, nor a hand that has to go round many pages until it finds one without an age: who calls a healthy run
//! exhausted may end it.

use page::PageCount;
use policy::replacement::Age;

/// Rounds without any gain, while room is short, before the budget counts as out of reach.
const ROUNDS: u32 = 40;
/// Pages that the hand passes in a round at least, on a slow machine.
const LOOKS: u64 = 16_384;
/// How long a device may take for one segment before it counts as no help. Disks that wake up take so long.
const DEVICE_NS_MAX: u64 = 5_000_000_000;
/// The longest time between two rounds that counts: a stopped process, or a suspended machine, makes longer ones, and its device does
/// nothing either.
const STEP_NS_MAX: u64 = 100_000_000;

/// What a round has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    /// Pages take less memory now, or encodings have gone below.
    pub(crate) has_gained: bool,
    /// Pages wait in frames that did not before, and none has been encoded in vain.
    pub(crate) fills_ring: bool,
    /// Pages that the hand goes round.
    pub(crate) resident: PageCount,
    /// The device has not taken yet what it was given; and how many bytes it has taken so far.
    pub(crate) device: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exhaustion {
    rounds: u32,
    /// As of the last round.
    device: Option<u64>,
    /// For how long it has taken nothing.
    device_waits_ns: u64,
    last_ns: u64,
}

impl Exhaustion {
    /// Whether the budget is out of reach after this round, which ends at `now_ns`.
    pub(crate) fn judge(&mut self, effort: Effort, is_short: bool, now_ns: u64) -> bool {
        self.device_waits_ns += now_ns.saturating_sub(self.last_ns).min(STEP_NS_MAX);
        self.last_ns = now_ns;
        if effort.device != self.device {
            self.device = effort.device;
            self.device_waits_ns = 0;
        }
        if effort.has_gained || !is_short {
            self.rounds = 0;
            return false;
        }
        let is_slow = self.device.is_some() && self.device_waits_ns < DEVICE_NS_MAX;
        if !is_slow && !effort.fills_ring {
            self.rounds = self.rounds.saturating_add(1);
        }
        // Time for the hand to take all of their ages.
        self.rounds >= ROUNDS + ((effort.resident.0 / LOOKS) << Age::BITS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: Effort = Effort { has_gained: false, fills_ring: false, resident: PageCount(1000), device: None };

    fn judge(exhaustion: &mut Exhaustion, effort: Effort, rounds: u32, from_ns: u64) -> bool {
        (0..rounds).fold(false, |_, round| exhaustion.judge(effort, true, from_ns + u64::from(round) * 1_000_000))
    }

    #[test]
    fn many_rounds_in_vain_exhaust_and_one_gain_ends_it() {
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
        assert!(judge(&mut exhaustion, VAIN, 1, 0));
        assert!(!exhaustion.judge(Effort { has_gained: true, ..VAIN }, true, 0));
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
        assert!(!exhaustion.judge(VAIN, false, 0), "room is not short");
    }

    /// A gibibyte of pages that all have the highest age: seven rounds of the hand until one may go.
    #[test]
    fn a_hand_that_only_ages_pages_has_time_to() {
        let many = Effort { resident: PageCount(1 << 18), ..VAIN };
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, many, ROUNDS + 7 * 16, 0));
        assert!(judge(&mut exhaustion, many, 16, 0), "but not for ever");
    }

    #[test]
    fn a_slow_device_is_waited_for_but_not_for_ever() {
        let mut exhaustion = Exhaustion::default();
        for segment in 0..5 {
            let slow = Effort { device: Some(segment), ..VAIN };
            assert!(!judge(&mut exhaustion, slow, 4_000, segment * DEVICE_NS_MAX), "it takes 4 s for each");
        }
        let hung = Effort { device: Some(4), ..VAIN };
        assert!(judge(&mut exhaustion, hung, 1_000 + ROUNDS, 5 * DEVICE_NS_MAX));
        // Once it hangs no gain elsewhere makes it a slow one again.
        exhaustion.judge(Effort { has_gained: true, ..hung }, true, 7 * DEVICE_NS_MAX);
        assert!(judge(&mut exhaustion, hung, ROUNDS, 7 * DEVICE_NS_MAX));
    }

    #[test]
    fn a_device_is_not_slow_for_having_been_stopped() {
        let mut exhaustion = Exhaustion::default();
        let given = Effort { device: Some(1), ..VAIN };
        assert!(!judge(&mut exhaustion, given, 100, 0));
        assert!(!judge(&mut exhaustion, given, 1_000, 10 * DEVICE_NS_MAX), "all have stood still meanwhile");
    }

    #[test]
    fn a_ring_that_fills_is_no_failure() {
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, Effort { fills_ring: true, ..VAIN }, 1000, 0));
    }
}
