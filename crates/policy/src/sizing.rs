//! Sizing: what a process may hold, when to reclaim, and how much of it the pool may take.

use page::ByteCount;

/// The part of the memory for pages that the pool leaves to resident ones, as a divisor: a fifth. With less, a program that
/// touches anything at all faults on everything.
const RESIDENT_FLOOR_DIVISOR: u64 = 5;

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

impl Watermarks {
    /// Marks for a share. Below `low` must be room for what the program can touch, in memory that is not registered
    /// yet, between two looks at it: 2 MiB a millisecond at the speed of page faults, and a look each millisecond, or
    /// each few while a segment is written.
    pub fn of(share: ByteCount) -> Self {
        const MIB: u64 = 1 << 20;
        // How fast a program grows does not depend on its share: small shares keep a larger part free.
        let part = (share.0 / 12).max((share.0 / 8).min(12 * MIB));
        let high = part.clamp(3 * MIB, 32 * MIB).min(share.0 / 4).max(64 << 10);
        Self { min: ByteCount(high / 4), low: ByteCount(high / 4 * 3), high: ByteCount(high) }
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

/// The part of the budget that is dealt out evenly, as a divisor; the rest goes by what each process holds.
const EVEN_DIVISOR: u64 = 4;

/// The share of one of `processes`, which holds `own` of the `total` bytes that all of them hold, in a budget. The
/// shares of all add up to the budget. A process that holds little gets more than that, so it can grow; who holds much
/// shrinks for it.
pub fn share(budget: ByteCount, own: ByteCount, total: ByteCount, processes: u64) -> ByteCount {
    let processes = processes.max(1);
    let even = budget.0 / EVEN_DIVISOR / processes;
    let total = total.0.max(own.0);
    if total == 0 {
        return ByteCount(budget.0 / processes);
    }
    let by_holding = budget.0 - even * processes;
    ByteCount(even + (u128::from(by_holding) * u128::from(own.0) / u128::from(total)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn reclaim_wakes_below_low_and_aims_at_high() {
        let marks = Watermarks::of(ByteCount(120 * MIB));
        assert_eq!(marks.high, ByteCount(12 * MIB));
        assert_eq!(reclaim_goal(marks.low.0 as i64, marks), ByteCount::ZERO);
        assert_eq!(reclaim_goal(marks.low.0 as i64 - 1, marks).0, marks.high.0 - marks.low.0 + 1);
        assert_eq!(reclaim_goal(-5, marks).0, marks.high.0 + 5);
    }

    #[test]
    fn shares_fill_the_budget_and_never_exceed_it() {
        let budget = ByteCount(100 * MIB);
        for holdings in [[10, 20, 30], [50, 60, 70], [0, 0, 200], [33, 33, 34], [0, 0, 0]] {
            let total: u64 = holdings.iter().sum::<u64>() * MIB;
            let shares: u64 =
                holdings.iter().map(|own| share(budget, ByteCount(own * MIB), ByteCount(total), 3).0).sum();
            assert!(shares <= budget.0, "{holdings:?}");
            assert!(shares + 8 >= budget.0, "{holdings:?} leaves {} unused", budget.0 - shares);
        }
    }

    #[test]
    fn a_newcomer_can_grow_beside_a_large_process() {
        let share = share(ByteCount(100 * MIB), ByteCount(0), ByteCount(100 * MIB), 2);
        assert_eq!(share, ByteCount(100 * MIB / 8));
    }

    #[test]
    fn a_lone_process_has_the_whole_budget() {
        for own in [0, 1, 80 * MIB] {
            assert_eq!(share(ByteCount(64 * MIB), ByteCount(own), ByteCount(own), 1), ByteCount(64 * MIB));
        }
    }

    #[test]
    fn the_pool_leaves_room_to_live() {
        assert_eq!(pool_bytes_max(ByteCount(100)), ByteCount(80));
    }
}
