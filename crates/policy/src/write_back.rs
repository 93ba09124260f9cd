//! Write-back: how many of the oldest pages a daemon sends below, and when compression starts at all.

use page::{ByteCount, PageCount};

/// `kcmswapd` (`tuduce-gross` sections 3.2 and 4.2): keeps entries for compressed pages free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeEntries {
    /// Entries that are to stay free.
    pub threshold: PageCount,
}

impl FreeEntries {
    /// How many of the least recently used pages go now, given the entries that are free.
    pub fn pages_to_release(self, free: PageCount) -> PageCount {
        self.threshold.saturating_sub(free)
    }
}

/// The monitor of `tuduce-gross` sections 4 and 5.4: a program runs without compression until it is short of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Monitor {
    /// What the program may need before compression is turned on for it.
    pub threshold: ByteCount,
    on: bool,
}

impl Monitor {
    /// Off.
    pub const fn new(threshold: ByteCount) -> Self {
        Self { threshold, on: false }
    }

    /// A look at what the program needs. Says whether compression is on from now on; it stays on.
    pub fn look(&mut self, needed: ByteCount) -> bool {
        self.on |= needed > self.threshold;
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "When the compressed area becomes (almost) filled, its LRU pages are sent to disk, and the number of free compressed pages is
    /// kept above a configurable threshold."
    #[test]
    fn entries_are_kept_free() {
        let daemon = FreeEntries { threshold: PageCount(100) };
        for (free, goal) in [(0, 100), (99, 1), (100, 0), (5000, 0)] {
            assert_eq!(daemon.pages_to_release(PageCount(free)), PageCount(goal), "{free} free");
        }
    }

    /// "By default, compression is turned off and the system checks the size of memory available periodically. If an application's
    /// memory needs exceed a certain threshold, compression is turned on for that application".
    #[test]
    fn compression_starts_past_the_threshold() {
        let mut monitor = Monitor::new(ByteCount(1000));
        assert_eq!([10, 1000, 1001, 10].map(|needed| monitor.look(ByteCount(needed))), [false, false, true, true]);
    }
}
