//! Shares: what each process of a run may hold of the budget.
//!
//! Each process deals the budget out for itself, from what all have written down of themselves. A part goes evenly, the rest
//! by what each holds and may claim. A claim falls while others lose more time over the pages they miss, for each byte they
//! hold: so memory goes from who only holds it to who works with it, until a byte less costs all of them the same
//! ([`Claim::look`]).

use page::ByteCount;

/// The part of the budget that is dealt out evenly, as a divisor.
const EVEN_DIVISOR: u64 = 4;
/// Beside what can never go a process has at least this: pages to work with, and room for more. With less each access is a fault.
const WORKING_BYTES: u64 = 512 << 10;

/// What part of what a process holds counts where the budget is dealt out, in 1/1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim(u32);

impl Claim {
    /// All of it.
    pub const WHOLE: Self = Self(1 << 10);
    /// A process that touches nothing keeps what its even part is.
    pub const MIN: Self = Self(1 << 5);
    /// Time between two looks, ns.
    pub const LOOK_NS: u64 = 50_000_000;
    /// Who loses less than this part of the mean gives up some, as a divisor: what costs about the same stays where it is.
    const CALM_DIVISOR: u128 = 2;
    /// While all together lose less than this of each second, everybody regains his claim, ns.
    const LOSS_NS_MIN: u64 = 5_000_000;
    /// The part of a claim that one look changes, as a divisor: half of it in half a second.
    const STEP_DIVISOR: u32 = 16;

    /// From the number that [`Claim::number`] gave; 0 is a process that has not looked yet.
    pub fn from_number(number: u32) -> Self {
        if number == 0 { Self::WHOLE } else { Self(number.clamp(Self::MIN.0, Self::WHOLE.0)) }
    }

    /// To be written down.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The claim after a look: `own` is this process, `all` the sum over the run. What matters is time lost by byte held.
    #[must_use]
    pub fn look(self, own: Loss, all: Loss) -> Self {
        let step = self.0 / Self::STEP_DIVISOR;
        let [own_density, mean] =
            [u128::from(own.ns) * u128::from(all.held), u128::from(all.ns) * u128::from(own.held)];
        let changed = if all.ns < Self::LOSS_NS_MIN || own_density >= mean {
            self.0 + step.max(1)
        } else if own_density * Self::CALM_DIVISOR < mean {
            self.0 - step
        } else {
            self.0
        };
        Self(changed.clamp(Self::MIN.0, Self::WHOLE.0))
    }
}

/// Time that a process loses over pages that have left, in ns of each second, and the bytes that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// ns of each second.
    pub ns: u64,
    /// Bytes.
    pub held: u64,
}

/// A process among which a budget is dealt out.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// What it holds, all in all.
    pub held: ByteCount,
    /// What of that does not go: its agent and tables, memory that is not managed, and what reclaim has found not to go.
    pub fixed: ByteCount,
    /// What of it counts.
    pub claim: Claim,
    /// What it may hold, as of its last look.
    pub limit: ByteCount,
}

impl Holder {
    /// What it holds and could give up.
    fn movable(&self) -> u64 {
        self.held.saturating_sub(self.fixed).0
    }

    fn floor(&self) -> u64 {
        self.fixed.0 + WORKING_BYTES
    }

    /// More than this it would not use at once, where `even` is an even part. A newcomer has half of that from the start.
    fn cap(&self, even: u64) -> u64 {
        (self.fixed.0 + 2 * self.movable() + even / 2).max(self.floor())
    }

    /// What it has in any case.
    fn base(&self, even: u64) -> u64 {
        self.floor().max(even.min(self.cap(even)))
    }

    fn weight(&self) -> u128 {
        u128::from(self.movable()) * u128::from(self.claim.0)
    }
}

/// What one process is dealt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// What it may hold now.
    pub bytes: ByteCount,
    /// What it may hold once others have let go what is not theirs any more.
    pub dealt: ByteCount,
    /// How many have one.
    pub processes: u64,
    /// All of them hold more than there is.
    pub is_exceeded: bool,
    /// They do, and what they need at the least is more, too.
    pub is_beyond: bool,
}

impl Share {
    /// Nobody else has one.
    pub fn is_lone(&self) -> bool {
        self.processes == 1
    }
}

/// The share of `own`, one of `all`, in `left` bytes. The shares of all add up to that, or less where nobody has a use for more, or where
/// somebody has not let go yet what others are to have.
pub fn share(left: ByteCount, own: Holder, all: impl Iterator<Item = Holder> + Clone) -> Share {
    let processes = all.clone().count().max(1) as u64;
    let is_exceeded = all.clone().map(|holder| holder.held.0).sum::<u64>() > left.0;
    let whole = Share { bytes: left, dealt: left, processes, is_exceeded, is_beyond: false };
    if whole.is_lone() {
        return whole;
    }
    let sum_of_bases = |even| all.clone().map(|holder| holder.base(even)).sum::<u64>();
    let even = left.0 / EVEN_DIVISOR / processes;
    // Where many have little, what they must have is all that is dealt out without regard to what they hold.
    let even = if sum_of_bases(even) <= left.0 { even } else { 0 };
    let bases = sum_of_bases(even);
    if bases > left.0 {
        let floor = ByteCount(own.floor());
        return Share { bytes: floor, dealt: floor, is_beyond: is_exceeded, ..whole };
    }
    // Dealt out twice: what the first round gives to those who have no use for it goes to the others.
    let first = Deal { rest: left.0 - bases, weights: all.clone().map(|holder| holder.weight()).sum() };
    let (mut surplus, mut weights) = (0, 0);
    for holder in all.clone() {
        let dealt = holder.base(even) + first.part(holder);
        if dealt > holder.cap(even) {
            surplus += dealt - holder.cap(even);
        } else {
            weights += holder.weight();
        }
    }
    let second = Deal { rest: surplus, weights };
    let dealt = |holder: Holder| {
        let dealt = holder.base(even) + first.part(holder);
        if dealt > holder.cap(even) { holder.cap(even) } else { dealt + second.part(holder) }
    };
    let bytes = grown_to(left, (own, dealt(own)), all.map(|holder| (holder, dealt(holder))));
    Share { bytes: ByteCount(bytes), dealt: ByteCount(dealt(own)), ..whole }
}

/// Who holds more than he is dealt has to let it go first: until then the others may have so much less more, each in proportion to what
/// he lacks. So what all of them hold stays within what there is while memory goes from one to another. What one may hold
/// already he keeps, up to what he is dealt now.
fn grown_to(left: ByteCount, (own, dealt): (Holder, u64), all: impl Iterator<Item = (Holder, u64)>) -> u64 {
    let kept = |holder: Holder, dealt: u64| holder.held.0.max(holder.limit.0).min(dealt);
    let (taken, lacking) = all.fold((0_u64, 0_u64), |(taken, lacking), (holder, dealt)| {
        let kept = kept(holder, dealt);
        (taken + kept.max(holder.held.0), lacking + dealt - kept)
    });
    let own_kept = kept(own, dealt);
    let free = Deal { rest: left.0.saturating_sub(taken).min(lacking), weights: lacking.into() };
    (own_kept + free.part_of((dealt - own_kept).into())).max(own.floor())
}

/// So many bytes for so many weights.
struct Deal {
    rest: u64,
    weights: u128,
}

impl Deal {
    fn part(&self, holder: Holder) -> u64 {
        self.part_of(holder.weight())
    }

    fn part_of(&self, weight: u128) -> u64 {
        (u128::from(self.rest) * weight / self.weights.max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LEFT: ByteCount = ByteCount(100 * MIB);

    fn holder(held: u64) -> Holder {
        Holder { held: ByteCount(held * MIB), fixed: ByteCount::ZERO, claim: Claim::WHOLE, limit: ByteCount::ZERO }
    }

    fn shares(holders: &[Holder]) -> Vec<u64> {
        holders.iter().map(|own| share(LEFT, *own, holders.iter().copied()).dealt.0).collect()
    }

    fn shares_now(holders: &[Holder]) -> Vec<u64> {
        holders.iter().map(|own| share(LEFT, *own, holders.iter().copied()).bytes.0).collect()
    }

    #[test]
    fn a_lone_process_has_all() {
        for held in [0, 1, 80] {
            assert_eq!(shares(&[holder(held)]), [LEFT.0]);
        }
    }

    #[test]
    fn shares_never_exceed_what_there_is_and_leave_nothing_that_is_wanted() {
        for held in [[10, 20, 30], [50, 60, 70], [0, 0, 200], [33, 33, 34], [1, 1, 98], [0, 5, 5], [0, 0, 0]] {
            let holders = held.map(holder);
            let shares = shares(&holders);
            let (sum, wanted) =
                (shares.iter().sum::<u64>(), holders.iter().map(|holder| holder.cap(LEFT.0 / 12)).sum());
            assert!(sum <= LEFT.0, "{held:?}: {shares:?}");
            assert!(sum + 8 >= LEFT.0.min(wanted), "{held:?}: {shares:?} of {wanted}");
        }
    }

    /// Until the first has let go what it is not to have any more, the others grow into what is free, and not beyond. Who is content
    /// keeps what he may hold.
    #[test]
    fn nobody_grows_into_what_another_still_holds() {
        let mut holders = [holder(60), holder(20), holder(5)];
        let before = shares_now(&holders);
        holders.iter_mut().zip(before).for_each(|(holder, share)| holder.limit = ByteCount(share));
        holders[0].claim = Claim::MIN;
        let content = holders[2].limit;
        for _ in 0..100 {
            let (dealt, shares) = (shares(&holders), shares_now(&holders));
            let held = |holder: &Holder, share: u64| holder.held.0.max(share);
            let most: u64 = holders.iter().zip(&shares).map(|(holder, share)| held(holder, *share)).sum();
            assert!(most <= LEFT.0, "{holders:?}: {shares:?}");
            assert!(shares[2] >= content.0.min(dealt[2]), "{holders:?}: {shares:?} of {dealt:?}");
            for (holder, share) in holders.iter_mut().zip(shares) {
                holder.limit = ByteCount(share);
            }
            // It gives up a MiB at a time; one fills what it may, one holds what it has.
            holders[0].held = ByteCount(holders[0].limit.0.max(holders[0].held.0.saturating_sub(MIB)));
            holders[1].held = holders[1].limit;
        }
        assert!(holders[0].held.0 < 25 * MIB && holders[1].held.0 > 60 * MIB, "{holders:?}");
    }

    #[test]
    fn a_newcomer_can_grow_beside_a_large_process_and_holds_up_nothing_while_it_does_not() {
        let [newcomer, large] = shares(&[holder(0), holder(100)])[..] else { unreachable!() };
        assert_eq!((newcomer, large), (100 * MIB / 16, LEFT.0 - 100 * MIB / 16));
        let grown = shares(&[holder(6), holder(94)])[0];
        assert!(grown > 12 * MIB, "{grown}");
    }

    #[test]
    fn who_claims_less_has_less() {
        let idle = Holder { claim: Claim::MIN, ..holder(60) };
        let [idle, busy] = shares(&[idle, holder(40)])[..] else { unreachable!() };
        assert!(idle < 17 * MIB && busy > 79 * MIB, "{idle} {busy}");
    }

    #[test]
    fn everybody_has_enough_to_work_with_however_many_there_are() {
        let small = Holder { fixed: ByteCount(MIB - WORKING_BYTES), ..holder(2) };
        let of_so_many = |processes| share(LEFT, small, core::iter::repeat_n(small, processes));
        let Share { bytes, is_beyond, .. } = of_so_many(90);
        assert!(!is_beyond && bytes.0 > MIB && 90 * bytes.0 <= LEFT.0 && 90 * bytes.0 > LEFT.0 - MIB, "{bytes:?}");
        let too_many =
            Share { bytes: ByteCount(MIB), dealt: ByteCount(MIB), processes: 110, is_exceeded: true, is_beyond: true };
        assert_eq!(of_so_many(110), too_many);
        let idle = Holder { held: ByteCount(MIB / 2), ..small };
        assert!(!share(LEFT, idle, core::iter::repeat_n(idle, 110)).is_beyond, "who holds less needs no warning");
    }

    #[test]
    fn what_can_never_go_draws_nothing() {
        // Seven processes of 16 MiB, nearly all of it fixed, and one that works on all it can get.
        let idle = Holder { held: ByteCount(16 * MIB), fixed: ByteCount(16 * MIB - (64 << 10)), ..holder(0) };
        let busy = Holder { held: ByteCount(40 * MIB), fixed: ByteCount(16 * MIB), ..holder(0) };
        let left = ByteCount(200 * MIB);
        let all = || core::iter::repeat_n(idle, 7).chain([busy]);
        let Share { bytes, .. } = share(left, busy, all());
        let idles = share(left, idle, all()).bytes.0 * 7;
        assert!(bytes.0 > 64 * MIB && bytes.0 + idles <= left.0, "{bytes:?} {idles}");
    }

    /// Who loses nothing gives up half in half a second; who loses as much as the mean does not, and gets it back.
    #[test]
    fn claims_follow_losses_by_byte() {
        let all = Loss { ns: 100_000_000, held: 100 * MIB };
        let idle = Loss { ns: 0, held: 60 * MIB };
        let after = |from: Claim, own, looks| (0..looks).fold(from, |claim: Claim, _| claim.look(own, all));
        assert!((Claim::WHOLE.0 / 2 - 40..Claim::WHOLE.0 / 2 + 40).contains(&after(Claim::WHOLE, idle, 11).0));
        assert_eq!(after(Claim::WHOLE, idle, 200), Claim(Claim::MIN.0.max(after(Claim::WHOLE, idle, 200).0)));
        assert!(after(Claim::WHOLE, idle, 200).0 < 2 * Claim::MIN.0);
        let fair = Loss { ns: 60_000_000, held: 60 * MIB };
        assert_eq!(after(Claim::WHOLE, fair, 200), Claim::WHOLE);
        assert_eq!(after(Claim::MIN, fair, 200), Claim::WHOLE);
        let below = Loss { ns: 31_000_000, held: 60 * MIB };
        assert_eq!(after(Claim(500), below, 200), Claim(500));
        // Nobody loses anything worth a change.
        let calm = Loss { ns: 1_000_000, held: 100 * MIB };
        assert_eq!((0..200).fold(Claim::MIN, |claim, _| claim.look(idle, calm)), Claim::WHOLE);
    }

    /// "Shares follow refaults and costs, not greed": one process holds two thirds and touches nothing, the other works on more than
    /// it may hold. It ends with nearly all.
    #[test]
    fn memory_goes_from_who_holds_it_to_who_works_with_it() {
        const WORKED_ON: u64 = 90 * MIB;
        let mut holders = [holder(66), holder(34)];
        for _ in 0..200 {
            let lost = WORKED_ON.saturating_sub(holders[1].held.0) as f64 / WORKED_ON as f64 * 1e9;
            let all = Loss { ns: lost as u64, held: holders.iter().map(|holder| holder.held.0).sum() };
            let losses = [0, all.ns];
            for (holder, ns) in holders.iter_mut().zip(losses) {
                holder.claim = holder.claim.look(Loss { ns, held: holder.held.0 }, all);
            }
            let shares = shares(&holders);
            holders[0].held = ByteCount(holders[0].held.0.min(shares[0]));
            holders[1].held = ByteCount(shares[1].min(WORKED_ON));
        }
        assert!(holders[1].held.0 > 85 * MIB, "{holders:?}");
    }
}
