//! Reduction: leaves out references that no memory above a certain size can notice.
//!
//! Safely-allowed-drop of Kaplan, Smaragdakis and Wilson (2003): of three references to one page that follow each other, the
//! middle one is left out if from the first to the last at most *k* pages, this one included, are referenced. A memory of
//! *k* pages or more has the page all that time, with or without the middle one, so LRU and MIN fault exactly as before. A
//! write that is left out is made up for by the third reference, which becomes one.
//!
//! Online: a page's last two references are known, the later one may still be left out. That is decided when the page is
//! referenced again, or as soon as *k* others have been since its first: so a bounded number of references waits.

use std::collections::{BTreeMap, HashMap};

use crate::{Access, Reference};

const NOBODY: usize = usize::MAX;

/// A page among the last used.
struct Recent {
    page: u64,
    /// Numbers of the page's last reference but one, among those not left out, and of its last.
    before: Option<u64>,
    last: u64,
    /// Neighbours in the order of last use.
    newer: usize,
    older: usize,
}

/// Reduces a trace on its way.
pub struct Reducer {
    pages: usize,
    /// The last used `pages + 1` pages, linked from `newest` to `oldest`.
    recent: Vec<Recent>,
    places: HashMap<u64, usize>,
    newest: usize,
    oldest: usize,
    /// References by number.
    waiting: BTreeMap<u64, Reference>,
    taken: u64,
}

impl Reducer {
    /// For memories of `pages` or more, at least one.
    pub fn new(pages: u32) -> Self {
        assert!(pages > 0, "a memory has at least one page");
        let (recent, places) = (Vec::new(), HashMap::new());
        let pages = pages as usize;
        Self { pages, recent, places, newest: NOBODY, oldest: NOBODY, waiting: BTreeMap::new(), taken: 0 }
    }

    /// References taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a reference; gives out those that are decided, in their order.
    pub fn push<E>(
        &mut self,
        mut reference: Reference,
        out: &mut impl FnMut(Reference) -> Result<(), E>,
    ) -> Result<(), E> {
        let number = self.taken;
        self.taken += 1;
        match self.places.get(&reference.page.0).copied() {
            Some(place) => {
                let can_drop = self.can_drop_last(place);
                let recent = &mut self.recent[place];
                if can_drop {
                    let dropped = self.waiting.remove(&recent.last).expect("what may be left out has waited");
                    if dropped.access == Access::Write {
                        reference.access = Access::Write;
                    }
                } else {
                    recent.before = Some(recent.last);
                }
                recent.last = number;
                self.unlink(place);
                self.link_newest(place);
            }
            None => self.remember(reference.page.0, number),
        }
        self.waiting.insert(number, reference);
        while let Some((&number, first)) = self.waiting.first_key_value() {
            let place = self.places.get(&first.page.0);
            if place.is_some_and(|&place| self.recent[place].last == number && self.can_drop_last(place)) {
                break;
            }
            let (_, decided) = self.waiting.pop_first().expect("it was there");
            out(decided)?;
        }
        Ok(())
    }

    /// Gives out what still waits: at the end of a trace nothing more is left out.
    pub fn finish<E>(self, out: &mut impl FnMut(Reference) -> Result<(), E>) -> Result<(), E> {
        self.waiting.into_values().try_for_each(out)
    }

    /// Whether, were the page referenced now, its last reference could be left out: since the one before, at most `pages`
    /// pages have been referenced, itself included. That is so if the page last used but `pages` was used before that.
    fn can_drop_last(&self, place: usize) -> bool {
        let Some(before) = self.recent[place].before else { return false };
        self.recent.len() <= self.pages || self.recent[self.oldest].last < before
    }

    fn remember(&mut self, page: u64, number: u64) {
        let recent = Recent { page, before: None, last: number, newer: NOBODY, older: NOBODY };
        let place = if self.recent.len() <= self.pages {
            self.recent.push(recent);
            self.recent.len() - 1
        } else {
            let place = self.oldest;
            self.unlink(place);
            self.places.remove(&self.recent[place].page);
            self.recent[place] = recent;
            place
        };
        self.places.insert(page, place);
        self.link_newest(place);
    }

    fn unlink(&mut self, place: usize) {
        let Recent { newer, older, .. } = self.recent[place];
        match newer {
            NOBODY => self.newest = older,
            newer => self.recent[newer].older = older,
        }
        match older {
            NOBODY => self.oldest = newer,
            older => self.recent[older].newer = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let second = self.newest;
        self.recent[place].newer = NOBODY;
        self.recent[place].older = second;
        match second {
            NOBODY => self.oldest = place,
            second => self.recent[second].newer = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use page::PageIndex;
    use proptest::prelude::*;

    use super::*;

    fn references(pages: &[u64]) -> Vec<Reference> {
        let reference = |(at, &page): (usize, &u64)| {
            let access = if (at * 7 + page as usize).is_multiple_of(3) { Access::Write } else { Access::Read };
            Reference { page: PageIndex(page), time: at as u64, thread: 0, access }
        };
        pages.iter().enumerate().map(reference).collect()
    }

    fn reduce(references: &[Reference], pages: u32) -> (Vec<Reference>, usize) {
        let mut reducer = Reducer::new(pages);
        let mut kept = vec![];
        let mut waiting_max = 0;
        for &reference in references {
            let Ok(()) = reducer.push(reference, &mut |reference| -> Result<(), std::convert::Infallible> {
                kept.push(reference);
                Ok(())
            });
            waiting_max = waiting_max.max(reducer.waiting.len());
        }
        let Ok(()) = reducer.finish(&mut |reference| -> Result<(), std::convert::Infallible> {
            kept.push(reference);
            Ok(())
        });
        (kept, waiting_max)
    }

    /// The rule, applied to whole traces until nothing more can be left out. Online, the last middle reference goes first.
    fn plain(references: &[Reference], pages: usize) -> Vec<Reference> {
        let mut kept: Vec<Reference> = vec![];
        for &reference in references {
            kept.push(reference);
            let same: Vec<usize> = (0..kept.len()).filter(|&at| kept[at].page == reference.page).collect();
            let &[.., first, middle, last] = &same[..] else { continue };
            let between: std::collections::HashSet<_> = kept[first..last].iter().map(|other| other.page).collect();
            if between.len() <= pages {
                if kept[middle].access == Access::Write {
                    kept[last].access = Access::Write;
                }
                kept.remove(middle);
            }
        }
        kept
    }

    proptest! {
        #[test]
        fn leaves_out_what_the_plain_rule_does(
            pages in prop::collection::vec(prop_oneof![0..4_u64, 0..12_u64], 0..200),
            size in 1..8_u32,
        ) {
            let all = references(&pages);
            let (kept, waiting_max) = reduce(&all, size);
            prop_assert_eq!(&kept, &plain(&all, size as usize));
            prop_assert!(waiting_max <= 2 * size as usize + 3, "{waiting_max} wait");
        }
    }

    #[test]
    fn a_loop_that_fits_shrinks_to_its_ends() {
        let pages: Vec<u64> = (0..1000).map(|at| at % 5).collect();
        assert_eq!(reduce(&references(&pages), 5).0.len(), 10);
        assert_eq!(reduce(&references(&pages), 4).0.len(), 1000);
    }
}
