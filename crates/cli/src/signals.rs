//! Signals: what is sent to `pleat run` reaches the program, as if pleat were not there.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::proc;

/// The signals that are handed on. Those that cannot be caught (KILL, STOP) reach only pleat; those that report an
/// error of the receiver (SEGV, …) are not for the program.
const FORWARDED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Receives signals as data.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

impl Signals {
    /// Catches them from now on. What pleat's caller had ignored stays ignored, for the program inherits that
    /// (`nohup`), which a handler would undo.
    pub(crate) fn catch() -> Result<Self> {
        Self::catch_those(&FORWARDED)
    }

    /// The same for those that end a program.
    pub(crate) fn catch_ends() -> Result<Self> {
        Self::catch_those(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM])
    }

    fn catch_those(signals: &[Signal]) -> Result<Self> {
        let ignored = ignored_mask();
        let wanted = signals.iter().map(|signal| *signal as i32).filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let caught: Vec<i32> = wanted.chain([Signal::SIGCHLD as i32]).collect();
        let (read, write) = UnixStream::pair()?;
        Ok(Self { delivery: SignalDelivery::with_pipe(read, write, WithOrigin::default(), caught)? })
    }

    /// Becomes readable when there is a signal.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Hands on what comes, from a thread of its own, until this process ends.
    pub(crate) fn forward_for_good(mut self, program: Pid) {
        std::thread::spawn(move || {
            loop {
                let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
                // Whatever comes of it: look.
                let _ = poll(&mut fds, PollTimeout::NONE);
                self.forward(program);
            }
        });
    }

    /// Hands the signals that have come on to the program. Returns whether a child has changed its state.
    pub(crate) fn forward(&mut self, program: Pid) -> bool {
        let mut child_changed = false;
        for origin in self.delivery.pending() {
            if origin.signal == Signal::SIGCHLD as i32 {
                child_changed = true;
            } else if is_for(program, &origin)
                && let Ok(signal) = Signal::try_from(origin.signal)
            {
                // ESRCH: it has ended meanwhile, and SIGCHLD is on its way. EPERM: it runs as another user now; a
                // signal to itself would not have reached it from our sender either.
                let _ = signal::kill(program, signal);
            }
        }
        child_changed
    }
}

/// The terminal sends its signals to the whole process group, the program included; another copy would be one too
/// many. The shell does so with SIGCONT, but with `kill`: there the program's state tells.
fn is_for(program: Pid, origin: &Origin) -> bool {
    if origin.signal == Signal::SIGCONT as i32 {
        return proc::Stat::of(program.as_raw() as u32).is_some_and(proc::Stat::is_stopped);
    }
    !matches!(origin.cause, Cause::Kernel)
}

/// The signals that are ignored in this process: bit `n - 1` for signal `n`.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
