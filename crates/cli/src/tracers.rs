//! Tracers: each traces one thread of an agent's, so that nobody else can stop it: who attaches to all threads of a program
//! (`strace -f -p`, a debugger, a leak checker) and then reads memory that is out would wait for what only the agent can bring.
//! One each: what traces several could wait for one of them while another, which has ended, waits for it (ptrace(2) and execve).

use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::pthread::pthread_kill;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pager::ledger::tracing::{Traceable, Urgency};
use pager::ledger::{Ledger, PROCESSES_MAX};

use crate::failure::say;
use crate::proc::{self, Stat};

const STACK_BYTES: usize = 64 << 10;
/// Nobody attaches to a process that has gone before he knows its number, and each tracer costs a thread.
const SHORT_LIVED: Duration = Duration::from_secs(1);
/// A tracer lets its thread go on within microseconds.
const SETTLING_MAX: Duration = Duration::from_millis(100);

/// Those of a run.
#[derive(Debug)]
pub(crate) struct Tracers {
    ledger: &'static Ledger,
    tracees: Vec<Tracee>,
    /// The processes that somebody else held at the last look, but for the agent's threads.
    held: Vec<u32>,
    /// A debugger's user has been told.
    has_told: bool,
}

/// A thread that is traced, and who does it.
#[derive(Debug)]
struct Tracee {
    process: u32,
    thread: u32,
    is_to_go: Arc<AtomicBool>,
    tracer: JoinHandle<()>,
}

impl Tracers {
    pub(crate) fn new(ledger: &'static Ledger) -> Self {
        Self { ledger, tracees: Vec::new(), held: Vec::new(), has_told: false }
    }

    /// Begins to trace what agents have asked for, and lets go what a debugger waits for. Says whether the next look is to be soon.
    pub(crate) fn look(&mut self) -> bool {
        self.tracees.retain(|tracee| !tracee.tracer.is_finished());
        let used = self.ledger.processes_used.load(Acquire) as usize;
        let mut is_kept_out = false;
        for entry in &self.ledger.processes[..used.min(PROCESSES_MAX)] {
            let process = entry.pid.load(Relaxed);
            let mut wanted = entry.tracing.threads.iter().filter_map(Traceable::wanted).peekable();
            if wanted.peek().is_none() {
                continue;
            }
            if wanted.any(|urgency| urgency == Urgency::AtOnce) || is_long_lived(process) && !is_traced(process) {
                entry.tracing.threads.iter().for_each(|traceable| self.take_up(process, traceable));
            } else {
                is_kept_out |= is_traced(process);
            }
        }
        self.make_room_for_debuggers() | is_kept_out
    }

    /// Before `pleat run` stops: what has stopped with the program goes on first, for it may be continued alone.
    pub(crate) fn settle(&self) {
        let is_held = |tracee: &Tracee| Stat::of(tracee.thread).is_some_and(|stat| stat.state == b't');
        let deadline = Instant::now() + SETTLING_MAX;
        while self.tracees.iter().any(is_held) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn take_up(&mut self, process: u32, traceable: &'static Traceable) {
        let Some(thread) = traceable.take() else { return };
        let is_to_go = Arc::new(AtomicBool::new(false));
        let tracer = Builder::new().name("pleat-tracer".into()).stack_size(STACK_BYTES);
        let is_to_end = Arc::clone(&is_to_go);
        match tracer.spawn(move || trace(process, thread, traceable, &is_to_end)) {
            Ok(tracer) => self.tracees.push(Tracee { process, thread, is_to_go, tracer }),
            Err(_) => traceable.reply(false),
        }
    }

    /// A debugger (gdb 13) tries a thread that it is refused again and again, for ever. Once it holds all the others none of them waits
    /// for a page: it may have the agent's, too. Says whether one is about to.
    fn make_room_for_debuggers(&mut self) -> bool {
        let mut processes: Vec<u32> = self.tracees.iter().map(|tracee| tracee.process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|process| proc::tracer_of(*process).is_some_and(|tracer| is_foreign(*process, tracer)));
        let is_one_there = !processes.is_empty();
        processes.retain(|process| {
            let of_it = self.tracees.iter().filter(|tracee| tracee.process == *process);
            proc::is_held_but_for(*process, &of_it.map(|tracee| tracee.thread).collect::<Vec<_>>())
        });
        // Twice in a row: strace stops threads for a moment only.
        let is_to_go = |process: &u32| processes.contains(process) && self.held.contains(process);
        for tracee in self.tracees.iter().filter(|tracee| is_to_go(&tracee.process)) {
            if !std::mem::replace(&mut self.has_told, true) {
                say(format_args!(
                    "a debugger holds process {}: where it stops threads that miss pages it may wait for ever; \
                     start the program by it instead (`pleat run -- gdb ...`)",
                    tracee.process
                ));
            }
            tracee.let_go();
        }
        self.held = processes;
        is_one_there
    }
}

fn is_long_lived(process: u32) -> bool {
    Stat::of(process).is_some_and(|stat| proc::age(stat) > SHORT_LIVED)
}

/// Who traces it may wait for what he was refused.
fn is_traced(process: u32) -> bool {
    proc::tracer_of(process).is_some()
}

/// A leak checker is of the program itself, and goes on without what it is refused.
fn is_foreign(process: u32, tracer: u32) -> bool {
    sys::thread::memories_differ(process, tracer) == Some(true)
}

impl Tracee {
    /// Its tracer ends, and the kernel lets go of it. Where the signal comes just before the tracer waits, the next look sends another.
    fn let_go(&self) {
        self.is_to_go.store(true, Relaxed);
        if sys::host::interrupt_by(sys::host::Signal::URG).is_ok() {
            let _ = pthread_kill(self.tracer.as_pthread_t(), Signal::SIGURG);
        }
    }
}

/// Until it ends, or is to go.
fn trace(process: u32, thread: u32, traceable: &Traceable, is_to_go: &AtomicBool) {
    let is_its_own = Path::new(&format!("/proc/{process}/task/{thread}")).exists();
    let thread = Pid::from_raw(thread as i32);
    let is_traced = is_its_own && ptrace::seize(thread, Options::empty()).is_ok();
    traceable.reply(is_traced);
    while is_traced && has_gone_on(thread) {
        if is_to_go.load(Relaxed) {
            return traceable.let_go();
        }
    }
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
