//! Custody: how `pleat run` begins, counts and ends its custodian, who is a process of his own.

use std::io::Read as _;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Result, anyhow};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use page::ByteCount;
use pager::ledger::Ledger;
use sys::handover::{Reception, new_secret};
use sys::host::SharedFile;

use crate::custodian::{Custodian, GOES_ON, Run};
use crate::failure::say;
use crate::swap::Place;
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
    /// Before the program starts, whose agents find his name in the ledger; and before this process has a second thread.
    pub(crate) fn begin(file: &SharedFile<Ledger>, swap: Option<&Place>) -> Result<Self> {
        let secret = new_secret().map_err(|errno| anyhow!("no random numbers: {errno:?}"))?;
        let run = Run::of(file, secret, swap);
        let reception = Reception::open().map_err(|errno| anyhow!("no socket for the agents: {errno:?}"))?;
        run.ledger.set_custodian(&reception.name(), &secret);
        let (ours, his) = UnixStream::pair()?;
        let copied = sys::host::copy_process().map_err(|errno| anyhow!("no process for the custodian: {errno:?}"))?;
        if let Some(process) = copied {
            return Ok(Self { process, line: Some(ours), bytes: ByteCount::ZERO });
        }
        drop(ours);
        Custodian::new(run, reception).serve(his);
        std::process::exit(0)
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
