//! A resource map: the free parts of a chunk, in the order of addresses.

use alloc::vec;
use alloc::vec::Vec;

/// Room is given in multiples of this. Smaller ones would fill the map with holes that nothing fits.
pub(super) const GRAIN_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hole {
    start: u32,
    bytes: u32,
}

impl Hole {
    fn end(self) -> u32 {
        self.start + self.bytes
    }
}

/// Holes by address. No two touch.
pub(super) struct ResourceMap {
    holes: Vec<Hole>,
    free_bytes: usize,
    /// The longest hole is not longer than this, so that most chunks need not be searched.
    longest_max: u32,
}

impl ResourceMap {
    pub(super) fn new(bytes: usize) -> Self {
        let bytes_ = bytes as u32;
        Self { holes: vec![Hole { start: 0, bytes: bytes_ }], free_bytes: bytes, longest_max: bytes_ }
    }

    /// Takes `bytes` of the first hole that is long enough.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = grains(bytes);
        if self.longest_max < bytes {
            return None;
        }
        let Some(at) = self.holes.iter().position(|hole| hole.bytes >= bytes) else {
            self.longest_max = self.holes.iter().map(|hole| hole.bytes).max().unwrap_or(0);
            return None;
        };
        let start = self.holes[at].start;
        self.shorten(at, start, bytes);
        Some(start as usize)
    }

    /// Takes just these bytes, if they are free.
    pub(super) fn take_at(&mut self, start: usize, bytes: usize) -> bool {
        let (start, bytes) = (start as u32, grains(bytes));
        let inside = |hole: &Hole| hole.start <= start && start + bytes <= hole.end();
        let Some(at) = self.holes.iter().position(inside) else { return false };
        self.shorten(at, start, bytes);
        true
    }

    /// Cuts `bytes` from `start` on out of a hole.
    fn shorten(&mut self, at: usize, start: u32, bytes: u32) {
        let hole = self.holes[at];
        let before = Hole { start: hole.start, bytes: start - hole.start };
        let behind = Hole { start: start + bytes, bytes: hole.end() - start - bytes };
        match (before.bytes, behind.bytes) {
            (0, 0) => drop(self.holes.remove(at)),
            (_, 0) => self.holes[at] = before,
            (0, _) => self.holes[at] = behind,
            _ => {
                self.holes[at] = before;
                self.holes.insert(at + 1, behind);
            }
        }
        self.free_bytes -= bytes as usize;
    }

    /// Gives bytes back, and merges them with the holes that they touch.
    pub(super) fn give(&mut self, start: usize, bytes: usize) {
        let mut hole = Hole { start: start as u32, bytes: grains(bytes) };
        self.free_bytes += hole.bytes as usize;
        let mut at = self.holes.partition_point(|other| other.start < hole.start);
        if let Some(behind) = self.holes.get(at) {
            assert!(hole.end() <= behind.start, "bytes that are free are given back");
            if hole.end() == behind.start {
                hole.bytes += behind.bytes;
                self.holes.remove(at);
            }
        }
        if at > 0 {
            let before = self.holes[at - 1];
            assert!(before.end() <= hole.start, "bytes that are free are given back");
            if before.end() == hole.start {
                hole = Hole { start: before.start, bytes: before.bytes + hole.bytes };
                at -= 1;
                self.holes.remove(at);
            }
        }
        self.holes.insert(at, hole);
        self.longest_max = self.longest_max.max(hole.bytes);
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// What the map itself takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.holes[..])
    }

    /// The holes are what `taken` leaves of the chunk, and no two touch.
    pub(super) fn check(&self, mut taken: Vec<(usize, usize)>, chunk_bytes: usize) {
        let mut expected = Vec::new();
        taken.sort_unstable();
        taken.push((chunk_bytes, 0));
        let mut end = 0;
        for (start, bytes) in taken {
            assert!(end <= start, "encodings overlap at {start}");
            if end < start {
                expected.push(Hole { start: end as u32, bytes: (start - end) as u32 });
            }
            end = start + bytes;
        }
        assert_eq!(self.holes, expected);
        assert_eq!(self.holes.iter().map(|hole| hole.bytes as usize).sum::<usize>(), self.free_bytes);
        assert!(self.holes.iter().all(|hole| hole.bytes <= self.longest_max));
    }
}

fn grains(bytes: usize) -> u32 {
    bytes.next_multiple_of(GRAIN_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge() {
        let mut map = ResourceMap::new(4096);
        let starts: Vec<_> = (0..4).map(|_| map.take(1000).unwrap()).collect();
        assert_eq!(starts, [0, 1008, 2016, 3024]);
        for (start, holes) in [(0, 2), (2016, 3), (1008, 2), (3024, 1)] {
            map.give(start, 1000);
            assert_eq!(map.holes.len(), holes, "after {start}");
        }
        assert_eq!(map.holes, [Hole { start: 0, bytes: 4096 }]);
    }

    #[test]
    fn the_first_hole_that_is_long_enough_is_taken() {
        let mut map = ResourceMap::new(4096);
        for _ in 0..4 {
            map.take(1024).unwrap();
        }
        assert_eq!(map.take(1), None);
        for (start, bytes) in [(100 * 16, 64), (50 * 16, 128), (200 * 16, 128)] {
            map.give(start, bytes);
        }
        assert_eq!([map.take(128), map.take(64), map.take(65)], [Some(50 * 16), Some(100 * 16), Some(200 * 16)]);
        assert!(!map.take_at(199 * 16, 16) && map.take_at(206 * 16, 16) && !map.take_at(206 * 16, 16));
        assert_eq!(map.holes, [Hole { start: 205 * 16, bytes: 16 }, Hole { start: 207 * 16, bytes: 16 }]);
        assert_eq!((map.take(17), map.longest_max, map.free_bytes()), (None, 16, 32));
    }

    #[test]
    #[should_panic(expected = "bytes that are free are given back")]
    fn giving_back_twice_is_a_bug() {
        let mut map = ResourceMap::new(4096);
        map.take(100).unwrap();
        map.give(0, 100);
        map.give(0, 100);
    }
}
