//! Calls that the program makes by libc's `syscall`, where it does not take libc's own functions for them.
//!
//! A fork goes on in what libc's fork handlers would do; what madvise, shmat and ioctl need is in [`crate::calls`].

use core::ffi::{c_int, c_long, c_ulong, c_void};

use sys::raw_calls::{self, Call};

use crate::calls;
use crate::host::{self, agent};
use crate::watcher::Agent;

/// In the place of libc's `syscall` for the calls that [`Call`] knows.
///
/// # Safety
/// As for the call.
pub(crate) unsafe extern "C" fn call(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let address = |word: c_long| core::ptr::with_exposed_provenance_mut::<c_void>(word as usize);
    match Call::of(number) {
        // SAFETY: the caller's promise.
        Some(Call::Advise) => unsafe { calls::madvise(address(first), second as usize, third as c_int).into() },
        Some(Call::Attach) => {
            // SAFETY: the caller's promise.
            unsafe { calls::shmat(first as c_int, address(second), third as c_int) as c_long }
        }
        Some(Call::Control) => {
            // SAFETY: the caller's promise.
            unsafe { calls::ioctl(first as c_int, second as c_ulong, address(third)).into() }
        }
        Some(Call::Fork) | None => {
            // SAFETY: the caller's promise.
            unsafe { fork(number, [first, second, third, fourth, fifth, sixth]) }
        }
    }
}

/// As libc's fork with its handlers; where those cannot be run without a fork past us, of which only the kernel tells.
///
/// # Safety
/// As for fork: the child has this thread only.
unsafe fn fork(number: c_long, arguments: [c_long; 6]) -> c_long {
    let is_followed = agent().is_some_and(Agent::before_raw_fork);
    // SAFETY: the caller's promise.
    let result = unsafe { raw_calls::make(number, arguments) };
    match result {
        _ if !is_followed => {}
        Ok(0) => host::after_fork_in_child(),
        _ => host::after_fork_in_parent(),
    }
    calls::to_libc(result.map(|child| child as c_long), -1)
}
