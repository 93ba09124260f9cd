//! Ghosts: the order in which pages left the resident set, for a sample of them, so that a page that is asked for has a
//! depth.

use alloc::collections::VecDeque;
use core::ops::Range;

use page::{PageCount, PageIndex};

/// Pages that are remembered.
const GHOSTS: usize = 2048;

/// In shorter ranges each page is looked at before all that are remembered are.
const RANGE_SHORT: u64 = 256;

/// Pages of the sample that are not resident, in the order in which they left. The sample is one page in 2^`bits`, by a hash
/// of the page's number, so that a page is always in it or never.
#[derive(Clone, Debug)]
pub struct Ghosts {
    /// The last to leave is the last.
    pages: VecDeque<PageIndex>,
    bits: u32,
}

/// Where a page stood that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// About so many pages that are still away have left after it.
    Behind(PageCount),
    /// It left too long ago.
    Forgotten,
    /// It is not in the sample, and not to be counted at all.
    Unsampled,
}

impl Ghosts {
    /// Samples one page in 2^`bits`. The depth that is seen is [`Ghosts::reach`].
    pub fn new(bits: u32) -> Self {
        assert!(bits < 32);
        Self { pages: VecDeque::with_capacity(GHOSTS), bits }
    }

    /// A sample that sees so deep at least.
    pub fn reaching(depth: PageCount) -> Self {
        Self::new(bits_for(depth))
    }

    /// Forgets all, and sees so deep from now on. Allocates nothing.
    pub fn restart(&mut self, depth: PageCount) {
        self.pages.clear();
        self.bits = bits_for(depth);
    }

    /// How many pages can be away that left after a page of the sample, before it is forgotten.
    pub fn reach(&self) -> PageCount {
        PageCount((GHOSTS as u64) << self.bits)
    }

    /// A page has left.
    pub fn left(&mut self, page: PageIndex) {
        if self.is_sampled(page) {
            self.take(page);
            if self.pages.len() == GHOSTS {
                self.pages.pop_front();
            }
            self.pages.push_back(page);
        }
    }

    /// A page is asked for. It is a ghost no more.
    pub fn asked(&mut self, page: PageIndex) -> Depth {
        if !self.is_sampled(page) {
            return Depth::Unsampled;
        }
        self.take(page).map_or(Depth::Forgotten, |behind| Depth::Behind(PageCount((behind as u64) << self.bits)))
    }

    /// A page is resident again although nobody has asked for it.
    pub fn returned(&mut self, page: PageIndex) {
        if self.is_sampled(page) {
            self.take(page);
        }
    }

    /// Pages are no more.
    pub fn discarded(&mut self, pages: Range<PageIndex>) {
        let count = pages.end.0.saturating_sub(pages.start.0);
        // Most ranges are short, and have nobody of the sample.
        if count > RANGE_SHORT || (0..count).any(|step| self.is_sampled(pages.start + PageCount(step))) {
            self.pages.retain(|page| !pages.contains(page));
        }
    }

    /// Whether the page belongs to the sample.
    pub const fn is_sampled(&self, page: PageIndex) -> bool {
        // Fibonacci hashing: neighbours are asked for together, and must not be in the sample together.
        self.bits == 0 || page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits) == 0
    }

    /// Removes a page; returns how many have left after it.
    fn take(&mut self, page: PageIndex) -> Option<usize> {
        let at = self.pages.iter().rposition(|ghost| *ghost == page)?;
        self.pages.remove(at);
        Some(self.pages.len() - at)
    }
}

fn bits_for(depth: PageCount) -> u32 {
    depth.0.div_ceil(GHOSTS as u64).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(pages: u64) -> Depth {
        Depth::Behind(PageCount(pages))
    }

    #[test]
    fn a_ghost_knows_how_many_are_away_that_left_after_it() {
        let mut ghosts = Ghosts::new(0);
        assert_eq!(ghosts.asked(PageIndex(0)), Depth::Forgotten);
        let pages = GHOSTS as u64 + 44;
        for page in 0..pages {
            ghosts.left(PageIndex(page));
        }
        let last = pages - 1;
        assert_eq!(ghosts.asked(PageIndex(last)), behind(0));
        assert_eq!(ghosts.asked(PageIndex(last - 10)), behind(9), "the last is resident again");
        assert_eq!(ghosts.asked(PageIndex(43)), Depth::Forgotten);
        assert_eq!(ghosts.asked(PageIndex(44)), behind(GHOSTS as u64 - 3));
        ghosts.left(PageIndex(50));
        assert_eq!(ghosts.asked(PageIndex(50)), behind(0), "who has left twice is where it left last");
        ghosts.returned(PageIndex(52));
        ghosts.discarded(PageIndex(60)..PageIndex(70));
        assert_eq!(
            [51, 52, 65].map(|page| ghosts.asked(PageIndex(page))),
            [behind(GHOSTS as u64 - 21), Depth::Forgotten, Depth::Forgotten]
        );
    }

    #[test]
    fn depths_of_a_sample_are_about_right() {
        let mut ghosts = Ghosts::reaching(PageCount(100_000));
        assert_eq!(ghosts.reach(), PageCount(131_072));
        for page in 0..200_000 {
            ghosts.left(PageIndex(page));
        }
        let sample: Vec<_> = (190_000..200_000).filter(|&page| ghosts.is_sampled(PageIndex(page))).collect();
        assert!((120..200).contains(&sample.len()), "{} of 10000", sample.len());
        for &page in &sample {
            let mut ghosts = ghosts.clone();
            let Depth::Behind(depth) = ghosts.asked(PageIndex(page)) else { panic!("{page} is forgotten") };
            assert!(depth.0.abs_diff(200_000 - page) < 1000, "{page}: {depth:?}");
        }
        let mut again = ghosts.clone();
        again.restart(PageCount(2048));
        assert_eq!((again.reach(), again.asked(PageIndex(sample[0]))), (PageCount(2048), Depth::Forgotten));
        let unsampled = (0..1000).find(|&page| !ghosts.is_sampled(PageIndex(page))).unwrap();
        assert_eq!(ghosts.asked(PageIndex(unsampled)), Depth::Unsampled);
    }
}
