//! Tracers: each traces one thread of an agent's whose program would stop it (a leak checker stops all threads of its process, and
//! reads memory that the agent brings), so that nobody else can. One each: what traces several could wait for one of them while
//! another, which has ended, waits for it (ptrace(2) and execve).

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::Builder;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pager::ledger::{Ledger, Process};

const STACK_BYTES: usize = 64 << 10;

/// Begins to trace whatever agents have asked for.
pub(crate) fn look(ledger: &'static Ledger) {
    let used = ledger.processes_used.load(Acquire) as usize;
    for entry in ledger.processes.iter().take(used) {
        let Some(thread) = entry.tracing.take() else { continue };
        let tracer = Builder::new().name("pleat-tracer".into()).stack_size(STACK_BYTES);
        if tracer.spawn(move || trace(entry, thread)).is_err() {
            entry.tracing.reply(false);
        }
    }
}

fn trace(entry: &Process, thread: u32) {
    let process = entry.pid.load(Relaxed);
    let is_its_own = Path::new(&format!("/proc/{process}/task/{thread}")).exists();
    let thread = Pid::from_raw(thread as i32);
    let is_traced = is_its_own && ptrace::seize(thread, Options::empty()).is_ok();
    entry.tracing.reply(is_traced);
    while is_traced && has_gone_on(thread) {}
}

/// Waits until the thread stops, and lets it go on: also where its process is stopped, for another process may miss a page of it.
/// Says whether it is still there.
fn has_gone_on(thread: Pid) -> bool {
    let signal = match waitpid(thread, Some(WaitPidFlag::__WALL)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return false,
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        Ok(_) => None,
        Err(errno) => return errno == Errno::EINTR,
    };
    // ESRCH: it is being killed, which comes next.
    let _ = ptrace::cont(thread, signal);
    true
}
