//! Watches a run: wakes the agents when memory gets short, ends what hangs, and keeps the statistics current.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{self, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use page::ByteCount;
use pager::ledger::{Ledger, Phase};

use crate::bell::Bell;
use crate::custody::Custody;
use crate::failure::{pass_on, say};
use crate::proc;
use crate::signals::Signals;
use crate::stats::{Report, StatsFile};
use crate::strays::Strays;
use crate::table::{LOOK_COUNTS_MAX, Look, Table};
use crate::tight::Tight;
use crate::tracers;

/// Faster than a program can fill memory: a page fault clears 4 KiB in a microsecond on the machines we know.
const GROWTH_BYTES_PER_SECOND: u64 = 4 << 30;
/// The shortest and the longest time between two looks while the agents wait.
const WATCH_MIN: Duration = Duration::from_millis(3);
const WATCH_MAX: Duration = Duration::from_millis(200);
/// The time between two looks once the agents work: they need no more waking, only counting.
const MANAGE_EVERY: Duration = Duration::from_millis(50);
/// The time between two documents of statistics.
const STATS_EVERY: Duration = Duration::from_secs(1);

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// By itself, or by a signal.
    Program(ExitStatus),
    /// The agent or the watchdog ended it.
    Failed,
    /// The budget could not be met (`--when-full stop`).
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) ledger: &'static Ledger,
    pub(crate) child: Child,
    pub(crate) custody: Custody,
    pub(crate) signals: Signals,
    pub(crate) bell: Bell,
    pub(crate) table: Table,
    pub(crate) tracers: tracers::Watch,
    pub(crate) strays: Strays,
    pub(crate) tight: Tight,
    /// Printed when the agents start to work: a run that fits never uses its swap file.
    pub(crate) swap_warning: Option<String>,
    pub(crate) stats: Option<StatsFile>,
    pub(crate) started: Instant,
    /// The watchdog had to end the program.
    pub(crate) ended_stuck: bool,
}

impl Supervisor {
    /// Watches until the program ends.
    pub(crate) fn run(&mut self) -> Result<End> {
        self.custody.measure();
        let mut last_look = Instant::now();
        let mut next_look = last_look;
        let mut next_stats = last_look + STATS_EVERY;
        let (mut took, mut is_asked_for) = (Duration::ZERO, false);
        let status = loop {
            let now = Instant::now();
            let second_over = now >= next_stats;
            if now >= next_look || second_over {
                next_look = now + self.look(now - last_look, second_over || is_asked_for);
                (last_look, took, is_asked_for) = (now, now.elapsed(), false);
            }
            if second_over {
                self.custody.measure();
                self.strays.look(self.child.id());
                self.write_stats(true);
                next_stats = now + STATS_EVERY;
            }
            if self.wait_until(next_look.min(next_stats))? {
                // However often that is: not more than half of the time is for looks.
                next_look = next_look.min(last_look + 2 * took);
                is_asked_for = true;
            }
            if self.signals.forward(self.program())
                && let Some(status) = self.child_changed()?
            {
                break status;
            }
        };
        // What it left in the ledger, before the entry is freed.
        self.table.look(Duration::ZERO, true);
        self.ledger.prints_no_more();
        pass_on(self.ledger);
        Ok(self.end(status))
    }

    /// The numbers of the run so far.
    pub(crate) fn report(&mut self, running: bool) -> Report {
        let (sum, processes) = self.table.records();
        let elapsed = self.started.elapsed();
        let occupied = Duration::from_nanos(self.ledger.occupancy.occupied_ns.load(Relaxed));
        Report { running, elapsed, occupied, sum, best_ratio: self.table.best_ratio(), processes }
    }

    /// Writes `--stats`. The path was good at the start; if the disk is full now, the next second tries again.
    pub(crate) fn write_stats(&mut self, running: bool) {
        let Some(stats) = self.stats.take() else { return };
        let written = stats.write(&self.report(running));
        if let Err(error) = written
            && !running
        {
            say(format_args!("--stats: {error:#}"));
        }
        self.stats = Some(stats);
    }

    fn program(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// One look at all processes. Returns when the next one is due.
    fn look(&mut self, elapsed: Duration, thorough: bool) -> Duration {
        let given = self.ledger.given_bytes.load(Relaxed);
        let look = self.table.look(elapsed, thorough);
        let own = proc::resident_anonymous(std::process::id()).unwrap_or_default() + self.custody.bytes();
        self.ledger.runner_bytes.store(own.0, Relaxed);
        let left = ByteCount(self.ledger.threshold_bytes.load(Relaxed)).saturating_sub(look.footprint);
        self.ledger.have_looked(left.0, given);
        self.tight.look(look.fixed + own, look.lost_ns, look.exceeded, elapsed.min(LOOK_COUNTS_MAX));
        self.end_stuck(&look);
        pass_on(self.ledger);
        if look.stopped {
            self.stop_run();
        }
        // Looking ever more often costs more than agents that are at work and have nothing to do.
        let is_active = self.ledger.active.load(Relaxed) != 0;
        if !is_active && watch_interval(left) > WATCH_MIN {
            return watch_interval(left);
        }
        if let Some(warning) = self.swap_warning.take() {
            say(format_args!("{warning}"));
        }
        if !is_active {
            self.ledger.activate();
        }
        MANAGE_EVERY
    }

    fn end_stuck(&mut self, look: &Look) {
        for pid in &look.stuck {
            say(format_args!(
                "fault handler of process {pid} is stuck; ending it, because its memory can no longer be served"
            ));
            kill(*pid);
            self.ended_stuck |= *pid == self.child.id();
        }
    }

    /// `--when-full stop`: the agent that met the end has said so; the others go with it.
    fn stop_run(&self) {
        for pid in self.table.living().into_iter().chain([self.child.id()]) {
            kill(pid);
        }
    }

    /// Returns whether somebody has asked for a look.
    fn wait_until(&mut self, due: Instant) -> Result<bool> {
        // One more than the whole milliseconds left, so that the wait does not end just before the time.
        let left = due.saturating_duration_since(Instant::now()).as_millis() as u16 + 1;
        let descriptors = [self.signals.as_fd(), self.bell.as_fd()].into_iter().chain(self.custody.as_fd());
        let mut descriptors: Vec<_> = descriptors.map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
        match poll(&mut descriptors, PollTimeout::from(left)) {
            // EINTR: a signal; the pipe says which.
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("poll"),
        }
        let has_come = |descriptor: &PollFd| descriptor.any().unwrap_or_default();
        let (has_rung, is_custodian_gone) = (has_come(&descriptors[1]), descriptors.get(2).is_some_and(has_come));
        if is_custodian_gone {
            self.custody.lose();
        }
        if has_rung {
            self.bell.silence().context("cannot read a pipe")?;
        }
        Ok(has_rung)
    }

    /// Follows the program's changes of state. Returns its status once it has ended.
    fn child_changed(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.child.try_wait().context("cannot wait for the program")? {
            return Ok(Some(status));
        }
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if let Ok(WaitStatus::Stopped(_, by)) = waitid(Id::Pid(self.program()), flags)
            && (by != Signal::SIGSTOP || proc::is_foreground())
        {
            // The shell that waits for us is to see the job stop. On SIGCONT we go on here, and hand it on.
            // A SIGSTOP outside the terminal's foreground is somebody's who will continue the program, not us.
            self.tracers.let_go_while(|| signal::raise(Signal::SIGSTOP)).context("cannot stop")?;
        }
        Ok(None)
    }

    fn end(&self, status: ExitStatus) -> End {
        match self.table.bad_end(self.child.id()) {
            _ if self.table.has_stopped() => End::Stopped,
            Some(Phase::Failed) => End::Failed,
            _ if self.ended_stuck && status.signal() == Some(Signal::SIGKILL as i32) => End::Failed,
            _ => End::Program(status),
        }
    }
}

/// When the threshold could be reached at the earliest.
fn watch_interval(left: ByteCount) -> Duration {
    Duration::from_secs_f64(left.0 as f64 / GROWTH_BYTES_PER_SECOND as f64).clamp(WATCH_MIN, WATCH_MAX)
}

/// SIGKILL. ESRCH: it has ended by itself. EPERM cannot be helped: it runs as another user.
fn kill(pid: u32) {
    if let Ok(process) = sys::host::ProcessHandle::open(pid) {
        let _ = process.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_in_time() {
        assert_eq!(watch_interval(ByteCount(0)), WATCH_MIN);
        assert_eq!(watch_interval(ByteCount(400 << 20)), Duration::from_secs_f64(400.0 / 4096.0));
        assert_eq!(watch_interval(ByteCount(1 << 40)), WATCH_MAX);
    }
}
