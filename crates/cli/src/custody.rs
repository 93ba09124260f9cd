//! Custody: how `pleat run` begins, counts and ends its custodian, who is a process of his own.

use std::io::Read as _;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use page::ByteCount;

use crate::custodian::{Custodian, GOES_ON};
use crate::failure::say;
use crate::{proc, tracers};

/// How long is waited for his word at the end of the run, which takes a fraction of a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Custody {
    process: u32,
    /// Ends on either side with its process. `None`: his has ended.
    line: Option<UnixStream>,
    /// What he held when that was measured.
    bytes: ByteCount,
}

impl Custody {
    /// Makes him: behind the program, which is the first child of `pleat run`, and before that has a second thread. Who has called meanwhile is heard.
    pub(crate) fn begin(custodian: Custodian<'_>) -> Result<Self> {
        let (ours, his) = UnixStream::pair()?;
        // He handles none of those that are meant for us.
        let handled = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let copied = sys::host::copy_process();
        if copied == Ok(None) {
            drop(ours);
            custodian.serve(his);
            std::process::exit(0)
        }
        handled.thread_set_mask()?;
        let process = copied.ok().flatten().context("no process for the custodian")?;
        Ok(Self { process, line: Some(ours), bytes: ByteCount::ZERO })
    }

    /// Becomes readable when he has ended.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(|line| line.as_fd())
    }

    /// What he holds, as it was last [measured](Self::measure).
    pub(crate) fn bytes(&self) -> ByteCount {
        self.bytes
    }

    /// What is still as it was when he was made we have, too, and nobody else: half of it counts for him, and all of it is ours.
    pub(crate) fn measure(&mut self) {
        let part = self.line.as_ref().and_then(|_| proc::proportional_anonymous(self.process));
        let shared = part.zip(proc::resident_anonymous(self.process)).map(|(part, whole)| whole.saturating_sub(part));
        self.bytes = part.unwrap_or_default().saturating_sub(shared.unwrap_or_default());
    }

    /// He has ended before the run, so somebody has killed him.
    pub(crate) fn lose(&mut self) {
        self.line = None;
        self.reap();
        say(format_args!(
            "the custodian of this run (process {}) has been ended: who shares the memory of a process that is killed from now on, and outlives \
             it, reads zeros",
            self.process
        ));
    }

    /// The run is over. Whom it has left behind he looks after, and traces.
    pub(crate) fn end(&mut self, tracers: &tracers::Watch) {
        let Some(mut line) = self.line.take() else { return };
        let (mut answer, is_told) = ([0], line.shutdown(Shutdown::Write));
        let heard = is_told.and_then(|()| line.set_read_timeout(Some(PATIENCE))).and_then(|()| line.read(&mut answer));
        match heard {
            Ok(1) if answer == [GOES_ON] => tracers.hand_over(),
            Ok(_) => self.reap(),
            // He is stopped, and hears it when he is continued.
            Err(_) => {}
        }
    }

    fn reap(&self) {
        let _ = waitpid(Pid::from_raw(self.process as i32), None);
    }
}
