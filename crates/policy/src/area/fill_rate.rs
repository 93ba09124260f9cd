//! `fill-rate`: ask for memory ahead of need, after Yang and others (A-CRAMES).
//!
//! When memory is short, whoever needs a page to be compressed waits for room that itself needs memory. So the area
//! keeps more than what the next pages need, and is asked for more while there still is some.

use page::{ByteCount, PAGE_BYTES};

use super::{Area, AreaSizing, Relief, Resizing};

/// The policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillRate {
    /// Of the area, in percent: above this it grows.
    pub percent: u64,
    /// Room that is always kept, so that this many bytes of encodings can be put whatever happens.
    pub reserve: ByteCount,
}

/// The slides give no rate. With three quarters, a chunk of 64 KiB is asked for while 16 KiB are free in each.
impl Default for FillRate {
    fn default() -> Self {
        Self { percent: 75, reserve: ByteCount(4 * PAGE_BYTES as u64) }
    }
}

impl FillRate {
    /// Whether an area of `size` with `used` bytes in it is to be larger.
    fn is_filled(&self, used: ByteCount, size: ByteCount) -> bool {
        used.0 * 100 > size.0 * self.percent || used + self.reserve > size
    }
}

impl AreaSizing for FillRate {
    fn full(&mut self, area: &Area) -> Relief {
        if area.can_grow() { Relief::Grow } else { Relief::Refuse }
    }

    fn look(&mut self, area: &Area) -> Resizing {
        if self.is_filled(area.used(), area.size) {
            return if area.can_grow() { Resizing::Grow } else { Resizing::Keep };
        }
        // A unit less must still not be filled with a unit more in it, or the area would go to and fro.
        let smaller = area.size.saturating_sub(area.unit);
        if self.is_filled(area.used() + ByteCount(area.unit.0 / 2), smaller) {
            Resizing::Keep
        } else {
            Resizing::Shrink
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, area};
    use super::*;

    /// "CRAMES request space when compressed area exceed fill rate".
    #[test]
    fn it_grows_above_the_rate() {
        let mut policy = FillRate::default();
        assert_eq!(policy.look(&area(100, 25, 50)), Resizing::Keep);
        assert_eq!(policy.look(&area(100, 24, 50)), Resizing::Grow);
        // Nothing yet: the first unit comes before the first page.
        assert_eq!(policy.look(&area(0, 0, 50)), Resizing::Grow);
        assert_eq!(policy.look(&area(100, 24, 3)), Resizing::Keep);
    }

    /// "Predictively request additional memory - So that CRAMES can always make space for memory request". Memory falls from
    /// 40 MiB to nothing while pages of 1 MiB come: each of them is stored, though at the end no memory can be had.
    #[test]
    fn asking_ahead_stores_more_before_the_deadlock() {
        let stored = |ahead: bool| {
            let mut policy = FillRate::default();
            let (mut size, mut used, mut available) = (0, 0, 40);
            loop {
                if ahead && policy.look(&area(size, size - used, available)) == Resizing::Grow {
                    (size, available) = (size + 4, available - 4);
                }
                if size == used {
                    if policy.full(&area(size, 0, available)) == Relief::Refuse {
                        return used;
                    }
                    (size, available) = (size + 4, available - 4);
                }
                used += 1;
                // The program takes what is free, too.
                available = u64::saturating_sub(available, 1);
            }
        };
        assert!(stored(true) > stored(false), "{} with, {} without", stored(true), stored(false));
    }

    #[test]
    fn the_reserve_is_kept_whatever_the_rate() {
        let mut policy = FillRate { percent: 100, reserve: ByteCount(MIB) };
        assert_eq!(policy.look(&area(8, 1, 50)), Resizing::Keep);
        assert_eq!(policy.look(&area(8, 0, 50)), Resizing::Grow);
    }

    #[test]
    fn it_does_not_go_to_and_fro() {
        let mut policy = FillRate::default();
        for used in 0..100 {
            let mut size = 0;
            let mut turns = 0;
            let mut last = Resizing::Keep;
            for _ in 0..200 {
                let next = policy.look(&area(size, size.saturating_sub(used), 1000));
                match next {
                    Resizing::Grow => size += 4,
                    Resizing::Shrink => size -= 4,
                    _ => break,
                }
                turns += u64::from(next != last);
                last = next;
                assert!(turns < 2, "{used} MiB in {size}");
            }
        }
    }
}
