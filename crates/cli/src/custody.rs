//! Custody: how `pleat run` begins, counts and ends its custodian, who is a process of his own.

use std::io::{ErrorKind, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use page::ByteCount;

use crate::custodian::{Custodian, GOES_ON};
use crate::failure::say;
use crate::userfaultfd::words;
use crate::{proc, tracers};

/// How long is waited for his word at the end of the run, which takes a fraction of a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest wait that is none without an end.
const PAUSE: Duration = Duration::from_millis(1);

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
        let process = match sys::host::copy_process() {
            Ok(Some(process)) => Ok(process),
            Ok(None) => {
                drop(ours);
                custodian.serve(his);
                std::process::exit(0)
            }
            Err(errno) => Err(anyhow!("no process for the custodian: {}", words(errno))),
        };
        handled.thread_set_mask()?;
        Ok(Self { process: process?, line: Some(ours), bytes: ByteCount::ZERO })
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
        self.tell_of_loss();
    }

    fn tell_of_loss(&self) {
        say(format_args!(
            "the custodian of this run (process {}) has been ended: who shares the memory of a process that is killed from now on, and outlives \
             it, reads zeros",
            self.process
        ));
    }

    /// The run is over. Whom it has left behind he looks after, and traces.
    pub(crate) fn end(&mut self, tracers: &tracers::Watch) {
        let Some(line) = self.line.take() else { return };
        match hear_at_end(line) {
            Ok(Some(GOES_ON)) => tracers.hand_over(),
            Ok(_) if self.reap() => {}
            Ok(_) => self.tell_of_loss(),
            // He is stopped, and hears it when he is continued.
            Err(_) => {}
        }
    }

    /// Waits until he is no more. Says whether he has ended by himself.
    fn reap(&self) -> bool {
        waitpid(Pid::from_raw(self.process as i32), None).is_ok_and(|status| matches!(status, WaitStatus::Exited(_, 0)))
    }
}

/// Tells him that the run is over. `None`: he ends.
fn hear_at_end(mut line: UnixStream) -> std::io::Result<Option<u8>> {
    line.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut answer = [0];
        line.set_read_timeout(Some((deadline - Instant::now()).max(PAUSE)))?;
        match line.read(&mut answer) {
            Ok(bytes) => return Ok((bytes > 0).then_some(answer[0])),
            // By a signal, of which there are some: threads end that are traced.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn who_is_killed_has_not_ended_by_himself() {
        for (script, is_well) in [("exit 0", true), ("exit 3", false), ("kill -9 $$", false)] {
            let mut he = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let custody = Custody { process: he.id(), line: None, bytes: ByteCount::ZERO };
            assert_eq!(custody.reap(), is_well, "{script}");
            assert!(he.wait().is_err(), "nobody is left to be waited for");
        }
    }

    /// Threads that are traced end meanwhile, and each sends one; no call is made again by the kernel behind it.
    #[test]
    fn a_signal_does_not_hide_his_word() {
        sys::host::interrupt_by(sys::host::Signal::URG).unwrap();
        let waits = pthread_self();
        for (word, heard) in [(Some(GOES_ON), Some(GOES_ON)), (None, None)] {
            let (ours, mut his) = UnixStream::pair().unwrap();
            let speaks = std::thread::spawn(move || {
                for _ in 0..50 {
                    pthread_kill(waits, Signal::SIGURG).unwrap();
                    std::thread::sleep(PAUSE);
                }
                word.map(|word| his.write_all(&[word]).unwrap())
            });
            assert_eq!(hear_at_end(ours).unwrap(), heard);
            speaks.join().unwrap();
        }
    }
}
