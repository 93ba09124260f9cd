//! Who stops all threads of a process by ptrace stops the agent's, too, and then reads memory that only the agent can bring:
//! `strace -f -p`, debuggers, and the sanitizers' leak checker, which a program has in itself. A thread has one tracer: where
//! `pleat run` is that already, nobody else can stop it. SIGSTOP does not stop it then, either: a process that stands still
//! goes on to make room for others.

use core::time::Duration;

use pager::ledger::tracing::{AgentThread, Urgency};
use sys::{Errno, thread};

use crate::watcher::{self, Agent};

/// Why a program that looks for leaks is not managed, where it cannot be.
pub(crate) const REFUSED: &str =
    "it would stop the agent's threads to look for leaks, and `pleat run` may not trace them";

/// Until `pleat run` has answered, which may be stopped.
const PATIENCE_NS: u64 = 10_000_000_000;
const PAUSE: Duration = Duration::from_micros(20);

/// Has a thread of the agent's traced: at once, if this program looks for leaks, and else when `pleat run` gets round to it.
pub(crate) fn ensure(agent: &Agent, which: AgentThread, thread: u32) -> Result<(), Errno> {
    let membership = agent.membership();
    let traceable = &membership.entry.tracing.threads[which as usize];
    if !agent.looks_for_leaks {
        // Elsewhere it is another's number.
        if !membership.is_elsewhere {
            traceable.ask(thread, Urgency::AtLeisure);
        }
        return Ok(());
    }
    if membership.is_elsewhere {
        return Err(Errno::NOTSUP);
    }
    traceable.ask(thread, Urgency::AtOnce);
    membership.ledger.ask_for_look();
    let deadline = sys::clock::now_ns() + PATIENCE_NS;
    loop {
        match traceable.answer() {
            Some(true) => return Ok(()),
            Some(false) => return Err(Errno::PERM),
            None if watcher::is_orphaned(&membership) => return Err(Errno::SRCH),
            None if sys::clock::now_ns() > deadline => return Err(Errno::TIMEDOUT),
            None => thread::sleep(PAUSE),
        }
    }
}
