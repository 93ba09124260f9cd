//! Admission: whether a page is worth compressing at all.

use page::PageIndex;

/// `castro` section 2.3.4: compression of clean pages is switched off while it gains nothing.
///
/// A clean page can be dropped and read again, so that compressing it is for nothing unless it is asked for before it is
/// released. The paper's parameters "were decided experimentally" and are not printed; these are ours.
#[derive(Clone, Debug)]
pub struct CleanPages {
    enabled: bool,
    /// Clean pages asked for, and released without, since the last decision.
    reclaimed: u32,
    released: u32,
    /// Clean pages that were dropped without compressing them, the last ones.
    dropped: [PageIndex; DROPPED],
    next: usize,
    /// Pages read from disk since the last decision, and how many of them had just been dropped.
    reads: u32,
    hits: u32,
}

/// How many dropped pages are remembered.
const DROPPED: usize = 1024;
/// Pages that must have left before anything is decided.
const LEFT_MIN: u32 = 512;
/// "many more": so many released for each that was reclaimed.
const RELEASED_PER_RECLAIMED: u32 = 16;
/// "many pages read from disk": of so many reads one part in `HITS_DIVISOR` was dropped recently.
const READS_MIN: u32 = 64;
const HITS_DIVISOR: u32 = 4;
/// No page has this number.
const NOBODY: PageIndex = PageIndex(u64::MAX);

impl Default for CleanPages {
    fn default() -> Self {
        Self { enabled: true, reclaimed: 0, released: 0, dropped: [NOBODY; DROPPED], next: 0, reads: 0, hits: 0 }
    }
}

impl CleanPages {
    /// A clean page is evicted: whether it is to be compressed. If not it is remembered.
    pub fn admit(&mut self, page: PageIndex) -> bool {
        if !self.enabled {
            self.dropped[self.next] = page;
            self.next = (self.next + 1) % DROPPED;
        }
        self.enabled
    }

    /// A clean page has left the area because it was asked for.
    pub fn reclaimed(&mut self) {
        self.reclaimed += 1;
        self.decide();
    }

    /// A clean page has left the area because there was no room for it any more.
    pub fn released(&mut self) {
        self.released += 1;
        self.decide();
    }

    /// A page is read from disk.
    pub fn read_from_disk(&mut self, page: PageIndex) {
        if self.enabled {
            return;
        }
        self.reads += 1;
        if let Some(dropped) = self.dropped.iter_mut().find(|dropped| **dropped == page) {
            // Once for each time it was dropped.
            *dropped = NOBODY;
            self.hits += 1;
        }
        if self.reads >= READS_MIN {
            self.enabled = self.hits * HITS_DIVISOR >= self.reads;
            (self.reads, self.hits) = (0, 0);
            if self.enabled {
                (self.reclaimed, self.released) = (0, 0);
                self.dropped.fill(NOBODY);
            }
        }
    }

    fn decide(&mut self) {
        if self.enabled && self.reclaimed + self.released >= LEFT_MIN {
            self.enabled = self.released < RELEASED_PER_RECLAIMED * self.reclaimed.max(1);
            // Both halve, so that what was long ago counts less.
            (self.reclaimed, self.released) = (self.reclaimed / 2, self.released / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(pages: &mut CleanPages, reclaimed: u32, released: u32) {
        for _ in 0..reclaimed {
            pages.reclaimed();
        }
        for _ in 0..released {
            pages.released();
        }
    }

    /// Clean pages go past the area.
    fn disabled() -> CleanPages {
        let mut pages = CleanPages::default();
        leave(&mut pages, 0, LEFT_MIN);
        assert!(!pages.admit(PageIndex(0)));
        pages
    }

    /// "Once the compressed cache detects that many more compressed pages are released than reclaimed, it disables compression
    /// of new evicted clean pages."
    #[test]
    fn it_is_disabled_when_far_more_are_released_than_reclaimed() {
        for (reclaimed, released, enabled) in [(0, 511, true), (0, 512, false), (30, 482, false), (31, 481, true)] {
            let mut pages = CleanPages::default();
            leave(&mut pages, reclaimed, released);
            assert_eq!(pages.admit(PageIndex(1)), enabled, "{reclaimed} and {released}");
        }
    }

    /// "When the system notices that many pages read from disk have recently been evicted from memory without being compressed,
    /// we re-enable the clean page compression."
    #[test]
    fn it_is_enabled_when_dropped_pages_come_back() {
        let mut pages = disabled();
        for page in 1..2000 {
            pages.admit(PageIndex(page));
        }
        // Pages that were dropped too long ago, or not at all, do not count.
        for page in (1..48).chain(5000..5017) {
            pages.read_from_disk(PageIndex(page));
        }
        assert!(!pages.admit(PageIndex(2000)));
        for page in (1500..1516).chain(5000..5048) {
            pages.read_from_disk(PageIndex(page));
        }
        assert!(pages.admit(PageIndex(2001)));
        // From now on the analysis starts again.
        leave(&mut pages, 0, 511);
        assert!(pages.admit(PageIndex(1)));
    }

    #[test]
    fn a_page_that_is_read_twice_was_dropped_once() {
        let mut pages = disabled();
        for page in 1..=10 {
            pages.admit(PageIndex(page));
        }
        for read in 0..64 {
            pages.read_from_disk(PageIndex(read % 10 + 1));
        }
        assert!(!pages.admit(PageIndex(1)));
    }

    /// "only 0.06% of all pages in the compressed cache are read back by the system" (postmark), which is what disabling is for;
    /// a program that asks for one page in ten keeps it on.
    #[test]
    fn the_papers_cases_are_told_apart() {
        for (reclaimed_each, enabled) in [(1667, false), (10, true)] {
            let mut pages = CleanPages::default();
            for page in 0..4000 {
                if page % reclaimed_each == 0 { pages.reclaimed() } else { pages.released() }
            }
            assert_eq!(pages.admit(PageIndex(1)), enabled);
        }
    }
}
