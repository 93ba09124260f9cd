//! Page numbers as small numbers, given out in the order of first references.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use page::PageIndex;

/// log2 of the pages of a leaf: few enough that one page far from all others costs little.
const LEAF_SHIFT: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
/// A page that has not been seen.
const UNSEEN: u32 = u32::MAX;

/// Numbers pages.
#[derive(Default)]
pub(crate) struct Pages {
    leaves: Vec<[u32; LEAF_PAGES]>,
    places: HashMap<u64, u32, BuildHasherDefault<Multiply>>,
    /// The leaf of the last page, which is often that of the next.
    last: Option<(u64, u32)>,
    count: u32,
}

impl Pages {
    /// The number of a page, and whether it is new.
    pub(crate) fn number(&mut self, page: PageIndex) -> (u32, bool) {
        let key = page.0 >> LEAF_SHIFT;
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => self.find(key),
        };
        let number = &mut self.leaves[place as usize][page.0 as usize % LEAF_PAGES];
        if *number != UNSEEN {
            return (*number, false);
        }
        *number = self.count;
        self.count = self.count.checked_add(1).filter(|&count| count < UNSEEN).expect("fewer than 2^32 pages");
        (*number, true)
    }

    fn find(&mut self, key: u64) -> u32 {
        let leaves = &mut self.leaves;
        let place = *self.places.entry(key).or_insert_with(|| {
            leaves.push([UNSEEN; LEAF_PAGES]);
            leaves.len() as u32 - 1
        });
        self.last = Some((key, place));
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
}
