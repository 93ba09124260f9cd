//! Page numbers as small numbers, given out in the order of first references.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use page::PageIndex;

/// Pages that are numbered at a time.
pub(crate) const BUNCH: usize = 128;

/// log2 of the pages of a leaf: few enough that one page far from all others costs little.
const LEAF_SHIFT: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
/// Leaves that are found without a search: those of 4 GiB in a row.
const RECENT: usize = 2048;
/// A page that has not been seen.
const UNSEEN: u32 = u32::MAX;

/// A leaf and what its key has above the remainder, in eight bytes: all of them fit into a processor's first cache.
#[derive(Clone, Copy)]
struct Recent {
    quotient: u32,
    place: u32,
}

impl Recent {
    /// Of no key: no leaf has this place.
    const NONE: Self = Self { quotient: 0, place: u32::MAX };

    /// Pages are below 2^52, so that the quotient of a key has 32 bits.
    const fn new(key: u64, place: u32) -> Self {
        Self { quotient: (key / RECENT as u64) as u32, place }
    }

    const fn is_of(self, key: u64) -> bool {
        self.quotient == (key / RECENT as u64) as u32 && self.place != Self::NONE.place
    }
}

/// Numbers pages.
pub(crate) struct Pages {
    leaves: Vec<[u32; LEAF_PAGES]>,
    places: HashMap<u64, u32, BuildHasherDefault<Multiply>>,
    /// The leaf that was last found of all those whose keys share a remainder.
    recent: Vec<Recent>,
    count: u32,
}

impl Default for Pages {
    fn default() -> Self {
        Self { leaves: Vec::new(), places: HashMap::default(), recent: vec![Recent::NONE; RECENT], count: 0 }
    }
}

impl Pages {
    /// Gives `each` the numbers of pages in their order, and whether they are new.
    ///
    /// All of them are read once before the first is looked at: then the processor waits for many of them at the same time,
    /// where what it does next does not depend on what it reads.
    pub(crate) fn number_all(&mut self, pages: &[PageIndex; BUNCH], mut each: impl FnMut(PageIndex, u32, bool)) {
        let mut places = [0; BUNCH];
        for (place, &page) in places.iter_mut().zip(pages) {
            *place = self.place(page);
        }
        let at = |(&place, page): (&u32, &PageIndex)| self.leaves[place as usize][page.0 as usize % LEAF_PAGES];
        black_box(places.iter().zip(pages).map(at).fold(0, |all, number| all ^ number));
        for (&place, &page) in places.iter().zip(pages) {
            let (number, is_first) = self.number_in(place, page);
            each(page, number, is_first);
        }
    }

    /// The number of a page, and whether it is new.
    pub(crate) fn number(&mut self, page: PageIndex) -> (u32, bool) {
        let place = self.place(page);
        self.number_in(place, page)
    }

    fn number_in(&mut self, place: u32, page: PageIndex) -> (u32, bool) {
        let number = &mut self.leaves[place as usize][page.0 as usize % LEAF_PAGES];
        if *number != UNSEEN {
            return (*number, false);
        }
        *number = self.count;
        self.count = self.count.checked_add(1).filter(|&count| count < UNSEEN).expect("fewer than 2^32 pages");
        (*number, true)
    }

    /// The leaf of a page.
    fn place(&mut self, page: PageIndex) -> u32 {
        debug_assert!(page.0 < trace::PAGES_END);
        let key = page.0 >> LEAF_SHIFT;
        let recent = self.recent[key as usize % RECENT];
        if recent.is_of(key) { recent.place } else { self.find(key) }
    }

    #[cold]
    fn find(&mut self, key: u64) -> u32 {
        let leaves = &mut self.leaves;
        let place = *self.places.entry(key).or_insert_with(|| {
            leaves.push([UNSEEN; LEAF_PAGES]);
            leaves.len() as u32 - 1
        });
        self.recent[key as usize % RECENT] = Recent::new(key, place);
        place
    }

    /// Pages seen.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.count)
    }
}

/// A hash for keys that are page numbers: nobody chooses them to do harm, and they must be found fast.
#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        // The upper half of a product by the golden ratio depends on all bits of the key.
        let product = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_in_order_and_kept() {
        let mut pages = Pages::default();
        let seen = [7, 1 << 51, 8, 7, 1 << 51, 520, 8];
        let numbers = seen.map(|page| pages.number(PageIndex(page)));
        assert_eq!(numbers, [(0, true), (1, true), (2, true), (0, false), (1, false), (3, true), (2, false)]);
        assert_eq!(pages.count(), 4);
    }

    #[test]
    fn in_bunches_numbers_are_as_one_by_one() {
        let mut draw = 1_u64;
        let (mut together, mut alone) = (Pages::default(), Pages::default());
        for _ in 0..200 {
            let bunch: [PageIndex; BUNCH] = std::array::from_fn(|_| {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Near ones, and leaves with the same remainder.
                PageIndex(draw >> 52 | (draw >> 40 & 3) << (LEAF_SHIFT + RECENT.ilog2()))
            });
            let mut numbers = vec![];
            together.number_all(&bunch, |page, number, is_first| numbers.push((page, number, is_first)));
            let expected = bunch.map(|page| {
                let (number, is_first) = alone.number(page);
                (page, number, is_first)
            });
            assert_eq!(numbers, expected);
        }
        assert_eq!(together.count(), alone.count());
    }
}
