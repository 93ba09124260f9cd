//! Exhaustion: when the budget counts as out of reach.
//!
//! A budget that cannot be met must not hold faults up for ever, so after some rounds without any gain they are served
//! beyond it, and the user hears of it, or the program is stopped. A device that takes its time is no reason for that, nor
//! a ring that fills: who calls a healthy run exhausted may end it.

/// Rounds without any gain, while room is short, before the budget counts as out of reach.
const ROUNDS: u32 = 40;
/// How long a device may take for what it has been given before it counts as no help. Disks that wake up take so long.
const DEVICE_NS_MAX: u64 = 10_000_000_000;

/// What a round has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    /// Pages take less memory now, or encodings have gone below.
    pub(crate) has_gained: bool,
    /// Pages wait in frames that did not before, and none has been encoded in vain.
    pub(crate) fills_ring: bool,
    /// The device has not taken yet what it was given.
    pub(crate) waits_for_device: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exhaustion {
    rounds: u32,
    gained_at_ns: u64,
}

impl Exhaustion {
    /// Whether the budget is out of reach after this round, which ends at `now_ns`.
    pub(crate) fn judge(&mut self, effort: Effort, is_short: bool, now_ns: u64) -> bool {
        if effort.has_gained || !is_short {
            *self = Self { rounds: 0, gained_at_ns: now_ns };
            return false;
        }
        let is_slow = effort.waits_for_device && now_ns - self.gained_at_ns < DEVICE_NS_MAX;
        if !is_slow && !effort.fills_ring {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: Effort = Effort { has_gained: false, fills_ring: false, waits_for_device: false };

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

    #[test]
    fn a_slow_device_is_waited_for_but_not_for_ever() {
        let mut exhaustion = Exhaustion::default();
        let slow = Effort { waits_for_device: true, ..VAIN };
        exhaustion.judge(Effort { has_gained: true, ..VAIN }, true, 5);
        assert!(!judge(&mut exhaustion, slow, 9_000, 5));
        assert!(judge(&mut exhaustion, slow, ROUNDS, 5 + DEVICE_NS_MAX));
    }

    #[test]
    fn a_ring_that_fills_is_no_failure() {
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, Effort { fills_ring: true, ..VAIN }, 1000, 0));
    }
}
