//! The writer: a thread that writes sealed segments, so that the reclaimer never waits for a device.
//!
//! While it waited nobody would see the program grow. Without a writer (in tests) the reclaimer writes by itself.
//!
//! A fork does not wait for the writer either, whose device may hang: a segment on its way stays in memory, where both
//! processes find it, and what became of it is noted when the state has thawed.

use core::time::Duration;

use backing::{BackingError, WriteJob};
use store::Store;
use sys::kernel::Kernel;
use sys::sync::Held;

use crate::Pager;
use crate::ledger::Counter;
use crate::state::State;

/// Time between attempts to write after a device has failed.
const RETRY_NS: u64 = 1_000_000_000;
/// Longest sleep; a job ends it. Then the agent has a look, too.
const REST: Duration = Duration::from_millis(250);
/// Between two looks at whether a fork is done: nobody waits for us meanwhile.
const THAW_PAUSE: Duration = Duration::from_millis(1);

impl<K: Kernel, S: Store> Pager<K, S> {
    /// From now on segments are left for a thread that calls [`Pager::write_segments`], which may come late: whoever has one to
    /// give must not write it meanwhile, for he would wait for the device.
    pub fn expect_writer(&self) {
        self.desk.open();
    }

    /// What the writer's thread does for the rest of its life; `before` each look whether there is something to write.
    pub fn write_segments(&self, mut before: impl FnMut()) -> ! {
        loop {
            self.desk.wait(REST);
            before();
            if let Some(job) = self.desk.take() {
                self.write(job);
                self.desk.done();
                self.hurry();
            }
        }
    }

    /// Gives the next sealed segment to the writer, or writes it if there is none. Says whether there was one to give.
    pub(crate) fn push_segment(&self, mut state: Held<'_, State<S>>) -> bool {
        if state.frozen || self.desk.is_busy() {
            return false;
        }
        let Some(job) = state.cache.log().and_then(backing::SegmentLog::write_job) else { return false };
        // With the lock held: two who found the desk empty would leave one job on top of the other.
        let left = self.desk.leave(job);
        drop(state);
        if let Some(job) = left {
            self.write(job); // There is no writer.
        }
        true
    }

    /// Writes one segment and notes how that went.
    pub(crate) fn write(&self, mut job: WriteJob) {
        let result = job.run();
        let mut unfinished = self.finish_write(job, result);
        while let Some(job) = unfinished {
            sys::thread::sleep(THAW_PAUSE);
            unfinished = self.finish_write(job, result);
        }
        self.has_progressed();
    }

    /// Notes what became of a segment. While the program forks it gives the job back: the log must not change.
    pub(crate) fn finish_write(&self, job: WriteJob, result: Result<(), BackingError>) -> Option<WriteJob> {
        let mut state = self.lock();
        if state.frozen {
            return Some(job);
        }
        let bytes = job.bytes() as u64;
        if result.is_ok() {
            self.entry.add(Counter::WrittenBackBytes, bytes);
        } else {
            state.retry_at_ns = self.kernel.now_ns() + RETRY_NS;
        }
        state.cache.log().expect("it gave the job").finish_write(job, result);
        None
    }

    /// Why the swap file takes nothing, if a write has failed.
    pub fn swap_trouble(&self) -> Option<BackingError> {
        self.lock().cache.log().and_then(|log| log.trouble())
    }

    /// Lets the log offer a segment whose write failed once more, when it is time.
    pub(crate) fn retry_writes(&self) {
        let now = self.kernel.now_ns();
        let mut state = self.lock();
        if now < state.retry_at_ns {
            return;
        }
        if let Some(log) = state.cache.log().filter(|log| log.trouble().is_some()) {
            log.retry();
            state.retry_at_ns = now + RETRY_NS;
        }
    }
}
