//! Idleness: rounds that need not be made.
//!
//! A round costs some tens of microseconds, most of them the kernel's, which counts for us. A program whose threads have hardly had a
//! processor since the last round has changed next to nothing; and of a server that has forked ahead of its work a hundred processes
//! may wait like that beside one which works.

use page::ByteCount;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::reclaimer::Rest;

/// In so much processor time a program can change a few pages.
pub(crate) const RUN_NS_MAX: u64 = 20_000;
/// So often a round is made all the same.
pub(crate) const ROUND_NS: u64 = 50_000_000;
/// A share that has shrunk by this part is a reason for a round, as a divisor.
const LOST_DIVISOR: u64 = 64;

/// What a round was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grounds {
    at_ns: u64,
    /// Processor time that the program has had.
    run_ns: u64,
    /// Rings of the bell.
    rings: u32,
    share: ByteCount,
    processes: u64,
}

impl Grounds {
    pub(crate) fn of<K: Kernel, S: Store>(pager: &Pager<K, S>, share: ByteCount, processes: u64) -> Self {
        // Before the round: what happens meanwhile is a reason for the next one.
        let (at_ns, run_ns) = (pager.kernel.now_ns(), pager.kernel.others_ns());
        Self { at_ns, run_ns, rings: pager.calls(), share, processes }
    }
}

/// The last round, behind which there was nothing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) grounds: Grounds,
    pub(crate) rest: Rest,
}

impl Idle {
    /// How long to rest instead of a round, if one of these `grounds` would find nothing new.
    pub(crate) fn goes_on(self, now: Grounds) -> Option<Rest> {
        let Grounds { at_ns, run_ns, rings, share, processes } = self.grounds;
        let is_as_before = now.rings == rings && now.processes == processes && now.run_ns < run_ns + RUN_NS_MAX;
        let has_share = now.share >= ByteCount(share.0 - share.0 / LOST_DIVISOR);
        (is_as_before && has_share && now.at_ns < at_ns + ROUND_NS).then_some(self.rest)
    }
}
