//! Who stops all threads of a process by ptrace stops the agent's, too, and then reads memory that only the agent can bring:
//! `strace -f -p`, debuggers, and the sanitizers' leak checker, which a program has in itself. A thread has one tracer: where
//! `pleat run` is that already, nobody else can stop it. So it is, before a page leaves, and in a forked child before the program goes on.
//! SIGSTOP does not stop it then, either: a process that stands still goes on to make room for others.
//!
//! A debugger does not take no for an answer. Before `pleat run` lets a thread go for him a process goes on for it, on its stack and with its
//! memory: a stand-in, which is in no list of the program's threads. When the debugger has gone the thread goes on itself.
//!
//! Somebody else may have come first: a thread that he traces goes on as a new one, which he is not given.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use pager::ledger::tracing::{AgentThread, Traceable, Urgency};
use sys::{Errno, thread};

use crate::entry::Membership;
use crate::failure::fail;
use crate::keeper::Keeper;
use crate::watcher::Agent;

/// Why a program that looks for leaks is not managed, where it cannot be.
pub(crate) const REFUSED: &str =
    "it would stop the agent's threads to look for leaks, and `pleat run` may not trace them";

/// Until `pleat run` has answered, which may be stopped. Without a leak checker the program goes on then.
const PATIENCE_NS: u64 = 10_000_000_000;
const PATIENCE_WITHOUT_NS: u64 = 1_000_000_000;
const PAUSE: Duration = Duration::from_micros(20);
/// Between a thread's looks whether somebody traces it, each of which takes some 20 us; and where that is to be expected.
const LOOK_NS: u64 = 5_000_000;
const LOOK_SOON_NS: u64 = 100_000;
/// Between `pleat run`'s tracing a thread and its saying so: microseconds, on a busy machine the time that others take.
const SAYING_NS: u64 = 50_000_000;

/// Asks `pleat run` to trace these threads of the agent's.
pub(crate) fn ask(agent: &Agent, threads: &[(AgentThread, u32)]) {
    let membership = agent.membership();
    let Some(urgency) = urgency(agent, &membership) else { return };
    for (which, thread) in threads {
        membership.entry.tracing.threads[*which as usize].ask(*thread, urgency);
    }
    membership.ledger.ask_for_tracing();
}

/// Waits until it has answered for all of them. Only a program that looks for leaks cannot do without.
pub(crate) fn wait(agent: &Agent) -> Result<(), Errno> {
    let membership = agent.membership();
    let urgency = urgency(agent, &membership);
    let is_needed = urgency == Some(Urgency::ForGood);
    if urgency.is_none() {
        return if agent.looks_for_leaks { Err(Errno::NOTSUP) } else { Ok(()) };
    }
    let deadline_ns = sys::clock::now_ns() + if is_needed { PATIENCE_NS } else { PATIENCE_WITHOUT_NS };
    for which in AgentThread::ALL {
        let traceable = &membership.entry.tracing.threads[which as usize];
        match answer(traceable, &membership, deadline_ns) {
            Err(errno) if is_needed => return Err(errno),
            Err(Errno::TIMEDOUT) => IS_SILENT.store(true, Ordering::Relaxed),
            // Perhaps for a moment only.
            Err(Errno::PERM) => traceable.ask(traceable.number(), Urgency::AtLeisure),
            _ => {}
        }
    }
    Ok(())
}

/// How soon this agent's threads are to be traced, if they are.
fn urgency(agent: &Agent, membership: &Membership) -> Option<Urgency> {
    if agent.looks_for_leaks {
        // Elsewhere it has not been tried whether a leak checker is told from a debugger.
        return (!membership.is_elsewhere).then_some(Urgency::ForGood);
    }
    (membership.ledger.attachable.load(Ordering::Relaxed) == 0).then_some(Urgency::AtOnce)
}

/// Whether there is somebody who traces the agents' threads; `None` elsewhere, where he has another number.
fn is_there(membership: &Membership) -> Option<bool> {
    let tracer = membership.ledger.tracer_pid.load(Ordering::Relaxed);
    (!membership.is_elsewhere).then(|| sys::process::process_exists(tracer))
}

/// A question has not been answered in time. Where he cannot be seen he is taken for gone then.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

fn answer(traceable: &Traceable, membership: &Membership, deadline_ns: u64) -> Result<(), Errno> {
    loop {
        match traceable.answer() {
            Some(true) => return Ok(()),
            Some(false) => return Err(Errno::PERM),
            None if !is_there(membership).unwrap_or_else(|| !IS_SILENT.load(Ordering::Relaxed)) => {
                return Err(Errno::SRCH);
            }
            None if sys::clock::now_ns() > deadline_ns => return Err(Errno::TIMEDOUT),
            None => thread::sleep(PAUSE),
        }
    }
}

/// The looks of one thread of the agent's whether somebody else traces it.
pub(crate) struct Lookout {
    which: AgentThread,
    looked_ns: u64,
    /// Since when `pleat run` has been about to trace it.
    taken_since_ns: Option<u64>,
    /// This is a stand-in, which goes on for it.
    is_out: bool,
}

impl Lookout {
    /// On that thread, with a look, before the program goes on.
    pub(crate) fn begin(which: AgentThread, keeper: &Keeper) -> Self {
        let mut lookout = Self { which, looked_ns: 0, taken_since_ns: None, is_out: false };
        lookout.look(keeper, sys::clock::now_ns());
        lookout
    }

    /// Whether `pleat run` has made room for a debugger, who may stop the program again as soon as he has let it go on.
    pub(crate) fn expects_somebody(&self, keeper: &Keeper) -> bool {
        !self.is_out && keeper.traceable(self.which).is_let_go()
    }

    /// On that thread, holding nothing that others wait for: goes on as a stand-in while `pleat run` makes room for a debugger, and as a
    /// new one if somebody traces it all the same. He is told that it has ended, and of the new one nothing.
    pub(crate) fn look(&mut self, keeper: &Keeper, now_ns: u64) {
        let pause = if self.expects_somebody(keeper) { LOOK_SOON_NS } else { LOOK_NS };
        if now_ns - self.looked_ns < pause {
            return;
        }
        self.looked_ns = now_ns;
        if self.step(keeper) {
            return;
        }
        if self.may_be_ours(keeper, now_ns) {
            return;
        }
        if !keeper.is_traced_by_us(self.which) && keeper.pager.kernel.files().is_traced() {
            // Where no thread can be made it stays as it is, and tries again.
            let _ = thread::renew(|number| keeper.goes_on(self.which, number));
        }
    }

    /// Steps out before `pleat run` lets this thread go, or where it has ended and nobody goes on for it; and in again once the thread is
    /// traced, and stays so. Says whether a stand-in goes on now.
    fn step(&mut self, keeper: &Keeper) -> bool {
        let agent = crate::host::agent().expect("it made this thread");
        let membership = agent.membership();
        let is_alone = urgency(agent, &membership).is_some() && is_there(&membership) == Some(false);
        let traceable = keeper.traceable(self.which);
        let was_out = self.is_out;
        if self.is_out && traceable.is_to_stay() && !is_alone {
            thread::step_in();
            self.is_out = false;
        } else if !self.is_out && (traceable.is_to_step_out() || is_alone) {
            // Where there can be none, or a filter might forbid it, the thread is let go as it is.
            self.is_out = !agent.may_be_confined() && thread::step_out(abandoned).is_ok();
        }
        if self.is_out != was_out && self.which == AgentThread::Handler {
            // Who looks whether it is stuck looks at the one that works.
            keeper.handler.store(thread::thread_id(), Ordering::Relaxed);
        }
        if self.is_out {
            traceable.has_stepped_out();
        }
        self.is_out
    }

    /// Whether `pleat run` may trace this thread without having said so: it has taken it a moment ago.
    fn may_be_ours(&mut self, keeper: &Keeper, now_ns: u64) -> bool {
        if !keeper.traceable(self.which).is_taken() {
            self.taken_since_ns = None;
            return false;
        }
        let since = *self.taken_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since) < SAYING_NS
    }
}

/// On the thread, when its stand-in has ended before the debugger has gone.
extern "C" fn abandoned() -> ! {
    fail(format_args!("the agent of process {} has been ended, and the program with it", thread::process_id()))
}

impl Keeper {
    fn traceable(&self, which: AgentThread) -> &'static Traceable {
        &self.entry().tracing.threads[which as usize]
    }

    fn is_traced_by_us(&self, which: AgentThread) -> bool {
        // Of one who is not seen the kernel does not say that he traces it, either.
        let is_there = || is_there(&crate::host::agent().expect("it made this thread").membership()) == Some(true);
        self.traceable(which).answer() == Some(true) && is_there()
    }

    /// On a thread of the agent's that has just taken over from one which is still there.
    fn goes_on(&self, which: AgentThread, number: u32) {
        match which {
            AgentThread::Reclaimer => {
                let limit = sys::process::raise_descriptor_limit();
                while self.pager.kernel.files().go_on().is_err() {
                    thread::sleep(PAUSE);
                }
                limit.into_iter().for_each(sys::process::RaisedLimit::restore);
                self.entry().watcher.store(number.into(), Ordering::Relaxed);
            }
            AgentThread::Handler => self.handler.store(number, Ordering::Relaxed),
            AgentThread::Writer => {}
        }
        self.traceable(which).ask(number, Urgency::AtLeisure);
    }
}
