//! The bell that ends the reclaimer's rest.

use core::time::Duration;

use sys::sync::{AtomicU32, Ordering, Sharing, wait_while, wake_all};

/// Rung by whoever needs the reclaimer to look at once.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Goes up with each ring; a futex.
    rings: AtomicU32,
    /// 1 while the reclaimer sleeps: spares the server a system call for each fault.
    is_awaited: AtomicU32,
}

impl Bell {
    pub(crate) fn ring(&self) {
        // SeqCst on both sides: either we see it resting, or it sees that there was a ring and does not sleep.
        self.rings.fetch_add(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) == 1 {
            wake_all(&self.rings, Sharing::Process);
        }
    }

    /// For [`Bell::wait`]: to be read before looking whether there is work. Acquire: whoever rang has left it before.
    pub(crate) fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Waits for `limit` at most, unless there was a ring since `seen` was read.
    pub(crate) fn wait(&self, seen: u32, limit: Duration) {
        self.is_awaited.store(1, Ordering::SeqCst);
        wait_while(&self.rings, seen, limit, Sharing::Process);
        self.is_awaited.store(0, Ordering::SeqCst);
    }

    /// Whether somebody waits.
    pub(crate) fn is_awaited(&self) -> bool {
        // Relaxed: who is wrong about it does the same at another cost.
        self.is_awaited.load(Ordering::Relaxed) == 1
    }

    /// In a forked child, where nobody waits yet.
    pub(crate) fn reset(&self) {
        self.is_awaited.store(0, Ordering::Relaxed);
    }

    /// As if somebody waited, or not.
    #[cfg(test)]
    pub(crate) fn pretend_wait(&self, waits: bool) {
        self.is_awaited.store(u32::from(waits), Ordering::SeqCst);
    }
}
