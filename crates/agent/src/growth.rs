//! Growth of the program, told by its own threads where it asks for memory.
//!
//! While memory is managed the pager looks after it ([`pager::Pager::announce`]). Before, `pleat run` looks now and then,
//! and a program fills its whole budget in that time. So who has grown by half of what was left when it last looked, or
//! asks for more at once than the budget has left, does not wait for the next look: the run becomes active, and the program
//! goes on when its memory is managed.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use page::ByteCount;
use pager::ledger::Ledger;
use sys::process::peak_resident;
use sys::{clock, thread};

use crate::watcher::{Agent, SMALL_DIVISOR};

/// Smaller steps are added up.
const BYTES_MIN: u64 = 128 << 10;
/// Longest wait for management to begin: it takes two or three milliseconds.
const PATIENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(100);

/// Without a lock: those who grow are threads of the program's.
pub(crate) struct Growth {
    ledger: &'static Ledger,
    /// The look of `pleat run` that the rest is counted from.
    tick: AtomicU32,
    /// What had been resident then, at its peak.
    resident: AtomicU64,
    /// What has been mapped since.
    mapped: AtomicU64,
    /// A thread waits until the process is managed, however small it is yet.
    pub(crate) is_waited_for: AtomicBool,
    /// Management did not begin in time once.
    has_waited: AtomicBool,
}

impl Growth {
    pub(crate) fn new(ledger: &'static Ledger) -> Self {
        Self {
            ledger,
            tick: AtomicU32::new(0),
            resident: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            is_waited_for: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
        }
    }

    /// Whether so many bytes are more than the budget has left: then nobody is asked again before it is passed.
    fn is_beyond_budget(&self, bytes: u64) -> bool {
        let [budget, threshold, room] =
            [&self.ledger.budget_bytes, &self.ledger.threshold_bytes, &self.ledger.room_bytes]
                .map(|word| word.load(Ordering::Relaxed));
        bytes > budget.saturating_sub(threshold.saturating_sub(room))
    }

    /// So many bytes have been mapped. Says whether the program is to wait until it is managed.
    fn is_too_much(&self, bytes: u64) -> bool {
        // Relaxed, all of it: estimates.
        let is_active = self.ledger.active.load(Ordering::Relaxed) != 0;
        // Acquire: the room is that of this look, or a later one's.
        let tick = self.ledger.runner_ticks.load(Ordering::Acquire);
        if !is_active && self.tick.swap(tick, Ordering::Relaxed) != tick {
            self.resident.store(peak_resident().0, Ordering::Relaxed);
            self.mapped.store(0, Ordering::Relaxed);
        }
        let mapped = self.mapped.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let small = self.ledger.budget_bytes.load(Ordering::Relaxed) / SMALL_DIVISOR;
        let limit = if is_active { small } else { self.ledger.room_bytes.load(Ordering::Relaxed) / 2 };
        if mapped < BYTES_MIN || mapped <= limit {
            return false;
        }
        self.mapped.store(0, Ordering::Relaxed);
        let before = if is_active { 0 } else { self.resident.load(Ordering::Relaxed) };
        peak_resident().0.saturating_sub(before) > limit
    }
}

/// What the program is about to do with memory that it has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// To fill it.
    Dense,
    /// To use some of it (`MAP_NORESERVE`).
    Sparse,
}

impl Agent {
    /// The program may write to so many bytes more, and has not touched them.
    pub(crate) fn has_grown(&self, bytes: usize, to_come: Use) {
        if let Some(keeper) = self.keeper() {
            return keeper.pager.announce(ByteCount(bytes as u64));
        }
        let is_beyond = to_come == Use::Dense && self.growth.is_beyond_budget(bytes as u64);
        let is_to_wait = is_beyond || self.growth.is_too_much(bytes as u64);
        if !is_to_wait || self.growth.has_waited.load(Ordering::Relaxed) {
            return;
        }
        self.growth.is_waited_for.store(true, Ordering::Relaxed);
        if self.growth.ledger.active.load(Ordering::Relaxed) == 0 {
            self.growth.ledger.activate();
        }
        let end_ns = clock::now_ns() + PATIENCE.as_nanos() as u64;
        while clock::now_ns() < end_ns {
            if let Some(keeper) = self.keeper() {
                return keeper.pager.announce(ByteCount(bytes as u64));
            }
            thread::sleep(PAUSE);
        }
        // It cannot be managed, or the machine is too busy: it is not held up again.
        self.growth.has_waited.store(true, Ordering::Relaxed);
    }

    /// The program has not run yet, and may write to so much: large arrays that its file declares.
    pub(crate) fn begins_with(&self, writable: Option<ByteCount>) {
        if let Some(ByteCount(bytes)) = writable
            && self.growth.is_beyond_budget(bytes)
        {
            self.has_grown(bytes as usize, Use::Dense);
        }
    }

    /// The program may write to this range, which it perhaps could before. What holds something has been counted.
    pub(crate) fn has_opened(&self, start: usize, bytes: usize) {
        if sys::process::is_empty(start, bytes) {
            self.has_grown(bytes, Use::Sparse);
        }
    }
}
