//! Calls that the program makes by libc's `syscall`, where it does not take libc's own functions for them, and processes that it
//! makes by `clone`.
//!
//! What copies the process goes on in what libc's fork handlers would do; what madvise, shmat and ioctl need is in [`crate::calls`],
//! what seccomp needs in [`crate::filters`], what futexes need in [`sys::raw_calls`], and who ends by exit(2) does so at once.

use core::ffi::{c_int, c_long, c_ulong, c_void};

use sys::copies::{self, Asked, Flags, Launch};
use sys::raw_calls::{self, Call};
use sys::{Errno, process};

use crate::afterlife;
use crate::calls;
use crate::exit;
use crate::filters;
use crate::host::{self, agent};
use crate::unshare;
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
        Some(Call::End) => end(first as c_int),
        // SAFETY: the caller's promise.
        Some(Call::Confine) => unsafe { filters::seccomp(number, [first, second, third, fourth, fifth, sixth]) },
        Some(Call::WriteWord) => {
            // SAFETY: the caller's promise.
            let answer = unsafe { raw_calls::write_word([first, second, third, fourth, fifth, sixth]) };
            calls::to_libc(answer.map(|result| result as c_long), -1)
        }
        Some(Call::Fork) | None => {
            // SAFETY: the caller's promise.
            unsafe { fork(number, [first, second, third, fourth, fifth, sixth]) }
        }
    }
}

/// The call itself, told as libc tells it. Not by libc, whose `syscall` ends here.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn make(number: c_long, arguments: [c_long; 6]) -> c_long {
    // SAFETY: the caller's promise.
    calls::to_libc(unsafe { raw_calls::make(number, arguments) }.map(|result| result as c_long), -1)
}

/// As libc's fork with its handlers; where those cannot be run without a fork past us, of which only the kernel tells.
///
/// # Safety
/// As for fork: the child has this thread only.
unsafe fn fork(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let asked = if number == copies::CLONE3 { Asked::read(first, second) } else { None };
    let flags = match (number, asked) {
        (copies::CLONE, _) => Flags::of(first as usize),
        (copies::CLONE3, asked) => asked.and_then(|asked| Flags::of(asked.flags())),
        _ => Some(Flags::default()),
    };
    let Some(flags) = flags.filter(|_| agent().is_some_and(Agent::before_raw_fork)) else {
        // SAFETY: the caller's promise.
        return unsafe { make(number, arguments) };
    };
    let result = match asked {
        // SAFETY: the caller's promise.
        Some(asked) => unsafe { asked.make(flags) },
        // SAFETY: the caller's promise.
        None => unsafe { raw_calls::make(number, [flags.clone as c_long, second, third, fourth, fifth, sixth]) },
    };
    if result == Ok(0) {
        follow(flags);
    } else {
        host::after_fork_in_parent();
    }
    calls::to_libc(result.map(|child| child as c_long), -1)
}

/// In the child.
fn follow(flags: Flags) {
    host::after_fork_in_child();
    if flags.unshare() {
        unshare::has_own_network();
    }
}

/// In the place of libc's `clone` for what copies the process.
///
/// # Safety
/// As for clone.
pub(crate) unsafe extern "C" fn clone(
    function: usize,
    stack: usize,
    asked: c_int,
    argument: usize,
    parent: usize,
    tls: usize,
    child: usize,
) -> c_int {
    extern "C" fn arrive(launch: &Launch) {
        follow(launch.flags);
    }
    extern "C" fn go_on(_: &Launch) {}
    let asked = asked as u32 as usize;
    let followed = Flags::of(asked).filter(|_| agent().is_some_and(Agent::before_raw_fork));
    let arrive = if followed.is_some() { arrive } else { go_on };
    let flags = followed.unwrap_or(Flags::as_asked(asked));
    // SAFETY: the caller's promise.
    let result = unsafe { copies::launch(&Launch { function, argument, stack, arrive, flags }, [parent, child, tls]) };
    if followed.is_some() {
        host::after_fork_in_parent();
    }
    calls::to_libc(result.map(|child| child as c_int), -1)
}

/// exit(2), and where the function of a copy has returned, of which libc's ends by that. It ends the thread alone, and the process with its
/// last one; but the agent's go on until somebody looks.
pub(crate) extern "C" fn end(status: c_int) -> ! {
    // Who shares the memory of an agent's process without being one of its threads has none.
    if agent().is_some_and(|agent| !agent.may_be_confined() && agent.is_own_process()) {
        if process::is_alone() {
            exit::end(status);
        }
        afterlife::note(status as u8);
    }
    loop {
        // SAFETY: takes a number, and ends this thread.
        let _ = unsafe { raw_calls::make(process::EXIT, [c_long::from(status), 0, 0, 0, 0, 0]) };
    }
}

/// What the kernel refuses, as libc tells it.
pub(crate) extern "C" fn refused(result: isize) -> c_int {
    calls::to_libc(Err(Errno::from_raw_os_error(-result as i32)), -1)
}
