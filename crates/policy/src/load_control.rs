//! Load control: when processes of a run work by turns.
//!
//! Where each of several processes works on more than its share, all of them only bring pages back that they have just lost, and
//! moving memory between them helps none. Denning (The working set model for program behavior, 1968) has fewer of them run at a
//! time: "thrashing" ends when those that run have their working sets in memory. Here one of the processes that lose time goes on
//! while the faults of the others wait; who loses nothing is not concerned.

use crate::shares::Loss;

/// How long processes work by turns before all are tried together again, ns: where that goes badly soon, twice as long the next time.
const SPELL_NS: u64 = 1_500_000_000;
/// See [`SPELL_NS`].
pub const SPELL_NS_MAX: u64 = 4 * SPELL_NS;
/// That soon, ns.
const SOON_NS: u64 = 2_000_000_000;
/// The length of a turn, ns. To bring a working set of 10 MiB back takes a twentieth of that.
pub const TURN_NS: u64 = 500_000_000;
/// But it lasts until its process has had so much of it beside its faults, ns: a turn in which a large working set is only brought
/// back is lost.
const WORK_NS: u64 = 250_000_000;
/// And never longer than this, ns.
pub const TURN_NS_MAX: u64 = 2_000_000_000;
/// A turn that nobody has claimed goes on to the next one after so long, ns.
pub const CLAIM_NS: u64 = 20_000_000;
/// Who has waited for so long goes on whoever else does, for the length of a turn, ns.
pub const WAIT_NS_MAX: u64 = 5_000_000_000;
/// Who loses less than this of each second is not concerned, ns.
const CONCERNED_NS: u64 = 50_000_000;
/// What is lost is a mean of about so long, ns: what new processes, a new phase of work, or those whose memory others had by turns
/// first bring in is no sign.
const MEAN_NS: u64 = 700_000_000;
/// All together lose at least this part of the processors' time, as a divisor, when they begin to work by turns.
const THRASHING_DIVISOR: u64 = 4;
/// And all but the one that loses most this part: what he loses, he would lose alone, too.
const OTHERS_DIVISOR: u64 = 8;

/// Whether a process that loses so much waits for its turn where there are turns.
pub fn is_concerned(own: Loss) -> bool {
    own.ns >= CONCERNED_NS
}

/// How much longer a turn is to last that has lasted for `passed_ns`, of which `lost_ns` went by over pages that had left, ns.
pub fn prolongation(passed_ns: u64, lost_ns: u64) -> u64 {
    let missing = WORK_NS.saturating_sub(passed_ns.saturating_sub(lost_ns));
    missing.min(TURN_NS_MAX.saturating_sub(passed_ns))
}

/// What the processes of a run lose of each second, in the mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// All together, us.
    pub all: u32,
    /// Without the one that loses most, us.
    pub others: u32,
}

impl Load {
    /// With what each loses `passed_ns` after the last look.
    #[must_use]
    pub fn looked(self, losses: impl Iterator<Item = Loss>, passed_ns: u64) -> Self {
        let concerned = losses.filter(|loss| is_concerned(*loss));
        let (all, most) = concerned.fold((0, 0), |(all, most), loss| (all + loss.ns / 1000, most.max(loss.ns / 1000)));
        let passed_ns = passed_ns.min(MEAN_NS);
        let mean = |mean: u32, now: u64| {
            let now = now.min(u32::MAX.into());
            ((u64::from(mean) * (MEAN_NS - passed_ns) + now * passed_ns) / MEAN_NS) as u32
        };
        Self { all: mean(self.all, all), others: mean(self.others, all - most) }
    }

    /// Whether they are to work by turns from now on.
    pub fn is_thrashing(self, losses: impl Iterator<Item = Loss>, processors: u32) -> bool {
        let count = losses.filter(|loss| is_concerned(*loss)).count();
        let time = u64::from(processors).min(count as u64) * 1_000_000;
        count > 1 && u64::from(self.all) >= time / THRASHING_DIVISOR && u64::from(self.others) >= time / OTHERS_DIVISOR
    }
}

/// How long processes work by turns that thrash `together_ns` after they last did so for `spell_ns`, ns.
pub fn spell(spell_ns: u64, together_ns: u64) -> u64 {
    if together_ns < SOON_NS { (2 * spell_ns).clamp(SPELL_NS, SPELL_NS_MAX) } else { SPELL_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses<const N: usize>(milliseconds: [u64; N]) -> impl Iterator<Item = Loss> {
        milliseconds.into_iter().map(|ms| Loss { ns: ms * 1_000_000, held: 1 << 20 })
    }

    #[test]
    fn a_turn_lasts_until_something_has_been_done_with_it() {
        const MS: u64 = 1_000_000;
        assert_eq!(prolongation(400 * MS, 100 * MS), 0);
        assert_eq!(prolongation(400 * MS, 390 * MS), 240 * MS);
        assert_eq!(prolongation(1900 * MS, 1890 * MS), 100 * MS);
        assert_eq!(prolongation(3000 * MS, 3000 * MS), 0);
    }

    /// After as many looks at 50 ms as there are, each loses so much.
    fn thrash<const N: usize>(milliseconds: [u64; N], looks: usize, processors: u32) -> bool {
        let load = (0..looks).fold(Load::default(), |load, _| load.looked(losses(milliseconds), 50_000_000));
        load.is_thrashing(losses(milliseconds), processors)
    }

    #[test]
    fn several_that_lose_much_for_some_time_thrash() {
        assert!(thrash([230, 210, 240, 200, 3], 20, 2));
        assert!(!thrash([230, 210, 240, 200, 3], 5, 2), "they have just begun");
        assert!(thrash([900; 21], 2, 2), "that soon where all they do is lose");
        assert!(!thrash([100, 80, 90, 70], 100, 2), "they get on");
        assert!(!thrash([900, 20], 100, 2), "for one alone there is nobody to wait for");
        assert!(!thrash([940, 180, 49], 100, 2), "the first would lose as much alone");
        assert!(!thrash([40; 25], 100, 2), "many that lose little each share locks rather than memory");
        assert!(thrash([200; 3], 100, 2) && !thrash([200; 3], 100, 64));
    }

    #[test]
    fn who_thrash_as_soon_as_all_go_on_work_by_turns_for_longer() {
        const MS: u64 = 1_000_000;
        let mut last = 0;
        let lengths = [5000, 700, 700, 700, 700, 2500, 700].map(|together| {
            last = spell(last, together * MS);
            last / MS
        });
        assert_eq!(lengths, [1500, 3000, 6000, 6000, 6000, 1500, 3000]);
    }
}
