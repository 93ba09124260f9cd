//! The watcher: the one thread of an agent that has nothing to do.
//!
//! It sleeps on a word of the ledger. `pleat run` watches the whole tree from outside and wakes the watchers when the
//! run passes its threshold; should it die, the watchers go by themselves.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use alloc::vec::Vec;

use page::ByteCount;
use sys::Errno;
use sys::kernel::PageRange;
use sys::process::RaisedLimit;
use sys::sync::{Lock, Sharing, wait_while};
use sys::thread::{self, Descriptors, ThreadMemory};

use crate::afterlife::Afterlife;
use crate::crew::Call;
use crate::entry::Membership;
use crate::exec::Bearings;
use crate::growth::Growth;
use crate::keeper::{self, Keeper};
use crate::stages::Gate;
use crate::unshare::Leave;

/// Looks at the supervisor's sign of life, and at a small process's size once the run is short.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_ACTIVE: Duration = Duration::from_millis(5);

/// All that a process's agent is.
pub(crate) struct Agent {
    pub(crate) membership: Lock<Membership>,
    /// What libraries had mapped before the agent came.
    pub(crate) library_memory: Vec<PageRange>,
    /// What leads to the run, for the programs that this one starts.
    pub(crate) bearings: Option<Bearings>,
    /// An address of the main thread's stack.
    pub(crate) stack: usize,
    /// What it grows by while nothing is managed.
    pub(crate) growth: Growth,
    /// The program has asked for memory that a forked child finds empty, or does not have.
    pub(crate) withholds: AtomicBool,
    /// Threads of the program's may be in other network namespaces than ours.
    pub(crate) has_networks: AtomicBool,
    /// The program has asked for a filter of its system calls; see `filters`.
    pub(crate) is_confined: AtomicBool,
    /// The program has opened a userfaultfd of its own.
    pub(crate) has_userfaultfd: AtomicBool,
    /// The program stops all threads of its process when it looks for leaks; see `traced`.
    pub(crate) looks_for_leaks: bool,
    /// For tests of the watchdogs.
    pub(crate) fault: Vec<u8>,
    pub(crate) watcher_memory: ThreadMemory,
    pub(crate) handler_memory: ThreadMemory,
    pub(crate) writer_memory: ThreadMemory,
    /// What those two wait for when they begin.
    pub(crate) call: Call,
    /// Set once memory is managed.
    pub(crate) keeper: AtomicPtr<Keeper>,
    pub(crate) leave: Leave,
    /// See [`Agent::is_own_process`].
    pub(crate) process: AtomicU32,
    /// Closed while the program forks, and while the watcher becomes a keeper.
    pub(crate) gate: Gate,
    /// The signal mask of the thread that has closed the gate to fork.
    pub(crate) forking_mask: AtomicU64,
    /// It has forked, or was forked, while only watched: memory may be another's, too.
    pub(crate) shares: AtomicBool,
    /// In a forked child: `pleat run` knows it by no number, so that it may not be managed.
    pub(crate) is_nameless: AtomicBool,
    /// In a forked child: how far its agent is; see `fork`.
    pub(crate) is_resumed: AtomicU32,
    /// The limit on descriptors, while a fork needs more of them.
    pub(crate) limit: Lock<Option<RaisedLimit>>,
}

impl Agent {
    pub(crate) fn new(
        membership: Membership,
        library_memory: Vec<PageRange>,
        bearings: Option<Bearings>,
        stack: usize,
        looks_for_leaks: bool,
        fault: Vec<u8>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            membership: Lock::new(membership),
            growth: Growth::new(membership),
            library_memory,
            bearings,
            stack,
            withholds: AtomicBool::new(false),
            has_networks: AtomicBool::new(false),
            is_confined: AtomicBool::new(false),
            has_userfaultfd: AtomicBool::new(false),
            looks_for_leaks,
            fault,
            watcher_memory: ThreadMemory::reserve()?,
            handler_memory: ThreadMemory::reserve()?,
            writer_memory: ThreadMemory::reserve()?,
            call: Call::new(),
            keeper: AtomicPtr::new(core::ptr::null_mut()),
            leave: Leave::new(),
            process: AtomicU32::new(thread::process_id()),
            gate: Gate::default(),
            forking_mask: AtomicU64::new(0),
            shares: AtomicBool::new(false),
            is_nameless: AtomicBool::new(false),
            is_resumed: AtomicU32::new(0),
            limit: Lock::new(None),
        })
    }

    pub(crate) fn membership(&self) -> Membership {
        *self.membership.lock()
    }

    /// What is managed, once it is.
    /// Whether this is the process that it was made in, or forked into: what vfork and raw system calls make has our memory, or a copy of it, and
    /// another id.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == sys::thread::process_id()
    }

    pub(crate) fn keeper(&self) -> Option<&'static Keeper> {
        // SAFETY: null, or a leaked keeper.
        unsafe { self.keeper.load(Ordering::Acquire).as_ref() }
    }
}

/// Starts the watcher on a bare thread.
pub(crate) fn start(agent: &'static Agent) -> Result<(), Errno> {
    let argument = core::ptr::from_ref(agent) as usize;
    // SAFETY: the agent and with it the thread's memory are never freed, and this process has no other watcher.
    let watcher = unsafe { thread::spawn(&agent.watcher_memory, Descriptors::Own, watch, argument) }?;
    agent.membership().entry.watcher.store(watcher.into(), Ordering::Relaxed);
    Ok(())
}

extern "C" fn watch(argument: usize) -> ! {
    thread::close_all_descriptors();
    thread::leave_directory();
    // SAFETY: `start` passed a reference that lives for ever.
    let agent = unsafe { &*(argument as *const Agent) };
    let membership = agent.membership();
    let mut afterlife = Afterlife::default();
    let mut ticks = membership.ledger.runner_ticks.load(Ordering::Relaxed);
    loop {
        if agent.leave.is_taken() {
            thread::exit_thread();
        }
        if membership.entry.main_has_ended.load(Ordering::Relaxed) != 0 {
            afterlife.look(sys::clock::now_ns(), sys::process::ended_beside);
        }
        if membership.is_active() {
            if agent.growth.is_waited_for.load(Ordering::Relaxed) || is_large(&membership) {
                keeper::keep(agent);
            }
            thread::sleep(LOOK_ACTIVE);
        } else {
            if agent.fault == b"watcher-dozes" {
                thread::sleep(Duration::from_millis(100));
            }
            wait_while(&membership.ledger.active, 0, LOOK, Sharing::Machine);
            let now = membership.ledger.runner_ticks.load(Ordering::Relaxed);
            if now == ticks && !membership.is_active() && is_orphaned(&membership) {
                // Nobody watches over the run any more: from here on each process looks after itself.
                membership.ledger.activate();
            }
            ticks = now;
        }
    }
}

/// Whether the process is large, or about to be.
fn is_large(membership: &Membership) -> bool {
    if membership.entry.promised_bytes.load(Ordering::Relaxed) > 0 {
        return true;
    }
    let budget = ByteCount(membership.ledger.budget_bytes.load(Ordering::Relaxed));
    sys::process::resident_anonymous().is_some_and(|resident| resident > policy::sizing::managed_min(budget))
}

/// Whether `pleat run` has gone.
pub(crate) fn is_orphaned(membership: &Membership) -> bool {
    !sys::process::process_exists(membership.ledger.runner_pid.load(Ordering::Relaxed))
}
