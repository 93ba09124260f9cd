//! Shelves: units by how much space they have, so that the best fit is found without a search.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::lists::{Link, NONE};

/// A list for each number of bytes, 0 to the most that there can be.
pub(crate) struct Shelves {
    firsts: Box<[u32]>,
    /// A bit for each list that is not empty.
    nonempty: Box<[u64]>,
    links: Vec<Link>,
}

impl Shelves {
    pub(crate) fn new(space_max: usize) -> Self {
        let firsts = vec![NONE; space_max + 1].into();
        Self { firsts, nonempty: vec![0; space_max / 64 + 1].into(), links: Vec::new() }
    }

    pub(crate) fn insert(&mut self, unit: u32, space: usize) {
        if unit as usize >= self.links.len() {
            self.links.resize(unit as usize + 1, Link::ALONE);
        }
        let next = core::mem::replace(&mut self.firsts[space], unit);
        self.links[unit as usize] = Link { previous: NONE, next };
        if next != NONE {
            self.links[next as usize].previous = unit;
        }
        self.nonempty[space / 64] |= 1 << (space % 64);
    }

    pub(crate) fn remove(&mut self, unit: u32, space: usize) {
        let Link { previous, next } = self.links[unit as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous == NONE {
            assert_eq!(self.firsts[space], unit, "a unit is not on its shelf");
            self.firsts[space] = next;
            if next == NONE {
                self.nonempty[space / 64] &= !(1 << (space % 64));
            }
        } else {
            self.links[previous as usize].next = next;
        }
    }

    /// A unit with the smallest space that is at least `space`.
    pub(crate) fn best_fit(&self, space: usize) -> Option<u32> {
        let mut word = space / 64;
        let mut bits = *self.nonempty.get(word)? & (u64::MAX << (space % 64));
        while bits == 0 {
            word += 1;
            bits = *self.nonempty.get(word)?;
        }
        Some(self.firsts[word * 64 + bits.trailing_zeros() as usize])
    }

    /// A unit with the largest space.
    pub(crate) fn roomiest(&self) -> Option<u32> {
        let word = self.nonempty.iter().rposition(|&bits| bits != 0)?;
        Some(self.firsts[word * 64 + self.nonempty[word].ilog2() as usize])
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of_val(&self.firsts[..]) + size_of_val(&self.nonempty[..]) + size_of_val(&self.links[..])
    }

    /// Each unit on a shelf has the space that `space` says. Returns how many there are.
    pub(crate) fn check(&self, space: impl Fn(u32) -> usize) -> usize {
        let mut count = 0;
        for (shelf, &first) in self.firsts.iter().enumerate() {
            assert_eq!(self.nonempty[shelf / 64] >> (shelf % 64) & 1 == 1, first != NONE, "shelf {shelf}");
            let (mut previous, mut at) = (NONE, first);
            while at != NONE {
                assert_eq!(space(at), shelf, "unit {at} is on the wrong shelf");
                assert_eq!(self.links[at as usize].previous, previous);
                count += 1;
                (previous, at) = (at, self.links[at as usize].next);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fit_is_that_of_a_search() {
        let mut shelves = Shelves::new(8192);
        let mut spaces: Vec<Option<usize>> = vec![None; 50];
        let mut seed = 7_u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (unit, space) = ((seed >> 33) as usize % 50, (seed >> 45) as usize % 8193);
            if let Some(old) = spaces[unit].take() {
                shelves.remove(unit as u32, old);
            } else {
                shelves.insert(unit as u32, space);
                spaces[unit] = Some(space);
            }
            let found = shelves.best_fit(space).and_then(|unit| spaces[unit as usize]);
            assert_eq!(found, spaces.iter().flatten().copied().filter(|&other| other >= space).min());
            let roomiest = shelves.roomiest().and_then(|unit| spaces[unit as usize]);
            assert_eq!(roomiest, spaces.iter().flatten().copied().max());
            assert_eq!(shelves.check(|unit| spaces[unit as usize].unwrap()), spaces.iter().flatten().count());
        }
    }
}
