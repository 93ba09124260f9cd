//! Load control: when processes of a run work by turns.
//!
//! Where each of several processes works on more than its share, all of them only bring pages back that they have just lost, and
//! moving memory between them helps none. Denning (The working set model for program behavior, 1968) has fewer of them run at a
//! time: "thrashing" ends when those that run have their working sets in memory. Here one of the processes that lose time goes on
//! while the faults of the others wait; who loses nothing is not concerned.

use crate::shares::Loss;

/// How long processes work by turns before all are tried together again, ns.
pub const CONTROL_NS: u64 = 3_000_000_000;
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
/// All together lose at least this part of the processors' time, as a divisor, when they begin to work by turns.
const THRASHING_DIVISOR: u64 = 3;

/// Whether a process that loses so much waits for its turn where there are turns.
pub fn is_concerned(own: Loss) -> bool {
    own.ns >= CONCERNED_NS
}

/// How much longer a turn is to last that has lasted for `passed_ns`, of which `lost_ns` went by over pages that had left, ns.
pub fn prolongation(passed_ns: u64, lost_ns: u64) -> u64 {
    let missing = WORK_NS.saturating_sub(passed_ns.saturating_sub(lost_ns));
    missing.min(TURN_NS_MAX.saturating_sub(passed_ns))
}

/// Whether processes are to work by turns from now on, by what each of them loses.
pub fn is_thrashing(losses: impl Iterator<Item = Loss>, processors: u32) -> bool {
    let concerned = losses.filter(|loss| is_concerned(*loss));
    let (count, lost) = concerned.fold((0, 0), |(count, lost), loss| (count + 1, lost + loss.ns));
    count > 1 && lost >= u64::from(processors.min(count)) * 1_000_000_000 / THRASHING_DIVISOR
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

    #[test]
    fn several_that_lose_much_thrash() {
        assert!(is_thrashing(losses([230, 210, 240, 200, 3]), 2));
        assert!(!is_thrashing(losses([100, 80, 90, 70]), 2), "they get on");
        assert!(!is_thrashing(losses([900, 20]), 2), "for one alone there is nobody to wait for");
        assert!(!is_thrashing(losses([40; 25]), 2), "many that lose little each share locks rather than memory");
        assert!(is_thrashing(losses([300, 300, 300]), 2) && !is_thrashing(losses([300, 300, 300]), 64));
    }
}
