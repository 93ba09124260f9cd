//! seccomp(2), by libc's `syscall`, and prctl(2) that asks for the same: filters of system calls.
//!
//! One for all threads leaves the agent's out ([`sys::confine`]). And a program that has asked for any makes none of our system calls on
//! its own threads any more that can be done without: the filter was made for a program that makes none.

use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering;

use sys::{confine, room, thread_end};

use crate::calls::{self, to_libc};
use crate::host::agent;
use crate::raw_calls;
use crate::watcher::Agent;

/// seccomp's operations that ask for a filter: that of three calls, and one of the program's own.
const SET_STRICT: c_long = 0;
const SET_FILTER: c_long = 1;

const PR_SET_SECCOMP: c_int = 22;

/// seccomp(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn seccomp(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [operation, flags, program, ..] = arguments;
    if let Some(agent) = agent()
        && [SET_STRICT, SET_FILTER].contains(&operation)
    {
        agent.is_to_be_confined();
        let by_itself = confine::is_for_all(operation as usize, flags as usize)
            .then(|| confine::confine(flags as usize, program as usize));
        if let Some(result) = by_itself.flatten() {
            return to_libc(result.map(|thread| thread as c_long), -1);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { raw_calls::make(number, arguments) }
}

/// prctl(2). libc's goes on here ([`crate::detours`]), which has a variable number of arguments, each a word.
///
/// # Safety
/// As for prctl.
pub(crate) unsafe extern "C" fn prctl(
    option: c_int,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
) -> c_int {
    if let Some(agent) = agent()
        && option == PR_SET_SECCOMP
    {
        agent.is_to_be_confined();
    }
    // SAFETY: the caller's promise.
    unsafe { raw_calls::make(confine::PRCTL, [c_long::from(option), second, third, fourth, fifth, 0]) as c_int }
}

impl Agent {
    /// For good, whether the kernel takes the filter or not. Release: on other threads, too, before they have it. The child of vfork, which
    /// has our memory, confines itself alone. Once only: the first filter may forbid what this needs.
    fn is_to_be_confined(&self) {
        if self.may_be_confined() || !self.is_own_process() {
            return;
        }
        // SAFETY: takes nothing.
        thread_end::learn_robust_list(unsafe { calls::pthread_self() });
        room::prepare();
        self.is_confined.store(true, Ordering::Release);
    }

    /// Whether system calls of ours on the program's threads may be forbidden to them.
    pub(crate) fn may_be_confined(&self) -> bool {
        self.is_confined.load(Ordering::Acquire)
    }
}
