//! What all processes of a run share: whether to stop, what has been done, what has gone wrong.
//!
//! It lies in shared memory, which pleat leaves alone.

use core::fmt::Write as _;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::calls;
use crate::drawn::Drawn;

/// Threads of all processes that can be at work at once.
pub(crate) const SLOTS: usize = 128;
/// Names of steps.
pub(crate) const STEPS_MAX: usize = 96;
const TEXT: usize = 600;

/// A thread at work: what it is doing, and since when.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) pid: AtomicU32,
    pub(crate) step: AtomicU64,
    pub(crate) kind: AtomicU32,
    pub(crate) since_ns: AtomicU64,
}

/// Zeros are a valid report.
#[repr(C)]
pub(crate) struct Report {
    pub(crate) stop: AtomicU32,
    /// Forked processes at work or about to be.
    pub(crate) children: AtomicU32,
    /// Processes there have been.
    pub(crate) processes: AtomicU64,
    pub(crate) done: [AtomicU64; STEPS_MAX],
    /// What threads have drawn, and how many of them.
    drawn: AtomicU64,
    drawn_by: AtomicU64,
    /// 1 for a kind of step that is left out.
    pub(crate) skipped: [AtomicU32; STEPS_MAX],
    /// 1 if a process may miss what another reads of it: pleat's user mode.
    pub(crate) others_miss: AtomicU32,
    failed: AtomicU32,
    text_bytes: AtomicU32,
    text: [AtomicU8; TEXT],
    pub(crate) slots: [Slot; SLOTS],
}

impl Report {
    /// A new one, shared with all that are forked from here on.
    pub(crate) fn new() -> Result<&'static Self, calls::Errno> {
        let place = calls::map_file(size_of::<Self>(), libc::MAP_SHARED)?;
        // SAFETY: page-aligned, as long as a report, never unmapped, and only atomics inside, for which zeros are valid.
        Ok(unsafe { &*(place as *const Self) })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Steps done so far.
    pub(crate) fn steps(&self) -> u64 {
        self.done.iter().map(|done| done.load(Relaxed)).sum()
    }

    /// Notes the first steps of a thread.
    pub(crate) fn has_drawn(&self, drawn: Drawn) {
        self.drawn.fetch_xor(drawn.number(), Relaxed);
        self.drawn_by.fetch_add(1, Relaxed);
    }

    /// The first steps of all threads, if each of so many has drawn as many as count.
    pub(crate) fn drawn(&self, threads: u64) -> Option<u64> {
        (self.drawn_by.load(Relaxed) == threads).then(|| self.drawn.load(Relaxed))
    }

    /// Notes what went wrong, if it is the first, and ends this process.
    pub(crate) fn fail(&self, what: core::fmt::Arguments<'_>) -> ! {
        if self.failed.swap(1, Relaxed) == 0 {
            let _ = Line(self).write_fmt(what);
            self.stop.store(1, Relaxed);
        }
        calls::exit(3)
    }

    /// What went wrong.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.failed.load(Relaxed) == 0 {
            return None;
        }
        let bytes: Vec<u8> = self.text.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A place for a thread of this process; `None` if there are too many.
    pub(crate) fn claim(&self) -> Option<&Slot> {
        let pid = std::process::id();
        let slot = self.slots.iter().find(|slot| slot.pid.compare_exchange(0, pid, Acquire, Relaxed).is_ok())?;
        slot.since_ns.store(calls::now_ns(), Relaxed);
        Some(slot)
    }
}

impl Slot {
    /// Gives the place back, if a process of this number has it. Who has it next is not late from the start.
    pub(crate) fn leave(&self, pid: u32) {
        if self.pid.load(Relaxed) == pid {
            self.since_ns.store(0, Relaxed);
            self.pid.store(0, Release);
        }
    }
}

/// Writes without memory of its own.
struct Line<'a>(&'a Report);

impl core::fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            let at = self.0.text_bytes.fetch_add(1, Relaxed) as usize;
            if let Some(place) = self.0.text.get(at) {
                place.store(byte, Relaxed);
            }
        }
        Ok(())
    }
}
