//! Tracers: each traces one thread of an agent's, so that nobody else can stop it: who attaches to all threads of a program
//! (`strace -f -p`, a debugger, a leak checker) and then reads memory that is out would wait for what only the agent can bring.
//! One each: what traces several could wait for one of them while another, which has ended, waits for it (ptrace(2) and execve).

use std::collections::BTreeMap;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::pthread::pthread_kill;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pager::ledger::tracing::{Traceable, Urgency};
use pager::ledger::{Ledger, Process};
use sys::clock;
use sys::sync::{Sharing, wait_while};

use crate::proc;

const STACK_BYTES: usize = 64 << 10;
/// Between two looks who traces a program: of a run, and of those that it has left behind; while somebody holds one; and where there is
/// nothing to look at.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
pub(crate) const LOOK_BEHIND: Duration = Duration::from_millis(250);
const LOOK_SOON: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_secs(1);
/// With many processes the looks at who traces them may take one part in so many of our time, by the processor's.
const LOOK_SHARE: u32 = 20;
/// Longest wait for stand-ins, which begin at the agent's threads' next looks: an idle one's is a quarter of a second later.
const STEPPING_OUT_MAX: Duration = Duration::from_secs(3);
/// The same where the run is over, and who has started it waits.
const HANDING_OVER_MAX: Duration = Duration::from_millis(500);
/// Longest wait for tracers to end, which takes microseconds.
const ENDING_MAX: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);

/// Those of a run.
#[derive(Debug)]
pub(crate) struct Tracers {
    ledger: &'static Ledger,
    /// Between two looks.
    pause: Duration,
    tracees: Vec<Tracee>,
    /// The processes that somebody else held at the last look, but for the agent's threads, and how long they had run.
    held: Vec<(u32, u64)>,
    /// The processes of which threads have been asked to step out, and when.
    stepping_out: BTreeMap<u32, Instant>,
    next_look: Instant,
}

/// Them, and the thread that looks for work for them: an agent that has asked waits, and `pleat run` may be at a look at all processes.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<Mutex<Tracers>>);

impl Watch {
    pub(crate) fn begin(ledger: &'static Ledger, pause: Duration) -> std::io::Result<Self> {
        let watch = Self(Arc::new(Mutex::new(Tracers::new(ledger, pause))));
        let looked = watch.clone();
        let look = move || {
            loop {
                // Acquire: who has asked has written down for what.
                let asked = ledger.tracings_asked.load(Acquire);
                let pause = looked.lock().look();
                wait_while(&ledger.tracings_asked, asked, pause, Sharing::Machine);
            }
        };
        // Before: an agent that sees itself traced by somebody else goes on as another thread.
        ledger.tracer_pid.store(std::process::id(), Relaxed);
        Builder::new().name("pleat-tracers".into()).spawn(look)?;
        Ok(watch)
    }

    /// Before `pleat run` stops with the program, which may be continued alone: who traces a thread must be there to let it go on.
    /// Until `stop` returns nobody traces any, but for those of programs that look for leaks: a leak checker, which comes from the program
    /// itself, would find them.
    pub(crate) fn let_go_while<T>(&self, stop: impl FnOnce() -> T) -> T {
        let tracers = self.lock();
        tracers.let_go(|tracee| tracee.urgency != Urgency::ForGood);
        stop()
    }

    /// Before `pleat run` ends, for a custodian who goes on for it: until he traces a thread a stand-in goes on for that.
    pub(crate) fn hand_over(&self) {
        let tracers = self.lock();
        let deadline = Instant::now() + HANDING_OVER_MAX;
        let traced = || tracers.tracees.iter().filter(|tracee| !tracee.tracer.is_finished());
        while !traced().all(|tracee| tracee.traceable.is_out()) && Instant::now() < deadline {
            traced().for_each(|tracee| tracee.traceable.ask_to_step_out());
            sleep(PAUSE);
        }
        tracers.let_go(|_| true);
        let for_good = tracers.tracees.iter().filter(|tracee| tracee.urgency == Urgency::ForGood);
        for_good.for_each(|tracee| tracee.traceable.hand_over_for_good());
        tracers.ledger.ask_for_tracing();
        // Nobody takes them up here again.
        std::mem::forget(tracers);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tracers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that is traced, and who does it.
#[derive(Debug)]
struct Tracee {
    process: u32,
    thread: u32,
    urgency: Urgency,
    traceable: &'static Traceable,
    is_to_go: Arc<AtomicBool>,
    tracer: JoinHandle<()>,
}

impl Tracers {
    fn new(ledger: &'static Ledger, pause: Duration) -> Self {
        let next_look = Instant::now();
        Self { ledger, pause, tracees: Vec::new(), held: Vec::new(), stepping_out: BTreeMap::new(), next_look }
    }

    /// Begins to trace what agents have asked for, and lets go what a debugger waits for. Returns when the next look is due.
    fn look(&mut self) -> Duration {
        self.tracees.retain(|tracee| !tracee.tracer.is_finished());
        // The signal may have come too early.
        self.tracees.iter().filter(|tracee| tracee.is_to_go.load(Relaxed)).for_each(Tracee::let_go);
        let wanted = self.wanted();
        let is_urgent = |urgency: &Urgency| *urgency != Urgency::AtLeisure;
        for (entry, urgency) in wanted.iter().filter(|(_, urgency)| is_urgent(urgency)) {
            self.take_up(entry, *urgency);
        }
        self.ledger.tracer_is_silent.store(0, Relaxed);
        let begun = Instant::now();
        if begun < self.next_look {
            return self.next_look - begun;
        }
        let begun_ns = clock::thread_ns();
        let is_idle = self.tracees.is_empty() && wanted.is_empty();
        for (entry, urgency) in wanted.iter().filter(|(_, urgency)| !is_urgent(urgency)) {
            // Who traces it would not be given what he has been refused once.
            if proc::tracer_of(entry.pid.load(Relaxed)).is_none() {
                self.take_up(entry, *urgency);
            }
        }
        self.make_room_for_debuggers();
        let took = Duration::from_nanos(clock::thread_ns() - begun_ns);
        let pause = if self.held.is_empty() { self.pause } else { LOOK_SOON }.max(took * LOOK_SHARE);
        // Who is traced from now on is looked at with the others.
        self.next_look = if is_idle { begun } else { begun + pause };
        if is_idle { IDLE } else { pause }
    }

    /// Traces these no more.
    fn let_go(&self, is_meant: impl Fn(&Tracee) -> bool) {
        let deadline = Instant::now() + ENDING_MAX;
        let traced = || self.tracees.iter().filter(|one| is_meant(one) && !one.tracer.is_finished());
        while traced().next().is_some() && Instant::now() < deadline {
            traced().for_each(Tracee::let_go);
            sleep(PAUSE);
        }
    }

    /// The processes of which threads are asked for, and how soon. Who has none any more asks for nothing.
    fn wanted(&self) -> Vec<(&'static Process, Urgency)> {
        let entries = self.ledger.claimed().iter();
        let asks = |entry: &'static Process| {
            [Urgency::AtOnce, Urgency::ForGood, Urgency::AtLeisure].into_iter().filter_map(move |urgency| {
                let mut threads = entry.tracing.threads.iter();
                threads.any(|thread| thread.wanted() == Some(urgency)).then_some((entry, urgency))
            })
        };
        entries.filter(|entry| entry.pid.load(Relaxed) != 0).flat_map(asks).collect()
    }

    fn take_up(&mut self, entry: &'static Process, urgency: Urgency) {
        let process = entry.pid.load(Relaxed);
        let is_itself = proc::is_still(process, entry.start_ticks.load(Relaxed));
        let is_here = proc::is_in_our_namespace(process);
        for traceable in entry.tracing.threads.iter().filter(|one| one.wanted() == Some(urgency)) {
            let Some(own) = traceable.take() else { continue };
            let thread = if is_here { Some(own) } else { proc::thread_as_seen_here(process, own) };
            let Some(thread) = thread.filter(|_| is_itself) else {
                traceable.reply(false);
                continue;
            };
            let is_to_go = Arc::new(AtomicBool::new(false));
            let tracer = Builder::new().name("pleat-tracer".into()).stack_size(STACK_BYTES);
            let is_to_end = Arc::clone(&is_to_go);
            match tracer.spawn(move || trace(process, thread, traceable, &is_to_end)) {
                Ok(tracer) => self.tracees.push(Tracee { process, thread, urgency, traceable, is_to_go, tracer }),
                Err(_) => traceable.reply(false),
            }
        }
    }

    /// A debugger (gdb 13) tries a thread that it is refused again and again, for ever. Once it holds all the others none of them waits
    /// for a page: it may have the agent's, too, as soon as stand-ins go on for them.
    fn make_room_for_debuggers(&mut self) {
        let mut processes: Vec<u32> = self.tracees.iter().map(|tracee| tracee.process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|process| self.is_debugged(*process));
        let held = processes.into_iter().filter_map(|process| {
            let of_it = self.tracees.iter().filter(|tracee| tracee.process == process);
            let threads: Vec<u32> = of_it.map(|tracee| tracee.thread).collect();
            Some((process, proc::running_time_while_held(process, &threads)?))
        });
        let held: Vec<(u32, u64)> = held.collect();
        // Not for a moment only, as strace does it: at two looks in a row, and it has not run in between.
        let still_held: Vec<u32> = held.iter().filter(|held| self.held.contains(held)).map(|held| held.0).collect();
        self.held = held;
        for process in still_held.iter().copied() {
            let asked = *self.stepping_out.entry(process).or_insert_with(Instant::now);
            let of_it = || self.tracees.iter().filter(|tracee| tracee.process == process);
            of_it().for_each(|tracee| tracee.traceable.ask_to_step_out());
            if of_it().all(|tracee| tracee.traceable.is_out()) || asked.elapsed() > STEPPING_OUT_MAX {
                of_it().for_each(Tracee::let_go);
            }
        }
        let gone = self.stepping_out.extract_if(.., |process, _| !still_held.contains(process));
        for (process, _) in gone {
            // Whose tracer is about to end does not stay.
            let stays = |tracee: &&Tracee| tracee.process == process && !tracee.is_to_go.load(Relaxed);
            self.tracees.iter().filter(stays).for_each(|tracee| tracee.traceable.ask_to_stay());
        }
    }

    /// Whether somebody traces a process who is not of the program itself: a leak checker is, and goes on without what it is refused.
    fn is_debugged(&self, process: u32) -> bool {
        let Some(tracer) = proc::tracer_of(process) else { return false };
        let mut of_it = self.tracees.iter().filter(|tracee| tracee.process == process);
        let is_foreign = if tracer == 0 { None } else { sys::thread::memories_differ(process, tracer) };
        is_foreign.unwrap_or_else(|| of_it.all(|tracee| tracee.urgency != Urgency::ForGood))
    }
}

impl Tracee {
    /// Its tracer ends, and the kernel lets go of it. The signal may come just before the tracer waits: then it takes another.
    fn let_go(&self) {
        self.is_to_go.store(true, Relaxed);
        if sys::host::interrupt_by(sys::host::Signal::URG).is_ok() {
            let _ = pthread_kill(self.tracer.as_pthread_t(), Signal::SIGURG);
        }
    }
}

/// Until it ends, or is to go.
fn trace(process: u32, thread: u32, traceable: &Traceable, is_to_go: &AtomicBool) {
    // `pleat run` may have been started with it blocked.
    let _ = SigSet::from(Signal::SIGURG).thread_unblock();
    let directory = format!("/proc/{process}/task/{thread}");
    let thread = Pid::from_raw(thread as i32);
    let is_traced =
        !is_to_go.load(Relaxed) && Path::new(&directory).exists() && ptrace::seize(thread, Options::empty()).is_ok();
    traceable.reply(is_traced);
    while is_traced && has_gone_on(thread) {
        if is_to_go.load(Relaxed) {
            // Said before, it would find itself traced still, and take us for somebody else.
            detach(thread);
            return traceable.let_go();
        }
    }
}

/// Traces a thread no more; where that cannot be done the kernel does it when its tracer ends.
fn detach(thread: Pid) {
    if ptrace::interrupt(thread).is_err() {
        return;
    }
    let signal = loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceEvent(..)) => break None,
            Ok(WaitStatus::Stopped(_, signal)) => break Some(signal),
            Err(Errno::EINTR) => {}
            _ => return,
        }
    };
    let _ = ptrace::detach(thread, signal);
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
