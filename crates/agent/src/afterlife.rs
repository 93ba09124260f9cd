//! A program whose last thread ends by itself (exit(2)) would have ended with it: our threads go on. So somebody looks.
//!
//! libc calls `exit_group(2)` with its last thread, and most programs end so. Runtimes of their own and raw system calls do not.

use core::sync::atomic::{AtomicU32, Ordering};

use sys::{process, thread, user_mode};

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;

/// With what the last thread has ended, where it has told so.
static LAST: AtomicU32 = AtomicU32::new(UNTOLD);
const UNTOLD: u32 = u32::MAX;

/// A thread is about to end, with this. If but a main thread is left that has ended, it is the last one.
pub(crate) fn note(status: u8) {
    let is_last = thread::bare_count().and_then(|own| process::ended_beside(own + 1)).is_some();
    LAST.store(if is_last { status.into() } else { UNTOLD }, Ordering::Relaxed);
}

/// In a forked child, none of whose threads has ended.
pub(crate) fn forget() {
    LAST.store(UNTOLD, Ordering::Relaxed);
}

/// What the kernel would have taken, had the program's last thread been the last: its status, which where it is not trapped nobody may have told. As a
/// rule that is the main thread, which has been the only one.
fn status(of_main: u8) -> u8 {
    match LAST.load(Ordering::Relaxed) {
        _ if user_mode::is_armed() => user_mode::last_exit_status(),
        UNTOLD => of_main,
        told => told as u8,
    }
}

/// Looks whether anything but the agent is left of this process.
#[derive(Default)]
pub(crate) struct Afterlife {
    next_look_ns: u64,
}

impl Afterlife {
    /// On a thread of the agent's, now and then. `ended_beside` says with what the main thread has ended if so many are all that is left.
    pub(crate) fn look(&mut self, now_ns: u64, ended_beside: impl FnOnce(u32) -> Option<u8>) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_NS;
        // Another one may take the place of ours meanwhile.
        let count = thread::bare_count();
        if let Some(of_main) = count.and_then(ended_beside)
            && thread::bare_count() == count
        {
            thread::exit_process(status(of_main));
        }
    }
}
