//! Programs that look for leaks stop all threads of their process at their end, the agent's too, and then read memory that only
//! the agent can bring (the sanitizers' leak checker, by ptrace). A thread has one tracer: where `pleat run` is that already, the program
//! cannot stop it.

use core::time::Duration;

use sys::{Errno, thread};

use crate::watcher::Agent;

/// Why such a program is not managed, where it cannot be.
pub(crate) const REFUSED: &str =
    "it would stop the agent's threads to look for leaks, and `pleat run` may not trace them";

/// Until `pleat run` has answered. It may be stopped, or gone.
const PATIENCE: Duration = Duration::from_secs(1);
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
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        match tracing.answer() {
            Some(true) => return Ok(()),
            Some(false) => return Err(Errno::PERM),
            None => thread::sleep(PAUSE),
        }
        waited += PAUSE;
    }
    Err(Errno::TIMEDOUT)
}
