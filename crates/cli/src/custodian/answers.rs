//! What the custodian tells those who ask him, and whom.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use pager::ledger::{Ledger, PAGE_MAP, SWAP_FILE, USERFAULTFD, WHICH_RUN, WHO_AM_I};
use sys::Errno;
use sys::file;
use sys::handover::{Line, Peer, Secret};
use sys::host::SharedFile;
use sys::uffd::Device;

use super::strangers::send_away;
use crate::swap::Place;
use crate::{entries, proc};

/// What there is while there is `pleat run`.
#[derive(Debug)]
pub(super) struct Run<'place> {
    pub(super) ledger: &'static Ledger,
    /// The ledger's descriptor.
    pub(super) number: i32,
    secret: Secret,
    swap: Option<&'place Place>,
    /// `--other-users`: whoever knows the secret is of the run, whatever his user.
    pub(super) has_other_users: bool,
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

    /// What the run's user has set aside is for those who are let in.
    pub(super) fn swap_file(&self, is_let_in: bool) -> Option<file::File> {
        let Place { path, identity, .. } = self.swap?;
        let set_aside = is_let_in.then(|| file::File::create_at(path, *identity)).flatten();
        set_aside.or_else(|| file::File::create_unnamed_near(path).ok())
    }
}

/// Tells who asks what he cannot see in /proc.
pub(super) fn answer(line: &Line, question: u8, secret: &Secret, run: Option<&Run<'_>>) -> Result<(), Errno> {
    let peer = line.peer().ok_or(Errno::SRCH)?;
    if question == WHO_AM_I {
        return match peer.process {
            0 => Err(Errno::SRCH),
            process => line.tell(WHO_AM_I, [process.into(), 0, 0]),
        };
    }
    let run = run.filter(|run| *secret == run.secret).ok_or(Errno::ACCESS)?;
    let is_let_in = run.has_other_users || peer.is_of_our_user();
    if !may_have(question, is_let_in, || entries::is_of_living(run.ledger, peer.process)) {
        if question == WHICH_RUN {
            // Executed in the place of a process of the run it has that one's entry in the ledger, and is no stranger by that.
            send_away(run.ledger, line, peer.process);
        }
        return Err(Errno::ACCESS);
    }
    match question {
        WHICH_RUN => line.send(WHICH_RUN, &[run.number]),
        // Not its directory: that leads out of a sandbox.
        SWAP_FILE => line.send(SWAP_FILE, &[run.swap_file(is_let_in).ok_or(Errno::NOENT)?.number()]),
        USERFAULTFD => line.send(USERFAULTFD, &[Device::open()?.number()]),
        PAGE_MAP => line.send(PAGE_MAP, &[page_map(peer).ok_or(Errno::SRCH)?.as_raw_fd()]),
        _ => Err(Errno::INVAL),
    }
}

/// Who may write to the ledger can have processes ended, and who has the device sees faults of the kernel's: both are for those who are let in. A
/// process of the run that has become another user's may have what it has lost by that, and what its user executes in its place is not told from it.
fn may_have(question: u8, is_let_in: bool, is_in_ledger: impl Fn() -> bool) -> bool {
    match question {
        PAGE_MAP => is_in_ledger(),
        SWAP_FILE => is_let_in || is_in_ledger(),
        _ => is_let_in,
    }
}

/// The page map of who asks, as long as it is of that user alone: not of a program with the rights of another that it executes meanwhile. Without page
/// frame numbers, which are not for everybody. By the thread that has come last and has memory: the first one may have ended.
fn page_map(peer: Peer) -> Option<File> {
    let tasks = fs::read_dir(format!("/proc/{}/task", peer.process)).ok()?;
    let threads: Vec<_> = tasks.flatten().map(|task| task.path()).collect();
    let open_of = |thread: &PathBuf| File::open(thread.join("pagemap")).ok().filter(|_| proc::has_memory(thread));
    let open = || threads.iter().rev().find_map(open_of);
    let is_theirs = || proc::users(peer.process).is_some_and(|users| users == [peer.user; 4]);
    let opened = is_theirs().then(|| sys::process::without_administration(open))?;
    opened.filter(|_| is_theirs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_what() {
        for (question, let_in, in_ledger, neither) in [
            (WHICH_RUN, true, false, false),
            (USERFAULTFD, true, false, false),
            (SWAP_FILE, true, true, false),
            (PAGE_MAP, false, true, false),
        ] {
            assert_eq!(may_have(question, true, || false), let_in, "{question}");
            assert_eq!(may_have(question, false, || true), in_ledger, "{question}");
            assert_eq!(may_have(question, false, || false), neither, "{question}");
        }
    }

    #[test]
    fn the_page_map_is_for_the_user_of_the_process() {
        let own = Peer { process: std::process::id(), user: nix::unistd::geteuid().as_raw(), group: 0 };
        assert!(page_map(own).is_some());
        assert!(page_map(Peer { user: own.user + 1, ..own }).is_none());
    }
}
