//! New memory, announced by the program's thread that has just mapped it.
//!
//! What is not registered waits for nobody: a program that maps memory and fills it is past its budget before the
//! reclaimer has looked. So where what has been mapped since the last scan is large beside the room that is left, the
//! thread that maps more waits for the next scan, a moment at most; what it touches then is a fault, and faults wait for
//! room.

use core::time::Duration;

use crate::places::Places;
use page::ByteCount;
use sys::sync::{AtomicU32, AtomicU64, Ordering, Sharing, wait_while, wake_all};

/// Less is not worth a scan: a step in which malloc of glibc grows, and this part of the process's share.
const BYTES_MIN: ByteCount = ByteCount(128 << 10);
const SHARE_DIVISOR: u64 = 128;
/// Longest wait. Whatever keeps the reclaimer from scanning, the program goes on. Some scans take milliseconds, and pauses
/// between them are longer.
const PATIENCE: Duration = Duration::from_millis(50);

/// Of more between two rounds of the reclaimer's nobody knows where they are.
const PLACES: usize = 64;

/// Without a lock: the waiting thread is the program's, and its stack is managed.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    /// Announcements so far.
    made: AtomicU32,
    /// How many of them were there when the last scan that could be finished began; a futex.
    scanned: AtomicU32,
    /// Bytes that may be mapped without a scan, as of the last round.
    allowed: AtomicU64,
    /// Bytes mapped since the last scan that could be finished began.
    unseen: AtomicU64,
    /// Where they are.
    pub(crate) places: Places<PLACES>,
}

/// What a scan will have seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) made: u32,
    bytes: u64,
}

impl Announcements {
    /// Takes note of so many bytes, and says whether they are worth a wait.
    pub(crate) fn concern(&self, bytes: ByteCount) -> bool {
        // Release: who counts them finds their place.
        let unseen = self.unseen.fetch_add(bytes.0, Ordering::Release) + bytes.0;
        // Relaxed: an estimate.
        unseen >= BYTES_MIN.0 && unseen > self.allowed.load(Ordering::Relaxed)
    }

    /// After a round: the program may take `room` bytes more before it is short of them.
    pub(crate) fn set_room(&self, room: i64, share: ByteCount) {
        let allowed = (room.max(0) as u64 / 2).max(share.0 / SHARE_DIVISOR);
        self.allowed.store(allowed, Ordering::Relaxed);
    }

    /// To be asked before a scan: what it will have seen.
    pub(crate) fn sight(&self) -> Sight {
        Sight { made: self.made(), bytes: self.unseen.load(Ordering::Acquire) }
    }

    fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Whether somebody waits for a scan.
    pub(crate) fn is_one_new(&self) -> bool {
        self.made() != self.scanned.load(Ordering::Relaxed)
    }

    /// A scan that began then is done.
    pub(crate) fn have_been_scanned(&self, Sight { made, bytes }: Sight) {
        self.unseen.fetch_sub(bytes, Ordering::Relaxed);
        self.advance(made);
    }

    /// Nobody waits for a scan of this announcement any more, nor of those before it. Later ones may be done with already.
    fn advance(&self, number: u32) {
        let is_later = |scanned: u32| ((scanned.wrapping_sub(number) as i32) < 0).then_some(number);
        if self.scanned.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_later).is_ok() {
            wake_all(&self.scanned, Sharing::Process);
        }
    }

    /// One more; its number. Release: the scan that sees it sees the mapping, which was made before.
    pub(crate) fn make(&self) -> u32 {
        self.made.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Nobody scans for now: who waits goes on.
    pub(crate) fn dismiss(&self) {
        self.advance(self.made());
    }

    /// Waits for the scan of announcement `number`. Who gives up is not scanned for any more: the reclaimer hurries for those
    /// alone that wait.
    pub(crate) fn wait_for(&self, number: u32, now_ns: impl Fn() -> u64) {
        let end_ns = now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let scanned = self.scanned.load(Ordering::Acquire);
            let left_ns = end_ns.saturating_sub(now_ns());
            if scanned.wrapping_sub(number) as i32 >= 0 {
                return;
            }
            if left_ns == 0 {
                return self.advance(number);
            }
            wait_while(&self.scanned, scanned, Duration::from_nanos(left_ns), Sharing::Process);
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

    const SHARE: ByteCount = ByteCount(64 << 20);

    #[test]
    fn only_what_is_large_beside_the_room_concerns() {
        let concerns = |room, bytes| {
            let announcements = Announcements::default();
            announcements.set_room(room, SHARE);
            announcements.concern(ByteCount(bytes))
        };
        let step = SHARE.0 / SHARE_DIVISOR;
        assert!(concerns(0, step + 1) && !concerns(0, step) && concerns(-5, step + 1));
        assert!(!concerns(1 << 30, 1 << 29) && concerns(1 << 30, (1 << 29) + 1));
        let announcements = Announcements::default();
        assert!(announcements.concern(BYTES_MIN), "before the first round nobody knows how much room there is");
    }

    #[test]
    fn small_steps_add_up_until_they_are_scanned() {
        let announcements = Announcements::default();
        announcements.set_room(20 * BYTES_MIN.0 as i64, SHARE);
        assert!((0..10).all(|_| !announcements.concern(BYTES_MIN)) && announcements.concern(BYTES_MIN));
        let sight = announcements.sight();
        // Mapped while the scan lasts, which may have passed it.
        assert!(announcements.concern(BYTES_MIN));
        announcements.have_been_scanned(sight);
        assert!((0..9).all(|_| !announcements.concern(BYTES_MIN)) && announcements.concern(BYTES_MIN));
    }

    #[test]
    fn who_announces_waits_for_a_scan_that_has_seen_it() {
        let announcements = Announcements::default();
        for round in 1..=50_u32 {
            announcements.make();
            assert!(announcements.is_one_new());
            let sight = announcements.sight();
            // Nobody has seen this one, however often older ones are scanned.
            announcements.have_been_scanned(Sight { made: sight.made - 1, ..sight });
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    announcements.wait_for(round, || 0);
                    announcements.scanned.load(Ordering::Acquire)
                });
                announcements.have_been_scanned(sight);
                assert_eq!(waiter.join().unwrap(), round);
            });
            assert!(!announcements.is_one_new());
        }
    }

    #[test]
    fn who_is_dismissed_goes_on() {
        let announcements = Announcements::default();
        for _ in 0..50 {
            let number = announcements.make();
            std::thread::scope(|scope| {
                scope.spawn(|| announcements.wait_for(number, || 0));
                announcements.dismiss();
            });
            assert!(!announcements.is_one_new());
        }
    }

    #[test]
    fn a_wait_ends() {
        let (announcements, begun) = (Announcements::default(), Instant::now());
        let number = announcements.make();
        announcements.wait_for(number, now_ns);
        assert!(begun.elapsed() >= PATIENCE);
        assert!(!announcements.is_one_new(), "nobody waits, and the reclaimer would not rest");
    }

    /// Whoever of two gives up first, and whatever an older scan says then.
    #[test]
    fn all_who_give_up_count_as_scanned() {
        for numbers in [[1, 2], [2, 1]] {
            let announcements = Announcements::default();
            let sight = announcements.sight();
            let [_, second] = [announcements.make(), announcements.make()];
            assert_eq!(second, 2);
            for number in numbers {
                let late = core::cell::Cell::new(0);
                announcements.wait_for(number, || late.replace(u64::MAX / 2));
            }
            assert!(!announcements.is_one_new(), "{numbers:?}");
            announcements.have_been_scanned(sight);
            assert!(!announcements.is_one_new(), "{numbers:?}");
        }
    }
}
