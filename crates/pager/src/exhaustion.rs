//! Exhaustion: when the budget counts as out of reach.
//!
//! A budget that cannot be met must not hold faults up for ever. So once nothing has left for some time, or next to nothing, a sample of
//! all pages is tried; and if none of these get smaller either, faults are served beyond it, and the user hears of it, or the program is
//! stopped. A device that takes its time is no reason for that, nor a ring that fills: who calls a healthy run exhausted may end it.
//!
//! It stays out of reach until there is more room than there was: pages that leave then are those which the faults have brought.

use core::num::NonZeroU32;

use page::{ByteCount, PAGE_BYTES, PageCount};
use policy::replacement::Age;

/// Rounds while room is short before a sample is tried.
const ROUNDS: u32 = 40;
/// More of them in a large memory: the hand passes so many pages in one, on a slow machine, and takes all ages in some turns.
const LOOKS: u64 = 16_384;
const TURNS: u64 = 1 << Age::BITS;
/// Pages that are tried as a sample, of more as of fewer.
const SAMPLE: u64 = 8192;
/// Turns for that: the first is none, as a rule.
const TURNS_SAMPLING: u64 = 2;
/// All is in vain if less than this part of the pages take less memory then, as a divisor: a program whose budget is out of reach asks
/// for some of them back all the time.
const PART_DIVISOR: u64 = 16;
/// Turns where it has been out of reach before and more has come: the first is none, and the second takes from those that have come
/// the age that they have at first. Where all have more than that, until all ages are taken.
const TURNS_AGAIN: u64 = 3;
const TURNS_AGAIN_MAX: u64 = TURNS + 1;
/// They gain well if this part of the pages that are tried take less memory then, as a divisor.
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
    /// Pages that the hand goes round, and how often it has since the round before; nothing if it has not moved.
    pub(crate) resident: PageCount,
    pub(crate) turns: Option<u64>,
    /// It has taken a sample in these.
    pub(crate) is_sampling: bool,
    /// The device has not taken yet what it was given; and how many bytes it has taken so far.
    pub(crate) device: Option<u64>,
}

impl Effort {
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
    /// Less may be taken than should be, where the budget is out of reach.
    pub(crate) has_grown: bool,
    /// So much may be taken beyond it.
    pub(crate) step: u64,
}

/// What rounds in a row have come to.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    rounds: u32,
    turns: u64,
    /// The last ones in which the hand had nowhere to go.
    stood: u32,
    tried: u64,
    gained: u64,
    /// Of the turns and pages those for the sample.
    sampled: Sampled,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    turns: u64,
    tried: u64,
    gained: u64,
}

impl Spell {
    fn note(&mut self, effort: Effort) {
        self.rounds += 1;
        let turns = effort.turns.unwrap_or(0);
        self.turns += turns;
        if effort.is_sampling {
            self.sampled.turns += turns;
            self.sampled.tried += effort.tried;
            self.sampled.gained += effort.gained;
        }
        self.stood = if effort.turns.is_none() && effort.tried == 0 { self.stood + 1 } else { 0 };
        self.tried += effort.tried;
        self.gained += effort.gained;
    }

    fn gains_well(&self) -> bool {
        self.gained > 0 && self.gained * GAIN_DIVISOR >= self.tried
    }

    /// Whether it takes a sample to know whether anybody gets smaller: next to nobody of those that have been tried has, or of all that
    /// the hand has gone round again and again.
    fn is_doubtful(&self, resident: PageCount) -> bool {
        let is_long = self.rounds >= ROUNDS + (resident.0 / LOOKS * TURNS) as u32;
        is_long && (is_next_to_nothing(self.gained, self.tried) || self.turns >= TURNS && self.is_little(resident))
    }

    /// Whether next to nothing has left of what the hand goes round.
    fn is_little(&self, resident: PageCount) -> bool {
        is_next_to_nothing(self.gained, resident.0)
    }
}

fn is_next_to_nothing(gained: u64, of: u64) -> bool {
    gained * PART_DIVISOR <= of
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exhaustion {
    /// Since room is short; or, if the budget is out of reach, since more has come than was to.
    spell: Spell,
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
        if !room.is_short || self.is_more(effort, room) {
            (self.spell, self.is_out_of_reach) = (Spell::default(), false);
            return None;
        }
        let is_slow = self.device.is_some() && self.device_waits_ns < DEVICE_NS_MAX;
        if self.is_out_of_reach && !room.has_grown {
            self.spell = Spell::default();
        } else if !is_slow && !effort.fills_ring {
            self.spell.note(effort);
        }
        if !self.is_out_of_reach && self.spell.turns >= TURNS && !self.spell.is_little(effort.resident) {
            self.spell = Spell::default();
        }
        if self.has_been_enough() {
            let spell = core::mem::take(&mut self.spell);
            if self.is_out_of_reach {
                // Of what has come since some may leave.
                self.reached = if spell.gains_well() { self.reached } else { self.reached.min(room.free) };
            } else if spell.is_little(effort.resident) && is_next_to_nothing(spell.sampled.gained, spell.sampled.tried)
            {
                (self.is_out_of_reach, self.reached) = (true, room.free);
            }
        }
        self.is_out_of_reach.then_some(self.reached)
    }

    fn has_been_enough(&self) -> bool {
        let Spell { rounds, stood, turns, tried, sampled, .. } = self.spell;
        if self.is_out_of_reach {
            turns >= if tried > 0 { TURNS_AGAIN } else { TURNS_AGAIN_MAX } || rounds >= ROUNDS
        } else {
            sampled.turns >= TURNS_SAMPLING || stood >= ROUNDS
        }
    }

    /// If the next turns are to decide whether it is out of reach, of how many pages one is to be tried, where the hand goes round `resident`.
    pub(crate) fn sample(&self, resident: PageCount) -> Option<NonZeroU32> {
        let is_wanted = !self.is_out_of_reach && self.spell.is_doubtful(resident);
        is_wanted.then(|| NonZeroU32::new((resident.0 / SAMPLE) as u32).unwrap_or(NonZeroU32::MIN))
    }

    /// Whether it has been found out of reach, and not been met since.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.is_out_of_reach
    }

    /// Where it is out of reach, pages that leave are those which faults have brought, as a rule, and no sign that it can be met: that is
    /// more room than there was. Where hardly any are in memory the accounts themselves see to it that faults need not wait.
    fn is_more(&self, effort: Effort, room: Room) -> bool {
        let is_more = || room.free > self.reached + room.step.min(MORE_MAX) as i64;
        self.is_out_of_reach && effort.has_gained && (room.is_bare || is_more())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hand finds nowhere to go.
    const VAIN: Effort = Effort {
        has_gained: false,
        tried: 0,
        gained: 0,
        fills_ring: false,
        resident: PageCount(1600),
        turns: None,
        is_sampling: false,
        device: None,
    };

    /// Nobody that it comes to gets smaller.
    const TRIED: Effort = Effort { tried: 30, turns: Some(0), ..VAIN };

    const SHORT: Room = Room { free: -(50 << 20), is_short: true, is_bare: false, has_grown: false, step: 1 << 20 };

    fn judge(exhaustion: &mut Exhaustion, effort: Effort, rounds: u32, from_ns: u64) -> bool {
        let mut reached = None;
        for round in 0..rounds {
            reached = exhaustion.judge(effort, SHORT, from_ns + u64::from(round) * 1_000_000);
        }
        reached.is_some()
    }

    /// The rounds until the budget is out of reach, of 2000 at most, where the hand goes round once in so many, and what is tried of the
    /// sample comes to something else.
    fn rounds_until_out_of_reach(effort: Effort, rounds_a_turn: u64, of_sample: u64) -> Option<u64> {
        let mut exhaustion = Exhaustion::default();
        (1..=2000_u64).find(|round| {
            let turns = effort.turns.map(|_| u64::from(round.is_multiple_of(rounds_a_turn)));
            let is_sampling = exhaustion.sample(effort.resident).is_some();
            let gained = if is_sampling { of_sample } else { effort.gained };
            exhaustion.judge(Effort { gained, turns, is_sampling, ..effort }, SHORT, 0).is_some()
        })
    }

    #[test]
    fn many_rounds_in_vain_exhaust_and_room_before_starts_them_anew() {
        let mut exhaustion = Exhaustion::default();
        for _ in 0..2 {
            assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
            assert_eq!(exhaustion.judge(VAIN, Room { is_short: false, ..SHORT }, 0), None);
        }
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        assert_eq!(exhaustion.judge(VAIN, Room { is_short: false, ..SHORT }, 0), None);
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
    }

    /// Noise that lay before what folds once took forty rounds in vain, and a budget that could be met was exceeded by a third.
    #[test]
    fn a_sample_of_all_pages_is_tried_before_the_budget_counts_as_out_of_reach() {
        let rounds = |rounds_a_turn| rounds_until_out_of_reach(TRIED, rounds_a_turn, 0);
        assert_eq!([1, 4, 40, 300].map(rounds), [Some(42), Some(48), Some(120), Some(600)]);
        assert_eq!([1, 40].map(|rounds_a_turn| rounds_until_out_of_reach(TRIED, rounds_a_turn, 2)), [None; 2]);
        // Nor is what is tried without a step of the hand, such as a full ring, all there is.
        assert_eq!(rounds_until_out_of_reach(Effort { turns: None, ..TRIED }, 1, 0), None);
        let mut exhaustion = Exhaustion::default();
        assert!((0..10 * ROUNDS).all(|round| !judge(
            &mut exhaustion,
            if round % 39 == 0 { TRIED } else { VAIN },
            1,
            0
        )));
    }

    /// A page now and then is what the program asks for again.
    #[test]
    fn it_is_doubtful_where_next_to_nothing_leaves() {
        let gaining = |gained| Effort { has_gained: true, gained, ..TRIED };
        // Of all that is tried, at once; of all that the hand goes round, once it has, eight times.
        assert_eq!(rounds_until_out_of_reach(gaining(1), 10, 0), Some(60));
        assert_eq!(rounds_until_out_of_reach(gaining(2), 10, 0), None);
        let of_few = Effort { tried: 1, ..gaining(1) };
        assert_eq!(rounds_until_out_of_reach(of_few, 10, 0), Some(100));
        assert_eq!(rounds_until_out_of_reach(of_few, 13, 0), None);
    }

    /// Some thousand pages, however many there are.
    #[test]
    fn a_sample_is_of_all_pages_or_of_some_thousand() {
        let of = |resident: u64| {
            let mut exhaustion = Exhaustion::default();
            let effort = Effort { resident: PageCount(resident), ..TRIED };
            let rounds = (0..1_000_000).find(|_| {
                assert!(!judge(&mut exhaustion, effort, 1, 0));
                exhaustion.sample(effort.resident).is_some()
            });
            (rounds, exhaustion.sample(effort.resident).map(NonZeroU32::get))
        };
        assert_eq!(of(0), (Some(39), Some(1)));
        assert_eq!(of(12_000), (Some(39), Some(1)));
        assert_eq!(of(1 << 18), (Some(39 + 128), Some(32)));
        let mut exhaustion = Exhaustion::default();
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        assert!(exhaustion.is_out_of_reach() && exhaustion.sample(VAIN.resident).is_none());
    }

    /// Each page that folded once let a program that does not fold wait for another forty rounds; so did what faults bring and leave again.
    #[test]
    fn what_is_out_of_reach_stays_so_until_there_is_more_room_than_before() {
        let mut exhaustion = Exhaustion::default();
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        let gains = Effort { has_gained: true, gained: TRIED.tried, ..TRIED };
        let with = |free: i64| Room { free, ..SHORT };
        let mut judge_with = |effort, free| exhaustion.judge(effort, with(free), 0);
        assert_eq!(judge_with(gains, SHORT.free), Some(SHORT.free));
        let more = SHORT.free + SHORT.step as i64;
        assert_eq!(judge_with(gains, more), Some(SHORT.free));
        assert_eq!(judge_with(gains, more + 1), None);
        let mut large = exhaustion;
        assert!(judge(&mut large, VAIN, ROUNDS, 0));
        let with = |free: i64| Room { free, step: 256 << 20, ..SHORT };
        assert_eq!([0, 1].map(|bytes| large.judge(gains, with(more + bytes), 0)), [Some(SHORT.free), None]);
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        assert_eq!(exhaustion.judge(gains, Room { is_bare: true, ..SHORT }, 0), None);
        assert!(!judge(&mut exhaustion, VAIN, ROUNDS - 1, 0));
    }

    /// What can be free behind each of some turns.
    #[test]
    fn what_has_come_since_is_passed_by_the_hand_before_more_may_come() {
        let (before, less) = (SHORT.free, SHORT.free - 4096);
        let reached = |effort: Effort, has_grown: &[bool]| {
            let mut exhaustion = Exhaustion::default();
            assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
            let mut behind = |has_grown: &bool| {
                let room = Room { has_grown: *has_grown, free: less, ..SHORT };
                exhaustion.judge(Effort { turns: Some(1), ..effort }, room, 0).expect("it is out of reach")
            };
            has_grown.iter().map(&mut behind).collect::<Vec<_>>()
        };
        assert_eq!(reached(TRIED, &[true; 4]), [before, before, less, less]);
        assert_eq!(reached(TRIED, &[true, true, false, true]), [before; 4]);
        let gaining = |gained| Effort { has_gained: true, gained, ..TRIED };
        assert_eq!(reached(gaining(3), &[true; 4]), [before, before, less, less]);
        assert_eq!(reached(gaining(4), &[true; 4]), [before; 4]);
        assert_eq!(reached(Effort { fills_ring: true, ..TRIED }, &[true; 4]), [before; 4]);
        // Where nobody has been tried all have an age yet.
        assert_eq!(reached(Effort { tried: 0, ..TRIED }, &[true; 9])[7..], [before, less]);
        // However slowly the hand goes.
        let mut exhaustion = Exhaustion::default();
        assert!(judge(&mut exhaustion, VAIN, ROUNDS, 0));
        let room = Room { has_grown: true, free: less, ..SHORT };
        let reached: Vec<_> = (0..ROUNDS).map(|_| exhaustion.judge(TRIED, room, 0)).collect();
        assert_eq!(reached[ROUNDS as usize - 2..], [Some(before), Some(less)]);
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
        let many = Effort { tried: 0, resident: PageCount(1 << 18), ..TRIED };
        let mut exhaustion = Exhaustion::default();
        assert!(!judge(&mut exhaustion, many, ROUNDS + 7 * 16, 0));
        assert!(exhaustion.sample(many.resident).is_none());
        assert!(!judge(&mut exhaustion, many, 16, 0));
        assert!(exhaustion.sample(many.resident).is_some());
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
        // Once it hangs no room that comes from elsewhere makes it a slow one again.
        assert_eq!(exhaustion.judge(hung, Room { is_short: false, ..SHORT }, 7 * DEVICE_NS_MAX), None);
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
