//! The program's limit on addresses (`RLIMIT_AS`) without what the agent reserves, which is far more than it ever uses,
//! and which the kernel counts.
//!
//! From the moment when the agent reserves its addresses the kernel's limits are higher by so much, and marked in their
//! last bits, which the kernel does not look at: it counts pages. The program's calls see and set its own. A program that
//! is executed finds the marked limits, and its agent, which has reserved nothing yet, takes them back.

use core::sync::atomic::{AtomicU64, Ordering};

use page::PAGE_BYTES;
pub use rustix::process::Rlimit;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{Errno, area};

/// In the place of a limit's bits below a page.
const MARK: u64 = 0x5a7;
const BELOW_A_PAGE: u64 = PAGE_BYTES as u64 - 1;
/// What the agent maps later: steps of its heap, scratch memory.
const LATER_BYTES: u64 = 64 << 20;

/// By how much the kernel's limits are higher; 0 while they are the program's own.
static RAISED_BY: AtomicU64 = AtomicU64::new(0);

/// The limits while the agent reserves its addresses.
#[derive(Debug)]
pub struct Lifted(Rlimit);

/// Lifts the limits of this process, if there are any. `None`: there are none, or they may not be raised, which is without
/// `CAP_SYS_RESOURCE` where the hard limit is as low: then what is reserved counts.
pub fn lift() -> Option<Lifted> {
    let program = getrlimit(Resource::As);
    program.current?;
    setrlimit(Resource::As, Rlimit { current: None, maximum: None }).is_ok().then_some(Lifted(program))
}

/// The agent has reserved what it needs: from now on limits are higher by so much. `agreed` is what the first process of
/// the run has found, 0 until then: the same for all, so that each can take back what another has set.
pub fn reserved(lifted: Option<&Lifted>, agreed: &AtomicU64) {
    if lifted.is_none() && getrlimit(Resource::As).current.is_some() {
        return;
    }
    let bytes = (area::own_bytes() + LATER_BYTES).next_multiple_of(PAGE_BYTES as u64);
    let bytes = agreed.compare_exchange(0, bytes, Ordering::AcqRel, Ordering::Acquire).map_or_else(|by| by, |_| bytes);
    RAISED_BY.store(bytes, Ordering::Release);
    if let Some(Lifted(program)) = lifted {
        // Lowering is always allowed.
        let _ = setrlimit(Resource::As, raised(*program, bytes));
    }
}

impl Lifted {
    /// The agent could not reserve what it needs, and goes.
    pub fn put_back(self) {
        let _ = setrlimit(Resource::As, self.0);
    }
}

/// In a program that has just begun: takes back what was added to the limits in the one that has executed it.
pub fn take_back(agreed: &AtomicU64) {
    let bytes = agreed.load(Ordering::Acquire);
    let found = getrlimit(Resource::As);
    let own = lowered(found, bytes);
    if bytes > 0 && own != found {
        let _ = setrlimit(Resource::As, own);
    }
}

/// `getrlimit(RLIMIT_AS)` for the program.
pub fn limit() -> Rlimit {
    lowered(getrlimit(Resource::As), RAISED_BY.load(Ordering::Acquire))
}

/// `setrlimit(RLIMIT_AS)` for the program.
pub fn set_limit(program: Rlimit) -> Result<(), Errno> {
    setrlimit(Resource::As, raised(program, RAISED_BY.load(Ordering::Acquire)))
}

fn raised(program: Rlimit, bytes: u64) -> Rlimit {
    let raise = |limit: u64| match (limit & !BELOW_A_PAGE).checked_add(bytes) {
        Some(sum) if bytes > 0 => sum | MARK,
        _ => limit,
    };
    Rlimit { current: program.current.map(raise), maximum: program.maximum.map(raise) }
}

fn lowered(kernel: Rlimit, bytes: u64) -> Rlimit {
    let lower = |limit: u64| {
        let is_raised = bytes > 0 && limit & BELOW_A_PAGE == MARK && limit >= bytes;
        if is_raised { (limit & !BELOW_A_PAGE) - bytes } else { limit }
    };
    Rlimit { current: kernel.current.map(lower), maximum: kernel.maximum.map(lower) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_raised_is_lowered() {
        const BYTES: u64 = 46 << 30;
        for limits in
            [(None, None), (Some(500 << 20), None), (Some(0), Some(1 << 40)), (Some(4096), Some(u64::MAX - 1))]
        {
            let program = Rlimit { current: limits.0, maximum: limits.1 };
            assert_eq!(raised(program, 0), program);
            assert_eq!(lowered(program, BYTES), program, "not ours");
            assert_eq!(lowered(raised(program, BYTES), BYTES), program);
            let higher = raised(program, BYTES).current;
            assert_eq!(
                higher.map(|limit| limit / PAGE_BYTES as u64),
                limits.0.map(|own| (own + BYTES) / PAGE_BYTES as u64)
            );
        }
        let odd = Rlimit { current: Some(10_000), maximum: None };
        assert_eq!(lowered(raised(odd, BYTES), BYTES).current, Some(8192), "whole pages, which is what counts");
    }
}
