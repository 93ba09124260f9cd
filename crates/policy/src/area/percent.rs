//! `percent`: on demand up to a part of memory, as zswap's `max_pool_percent`.

use page::ByteCount;

use super::{Area, AreaSizing, Relief, Resizing};

/// The policy and its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent {
    /// The largest pool, in percent of all memory.
    pub max_pool_percent: u64,
    /// A pool that was full takes pages again below this part of the largest, in percent.
    pub accept_threshold_percent: u64,
    was_full: bool,
    pool_limit_hits: u64,
}

/// The kernel's defaults.
impl Default for Percent {
    fn default() -> Self {
        Self { max_pool_percent: 20, accept_threshold_percent: 90, was_full: false, pool_limit_hits: 0 }
    }
}

impl Percent {
    /// How often a page found the pool at its limit.
    pub const fn pool_limit_hits(&self) -> u64 {
        self.pool_limit_hits
    }

    fn pool_max(&self, area: &Area) -> ByteCount {
        ByteCount(area.memory.0 / 100 * self.max_pool_percent)
    }

    fn can_accept(&self, area: &Area) -> bool {
        area.size.0 * 100 <= self.pool_max(area).0 * self.accept_threshold_percent
    }
}

impl AreaSizing for Percent {
    /// The limit is of the pool's size, as in the kernel; a full pool refuses pages, which go to the swap device as they are,
    /// until looks have made it emptier.
    fn full(&mut self, area: &Area) -> Relief {
        if area.size + area.unit > self.pool_max(area) {
            self.pool_limit_hits += 1;
            self.was_full = true;
        } else if self.can_accept(area) {
            self.was_full = false;
        }
        if self.was_full { Relief::Refuse } else { Relief::Grow }
    }

    fn look(&mut self, area: &Area) -> Resizing {
        if !self.was_full {
            return Resizing::Keep;
        }
        self.was_full = !self.can_accept(area);
        if self.was_full { Resizing::ReleaseOldest } else { Resizing::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::area;
    use super::*;

    /// "`max_pool_percent`, tells the maximum size (percentage) of physical memory to be used for allocating pool for compressed
    /// pages. […] it grows or shrinks on demand and can reach upto the maximum value at the peak loads." With 20 % of 1024 MiB.
    #[test]
    fn it_grows_on_demand_to_its_part_of_memory() {
        let mut policy = Percent::default();
        assert_eq!(policy.full(&area(0, 0, 0)), Relief::Grow);
        assert_eq!(policy.full(&area(200, 0, 0)), Relief::Grow);
        assert_eq!(policy.look(&area(200, 0, 0)), Resizing::Keep);
        assert_eq!(policy.pool_limit_hits(), 0);
        assert_eq!(policy.full(&area(204, 0, 0)), Relief::Refuse);
        assert_eq!(policy.pool_limit_hits(), 1);
    }

    /// "When the compressed pool allocated in RAM reaches its maximum limit, the pages are evicted to write them to the swap
    /// device. The selection of pages for eviction is done on the Least Recently Used (LRU) basis."
    #[test]
    fn at_the_limit_the_oldest_go_until_the_threshold() {
        let mut policy = Percent::default();
        policy.full(&area(204, 0, 0));
        // The threshold is 90 % of 204.8 MiB.
        for size in [204, 196, 188] {
            assert_eq!(policy.look(&area(size, 0, 0)), Resizing::ReleaseOldest, "{size} MiB");
        }
        assert_eq!(policy.full(&area(188, 0, 0)), Relief::Refuse);
        assert_eq!(policy.look(&area(184, 0, 0)), Resizing::Keep);
        assert_eq!(policy.full(&area(188, 0, 0)), Relief::Grow);
    }

    #[test]
    fn a_pool_that_has_emptied_takes_pages_without_a_look() {
        let mut policy = Percent::default();
        policy.full(&area(204, 0, 0));
        assert_eq!(policy.full(&area(180, 0, 0)), Relief::Grow);
    }
}
