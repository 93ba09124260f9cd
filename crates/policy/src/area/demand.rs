//! `demand`: as large as what is in it, up to the most that it may take.

use super::{Area, AreaSizing, Relief, Resizing};

/// Units that may be free before one is given back.
const FREE_UNITS_MAX: u64 = 4;

/// The policy. It has nothing to remember.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Demand;

impl AreaSizing for Demand {
    fn full(&mut self, area: &Area) -> Relief {
        if area.may_grow() { Relief::Grow } else { Relief::ReleaseOldest }
    }

    fn look(&mut self, area: &Area) -> Resizing {
        if area.free.0 > FREE_UNITS_MAX * area.unit.0 { Resizing::Shrink } else { Resizing::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::area;
    use super::*;

    #[test]
    fn it_follows_what_is_in_it() {
        let full = [0, 500, 1020, 1021].map(|size| Demand.full(&area(size, 0, 0)));
        assert_eq!(full, [Relief::Grow, Relief::Grow, Relief::Grow, Relief::ReleaseOldest]);
        assert_eq!([16, 17].map(|free| Demand.look(&area(500, free, 0))), [Resizing::Keep, Resizing::Shrink]);
    }
}
