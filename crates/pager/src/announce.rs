//! New memory, announced by the program's thread that has just mapped it.
//!
//! What is not registered waits for nobody: a program that maps a block and fills it is past its budget before the
//! reclaimer has looked. So where a mapping is large beside the room that is left, the thread that made it waits for the
//! next scan, a moment at most; what it touches then is a fault, and faults wait for room.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use page::ByteCount;
use store::Store;
use sys::kernel::Kernel;
use sys::sync::{Sharing, wait_while, wake_all};

use crate::Pager;

/// Smaller mappings are found in time: two of them are as much as lets the reclaimer look for itself.
const BYTES_MIN: ByteCount = ByteCount(128 << 10);
/// Longest wait. Whatever keeps the reclaimer from scanning, the program goes on.
const PATIENCE: Duration = Duration::from_millis(5);

/// Without a lock: the waiting thread is the program's, and its stack is managed.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    /// Announcements so far.
    made: AtomicU32,
    /// How many of them were there when the last scan that could be finished began; a futex.
    scanned: AtomicU32,
    /// Bytes that the program may take before it is short of room, as of the last round.
    room: AtomicU64,
}

impl Announcements {
    /// Whether a mapping of so many bytes is worth a wait.
    fn concern(&self, bytes: ByteCount) -> bool {
        // Relaxed: an estimate.
        bytes >= BYTES_MIN && bytes.0 > self.room.load(Ordering::Relaxed) / 2
    }

    pub(crate) fn set_room(&self, room: i64) {
        self.room.store(room.max(0) as u64, Ordering::Relaxed);
    }

    /// To be asked before a scan: what it will have seen.
    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Whether somebody waits for a scan.
    pub(crate) fn is_one_new(&self) -> bool {
        self.made() != self.scanned.load(Ordering::Relaxed)
    }

    /// A scan that began at `made` is done.
    pub(crate) fn have_been_scanned(&self, made: u32) {
        if self.scanned.swap(made, Ordering::AcqRel) != made {
            wake_all(&self.scanned, Sharing::Process);
        }
    }

    /// Waits for the scan of announcement `number`.
    fn wait_for(&self, number: u32, now_ns: impl Fn() -> u64) {
        let end_ns = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let scanned = self.scanned.load(Ordering::Acquire);
            let left_ns = end_ns.saturating_sub(now_ns());
            if scanned.wrapping_sub(number) as i32 >= 0 || left_ns == 0 {
                return;
            }
            wait_while(&self.scanned, scanned, Duration::from_nanos(left_ns), Sharing::Process);
        }
    }
}

impl<K: Kernel, S: Store> Pager<K, S> {
    /// On a thread of the program's, which has just mapped so many bytes and not touched them.
    pub fn announce(&self, bytes: ByteCount) {
        if self.announcements.concern(bytes) {
            // Release: the scan that sees this sees the mapping, which was made before.
            let number = self.announcements.made.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            self.hurry();
            self.announcements.wait_for(number, || self.kernel.now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn now_ns() -> u64 {
        static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    #[test]
    fn only_what_is_large_beside_the_room_concerns() {
        let announcements = Announcements::default();
        assert!(announcements.concern(BYTES_MIN) && !announcements.concern(ByteCount(BYTES_MIN.0 - 1)));
        announcements.set_room(1 << 30);
        assert!(!announcements.concern(ByteCount(1 << 29)) && announcements.concern(ByteCount((1 << 29) + 1)));
        announcements.set_room(-5);
        assert!(announcements.concern(BYTES_MIN));
    }

    #[test]
    fn who_announces_waits_for_a_scan_that_has_seen_it() {
        let announcements = Announcements::default();
        for round in 1..=50_u32 {
            announcements.made.fetch_add(1, Ordering::AcqRel);
            assert!(announcements.is_one_new());
            let begun = announcements.made();
            // Nobody has seen this one, however often older ones are scanned.
            announcements.have_been_scanned(begun - 1);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    announcements.wait_for(round, || 0);
                    announcements.scanned.load(Ordering::Acquire)
                });
                announcements.have_been_scanned(begun);
                assert_eq!(waiter.join().unwrap(), round);
            });
            assert!(!announcements.is_one_new());
        }
    }

    #[test]
    fn a_wait_ends() {
        let begun = Instant::now();
        Announcements::default().wait_for(1, now_ns);
        assert!(begun.elapsed() >= PATIENCE);
    }
}
