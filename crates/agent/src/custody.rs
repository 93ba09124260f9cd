//! Custody: `pleat run` gets a duplicate of each of our userfaultfds. The last one would go with our threads, and who shares the memory
//! and lives on (clone with `CLONE_VM`, a child of a raw system call) would read zeros where pages are missing. Its custodian
//! ends him instead.

use core::time::Duration;

use pager::ledger::{Ledger, SWAP_FILE, WHICH_RUN, WHO_AM_I};
use sys::file::File;
use sys::handover::{Line, Secret};
use sys::uffd::Uffd;
use sys::{Errno, thread};

/// Calls while the custodian answers nobody: it may be stopped.
const CALLS_MAX: usize = 10;
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for an answer of his.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What an agent sends with descriptors of memory.
const WARDS: u8 = b'w';

/// The line by which the custodian hears that this agent has ended; `None` if he cannot be reached (another network namespace).
pub(crate) struct Custody(Option<Line>);

impl Custody {
    /// Entrusts memory to the custodian: the number of its userfaultfd.
    pub(crate) fn begin(ledger: &Ledger, memory: i32) -> Self {
        Self(call(&ledger.custodian(), CALLS_MAX).filter(|line| line.send(WARDS, &[memory]).is_ok()))
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

fn call(name: &[u8; 40], calls_max: usize) -> Option<Line> {
    let line = (0..calls_max).find_map(|_| match Line::call_at_once(name) {
        Err(Errno::AGAIN) => {
            thread::sleep(PAUSE);
            None
        }
        called => Some(called.ok()),
    });
    line.flatten()
}

/// Where a process asks that does not see `pleat run` in /proc.
#[derive(Clone, Copy)]
pub(crate) struct Custodian {
    pub(crate) name: [u8; 40],
    pub(crate) secret: Secret,
}

impl Custodian {
    pub(crate) fn of(ledger: &Ledger) -> Self {
        Self { name: ledger.custodian(), secret: ledger.secret() }
    }

    /// This process's id for `pleat run`.
    pub(crate) fn who_am_i(&self) -> Option<u32> {
        let (_, [pid, ..]) = self.ask(WHO_AM_I)?.hear(ANSWER_MAX).ok()?;
        pid.try_into().ok()
    }

    /// The run's ledger.
    pub(crate) fn which_run(&self) -> Option<&'static Ledger> {
        let mut ledger = None;
        let adopt = &mut |file, _| ledger = sys::process::adopt_shared(&file).ok();
        self.ask(WHICH_RUN)?.receive(ANSWER_MAX, adopt).ok()?;
        ledger
    }

    /// A swap file for this process.
    pub(crate) fn swap_file(&self) -> Option<File> {
        let mut opened = None;
        self.ask(SWAP_FILE)?.receive(ANSWER_MAX, &mut |file, _| opened = File::from_fd(file).ok()).ok()?;
        opened
    }

    /// `None`: he cannot be reached, or whoever has his name now is somebody else's.
    fn ask(&self, question: u8) -> Option<Line> {
        let calls_max = ANSWER_MAX.as_millis() / PAUSE.as_millis();
        let line = call(&self.name, calls_max as usize).filter(Line::is_of_our_user)?;
        line.ask(question, &self.secret).ok()?;
        Some(line)
    }
}
