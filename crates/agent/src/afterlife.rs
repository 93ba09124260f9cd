//! A program whose last thread ends by itself (exit(2)) would have ended with it: our threads go on. So somebody looks.
//!
//! libc calls `exit_group(2)` with its last thread, and most programs end so. Runtimes of their own and raw system calls do not.

use sys::thread;

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;

/// Looks whether anything but the agent is left of this process.
#[derive(Default)]
pub(crate) struct Afterlife {
    next_look_ns: u64,
}

impl Afterlife {
    /// On a thread of the agent's, now and then. `has_only` says whether so many threads are all that is left.
    pub(crate) fn look(&mut self, now_ns: u64, has_only: impl FnOnce(u32) -> bool) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_NS;
        // Another one may take the place of ours meanwhile.
        let count = thread::bare_count();
        if count.is_some_and(has_only) && thread::bare_count() == count {
            // The kernel would take what the last thread has ended with, which nobody tells where it is not trapped.
            thread::exit_process(sys::user_mode::last_exit_status());
        }
    }
}
