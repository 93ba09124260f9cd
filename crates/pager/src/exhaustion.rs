//! Exhaustion: when the budget counts as out of reach.
//!
//! A budget that cannot be met must not hold faults up for ever, so after some rounds without any gain they are served
//! beyond it, and the user hears of it, or the program is stopped. A device that takes its time is no reason for that, nor
//! a ring that fills, nor a hand that has to go round many pages until it finds one without an age: who calls a healthy run
//! exhausted may end it.
//!
//! It stays out of reach until there is more room than there was: pages that leave then are those which the faults have brought.

use page::{ByteCount, PAGE_BYTES, PageCount};
use policy::replacement::Age;

/// Rounds without any gain, while room is short, before the budget counts as out of reach.
const ROUNDS: u32 = 40;
/// Pages that the hand passes in a round at least, on a slow machine.
const LOOKS: u64 = 16_384;
/// Rounds in vain until it does once more, where it has been out of reach before and the process has grown beyond that: as many pages
/// are tried as have come, and as many of the others, so that what can leave is found before much has come beside it.
const ROUNDS_AGAIN: u32 = 4;
/// A round gains well if this part of the pages that are tried take less memory, as a divisor.
const GAIN_DIVISOR: u64 = 8;
/// So much more room than there was is always a gain, however large the share: behind a round in vain the next one comes late, and makes
/// a few hundred kilobytes.
const MORE_MAX: u64 = 1 << 20;
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
    /// Pages that have been encoded, or whose encodings have gone below; and those of them that take less memory now.
    pub(crate) tried: u64,
    pub(crate) gained: u64,
    /// Pages wait in frames that did not before, and none has been encoded in vain.
    pub(crate) fills_ring: bool,
    /// Pages that the hand goes round.
    pub(crate) resident: PageCount,
    /// The device has not taken yet what it was given; and how many bytes it has taken so far.
    pub(crate) device: Option<u64>,
}

impl Effort {
    /// Whether such rounds make up for what has come meanwhile.
    fn gains_well(&self) -> bool {
        self.gained > 0 && self.gained * GAIN_DIVISOR >= self.tried
    }

    /// Encodings have gone below.
    pub(crate) fn note_written(&mut self, written: ByteCount) {
        self.has_gained |= written > ByteCount::ZERO;
        let pages = written.0 / PAGE_BYTES as u64;
        (self.tried, self.gained) = (self.tried + pages, self.gained + pages);
    }
}

/// What is free of the share behind a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes; less than nothing where it is exceeded.
    pub(crate) free: i64,
    pub(crate) is_short: bool,
    /// Next to nothing of the program is in memory.
    pub(crate) is_bare: bool,
    /// More has come than was to before the next look.
    pub(crate) has_grown: bool,
    /// So much is to come between two looks.
    pub(crate) step: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exhaustion {
    rounds: u32,
    /// The budget has been found out of reach, and has not been met since.
    is_out_of_reach: bool,
    /// What was free then, or less if what has come since does not leave.
    reached: i64,
    /// As of the last round.
    device: Option<u64>,
    /// For how long it has taken nothing.
    device_waits_ns: u64,
    last_ns: u64,
}

impl Exhaustion {
    /// If the budget is out of reach after this round, which ends at `now_ns`: how much can be free, in bytes.
    pub(crate) fn judge(&mut self, effort: Effort, room: Room, now_ns: u64) -> Option<i64> {
        self.device_waits_ns += now_ns.saturating_sub(self.last_ns).min(STEP_NS_MAX);
        self.last_ns = now_ns;
        if effort.device != self.device {
            self.device = effort.device;
            self.device_waits_ns = 0;
        }
        if !room.is_short || self.is_gain(effort, room) {
            (self.rounds, self.is_out_of_reach) = (0, false);
            return None;
        }
        // Time for the hand to take all of their ages.
        let enough = ROUNDS + ((effort.resident.0 / LOOKS) << Age::BITS) as u32;
        if self.is_out_of_reach && room.has_grown && self.rounds >= enough {
            self.rounds = enough - ROUNDS_AGAIN;
        }
        let is_slow = self.device.is_some() && self.device_waits_ns < DEVICE_NS_MAX;
        let is_making_up = self.is_out_of_reach && effort.gains_well() && room.free < self.reached;
        if !is_slow && !effort.fills_ring && !is_making_up {
            self.rounds = self.rounds.saturating_add(1);
        }
        let is_enough = self.rounds >= enough;
        if is_enough && !self.is_out_of_reach {
            (self.is_out_of_reach, self.reached) = (true, room.free);
        } else if is_enough && !is_making_up {
            // What has come since does not leave. More than before is a gain, once there is enough of it.
            self.reached = self.reached.min(room.free);
        }
        is_enough.then_some(self.reached)
    }

    /// Where it is out of reach, pages that leave are those which faults have brought, as a rule, and no sign that it can be met: that is
    /// more room than there was. Where hardly any are in memory the accounts themselves see to it that faults need not wait.
    fn is_gain(&self, effort: Effort, room: Room) -> bool {
        let is_more = || room.free > self.reached + room.step.min(MORE_MAX) as i64;
        effort.has_gained && (!self.is_out_of_reach || room.is_bare || is_more())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: Effort =
        Effort { has_gained: false, tried: 30, gained: 0, fills_ring: false, resident: PageCount(1000), device: None };

    const SHORT: Room = Room { free: -(50 << 20), is_short: true, is_bare: false, has_grown: false, step: 1 << 20 };

    fn judge(exhaustion: &mut Exhaustion, effort: Effort, rounds: u32, from_ns: u64) -> bool {
        let mut reached = None;
        for round in 0..rounds {
            reached = exhaustion.judge(effort, SHORT, from_ns + u64::from(round) * 1_000_000);
        }
        reached.is_some()
    }

    #[test]
    fn many_rounds_in_vain_exhaust_and_a_gain_before_starts_them_anew() {
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
        assert!(!judge(&mut exhaustion, Effort { has_gained: true, gained: 1, ..VAIN }, 1, 0));
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
        assert!(judge(&mut exhaustion, VAIN, 1, 0));
        assert_eq!(exhaustion.judge(VAIN, Room { is_short: false, ..SHORT }, 0), None);
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
    }

    /// Each page that folded once let a program that does not fold wait for another forty rounds; so did what faults bring and leave again.
    #[test]
    fn what_is_out_of_reach_stays_so_until_there_is_more_room_than_before() {
        let mut exhaustion = Exhaustion::default();
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        let gains = Effort { has_gained: true, gained: VAIN.tried, ..VAIN };
        let with = |free: i64| Room { free, ..SHORT };
        let mut judge_with = |effort, free| exhaustion.judge(effort, with(free), 0);
        assert_eq!(judge_with(gains, SHORT.free), Some(SHORT.free));
        let more = SHORT.free + SHORT.step as i64;
        assert_eq!(judge_with(gains, more), Some(SHORT.free));
        // What has come since leaves again, or does not.
        assert_eq!(judge_with(gains, SHORT.free - 4096), Some(SHORT.free));
        assert_eq!(judge_with(Effort { gained: 3, ..gains }, SHORT.free - 4096), Some(SHORT.free - 4096));
        assert_eq!(judge_with(gains, more - 4096), Some(SHORT.free - 4096));
        assert_eq!(judge_with(gains, more), None);
        let mut large = exhaustion;
        assert!(judge(&mut large, VAIN, ROUNDS, 0));
        let with = |free: i64| Room { free, step: 256 << 20, ..SHORT };
        assert_eq!([0, 1].map(|bytes| large.judge(gains, with(more + bytes), 0)), [Some(SHORT.free), None]);
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        assert_eq!(exhaustion.judge(gains, Room { is_bare: true, ..SHORT }, 0), None);
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
    }

    #[test]
    fn what_has_come_since_is_tried_in_a_few_rounds_or_until_there_is_as_much_room_again() {
        let has_grown = Room { has_grown: true, free: SHORT.free - 4096, ..SHORT };
        let has_waited = Room { has_grown: false, ..has_grown };
        let mut exhaustion = Exhaustion::default();
        assert_eq!(exhaustion.judge(VAIN, has_grown, 0), None, "it has not been out of reach");
        assert!(judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
        let verdict = |exhaustion: &mut Exhaustion, effort, room| exhaustion.judge(effort, room, 0).is_some();
        let rooms = [has_grown, has_waited, has_waited, has_waited, has_waited];
        assert_eq!(rooms.map(|room| verdict(&mut exhaustion, VAIN, room)), [false, false, false, true, true]);
        // Nor does it take longer where more comes all the time.
        let verdicts: Vec<_> = (0..5).map(|_| verdict(&mut exhaustion, VAIN, has_grown)).collect();
        assert_eq!(verdicts, [false, false, false, true, false]);
        let gains = Effort { has_gained: true, gained: VAIN.tried / 4, ..VAIN };
        let lower = |room: Room| Room { free: room.free - 4096, ..room };
        assert!(!verdict(&mut exhaustion, gains, lower(has_grown)));
        assert!((0..100).all(|_| !verdict(&mut exhaustion, gains, lower(has_waited))));
        let as_much: Vec<_> = (0..4).map(|_| verdict(&mut exhaustion, gains, has_waited)).collect();
        assert_eq!(as_much, [false, false, true, true]);
    }

    #[test]
    fn what_goes_below_counts_as_pages_that_leave() {
        let mut effort = Effort { tried: 2, ..VAIN };
        effort.note_written(ByteCount(256 << 10));
        assert_eq!((effort.has_gained, effort.tried, effort.gained), (true, 66, 64));
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
        exhaustion.judge(Effort { has_gained: true, ..hung }, SHORT, 7 * DEVICE_NS_MAX);
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
