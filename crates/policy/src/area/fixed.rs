//! `fixed` and `off`: an area of one size, or none.

use page::ByteCount;

use super::{Area, AreaSizing, Relief, Resizing};

/// A static compressed cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// Its size.
    pub size: ByteCount,
}

impl AreaSizing for Fixed {
    fn full(&mut self, area: &Area) -> Relief {
        match self.look(area) {
            Resizing::Grow => Relief::Grow,
            _ => Relief::ReleaseOldest,
        }
    }

    /// All of it is there from the start.
    fn look(&mut self, area: &Area) -> Resizing {
        if area.size + area.unit <= self.size {
            Resizing::Grow
        } else if area.size > self.size {
            Resizing::Shrink
        } else {
            Resizing::Keep
        }
    }
}

/// No compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Off;

impl AreaSizing for Off {
    fn full(&mut self, _: &Area) -> Relief {
        Relief::Refuse
    }

    fn look(&mut self, area: &Area) -> Resizing {
        if area.size > ByteCount::ZERO { Resizing::Shrink } else { Resizing::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, area};
    use super::*;

    /// "Static approaches use fixed sizes of the compressed area." (`tuduce-gross` section 2)
    #[test]
    fn a_fixed_area_has_its_size_whatever_is_in_it() {
        let mut policy = Fixed { size: ByteCount(50 * MIB) };
        let expected = [(0, Resizing::Grow), (44, Resizing::Grow), (48, Resizing::Keep), (52, Resizing::Shrink)];
        for (size, resizing) in expected {
            assert_eq!([0, size].map(|free| policy.look(&area(size, free, 0))), [resizing; 2], "{size} MiB");
        }
        assert_eq!([44, 48].map(|size| policy.full(&area(size, 0, 90))), [Relief::Grow, Relief::ReleaseOldest]);
    }

    #[test]
    fn off_keeps_nothing() {
        assert_eq!(Off.full(&area(0, 0, 90)), Relief::Refuse);
        assert_eq!([0, 4].map(|size| Off.look(&area(size, 0, 90))), [Resizing::Keep, Resizing::Shrink]);
    }
}
