//! The operating system's part: what it does when physical memory runs out while real memory is left.
//!
//! 1. "Receives a warning interrupt from the memory controller that physical memory exhaustion is near."
//! 2. "Blocks further memory allocation by reserving pages", and "Activates the swap daemon", "hence forcing some memory freed".
//! 3. "Fills those freed pages with zeros to reduce physical memory utilization" (in [`memory`](super::memory)).
//! 4. "Activates a set of busy spinning threads to stall the execution of processes that exhaust physical memory if items 2 and 3
//!    above cannot offset the increase in the physical memory utilization."
//!
//! The paper gives no thresholds. Here the last one follows from the cache: each of its lines may come to need four sectors
//! when it is written back, and no one asks the operating system then. Fewer must never be free.

use super::cache::BYTES;
use super::memory::{Memory, SECTOR_BYTES};

/// Pages that the swap daemon forces out before it looks again (`SWAP_CLUSTER_MAX`).
pub(super) const CLUSTER_PAGES: u64 = 32;
/// Parts of all sectors, above those of the cache, that are free when the interrupt comes, and when all is well again: guesses.
const WARNING_PART: u64 = 16;
const RELIEF_PART: u64 = 8;
/// What a page may come to take.
const PAGE_SECTORS: u64 = 16;

/// Marks on free sectors, and what is done about them.
#[derive(Debug)]
pub(super) struct Manager {
    /// Below this the program is stalled.
    stall: u64,
    /// Below this there is a warning.
    warning: u64,
    /// From here on the warning is over.
    relief: u64,
    is_warned: bool,
    interrupts: u64,
    /// Pages that may be in use: all others of real memory are free or reserved.
    pages_max: u64,
    /// When the device has written what was forced out last.
    written_ns: f64,
}

impl Manager {
    pub(super) const fn new(memory: &Memory) -> Self {
        let (stall, sectors) = (BYTES / SECTOR_BYTES, memory.sectors());
        Self {
            stall,
            warning: stall + sectors / WARNING_PART,
            relief: stall + sectors / RELIEF_PART,
            is_warned: false,
            interrupts: 0,
            pages_max: memory.pages_max(),
            written_ns: 0.0,
        }
    }

    pub(super) const fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// Whether there has been a warning that still holds. It reserves all pages that are free.
    pub(super) fn judge(&mut self, memory: &Memory) -> bool {
        let free = memory.free_sectors();
        if free < self.warning && !self.is_warned {
            self.is_warned = true;
            self.interrupts += 1;
            self.pages_max = memory.pages();
        } else if free >= self.relief {
            self.is_warned = false;
        }
        self.is_warned
    }

    /// When the daemon, warned, forces out the next pages: when the device has written those before, and the program waits for that
    /// where it is stalled. None if nothing is to be done by now.
    pub(super) fn due_ns(&self, memory: &Memory, now_ns: f64) -> Option<f64> {
        let free = memory.free_sectors();
        let is_due = free < self.stall || (free < self.relief && self.written_ns <= now_ns);
        is_due.then_some(self.written_ns)
    }

    /// Pages have left, and are reserved. They will be written then.
    pub(super) fn reserve(&mut self, memory: &Memory, written_ns: f64) {
        self.pages_max = memory.pages();
        self.written_ns = written_ns;
    }

    /// Pages that may be in use when one more is asked for. Without a warning those that were reserved are given back, as far as
    /// sectors are free for the worst that they can hold.
    pub(super) fn pages_max(&mut self, memory: &Memory) -> u64 {
        if !self.is_warned && memory.pages() >= self.pages_max {
            let room = memory.free_sectors().saturating_sub(self.relief) / PAGE_SECTORS;
            self.pages_max = (self.pages_max + room.min(CLUSTER_PAGES)).min(memory.pages_max());
        }
        self.pages_max.max(1)
    }
}
