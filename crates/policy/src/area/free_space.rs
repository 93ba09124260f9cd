//! `free-space`: grow when less than a zone is free, shrink when more than four are, after Tuduce and Gross (2005),
//! section 5.3.

use super::{Area, AreaSizing, Relief, Resizing};

/// Its thresholds, in zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeSpace {
    /// With less than this free it grows.
    pub grow_below: u64,
    /// With more than this free it shrinks.
    pub shrink_above: u64,
}

impl Default for FreeSpace {
    fn default() -> Self {
        Self { grow_below: 1, shrink_above: 4 }
    }
}

impl AreaSizing for FreeSpace {
    /// The size changes with looks alone. Between them the least recently used pages go.
    fn full(&mut self, _: &Area) -> Relief {
        Relief::ReleaseOldest
    }

    fn look(&mut self, area: &Area) -> Resizing {
        if area.free.0 > self.shrink_above * area.unit.0 {
            Resizing::Shrink
        } else if area.free.0 < self.grow_below * area.unit.0 {
            Resizing::Grow
        } else {
            Resizing::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::area;
    use super::*;

    /// "If the amount of free memory in the compressed area is bigger than the size of four zones, the compressed area is
    /// shrunk by deleting a zone. If not, the system checks whether the size of the free memory is smaller than the size
    /// of a zone; if so, a new zone is added to the compressed area. As long as the size of free compressed memory is
    /// between the size of a zone and four zones the compressed area size remains the same".
    #[test]
    fn the_size_follows_what_is_free() {
        let expected = [
            (0, Resizing::Grow),
            (3, Resizing::Grow),
            (4, Resizing::Keep),
            (16, Resizing::Keep),
            (17, Resizing::Shrink),
            (90, Resizing::Shrink),
        ];
        for (free, resizing) in expected {
            assert_eq!(FreeSpace::default().look(&area(100, free, 50)), resizing, "{free} MiB free");
        }
    }

    /// "To grow the compressed area, the system allocates space for a new zone. Because the OS may not have enough free space
    /// for the new zone, some uncompressed pages will be compressed and stored in compressed form."
    #[test]
    fn it_grows_whether_memory_is_free_or_not() {
        assert_eq!(FreeSpace::default().look(&area(100, 0, 0)), Resizing::Grow);
    }

    /// "For the (large) applications we selected, we experimented with values of the shrink threshold of three and four
    /// zones".
    #[test]
    fn the_threshold_can_be_three() {
        let mut three = FreeSpace { shrink_above: 3, ..FreeSpace::default() };
        assert_eq!([12, 13].map(|free| three.look(&area(100, free, 0))), [Resizing::Keep, Resizing::Shrink]);
    }

    /// "When the compressed area becomes (almost) filled, its LRU pages are sent to disk".
    #[test]
    fn a_full_area_sends_its_oldest_to_disk() {
        assert_eq!(FreeSpace::default().full(&area(100, 0, 50)), Relief::ReleaseOldest);
    }

    /// An area that starts from its first zone and takes what a program's load asks for settles, and stays.
    #[test]
    fn it_settles() {
        let mut policy = FreeSpace::default();
        let mut size = 4;
        let mut sizes = Vec::new();
        for load in [50; 40].into_iter().chain([10; 40]) {
            let free = u64::saturating_sub(size, load);
            match policy.look(&area(size, free, 50)) {
                Resizing::Grow => size += 4,
                Resizing::Shrink => size -= 4,
                _ => {}
            }
            sizes.push(size);
        }
        assert_eq!((sizes[20], sizes[39], sizes[60], sizes[79]), (56, 56, 24, 24));
    }
}
