//! A view of what another thread does again and again: whether the time that was going on is over. For the forking thread the
//! reading of the message that let it go; for one that takes memory back the serving of faults there.
//!
//! Without a lock. That thread is the program's, and its stack is managed: what it misses comes from who may wait for the
//! pager's lock. A sequence number is enough, odd while messages are read and followed.

use core::time::Duration;

use sys::sync::{AtomicBool, AtomicU32, Ordering, Sharing, wait_while, wake_all};

/// How often who waits looks again, should nobody wake it.
const LOOK: Duration = Duration::from_millis(10);

/// Readings of messages, or servings of faults, one at a time.
#[derive(Default)]
pub(crate) struct Readings {
    /// Odd while one goes on; a futex.
    count: AtomicU32,
    is_awaited: AtomicBool,
}

impl Readings {
    // SeqCst throughout: who has been let go by a reading sees that it goes on; and either `finish` sees that somebody
    // waits, or he sees that it is over.

    /// Says which it is.
    pub(crate) fn begin(&self) -> u32 {
        self.count.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
    }

    pub(crate) fn finish(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            wake_all(&self.count, Sharing::Process);
        }
    }

    /// The last one that has begun or ended.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits for the end of the reading that goes on, if one does.
    pub(crate) fn wait_for_end(&self) {
        self.wait(u32::MAX);
    }

    /// The same, for so many looks at most.
    pub(crate) fn wait(&self, looks_max: u32) {
        let seen = self.count.load(Ordering::SeqCst);
        if seen.is_multiple_of(2) {
            return;
        }
        self.is_awaited.store(true, Ordering::SeqCst);
        let mut looks = 0;
        while self.count.load(Ordering::SeqCst) == seen && looks < looks_max {
            wait_while(&self.count, seen, LOOK, Sharing::Process);
            looks = looks.saturating_add(1);
        }
        self.is_awaited.store(false, Ordering::SeqCst);
    }

    /// In a forked child, where nobody reads yet: the copy may be of the middle of a reading.
    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::SeqCst);
        self.is_awaited.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_waits_goes_on_when_the_reading_is_over_and_not_before() {
        let readings = Readings::default();
        readings.wait_for_end();
        for _ in 0..100 {
            let is_over = AtomicBool::new(false);
            readings.begin();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    readings.wait_for_end();
                    is_over.load(Ordering::SeqCst)
                });
                while !readings.is_awaited.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                is_over.store(true, Ordering::SeqCst);
                readings.finish();
                assert!(waiter.join().unwrap());
            });
        }
    }

    /// A server that waits for a device serves without end.
    #[test]
    fn a_wait_with_a_limit_ends() {
        let readings = Readings::default();
        readings.begin();
        readings.wait(2);
        assert_eq!(readings.count.load(Ordering::SeqCst), 1, "it goes on");
    }

    #[test]
    fn a_child_waits_for_no_reading_of_its_parent() {
        let readings = Readings::default();
        readings.begin();
        readings.reset();
        readings.wait_for_end();
    }
}
