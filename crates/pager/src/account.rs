//! Accounts: what the process holds of its share, and what is still free.

use page::{ByteCount, PageCount};
use policy::sizing::{self, Watermarks};

/// What a process may take beyond what does not go, where that is all of its share or more: what it works with has to be somewhere.
/// A divisor of the share, and the least of it.
const ALLOWANCE_DIVISOR: u64 = 16;
const ALLOWANCE_MIN: u64 = 256 << 10;
/// With no more than this part of the share in pages next to nothing of a program is in memory, as a divisor; or with no more than this.
const BARE_DIVISOR: u64 = 32;
const BARE_MIN: u64 = 512 << 10;
/// Of what has been found not to go this part is tried again each second, as a divisor.
const RETRY_DIVISOR: u128 = 16;
const SECOND_NS: u64 = 1_000_000_000;

/// The parts of a process's anonymous memory. Those that we change are exact at all times; `unmanaged` is what remains
/// of the kernel's own count, taken anew at each look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accounts {
    /// What this process may hold.
    pub(crate) share: ByteCount,
    /// Marks on the free part of the share.
    pub(crate) marks: Watermarks,
    /// Stacks, buffers, frames' tables: what the agent took at start.
    pub(crate) agent: ByteCount,
    /// Segments on their way to the medium, as of the last look.
    pub(crate) log_buffers: ByteCount,
    /// Resident memory that nobody manages. Negative when the kernel counts less than we do: a page that has been read
    /// but never written is resident for us and no anonymous memory for the kernel.
    pub(crate) unmanaged: i64,
    /// Reclaim cannot make more room: faults are served beyond the budget rather than wait for ever, and room is kept as it is within
    /// it, but where this level of what is free stands for the high mark.
    pub(crate) exhausted: Option<i64>,
    pub(crate) immovable: Immovable,
}

/// What has been found not to go. In a run of several processes the share of one must not fall below that: what others would take
/// of it nobody gives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Immovable {
    bytes: u64,
    looked_at_ns: u64,
}

impl Immovable {
    /// After a round that has left `held` bytes.
    fn look(&mut self, is_exhausted: bool, held: u64, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.looked_at_ns).min(SECOND_NS);
        let tried = u128::from(self.bytes) * u128::from(passed) / (RETRY_DIVISOR * u128::from(SECOND_NS));
        self.bytes = if is_exhausted { held } else { held.min(self.bytes - tried as u64) };
        self.looked_at_ns = now_ns;
    }
}

/// What the cache and the ring hold now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) pages: PageCount,
    pub(crate) pool: ByteCount,
    pub(crate) metadata: ByteCount,
}

impl Holdings {
    fn bytes(self) -> i64 {
        (self.pages.bytes() + self.pool + self.metadata).0 as i64
    }
}

impl Accounts {
    pub(crate) fn new(share: ByteCount, agent: ByteCount) -> Self {
        Self {
            share,
            marks: Watermarks::wide(share),
            agent,
            log_buffers: ByteCount::ZERO,
            unmanaged: 0,
            exhausted: None,
            immovable: Immovable::default(),
        }
    }

    /// The kernel counts `resident` bytes while we hold `holdings`. Of these `unfilled` are frames of an area that may not have
    /// been written to yet: the kernel does not count them, but will without our asking for them again.
    pub(crate) fn reconcile(&mut self, resident: ByteCount, holdings: Holdings, unfilled: ByteCount) {
        let unmanaged = resident.0 as i64 - holdings.bytes() - (self.agent + self.log_buffers).0 as i64;
        self.unmanaged = if unmanaged < 0 { (unmanaged + unfilled.0 as i64).min(0) } else { unmanaged };
    }

    /// So many pages that nobody managed are among those that are held. Until the kernel's count is looked at again they would be
    /// both, and faults wait for room that is there.
    pub(crate) fn take_over(&mut self, pages: PageCount) {
        let left = self.unmanaged - pages.bytes().0 as i64;
        self.unmanaged = left.max(self.unmanaged.min(0));
    }

    /// Bytes that may still be taken; negative when the share is exceeded.
    pub(crate) fn free(&self, holdings: Holdings) -> i64 {
        self.share.0 as i64 - holdings.bytes() - (self.agent + self.log_buffers).0 as i64 - self.unmanaged
    }

    /// What neither pages nor pool can take: the agent's own, and resident memory that nobody manages.
    pub(crate) fn others(&self) -> ByteCount {
        self.agent + self.log_buffers + ByteCount(self.unmanaged.max(0) as u64)
    }

    /// What does not go: [`Accounts::others`] as the kernel counts it, our tables, and what has been found not to.
    pub(crate) fn fixed(&self, holdings: Holdings) -> ByteCount {
        let own = (self.agent + self.log_buffers + holdings.metadata).0 as i64;
        ByteCount(((own + self.unmanaged).max(0) as u64).max(self.immovable.bytes))
    }

    /// Bytes to reclaim now.
    pub(crate) fn goal(&self, holdings: Holdings) -> ByteCount {
        sizing::reclaim_goal(self.free(holdings), self.marks)
    }

    /// Of what is free, what may be taken: where the budget is out of reach, more than it.
    fn spare(&self, free: i64) -> i64 {
        self.exhausted.map_or(free, |level| free - level + self.marks.high.0 as i64)
    }

    /// Whether less may be taken than a fault would find enough: then it waits for reclaim.
    pub(crate) fn is_short(&self, free: i64) -> bool {
        self.spare(free) < self.marks.min.0 as i64
    }

    /// Whether reclaim should be awake.
    pub(crate) fn wants_reclaim(&self, free: i64) -> bool {
        self.spare(free) < self.marks.low.0 as i64
    }

    /// Whether reclaim may stop.
    pub(crate) fn is_high(&self, free: i64) -> bool {
        self.spare(free) >= self.marks.high.0 as i64
    }

    /// What may be taken beyond what does not go, and beyond the room that is kept.
    pub(crate) fn allowance(&self) -> u64 {
        (self.share.0 / ALLOWANCE_DIVISOR).max(ALLOWANCE_MIN)
    }

    /// Whether next to nothing of the program is in memory.
    pub(crate) fn is_bare(&self, holdings: Holdings) -> bool {
        holdings.pages.bytes().0 <= (self.share.0 / BARE_DIVISOR).max(BARE_MIN)
    }

    /// Reclaim cannot make more room than `reached`, or can again. Where memory is bare, what it has made is what the last faults
    /// have brought, and no sign that the budget can be met: then faults need not wait until as much is free as should be, only
    /// until as much is as there was before.
    pub(crate) fn set_exhausted(&mut self, reached: Option<i64>, holdings: Holdings, now_ns: u64) {
        let free = self.free(holdings);
        let held = (self.share.0 as i64 - free).max(0) as u64;
        self.immovable.look(reached.is_some(), held, now_ns);
        let allowance = self.allowance();
        let below = |free: i64| free - allowance as i64;
        let still = || self.exhausted.filter(|_| self.is_bare(holdings)).map(|old| old.max(below(free)));
        let level = reached.map(below).or_else(still);
        self.exhausted = level.filter(|&level| level < self.marks.min.0 as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn free_is_what_the_kernel_does_not_count() {
        let mut accounts = Accounts::new(ByteCount(100 * MIB), ByteCount(2 * MIB));
        let mut holdings = Holdings { pages: PageCount(5120), pool: ByteCount(10 * MIB), metadata: ByteCount(MIB) };
        accounts.reconcile(ByteCount(40 * MIB), holdings, ByteCount(4 * MIB));
        assert_eq!(accounts.unmanaged, 7 * MIB as i64);
        assert_eq!(accounts.free(holdings), 60 * MIB as i64);
        holdings.pages += PageCount(256);
        assert_eq!(accounts.free(holdings), 59 * MIB as i64);
        assert!(!accounts.is_short(accounts.free(holdings)));
        assert_eq!(accounts.goal(holdings), ByteCount::ZERO);
        holdings.pages += PageCount(15104);
        assert!(accounts.is_short(accounts.free(holdings)) && accounts.goal(holdings).0 > 0);
        let free = accounts.free(holdings);
        accounts.set_exhausted(Some(free), holdings, 0);
        assert!(!accounts.is_short(free) && !accounts.wants_reclaim(free));
        let level = free - (100 * MIB / ALLOWANCE_DIVISOR) as i64;
        let below = |mark: ByteCount| level - (accounts.marks.high.0 - mark.0) as i64;
        assert!(accounts.is_high(level) && !accounts.is_high(level - 1));
        let (low, min) = (below(accounts.marks.low), below(accounts.marks.min));
        assert_eq!([low, low - 1].map(|free| accounts.wants_reclaim(free)), [false, true]);
        assert_eq!([min, min - 1].map(|free| accounts.is_short(free)), [false, true]);
        accounts.set_exhausted(None, holdings, 0);
        assert!(accounts.is_short(free));
    }

    /// What the last faults have brought leaves again, and the next ones need not wait; but never is less free than there was.
    #[test]
    fn where_next_to_nothing_is_in_memory_faults_do_not_wait_for_room_that_never_comes() {
        let mut accounts = Accounts::new(ByteCount(16 * MIB), ByteCount(24 * MIB));
        let none = Holdings::default();
        let with = |bytes: u64| Holdings { pages: PageCount(bytes / 4096), ..none };
        let kept = (accounts.marks.high.0 - accounts.marks.min.0) as i64;
        let bottom = accounts.free(none) - MIB as i64 - kept;
        accounts.set_exhausted(Some(accounts.free(none)), none, 0);
        for holdings in [with(MIB / 4), none, with(MIB / 2)] {
            accounts.set_exhausted(None, holdings, 0);
            assert!(!accounts.is_short(bottom) && accounts.is_short(bottom - 1), "{holdings:?}");
        }
        accounts.agent = ByteCount(23 * MIB);
        accounts.set_exhausted(None, none, 0);
        assert!(accounts.is_short(bottom), "what has become free stays so");
        accounts.set_exhausted(None, with(MIB / 2 + 4096), 0);
        assert!(accounts.is_short(accounts.free(none)), "there is something to make room of");
        accounts.set_exhausted(None, none, 0);
        assert!(accounts.is_short(accounts.free(none)), "nothing was in vain since");
        accounts.set_exhausted(Some(accounts.free(none)), none, 0);
        accounts.agent = ByteCount(MIB);
        accounts.set_exhausted(None, none, 0);
        assert_eq!(accounts.exhausted, None, "there is room");
    }

    #[test]
    fn what_does_not_go_is_fixed_and_tried_again_bit_by_bit() {
        let mut accounts = Accounts::new(ByteCount(16 * MIB), ByteCount(MIB));
        let holdings = |mib: u64| Holdings { pages: PageCount((mib - 1) * 256), ..Holdings::default() };
        let mut fixed_after = |is_exhausted: bool, mib, seconds: u64| {
            let reached = is_exhausted.then(|| accounts.free(holdings(mib)));
            accounts.set_exhausted(reached, holdings(mib), seconds * SECOND_NS);
            accounts.fixed(holdings(mib)).0 / MIB
        };
        assert_eq!(fixed_after(false, 32, 10), 1);
        assert_eq!([11, 12, 13].map(|second| fixed_after(second == 11, 32, second)), [32, 30, 28]);
        assert_eq!(fixed_after(true, 32, 14), 32, "in vain again");
        assert_eq!(fixed_after(false, 8, 15), 8, "the program has given the rest back");
        assert_eq!((16..90).map(|second| fixed_after(false, 8, second)).last(), Some(1));
    }

    /// A zone of 4 MiB of which nothing has been written is room that is taken.
    #[test]
    fn an_area_counts_before_it_is_filled() {
        let mut accounts = Accounts::new(ByteCount(100 * MIB), ByteCount(2 * MIB));
        let holdings = Holdings { pages: PageCount(5120), pool: ByteCount(8 * MIB), metadata: ByteCount::ZERO };
        let mut free = |resident: u64| {
            accounts.reconcile(ByteCount(resident * MIB), holdings, ByteCount(4 * MIB));
            accounts.free(holdings) / MIB as i64
        };
        assert_eq!([26, 28, 30, 31].map(&mut free), [70, 70, 70, 69]);
        // What is missing beside it is memory that the program has only read.
        assert_eq!(free(25), 71);
    }
}
