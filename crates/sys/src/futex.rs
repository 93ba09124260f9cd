//! Atomics, and the kernel's futex on them: what all is made of that synchronises without the pager's lock.
//!
//! `crates/model` puts loom's atomics and a futex of its own in the place of this file, and of nothing else.

use core::time::Duration;

pub(crate) use core::hint::spin_loop;
#[cfg(target_arch = "x86_64")]
pub(crate) use core::sync::atomic::fence;
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

/// Looks at a held lock before sleeping: our critical sections last about as long as a futex call.
pub(crate) const SPINS: u32 = 200;
/// Looks at somebody who is in a hurry before going ahead all the same: he may have lost his processor.
pub(crate) const COURTESY_SPINS: u32 = 200;

/// For user mode. Waits until `word` differs from `value`, which it will in a moment; nobody wakes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn spin_while(word: &AtomicU64, value: u64) {
    let mut looks = 0;
    // Acquire: what was done before it changed.
    while word.load(Ordering::Acquire) == value {
        looks += 1;
        if looks % SPINS == 0 {
            rustix::thread::sched_yield();
        }
        spin_loop();
    }
}

/// Who waits on a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Threads of one process.
    Process,
    /// Processes that map the same file.
    Machine,
}

impl Sharing {
    fn flags(self) -> futex::Flags {
        match self {
            Self::Process => futex::Flags::PRIVATE,
            Self::Machine => futex::Flags::empty(),
        }
    }
}

/// Waits unless `word` differs from `value`, until a wake-up comes or the time is over.
pub(crate) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>, shared: Sharing) {
    let limit = limit.map(crate::clock::timespec);
    // Every outcome means the same to the caller: look again.
    let _ = futex::wait(word, shared.flags(), value, limit.as_ref());
}

/// Wakes so many of those in [`wait`] on `word`.
pub(crate) fn wake(word: &AtomicU32, count: u32, shared: Sharing) {
    let _ = futex::wake(word, shared.flags(), count);
}
