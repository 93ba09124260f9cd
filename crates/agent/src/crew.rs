//! A keeper's other threads, the handler and the writer. They are made first, and called when there is something to serve: whether
//! there are threads for both is known before a forked child has taken its memory over.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use core::time::Duration;

use pager::ledger::tracing::AgentThread;
use sys::Errno;
use sys::sync::{Sharing, wait_while, wake_all};
use sys::thread::{self, Descriptors};

use crate::keeper::Keeper;
use crate::watcher::Agent;
use crate::{handler, traced};

/// Between two looks at a call that has not come.
const LONG: Duration = Duration::from_secs(1);
/// What may be called.
const WAIT: u32 = 0;
const BEGIN: u32 = 1;
const LEAVE: u32 = 2;

/// How many they are.
const CREW: u32 = 2;
const PAUSE: Duration = Duration::from_micros(20);

/// Both, waiting.
pub(crate) struct Crew {
    agent: &'static Agent,
    handler: u32,
}

impl Crew {
    /// Makes both threads, and has them and the calling one traced.
    pub(crate) fn gather(agent: &'static Agent) -> Result<Self, Errno> {
        agent.call.forget();
        let argument = core::ptr::from_ref(agent) as usize;
        // SAFETY: the thread's memory lives as long as the agent, for ever, and is used by this handler alone.
        let handler = unsafe { thread::spawn(&agent.handler_memory, Descriptors::Shared, handler::handle, argument) }?;
        // SAFETY: as above, for the writer.
        let writer = unsafe { thread::spawn(&agent.writer_memory, Descriptors::Shared, handler::write, argument) };
        // Alone the handler is of no use.
        let writer = writer.inspect_err(|_| agent.call.send_away())?;
        let threads = [
            (AgentThread::Reclaimer, thread::thread_id()),
            (AgentThread::Handler, handler),
            (AgentThread::Writer, writer),
        ];
        traced::ask(agent, &threads);
        Ok(Self { agent, handler })
    }

    /// Has both begin, and waits until they have.
    pub(crate) fn call(self, keeper: &'static Keeper) {
        // A forked child begins with segments to write, and neither the handler nor we may wait for the device.
        keeper.pager.expect_writer();
        keeper.handler.store(self.handler, Ordering::Relaxed);
        self.agent.call.to(keeper);
        // Acquire: the handler's memory is allocated.
        while self.agent.call.begun.load(Ordering::Acquire) < CREW {
            thread::sleep(PAUSE);
        }
    }

    /// They are not needed.
    pub(crate) fn send_away(self) {
        self.agent.call.send_away();
    }
}

/// What a crew waits for.
#[derive(Debug)]
pub(crate) struct Call {
    state: AtomicU32,
    keeper: AtomicPtr<Keeper>,
    /// How many have come, and do what they are for.
    begun: AtomicU32,
}

impl Call {
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(WAIT), keeper: AtomicPtr::new(core::ptr::null_mut()), begun: AtomicU32::new(0) }
    }

    /// In a forked child it is as it was in the parent.
    fn forget(&self) {
        self.state.store(WAIT, Ordering::Relaxed);
        self.begun.store(0, Ordering::Relaxed);
    }

    fn to(&self, keeper: &'static Keeper) {
        self.keeper.store(core::ptr::from_ref(keeper).cast_mut(), Ordering::Relaxed);
        self.say(BEGIN);
    }

    fn send_away(&self) {
        self.say(LEAVE);
    }

    fn say(&self, state: u32) {
        // Release: what is written to the keeper before.
        self.state.store(state, Ordering::Release);
        wake_all(&self.state, Sharing::Process);
    }

    /// On a thread of the crew: whoever waits for it may go on.
    pub(crate) fn has_begun(&self) {
        // Release: see `Crew::call`.
        self.begun.fetch_add(1, Ordering::Release);
    }

    /// The same: until it is called. Where it is not needed it ends.
    pub(crate) fn wait(&self) -> &'static Keeper {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAIT => wait_while(&self.state, WAIT, LONG, Sharing::Process),
                // SAFETY: leaked before anybody is called.
                BEGIN => return unsafe { &*self.keeper.load(Ordering::Relaxed) },
                _ => thread::exit_thread(),
            }
        }
    }
}
