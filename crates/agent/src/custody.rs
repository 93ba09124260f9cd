//! Custody: the run's custodian gets a duplicate of each of our userfaultfds. The last one would go with our threads, and who shares the memory
//! and lives on (clone with `CLONE_VM`, a child of a raw system call) would read zeros where pages are missing. The custodian
//! ends him instead.

use core::time::Duration;

use pager::ledger::Ledger;
use sys::handover::Line;
use sys::uffd::Uffd;

use crate::custodian;

/// How long is tried to call while the custodian answers nobody: it may be stopped.
const CALLING_MAX: Duration = Duration::from_millis(10);
/// What an agent sends with descriptors of memory.
const WARDS: u8 = b'w';

/// The line by which the custodian hears that this agent has ended; `None` if he cannot be reached (another network namespace, and one of process ids).
pub(crate) struct Custody(Option<Line>);

impl Custody {
    /// Entrusts memory to the custodian: the number of its userfaultfd.
    pub(crate) fn begin(ledger: &Ledger, memory: i32) -> Self {
        Self(custodian::call(ledger, CALLING_MAX).filter(|line| line.send(WARDS, &[memory]).is_ok()))
    }

    /// Entrusts further memory to him, that of a child which we do not follow.
    pub(crate) fn add(&self, memory: &Uffd) {
        // Where he does not take it, because he has ended or more is on its way than may be, nobody will look after it.
        let _ = self.0.iter().try_for_each(|line| line.send(WARDS, &[memory.number()]));
    }

    /// In a forked child, where the number of the descriptor means something else.
    pub(crate) fn forget(self) {
        core::mem::forget(self.0);
    }
}
