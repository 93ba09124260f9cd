//! Custody: `pleat run` gets a duplicate of each of our userfaultfds. The last one would go with our threads, and who shares the memory
//! and lives on (clone with `CLONE_VM`, a child of a raw system call) would read zeros where pages are missing. Its custodian
//! ends him instead.

use core::time::Duration;

use pager::ledger::{Ledger, WARDS, WHERE_TO, WHICH_RUN, WHO_AM_I};
use sys::handover::Line;
use sys::uffd::Uffd;
use sys::{Errno, OwnedFd, thread};

/// Calls while the custodian answers nobody: it may be stopped.
const CALLS_MAX: usize = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// Until he has answered, who may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);

fn call(name: &[u8; 40]) -> Option<Line> {
    let line = (0..CALLS_MAX).find_map(|_| match Line::call_at_once(name) {
        Err(Errno::AGAIN) => {
            thread::sleep(PAUSE);
            None
        }
        called => Some(called.ok()),
    });
    line.flatten()
}

/// This process's id for `pleat run`, for who cannot see it in /proc; `None` where the custodian cannot be reached either.
pub(crate) fn who_am_i(name: &[u8; 40]) -> Option<u32> {
    let line = call(name)?;
    line.send(WHO_AM_I, &[]).ok()?;
    let (_, [pid, ..]) = line.hear(PATIENCE).ok()?;
    pid.try_into().ok()
}

/// The run's ledger, for the same.
pub(crate) fn which_run(name: &[u8; 40]) -> Option<&'static Ledger> {
    ask_for(WHICH_RUN, name, &mut |ledger| sys::process::adopt_shared(ledger).ok())
}

/// Does something with the directory of the swap file, open as `pleat run` sees it.
pub(crate) fn in_swap_directory<T>(name: &[u8; 40], visit: &mut dyn FnMut(&OwnedFd) -> Option<T>) -> Option<T> {
    ask_for(WHERE_TO, name, visit)
}

fn ask_for<T>(question: u8, name: &[u8; 40], visit: &mut dyn FnMut(&OwnedFd) -> Option<T>) -> Option<T> {
    let line = call(name)?;
    line.send(question, &[]).ok()?;
    let mut result = None;
    line.receive(PATIENCE, &mut |file, _| result = visit(&file)).ok()?;
    result
}

/// The line by which the custodian hears that this agent has ended; `None` if he cannot be reached (another network namespace).
pub(crate) struct Custody(Option<Line>);

impl Custody {
    /// Entrusts memory to the custodian: the number of its userfaultfd.
    pub(crate) fn begin(ledger: &Ledger, memory: i32) -> Self {
        Self(call(&ledger.custodian()).filter(|line| line.send(WARDS, &[memory]).is_ok()))
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
