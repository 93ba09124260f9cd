//! Ghosts: a sample of the pages that have left the area, so that a read from the backing store has a depth.

use page::{PageCount, PageIndex};

/// Pages that are remembered.
const GHOSTS: usize = 256;

/// No page has this number.
const NOBODY: PageIndex = PageIndex(u64::MAX);

/// The last pages to leave that belong to the sample: one in 2^`bits`, by a hash of the page's number, so that a page is
/// always in it or never.
#[derive(Clone, Debug)]
pub struct Ghosts {
    ring: [PageIndex; GHOSTS],
    next: usize,
    bits: u32,
}

impl Ghosts {
    /// Samples one page in 2^`bits`. The depth that is seen is [`Ghosts::reach`].
    pub fn new(bits: u32) -> Self {
        assert!(bits < 32);
        Self { ring: [NOBODY; GHOSTS], next: 0, bits }
    }

    /// How many pages can have left since a page of the sample did, before it is forgotten.
    pub fn reach(&self) -> PageCount {
        PageCount((GHOSTS as u64) << self.bits)
    }

    /// A page has left the area for the backing store.
    pub fn released(&mut self, page: PageIndex) {
        if self.is_sampled(page) {
            self.ring[self.next] = page;
            self.next = (self.next + 1) % GHOSTS;
        }
    }

    /// A page is read from the backing store: how many have left after it, about; none if it is not in the sample, or
    /// left too long ago. It is a ghost no more.
    pub fn asked(&mut self, page: PageIndex) -> Option<PageCount> {
        if !self.is_sampled(page) {
            return None;
        }
        // The youngest first: who has left twice is where it left last.
        let younger = (0..GHOSTS).find(|younger| self.ring[self.slot(*younger)] == page)?;
        let slot = self.slot(younger);
        self.ring[slot] = NOBODY;
        Some(PageCount((younger as u64) << self.bits))
    }

    /// Whether the page belongs to the sample. Reads of others are not to be counted at all, wherever they come from.
    pub const fn is_sampled(&self, page: PageIndex) -> bool {
        // Fibonacci hashing: neighbours are asked for together, and must not be in the sample together.
        self.bits == 0 || page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits) == 0
    }

    fn slot(&self, younger: usize) -> usize {
        (self.next + GHOSTS - 1 - younger) % GHOSTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_knows_how_many_have_left_since() {
        let mut ghosts = Ghosts::new(0);
        assert_eq!(ghosts.asked(PageIndex(0)), None);
        for page in 0..300 {
            ghosts.released(PageIndex(page));
        }
        let asked = [299, 290, 44, 43, 290].map(|page| ghosts.asked(PageIndex(page)));
        assert_eq!(asked, [Some(PageCount(0)), Some(PageCount(9)), Some(PageCount(255)), None, None]);
        ghosts.released(PageIndex(50));
        assert_eq!(ghosts.asked(PageIndex(50)), Some(PageCount(0)));
    }

    #[test]
    fn depths_of_a_sample_are_about_right() {
        let mut ghosts = Ghosts::new(6);
        assert_eq!(ghosts.reach(), PageCount(16384));
        for page in 0..100_000 {
            ghosts.released(PageIndex(page));
        }
        let sample: Vec<_> = (90_000..100_000).filter(|&page| ghosts.is_sampled(PageIndex(page))).collect();
        assert!((120..200).contains(&sample.len()), "{} of 10000", sample.len());
        for page in sample {
            let depth = ghosts.asked(PageIndex(page)).unwrap().0;
            assert!(depth.abs_diff(100_000 - page) < 1000, "{page}: {depth}");
        }
        assert_eq!(ghosts.asked(PageIndex(3)), None);
    }
}
