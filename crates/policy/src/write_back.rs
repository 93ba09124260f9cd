//! Write-back: how many of the oldest pages a daemon sends below.

use page::PageCount;

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
}
