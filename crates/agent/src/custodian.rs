//! The custodian of a run, who is asked where neither /proc nor a path leads to `pleat run`: in sandboxes.

use core::time::Duration;

use pager::ledger::{ENABLE, Ledger, PAGE_MAP, REFUSED, SWAP_FILE, USERFAULTFD, WHICH_RUN, WHO_AM_I};
use sys::file::File;
use sys::handover::{Line, Secret};
use sys::uffd::{Device, Uffd};
use sys::{Errno, OwnedFd, thread};

const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for an answer of his, who may be stopped.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Calls the custodian, for so long while he takes no more calls: where the network is another one by what he has open.
pub(crate) fn call(ledger: &Ledger, limit: Duration) -> Option<Line> {
    let name = ledger.custodian();
    call_by(limit, || Line::call_at_once(&name)).or_else(|| {
        let (process, descriptor) = ledger.custodian_file()?;
        let mut path = [0; _];
        let path = sys::process::descriptor_path(process, descriptor, &mut path)?;
        call_by(limit, || Line::call_at_once_by(path))
    })
}

fn call_by(limit: Duration, call: impl Fn() -> Result<Line, Errno>) -> Option<Line> {
    let line = (0..limit.as_millis() / PAUSE.as_millis()).find_map(|_| match call() {
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

    /// The run's ledger. `PERM`: it is not for this user, and he has said so.
    pub(crate) fn which_run(&self) -> Result<&'static Ledger, Errno> {
        let mut ledger = Err(Errno::SRCH);
        let adopt = &mut |file, _| ledger = sys::process::adopt_shared(&file);
        let line = self.ask(WHICH_RUN).ok_or(Errno::SRCH)?;
        let answer = match line.receive(ANSWER_MAX, adopt) {
            // He has hung up on the question: what he had said comes behind that.
            Err(Errno::CONNRESET) => line.receive(ANSWER_MAX, adopt),
            answer => answer,
        };
        match answer? {
            REFUSED => Err(Errno::PERM),
            _ => ledger.or(Err(Errno::SRCH)),
        }
    }

    /// A swap file for this process.
    pub(crate) fn swap_file(&self) -> Option<File> {
        let mut opened = None;
        self.ask(SWAP_FILE)?.receive(ANSWER_MAX, &mut |file, _| opened = File::from_fd(file).ok()).ok()?;
        opened
    }

    /// The page map of this process.
    pub(crate) fn page_map(&self) -> Option<OwnedFd> {
        let mut opened = None;
        self.ask(PAGE_MAP)?.receive(ANSWER_MAX, &mut |file, _| opened = Some(file)).ok()?;
        opened
    }

    /// A userfaultfd of this process for all faults, to which it has no right itself.
    pub(crate) fn userfaultfd(&self) -> Option<Uffd> {
        let line = self.ask(USERFAULTFD)?;
        let mut made = None;
        line.receive(ANSWER_MAX, &mut |device, _| made = Device::adopt(device).make().ok()).ok()?;
        let made = made?;
        line.send(ENABLE, &[made.number()]).ok()?;
        line.hear(ANSWER_MAX).is_ok().then_some(made)
    }

    /// `None`: he cannot be reached, or whoever has his name now is somebody else's. Root's may be that of a run with
    /// `--other-users`, or of one whose process has become another user's.
    fn ask(&self, question: u8) -> Option<Line> {
        let is_trusted = |line: &Line| line.peer().is_some_and(|peer| peer.is_ours_or_roots());
        let line = call_by(ANSWER_MAX, || Line::call_at_once(&self.name)).filter(is_trusted)?;
        // Who is sent away may be so before he has asked.
        let _ = line.ask(question, &self.secret);
        Some(line)
    }
}
