//! Exhaustion: when the budget counts as out of reach.
//!
//! A budget that cannot be met must not hold faults up for ever. So once the hand has gone round all pages often enough and next to
//! nothing has left, faults are served beyond it, and the user hears of it, or the program is stopped. A device that takes its time is
//! no reason for that, nor a ring that fills: who calls a healthy run exhausted may end it.
//!
//! It stays out of reach until there is more room than there was: pages that leave then are those which the faults have brought.

use page::{ByteCount, PAGE_BYTES, PageCount};
use policy::replacement::Age;

/// Rounds while room is short before the budget counts as out of reach.
const ROUNDS: u32 = 40;
/// And turns of the hand: it has taken all ages then.
const TURNS: u64 = 1 << Age::BITS;
/// Behind these, turns in which it spares nobody for having been refused before, who may have become what gets smaller. The first is
/// none, as a rule.
const TURNS_UNSPARING: u64 = 2;
/// They are in vain if less than this part of the pages that the hand goes round take less memory then, as a divisor: a program whose
/// budget is out of reach asks for some of them back all the time.
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
    /// It has spared nobody in these.
    pub(crate) is_unsparing: bool,
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
    turns_unsparing: u64,
    /// The last ones in which the hand had nowhere to go.
    stood: u32,
    tried: u64,
    gained: u64,
}

impl Spell {
    fn note(&mut self, effort: Effort) {
        self.rounds += 1;
        *if effort.is_unsparing { &mut self.turns_unsparing } else { &mut self.turns } += effort.turns.unwrap_or(0);
        self.stood = if effort.turns.is_none() && effort.tried == 0 { self.stood + 1 } else { 0 };
        self.tried += effort.tried;
        self.gained += effort.gained;
    }

    fn gains_well(&self) -> bool {
        self.gained > 0 && self.gained * GAIN_DIVISOR >= self.tried
    }
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
        if self.has_been_enough() {
            let spell = core::mem::take(&mut self.spell);
            if self.is_out_of_reach {
                // Of what has come since some may leave.
                self.reached = if spell.gains_well() { self.reached } else { self.reached.min(room.free) };
            } else if spell.gained * PART_DIVISOR <= effort.resident.0 {
                (self.is_out_of_reach, self.reached) = (true, room.free);
            }
        }
        self.is_out_of_reach.then_some(self.reached)
    }

    fn has_been_enough(&self) -> bool {
        let Spell { rounds, stood, turns, turns_unsparing, tried, .. } = self.spell;
        if self.is_out_of_reach {
            turns >= if tried > 0 { TURNS_AGAIN } else { TURNS_AGAIN_MAX } || rounds >= ROUNDS
        } else {
            let has_gone_round = turns >= TURNS && turns_unsparing >= TURNS_UNSPARING;
            rounds >= ROUNDS && (has_gone_round || stood >= ROUNDS)
        }
    }

    /// Whether the next turns decide whether it is out of reach.
    pub(crate) fn is_doubtful(&self) -> bool {
        !self.is_out_of_reach && self.spell.turns >= TURNS
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
    use crate::account::{Accounts, Holdings};

    /// The hand finds nowhere to go.
    const VAIN: Effort = Effort {
        has_gained: false,
        tried: 0,
        gained: 0,
        fills_ring: false,
        resident: PageCount(1600),
        turns: None,
        is_unsparing: false,
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

    /// The rounds until the budget is out of reach, of 1000 at most, where the hand goes round each so many rounds, so often.
    fn rounds_until_out_of_reach(effort: Effort, rounds_a_turn: u64, turns: u64) -> Option<u64> {
        let mut exhaustion = Exhaustion::default();
        (1..=1000_u64).find(|round| {
            let turns = effort.turns.map(|_| turns * u64::from(round.is_multiple_of(rounds_a_turn)));
            let effort = Effort { turns, is_unsparing: exhaustion.is_doubtful(), ..effort };
            exhaustion.judge(effort, SHORT, 0).is_some()
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
    fn the_hand_goes_round_all_pages_before_the_budget_counts_as_out_of_reach() {
        let turns = TURNS + TURNS_UNSPARING;
        let rounds = |rounds_a_turn| rounds_until_out_of_reach(TRIED, rounds_a_turn, 1);
        assert_eq!([1, 4, 40].map(rounds), [Some(40), Some(40), Some(40 * turns)]);
        assert_eq!(rounds_until_out_of_reach(TRIED, 1, 0), None);
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
    fn turns_in_which_a_part_of_the_pages_leaves_are_not_in_vain() {
        let gaining = |gained| Effort { has_gained: true, gained, ..TRIED };
        let rounds = (TURNS + TURNS_UNSPARING) * 10;
        let part = VAIN.resident.0 / PART_DIVISOR;
        assert_eq!(part, rounds);
        assert_eq!(rounds_until_out_of_reach(gaining(1), 10, 1), Some(rounds));
        assert_eq!(rounds_until_out_of_reach(gaining(2), 10, 1), None);
    }

    /// However many turns the hand makes in a round where it spares all.
    #[test]
    fn who_has_been_refused_is_tried_again_before_it_counts_as_out_of_reach() {
        for turns in [1, 5, 300] {
            let mut exhaustion = Exhaustion::default();
            let rounds_sparing = (1..=1000).find(|_| {
                assert!(!judge(&mut exhaustion, Effort { turns: Some(turns), ..TRIED }, 1, 0));
                exhaustion.is_doubtful()
            });
            assert_eq!(rounds_sparing, Some(TURNS.div_ceil(turns)));
            // The round that was under way, and turns that take long.
            assert!(!judge(&mut exhaustion, Effort { turns: Some(turns), ..TRIED }, ROUNDS, 0));
            let unsparing = |turns| Effort { turns: Some(turns), is_unsparing: true, ..TRIED };
            for turns in [0, 1, 0] {
                assert!(!judge(&mut exhaustion, unsparing(turns), if turns > 0 { 1 } else { 100 }, 0));
            }
            assert!(judge(&mut exhaustion, unsparing(1), 1, 0));
            assert!(exhaustion.is_out_of_reach() && !exhaustion.is_doubtful());
        }
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

    /// What was free when it was found out of reach is more than faults need, so that no level holds; then more comes. Each fault would
    /// wait in vain.
    #[test]
    fn faults_do_not_wait_on_where_no_level_was_needed_at_first() {
        const MIB: u64 = 1 << 20;
        let mut accounts = Accounts::new(ByteCount(16 * MIB), ByteCount::ZERO);
        let with_free = |bytes: u64| Holdings { pages: PageCount((16 * MIB - bytes) / 4096), ..Holdings::default() };
        let mut exhaustion = Exhaustion::default();
        let mut rounds = |accounts: &mut Accounts, holdings| {
            for _ in 0..ROUNDS {
                let free = accounts.free(holdings);
                let room = Room { free, has_grown: accounts.wants_reclaim(free), ..SHORT };
                let reached = exhaustion.judge(VAIN, room, 0);
                accounts.set_exhausted(reached, holdings, 0);
            }
            (accounts.exhausted.is_some(), accounts.is_short(accounts.free(holdings)))
        };
        assert_eq!(rounds(&mut accounts, with_free(2 * MIB)), (false, false));
        assert_eq!(rounds(&mut accounts, with_free(MIB / 4)), (true, false));
    }

    #[test]
    fn what_goes_below_counts_as_pages_that_leave() {
        let mut effort = Effort { tried: 2, ..VAIN };
        effort.note_written(ByteCount(256 << 10));
        assert_eq!((effort.has_gained, effort.tried, effort.gained), (true, 66, 64));
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
