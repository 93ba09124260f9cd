//! The desk, where the reclaimer leaves a job for the writer.

use core::time::Duration;

use sys::sync::{AtomicU32, Lock, Ordering, Sharing, wait_while, wake_all};

/// Nobody writes but the reclaimer.
const ABSENT: u32 = 0;
/// The writer has nothing to do.
const IDLE: u32 = 1;
/// The writer has a job.
const BUSY: u32 = 2;

/// One job at a time.
#[derive(Debug)]
pub(crate) struct Desk<J> {
    job: Lock<Option<J>>,
    state: AtomicU32,
}

impl<J> Desk<J> {
    pub(crate) fn new() -> Self {
        Self { job: Lock::new(None), state: AtomicU32::new(ABSENT) }
    }

    /// Whether a job is being written or waits to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.load(Ordering::Acquire) == BUSY
    }

    /// Leaves a job, or gives it back if there is no writer. Only while the desk is not busy.
    pub(crate) fn leave(&self, job: J) -> Option<J> {
        if self.state.load(Ordering::Acquire) == ABSENT {
            return Some(job);
        }
        *self.job.lock() = Some(job);
        self.state.store(BUSY, Ordering::Release);
        wake_all(&self.state, Sharing::Process);
        None
    }

    /// From now on jobs can be left.
    pub(crate) fn open(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// On the writer's thread: waits until a job is left, for `limit` at most.
    pub(crate) fn wait(&self, limit: Duration) {
        wait_while(&self.state, IDLE, limit, Sharing::Process);
    }

    /// On the writer's thread: the job that has been left. The desk stays busy until [`Desk::done`].
    pub(crate) fn take(&self) -> Option<J> {
        self.job.lock().take()
    }

    /// On the writer's thread: the next job can be left.
    pub(crate) fn done(&self) {
        // Release: the reclaimer that sees us idle sees the segment written.
        self.state.store(IDLE, Ordering::Release);
    }

    /// In a forked child: the parent's writer did not come along, even if it was just looking at the desk.
    ///
    /// # Safety
    /// No thread of this process uses the desk.
    pub(crate) unsafe fn clear(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.job.reset() };
        // Not dropped: the writer may have been about to take it, and then it is half here and half there. The log writes
        // its segment anew.
        core::mem::forget(self.take());
        self.state.store(ABSENT, Ordering::Release);
    }
}
