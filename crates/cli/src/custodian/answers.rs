//! What the custodian tells those who ask him, and whom.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering::Relaxed;

use pager::ledger::{Ledger, Notice, PAGE_MAP, REFUSED, SWAP_FILE, USERFAULTFD, WHICH_RUN, WHO_AM_I};
use sys::Errno;
use sys::file::File;
use sys::handover::{Line, Secret};
use sys::host::SharedFile;
use sys::uffd::Device;

use crate::failure::say;
use crate::swap::Place;

/// What there is while there is `pleat run`.
#[derive(Debug)]
pub(super) struct Run<'place> {
    pub(super) ledger: &'static Ledger,
    /// The ledger's descriptor.
    pub(super) number: i32,
    secret: Secret,
    swap: Option<&'place Place>,
    /// `--other-users`: whoever knows the secret is of the run, whatever his user.
    has_other_users: bool,
}

impl<'place> Run<'place> {
    /// Secret and place not by the ledger, which each process of the run may write to.
    pub(super) fn of(file: &SharedFile<Ledger>, secret: Secret, swap: Option<&'place Place>) -> Self {
        Self { ledger: file.content(), number: file.descriptor(), secret, swap, has_other_users: false }
    }

    /// The same with or without [`Self::has_other_users`].
    pub(super) fn with_other_users(self, has_other_users: bool) -> Self {
        Self { has_other_users, ..self }
    }

    pub(super) fn swap_file(&self) -> Option<File> {
        let Place { path, identity, .. } = self.swap?;
        File::create_at(path, *identity).or_else(|| File::create_unnamed_near(path).ok())
    }
}

/// Tells who asks what he cannot see in /proc.
pub(super) fn answer(line: &Line, question: u8, secret: &Secret, run: Option<&Run<'_>>) -> Result<(), Errno> {
    if question == WHO_AM_I {
        let peer = line.peer().filter(|peer| peer.process != 0).ok_or(Errno::SRCH)?;
        return line.tell(WHO_AM_I, [peer.process.into(), 0, 0]);
    }
    let run = run.filter(|run| *secret == run.secret).ok_or(Errno::ACCESS)?;
    // One that has become another user's is of the run still. But who may write to the ledger can have processes ended, and that is for no
    // other program of that user's.
    let is_of_its_user = run.has_other_users || line.is_of_our_user();
    match question {
        WHICH_RUN if !is_of_its_user => refuse(run.ledger, line),
        _ if !is_of_its_user && !has_caller(run.ledger, line) => Err(Errno::ACCESS),
        WHICH_RUN => line.send(WHICH_RUN, &[run.number]),
        // Not its directory: that leads out of a sandbox.
        SWAP_FILE => line.send(SWAP_FILE, &[run.swap_file().ok_or(Errno::NOENT)?.number()]),
        // Who may have all that the run's user has may have this, too.
        USERFAULTFD => line.send(USERFAULTFD, &[Device::open()?.number()]),
        PAGE_MAP => line.send(PAGE_MAP, &[page_map(line).ok_or(Errno::SRCH)?.as_raw_fd()]),
        _ => Err(Errno::INVAL),
    }
}

/// Of those who run beside the budget the run says so once.
fn refuse(ledger: &Ledger, line: &Line) -> Result<(), Errno> {
    let peer = line.peer().ok_or(Errno::SRCH)?;
    if ledger.is_first(Notice::Outside) {
        say(format_args!(
            "process {} runs outside the budget: its user may not join the run (see --other-users)",
            peer.process
        ));
    }
    line.send(REFUSED, &[])
}

/// Whether who is at the other end is in the ledger.
fn has_caller(ledger: &Ledger, line: &Line) -> bool {
    line.peer().is_some_and(|peer| is_in(ledger, peer.process))
}

/// Whether a process is in the ledger.
pub(super) fn is_in(ledger: &Ledger, pid: u32) -> bool {
    pid != 0 && ledger.claimed().iter().any(|entry| entry.pid.load(Relaxed) == pid)
}

/// The page map of who is at the other end, by the thread that has come last: the first one may have ended.
fn page_map(line: &Line) -> Option<std::fs::File> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", line.peer()?.process)).ok()?;
    let threads: Vec<_> = tasks.flatten().map(|task| task.path()).collect();
    threads.iter().rev().find_map(|thread| std::fs::File::open(thread.join("pagemap")).ok())
}
