//! Programs that look for leaks stop all threads of their process at their end, the agent's too, and then read memory that only
//! the agent can bring (the sanitizers' leak checker, by ptrace). A thread has one tracer: where `pleat run` is that already, the program
//! cannot stop it.

use core::time::Duration;

use sys::{Errno, thread};

use crate::watcher::{self, Agent};

/// Why such a program is not managed, where it cannot be.
pub(crate) const REFUSED: &str =
    "it would stop the agent's threads to look for leaks, and `pleat run` may not trace them";

/// Until `pleat run` has answered, which may be stopped.
const PATIENCE_NS: u64 = 10_000_000_000;
const PAUSE: Duration = Duration::from_micros(20);

/// Has a thread of the agent's traced, if this is such a program.
pub(crate) fn ensure(agent: &Agent, thread: u32) -> Result<(), Errno> {
    if !agent.looks_for_leaks {
        return Ok(());
    }
    let membership = agent.membership();
    if membership.is_elsewhere {
        // There it is another's number.
        return Err(Errno::NOTSUP);
    }
    let tracing = &membership.entry.tracing;
    tracing.ask(thread);
    membership.ledger.ask_for_look();
    let deadline = sys::clock::now_ns() + PATIENCE_NS;
    loop {
        match tracing.answer() {
            Some(true) => return Ok(()),
            Some(false) => return Err(Errno::PERM),
            None if watcher::is_orphaned(&membership) => return Err(Errno::SRCH),
            None if sys::clock::now_ns() > deadline => return Err(Errno::TIMEDOUT),
            None => thread::sleep(PAUSE),
        }
    }
}
