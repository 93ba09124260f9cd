//! Sizing: when a process reclaims, and how much of what it may hold the pool may take. What it may hold: `shares`.

use page::{ByteCount, PageCount};

/// The part of the memory for pages that the pool leaves to resident ones, as a divisor: a fifth. With less, a program that
/// touches anything at all faults on everything.
const RESIDENT_FLOOR_DIVISOR: u64 = 5;

/// The part of a budget at which agents start to work, as a divisor: late enough that programs which fit are left alone, early
/// enough that there is room for what the program does until they have started.
const THRESHOLD_DIVISOR: u64 = 2;

/// What a run holds when its agents start to work. `tuduce-gross` (sections 4 and 5.4) has the same for each program: "By default,
/// compression is turned off and the system checks the size of memory available periodically. If an application's memory needs
/// exceed a certain threshold, compression is turned on for that application".
pub fn threshold(budget: ByteCount) -> ByteCount {
    ByteCount(budget.0 / THRESHOLD_DIVISOR)
}

/// Marks on the free part of a share, as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Below this a fault waits for reclaim.
    pub min: ByteCount,
    /// Below this reclaim wakes.
    pub low: ByteCount,
    /// Reclaim stops here.
    pub high: ByteCount,
}

const MIB: u64 = 1 << 20;

impl Watermarks {
    /// Marks for a share of a program whose growth is only seen. Below `low` must be room for what it can touch, in memory that
    /// is not registered yet, between two looks at it: 2 MiB a millisecond at the speed of page faults, and a look each
    /// millisecond, or each few while a segment is written.
    pub fn wide(share: ByteCount) -> Self {
        // How fast a program grows does not depend on its share: small shares keep a larger part free.
        let part = (share.0 / 12).max((share.0 / 8).min(12 * MIB));
        let high = limited(share, part.clamp(3 * MIB, 32 * MIB));
        Self { min: ByteCount(high / 4), low: ByteCount(high / 4 * 3), high: ByteCount(high) }
    }

    /// Marks for a share of a program that tells of its growth, and took at most `surge` bytes unasked of late: what it may touch
    /// before it is told to wait, and that several times over. Faults that bring page by page need little room, those of a
    /// walk more. The room of a budget is kept free once, each share has its part of it. Never wider than [`Watermarks::wide`].
    pub fn narrow(share: ByteCount, budget: ByteCount, surge: ByteCount, stride: Stride) -> Self {
        let whole = stride.part_of((budget.0 / 96).clamp(MIB, 8 * MIB));
        let part = limited(share, part_of(whole, share, budget));
        let high = part.saturating_add(surge.0.saturating_mul(SURGES)).min(Self::wide(share).high.0);
        // Where little is kept free, faults wait while a third of it is left: that is for what nobody can make wait.
        let min = (part / 3).max(high / 4);
        Self { min: ByteCount(min), low: ByteCount(high / 4 * 3), high: ByteCount(high) }
    }
}

/// The part of `whole` that falls to a share of a budget.
fn part_of(whole: u64, share: ByteCount, budget: ByteCount) -> u64 {
    (u128::from(whole) * u128::from(share.0) / u128::from(budget.0.max(share.0).max(1))) as u64
}

/// Of a small share a quarter.
fn limited(share: ByteCount, high: u64) -> u64 {
    high.min(share.0 / 4).max(64 << 10)
}

/// How many surges like the last ones there is room for.
pub const SURGES: u64 = 4;

/// How many pages a fault brings of late: one where a program asks here and there, a whole window where it walks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stride {
    faults: u64,
    pages: u64,
}

impl Stride {
    /// Of so many faults half are forgotten.
    const FAULTS_MAX: u64 = 256;
    /// With so many pages a fault all of the room is kept free: where the windows are at their largest there is room for eight faults
    /// at the least.
    const WIDE: u64 = 4;

    /// A fault has brought so many pages; or they have come behind it (`is_fault` is false).
    pub fn note(&mut self, pages: PageCount, is_fault: bool) {
        if self.faults >= Self::FAULTS_MAX {
            (self.faults, self.pages) = (self.faults / 2, self.pages / 2);
        }
        self.faults += u64::from(is_fault);
        self.pages += pages.0;
    }

    /// The part of the room that is needed; all of it while nothing is known.
    fn part_of(self, whole: u64) -> u64 {
        if self.faults == 0 {
            return whole;
        }
        whole * self.pages.clamp(self.faults, Self::WIDE * self.faults) / (Self::WIDE * self.faults)
    }
}

/// The most that the program took between two looks without asking, of late: memory that nobody manages yet. Forgotten by half
/// in [`Surge::HALF_LIFE_NS`]; what is assumed before the first looks is half as much with each of them.
#[derive(Clone, Copy, Debug)]
pub struct Surge {
    bytes: u64,
    assumed: u64,
    at_ns: u64,
}

impl Surge {
    /// Time in which half of a surge is forgotten, ns; longer where nobody looks.
    pub const HALF_LIFE_NS: u64 = 50_000_000;

    /// Of a program that nobody has looked at: as much as fills the widest marks of all.
    pub const UNKNOWN: Self = Self { bytes: 0, assumed: Self::BYTES_MAX, at_ns: 0 };
    /// More would only take longer to be forgotten.
    const BYTES_MAX: u64 = 8 * MIB;

    /// It has taken so many bytes more since the last look, or given some back. Returns the surge of late.
    pub fn note(&mut self, grown: i64, now_ns: u64) -> ByteCount {
        if self.at_ns == 0 {
            self.at_ns = now_ns;
        } else if now_ns.saturating_sub(self.at_ns) >= Self::HALF_LIFE_NS {
            self.bytes /= 2;
            self.at_ns = now_ns;
        }
        self.bytes = self.bytes.max((grown.max(0) as u64).min(Self::BYTES_MAX));
        let surge = ByteCount(self.bytes.max(self.assumed));
        self.assumed /= 2;
        surge
    }
}

/// Bytes to reclaim now, or none. Pure: the caller brings the numbers, so the simulator can call it too.
pub fn reclaim_goal(free: i64, marks: Watermarks) -> ByteCount {
    assert!(marks.min < marks.low && marks.low < marks.high);
    if free < marks.low.0 as i64 { ByteCount((marks.high.0 as i64 - free) as u64) } else { ByteCount::ZERO }
}

/// The largest pool within `memory`, which is what resident pages and pool may take together: a share less what tables, the
/// agent, and the room that is kept free take of it. What is above goes to backing.
pub fn pool_bytes_max(memory: ByteCount) -> ByteCount {
    memory - ByteCount(memory.0 / RESIDENT_FLOOR_DIVISOR)
}

/// A process that holds less is left alone: what its agent takes would be more than what could go. Large budgets need not care
/// for processes so much larger.
pub fn managed_min(budget: ByteCount) -> ByteCount {
    ByteCount((budget.0 / SMALL_DIVISOR).max(AGENT_BYTES + UNMANAGEABLE_BYTES))
}

/// A process below this part of the budget is small, as a divisor.
const SMALL_DIVISOR: u64 = 64;
/// What an agent at work takes, and what of a small process can never go: stacks, and data of libraries that are in use.
const AGENT_BYTES: u64 = 512 << 10;
const UNMANAGEABLE_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_wakes_below_low_and_aims_at_high() {
        let marks = Watermarks::wide(ByteCount(120 * MIB));
        assert_eq!(marks.high, ByteCount(12 * MIB));
        assert_eq!(reclaim_goal(marks.low.0 as i64, marks), ByteCount::ZERO);
        assert_eq!(reclaim_goal(marks.low.0 as i64 - 1, marks).0, marks.high.0 - marks.low.0 + 1);
        assert_eq!(reclaim_goal(-5, marks).0, marks.high.0 + 5);
    }

    #[test]
    fn who_tells_of_growth_has_nearly_all_and_surges_widen_the_marks() {
        let share = ByteCount(96 * MIB);
        let high = |surge| Watermarks::narrow(share, share, ByteCount(surge), Stride::default()).high.0;
        assert_eq!([high(0), high(MIB), high(3 * MIB)], [MIB, 5 * MIB, 12 * MIB]);
        assert_eq!(Watermarks::narrow(share, share, ByteCount::ZERO, Stride::default()).min, ByteCount(MIB / 3));
        assert_eq!(Watermarks::narrow(share, share, ByteCount(u64::MAX), Stride::default()), Watermarks::wide(share));
        // However small the share is.
        for share in [1 << 18, MIB, 8 * MIB, 1 << 40].map(ByteCount) {
            let marks = Watermarks::narrow(share, share, ByteCount::ZERO, Stride::default());
            assert!(0 < marks.min.0 && marks.min < marks.low && marks.low < marks.high && marks.high.0 <= share.0 / 4);
            assert!(marks.high <= Watermarks::wide(share).high);
        }
    }

    /// A room of its own for each of many processes would leave them nothing to live in.
    #[test]
    fn the_room_of_a_budget_is_kept_free_once() {
        let budget = ByteCount(96 * MIB);
        let high = |share| Watermarks::narrow(ByteCount(share), budget, ByteCount::ZERO, Stride::default()).high.0;
        assert_eq!(high(budget.0), MIB);
        assert_eq!(16 * high(budget.0 / 16), high(budget.0));
        assert_eq!(high(MIB / 2), 64 << 10, "but nobody can work with less than this");
    }

    #[test]
    fn where_faults_bring_page_by_page_a_quarter_of_the_room_is_enough() {
        let share = ByteCount(96 * MIB);
        // In hundredths of a MiB: something of what was before is always left.
        let high = |stride| (Watermarks::narrow(share, share, ByteCount::ZERO, stride).high.0 * 100).div_ceil(MIB);
        let mut stride = Stride::default();
        assert_eq!(high(stride), 100, "nothing is known");
        let mut after = |faults: u64, pages: u64| {
            (0..faults).for_each(|_| stride.note(PageCount(pages), true));
            high(stride)
        };
        assert_eq!([after(1, 32), after(10, 32)], [100; 2]);
        // What was long ago is forgotten.
        assert_eq!([after(3000, 1), after(3000, 2), after(3000, 32), after(3000, 1)], [25, 50, 100, 25]);
        // What comes along behind a fault counts as its.
        (0..10_000).for_each(|turn| stride.note(PageCount(1), turn % 2 == 0));
        assert_eq!(high(stride), 50);
        let marks = Watermarks::narrow(share, share, ByteCount::ZERO, stride);
        assert!(marks.min < marks.low && marks.low < marks.high);
    }

    #[test]
    fn small_processes_are_left_alone() {
        assert_eq!(managed_min(ByteCount(16 * MIB)), ByteCount(768 << 10));
        assert_eq!(managed_min(ByteCount(1024 * MIB)), ByteCount(16 * MIB));
    }

    #[test]
    fn surges_are_forgotten_by_and_by() {
        let mut surge = Surge::UNKNOWN;
        let first = surge.note(0, 7);
        assert!(
            Watermarks::narrow(ByteCount(1 << 40), ByteCount(1 << 40), first, Stride::default()).high
                == Watermarks::wide(ByteCount(1 << 40)).high
        );
        // Each look says more, however soon it is.
        assert_eq!(
            [surge.note(0, 8).0, surge.note(-5, 9).0, surge.note(3 * MIB as i64, 10).0],
            [4 * MIB, 2 * MIB, 3 * MIB]
        );
        let mut after = |halves: u64, grown| surge.note(grown, 7 + halves * Surge::HALF_LIFE_NS).0;
        assert_eq!([after(1, 0), after(2, -5)], [3 * MIB / 2, 3 * MIB / 4]);
        assert_eq!([after(3, 6 * MIB as i64), after(3, 0), after(4, 0)], [6 * MIB, 6 * MIB, 3 * MIB]);
        assert_eq!(after(5, i64::MAX), 8 * MIB);
    }

    #[test]
    fn the_pool_leaves_room_to_live() {
        assert_eq!(pool_bytes_max(ByteCount(100)), ByteCount(80));
    }
}
