//! exit: a child that another thread is forking depends on our agent until it has its own. So who ends the process by libc waits for
//! that, as who executes another program does ([`crate::exec`]), if not for as long. In user mode the trap does.

use core::ffi::{c_int, c_long};

use sys::{process, thread, user_mode};

use crate::calls::syscall;
use crate::host::agent;
use crate::watcher::Agent;

/// Run by libc where the program ends by exit or by main's return, behind all that has been registered with atexit.
// SAFETY: the section holds pointers to functions with this signature, which is what the loader calls.
#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = wait_for_forks;

/// _exit(2). libc's exit does not come here.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

/// The same.
#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}

/// Ends the process, as `_exit` does.
pub(crate) fn end(status: c_int) -> ! {
    wait_for_forks();
    loop {
        // By libc's, which is trapped in user mode.
        // SAFETY: takes a number.
        unsafe { syscall(process::EXIT_GROUP, c_long::from(status)) };
    }
}

/// Until no other thread forks; none does from then on. May be called by a signal's handler: takes no lock, and ends. A program with
/// one thread ends without another system call, and so does one that has a filter while nobody forks: they may be forbidden.
extern "C" fn wait_for_forks() {
    let is_at_rest = |agent: &Agent| agent.may_be_confined() && agent.gate.holder() == 0;
    if crate::host::has_one_thread() || agent().is_some_and(is_at_rest) {
        return;
    }
    let Some(gate) = crate::fork::own_gate().filter(|_| !user_mode::is_armed()) else { return };
    let mask = thread::block_signals();
    gate.close_to_end(thread::thread_id());
    thread::unblock_signals(mask);
}
