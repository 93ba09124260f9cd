//! Who stops all threads of a process by ptrace stops the agent's, too, and then reads memory that only the agent can bring:
//! `strace -f -p`, debuggers, and the sanitizers' leak checker, which a program has in itself. A thread has one tracer: where
//! `pleat run` is that already, nobody else can stop it. So it is, before a page leaves, and in a forked child before the program goes on.
//! SIGSTOP does not stop it then, either: a process that stands still goes on to make room for others.
//!
//! A debugger does not take no for an answer. Before `pleat run` lets a thread go for him a process goes on for it, on its stack and with its
//! memory: a stand-in, which is in no list of the program's threads. When the debugger has gone the thread goes on itself.
//!
//! Somebody else may have come first: a thread that he traces goes on as a new one, which he is not given.

use core::sync::atomic::Ordering;
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
/// Between its looks whether `pleat run` still does, as that has said.
const CHECK_NS: u64 = 250_000_000;
/// Who may not trace it is asked again so long after, and then after twice as long each time.
const ASK_AGAIN_NS: [u64; 2] = [1_000_000_000, 64_000_000_000];

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
    for traceable in &membership.entry.tracing.threads {
        match answer(traceable, &membership, deadline_ns) {
            Err(errno) if is_needed => return Err(errno),
            Err(Errno::TIMEDOUT) => membership.ledger.tracer_is_silent.store(1, Ordering::Relaxed),
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

/// Whether there is somebody who answers, as far as is known. Elsewhere he has another number.
fn is_there(membership: &Membership) -> bool {
    let ledger = membership.ledger;
    let exists = || sys::process::process_exists(ledger.tracer_pid.load(Ordering::Relaxed));
    ledger.tracer_is_silent.load(Ordering::Relaxed) == 0 && (membership.is_elsewhere || exists())
}

fn answer(traceable: &Traceable, membership: &Membership, deadline_ns: u64) -> Result<(), Errno> {
    loop {
        match traceable.answer() {
            Some(true) => return Ok(()),
            Some(false) => return Err(Errno::PERM),
            None if !is_there(membership) => return Err(Errno::SRCH),
            None if sys::clock::now_ns() > deadline_ns => return Err(Errno::TIMEDOUT),
            None => thread::sleep(PAUSE),
        }
    }
}

/// Who traces a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracer {
    /// Whom the agent has asked to.
    Ours,
    Other,
    Nobody,
}

/// The looks of one thread of the agent's whether somebody else traces it.
pub(crate) struct Lookout {
    which: AgentThread,
    looked_ns: u64,
    /// When it was last seen that `pleat run` traces it; 0: never.
    seen_ns: u64,
    /// Since when `pleat run` has owed an answer.
    owed_since_ns: Option<u64>,
    /// When it is asked again, having refused, and how long after that once more.
    ask_again: Option<(u64, u64)>,
    /// This is a stand-in, which goes on for it.
    is_out: bool,
}

impl Lookout {
    /// On that thread, with a look, before the program goes on.
    pub(crate) fn begin(which: AgentThread, keeper: &Keeper) -> Self {
        let now_ns = sys::clock::now_ns();
        // Where it has just been said it is not asked of /proc, too: each fork would wait for that.
        let seen_ns = if keeper.traceable(which).answer() == Some(true) { now_ns } else { 0 };
        let mut lookout = Self { which, looked_ns: 0, seen_ns, owed_since_ns: None, ask_again: None, is_out: false };
        lookout.look(keeper, now_ns);
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
        let is_said_to_be = keeper.traceable(self.which).answer() == Some(true);
        let is_to_be_checked = !is_said_to_be || now_ns - self.seen_ns >= CHECK_NS;
        if is_to_be_checked && !self.is_out {
            match keeper.tracer(self.which) {
                Tracer::Ours => self.seen_ns = now_ns,
                Tracer::Nobody => self.remind(keeper, now_ns),
                // Where no thread can be made it stays as it is, and tries again.
                Tracer::Other => drop(thread::renew(|number| keeper.goes_on(self.which, number))),
            }
        }
        self.step(keeper);
    }

    /// Nobody traces it: has `pleat run` do so that has let go of it by ending, has not answered, or has refused a while ago.
    fn remind(&mut self, keeper: &Keeper, now_ns: u64) {
        let traceable = keeper.traceable(self.which);
        let answer = traceable.answer();
        let is_asked = matches!(traceable.wanted(), Some(Urgency::AtOnce | Urgency::ForGood));
        if answer.is_some() || !is_asked && !traceable.is_taken() {
            self.owed_since_ns = None;
        }
        match answer {
            Some(true) => keeper.ask(self.which, traceable.number(), Urgency::AtOnce),
            Some(false) if self.is_time_to_ask_again(now_ns) => {
                keeper.ask(self.which, traceable.number(), Urgency::AtLeisure);
            }
            None if is_asked && self.is_owed_for_long(now_ns) => {
                keeper.membership().ledger.tracer_is_silent.store(1, Ordering::Relaxed);
            }
            // By one who has ended.
            None if traceable.is_taken() && self.is_owed_for_long(now_ns) => {
                keeper.ask(self.which, traceable.number(), Urgency::AtOnce);
            }
            _ => {}
        }
    }

    fn is_owed_for_long(&mut self, now_ns: u64) -> bool {
        now_ns - *self.owed_since_ns.get_or_insert(now_ns) > PATIENCE_WITHOUT_NS
    }

    /// Behind a refusal.
    fn is_time_to_ask_again(&mut self, now_ns: u64) -> bool {
        let [first_ns, longest_ns] = ASK_AGAIN_NS;
        let (again_ns, pause_ns) = self.ask_again.get_or_insert((now_ns + first_ns, first_ns));
        let is_time = now_ns > *again_ns;
        if is_time {
            *pause_ns = (2 * *pause_ns).min(longest_ns);
            *again_ns = now_ns + *pause_ns;
        }
        is_time
    }

    /// Steps out before `pleat run` lets this thread go, or where it has ended and nobody goes on for it; and in again once the thread is
    /// traced, and stays so.
    fn step(&mut self, keeper: &Keeper) {
        let agent = crate::host::agent().expect("it made this thread");
        let traceable = keeper.traceable(self.which);
        let was_out = self.is_out;
        if self.is_out && traceable.is_to_stay() {
            thread::step_in();
            self.is_out = false;
        } else if !self.is_out && (traceable.is_to_step_out() || self.is_left_alone(keeper)) {
            // Where there can be none, or a filter might forbid it, the thread is let go as it is. One for all threads leaves ours out.
            let may_be_ended = agent.may_be_confined() && keeper.pager.kernel.files().may_be_filtered();
            self.is_out = !may_be_ended && thread::step_out(abandoned).is_ok();
        }
        if self.is_out != was_out && self.which == AgentThread::Handler {
            // Who looks whether it is stuck looks at the one that works.
            keeper.handler.store(thread::thread_id(), Ordering::Relaxed);
        }
        if self.is_out {
            traceable.has_stepped_out();
        }
    }

    /// Whether it was traced, and is no more, for whoever did has ended. Elsewhere that is not known.
    fn is_left_alone(&self, keeper: &Keeper) -> bool {
        let is_traced = keeper.traceable(self.which).answer() == Some(true);
        let membership = keeper.membership();
        self.seen_ns != 0 && !is_traced && !membership.is_elsewhere && !is_there(&membership)
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

    /// Who traces the calling thread, which is this one. A thread has one tracer.
    fn tracer(&self, which: AgentThread) -> Tracer {
        let membership = self.membership();
        let traceable = self.traceable(which);
        let is_said_to_be = traceable.answer() == Some(true) || traceable.is_taken();
        let tracer = self.pager.kernel.files().tracer().unwrap_or(0);
        // The one goes on for the other, who may still be at handing over.
        let ours =
            [&membership.ledger.tracer_pid, &membership.ledger.runner_pid].map(|pid| pid.load(Ordering::Relaxed));
        let is_ours = || {
            let is_of_one = ours.map(|pid| self.pager.kernel.files().is_thread_of(tracer, pid));
            let is_shown = is_of_one.iter().any(Option::is_some);
            is_of_one.contains(&Some(true)) || !is_shown && is_said_to_be && is_there(&membership)
        };
        match tracer {
            // Elsewhere `pleat run` may be one that is not seen, or has another number.
            _ if membership.is_elsewhere && is_said_to_be => Tracer::Ours,
            0 => Tracer::Nobody,
            _ if !membership.is_elsewhere && is_ours() => Tracer::Ours,
            _ => Tracer::Other,
        }
    }

    /// Asks `pleat run` to trace a thread, if it is to be traced: with this urgency, but for a program that looks for leaks.
    fn ask(&self, which: AgentThread, number: u32, urgency: Urgency) {
        let agent = crate::host::agent().expect("it made this thread");
        let membership = agent.membership();
        if let Some(usual) = self::urgency(agent, &membership) {
            let urgency = if usual == Urgency::ForGood { usual } else { urgency };
            self.traceable(which).ask(number, urgency);
            membership.ledger.ask_for_tracing();
        }
    }

    fn membership(&self) -> Membership {
        crate::host::agent().expect("it made this thread").membership()
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
        self.ask(which, number, Urgency::AtLeisure);
    }
}
