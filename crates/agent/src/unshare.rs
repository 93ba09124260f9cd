//! unshare(2) and setns(2), in the place of libc's: the kernel gives a user namespace to single threads only, lets only such enter
//! one, or one of times, and the agent has a thread, too.
//!
//! While it only watches, it goes for the time of the call and comes back. Once memory is managed its threads cannot go, and
//! the kernel refuses. Who makes the system call without libc is refused as well.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use sys::Errno;
use sys::process;
use sys::sync::{Sharing, wake_all};
use sys::thread;

use crate::calls::to_libc;
use crate::host::agent;
use crate::watcher::{self, Agent};

/// The kernel adds `CLONE_THREAD` to it.
const CLONE_NEWUSER: c_int = process::NEWUSER as c_int;
const CLONE_NEWTIME: c_int = 0x80;
const CLONE_NEWNET: c_int = process::NEWNET as c_int;

/// The longest wait for the watcher, in looks: it may be about to become a keeper.
const LOOKS_MAX: u32 = 500;
const LOOK: Duration = Duration::from_millis(1);
/// How often a call is made again while the kernel still counts the thread that has gone, at a look's distance.
const REPEATS_MAX: u32 = 100;

/// Whether the watcher is to go, and whether it does.
const STAYS: u32 = 0;
const IS_TO_GO: u32 = 1;
const GOES: u32 = 2;

/// The watcher's leave.
pub(crate) struct Leave(AtomicU32);

impl Leave {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(STAYS))
    }

    /// On the watcher's thread: whether it must end now.
    pub(crate) fn is_taken(&self) -> bool {
        self.change(IS_TO_GO, GOES)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// unshare(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unshare(flags: c_int) -> c_int {
    // Ours is not trapped in user mode, and need not be: it names no memory.
    let call = || process::unshare(flags as u32 as usize);
    let result = match agent() {
        Some(agent) if flags & CLONE_NEWUSER != 0 => agent.without_watcher(call),
        _ => call(),
    };
    note_network(result, flags & CLONE_NEWNET != 0);
    to_libc(result.map(|()| 0), -1)
}

/// setns(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn setns(descriptor: c_int, kinds: c_int) -> c_int {
    let call = || process::enter_namespace(descriptor, kinds as u32 as usize);
    // Zero is whatever the descriptor is of. Asked first: behind a namespace of process ids no watcher could be made again.
    let may_be_refused = kinds == 0 || kinds & (CLONE_NEWUSER | CLONE_NEWTIME) != 0;
    let result = match (call(), agent()) {
        (Err(Errno::INVAL | Errno::USERS), Some(agent)) if may_be_refused => agent.without_watcher(call),
        (result, _) => result,
    };
    note_network(result, kinds == 0 || kinds & CLONE_NEWNET != 0);
    to_libc(result.map(|()| 0), -1)
}

/// This thread's children may begin in another network namespace than its agent is in.
fn note_network(result: Result<(), Errno>, may_be_another: bool) {
    if result.is_ok() && may_be_another {
        has_own_network();
    }
}

/// This thread has a network namespace of its own from now on.
pub(crate) fn has_own_network() {
    if let Some(agent) = agent() {
        // Release: a fork that comes after it sees it.
        agent.has_networks.store(true, Ordering::Release);
    }
}

impl Agent {
    /// Makes a call while there is no watcher, if that can be had. No signal's handler runs meanwhile: one that forks would wait
    /// at the gate for the thread that it interrupts.
    fn without_watcher(&'static self, call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        let mask = thread::block_signals();
        self.close_gate();
        let is_gone = self.keeper().is_none() && self.send_watcher_away();
        let mut result = call();
        // A thread's number goes some instructions before it ceases to be counted, and its processor may be taken away
        // between them.
        let mut repeats = if is_gone { REPEATS_MAX } else { 0 };
        let is_alone = || process::thread_count().is_none_or(|threads| threads == 1);
        while result == Err(Errno::INVAL) && repeats > 0 && is_alone() {
            thread::sleep(LOOK);
            result = call();
            repeats -= 1;
        }
        if is_gone && watcher::start(self).is_err() {
            // No thread can be made once children are to have process ids of their own (CLONE_NEWPID): the program runs
            // outside the budget, and loses nothing.
            self.growth.give_up();
        }
        self.gate.open();
        thread::unblock_signals(mask);
        result
    }

    fn send_watcher_away(&self) -> bool {
        let membership = self.membership();
        let watcher = membership.entry.watcher.load(Ordering::Relaxed) as u32;
        // A child of vfork has no watcher, and must leave its parent's alone.
        let is_ours = self.is_own_process() && !self.is_nameless.load(Ordering::Relaxed);
        if !is_ours || watcher == 0 || !self.leave.change(STAYS, IS_TO_GO) {
            return false;
        }
        let is_there = || process::process_exists(watcher);
        for _ in 0..LOOKS_MAX {
            if !is_there() {
                break;
            }
            // Each time: it may have looked before it was asked to go, and fall asleep only now.
            wake_all(&membership.ledger.active, Sharing::Machine);
            thread::sleep(LOOK);
        }
        if self.leave.change(IS_TO_GO, STAYS) {
            // It waits at the gate: memory is short.
            return false;
        }
        // It is on its way out, which takes some instructions.
        while is_there() {
            thread::sleep(LOOK);
        }
        self.leave.change(GOES, STAYS)
    }
}
