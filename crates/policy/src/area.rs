//! Sizing of a compressed area: when it grows by a unit, when a unit is given back, when its oldest page goes.
//!
//! The policies of the papers and one of ours (`marginal`), one file each. The area is that of a store in units (zones, cells, chunks, frames). A
//! policy is asked at three moments: a page finds no room (`full`), somebody looks at the area now and then (`look`), a
//! page has been asked for (`read`). It answers with what to do and is asked again if that is not enough.

use alloc::boxed::Box;

use page::ByteCount;

pub mod demand;
pub mod divider;
pub mod exhaustion;
pub mod expense_profit;
pub mod fill_rate;
pub mod fixed;
pub mod free_space;
pub mod ghosts;
pub mod marginal;
pub mod measured;
pub mod percent;

/// The compressed area as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// Its size.
    pub size: ByteCount,
    /// How much of it a page could still be put into.
    pub free: ByteCount,
    /// By how much it grows and shrinks.
    pub unit: ByteCount,
    /// Memory that nobody uses at this moment, outside the area.
    pub available: ByteCount,
    /// All memory that is shared between the area and what is not compressed.
    pub memory: ByteCount,
    /// The most that the area may take, whatever a policy says.
    pub size_max: ByteCount,
}

impl Area {
    fn used(&self) -> ByteCount {
        self.size - self.free
    }

    /// Whether a unit more is within the most that it may take.
    fn may_grow(&self) -> bool {
        self.size + self.unit <= self.size_max
    }

    /// Whether a unit can be had without driving anything out.
    fn can_grow(&self) -> bool {
        self.available >= self.unit
    }
}

/// What makes room for a page that has found none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relief {
    /// The area gets a unit.
    Grow,
    /// The oldest page goes to the backing store.
    ReleaseOldest,
    /// The page itself does: it is not put into the area.
    Refuse,
}

/// How the area changes without need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resizing {
    /// It does not.
    Keep,
    /// It gets a unit.
    Grow,
    /// It gives a unit back, whatever has to go for that.
    Shrink,
    /// It gives a unit back if the pages in that fit elsewhere; else the oldest page goes.
    ShrinkOrRelease,
    /// The oldest page goes.
    ReleaseOldest,
}

/// Which of the two lists a page was read from (`castro` section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It would be in memory if there was no compression.
    Expense,
    /// It is in memory only thanks to compression.
    Profit,
}

/// A sizing policy.
pub trait AreaSizing {
    /// A page has found no room, and the store has compacted what it could.
    fn full(&mut self, area: &Area) -> Relief;

    /// A look, now and then.
    fn look(&mut self, area: &Area) -> Resizing {
        let _ = area;
        Resizing::Keep
    }

    /// A page has been asked for, and has left the area.
    fn read(&mut self, source: Source) -> Resizing {
        let _ = source;
        Resizing::Keep
    }

    /// Whether those who need memory are to wait until the area has got emptier.
    fn stalls(&self) -> bool {
        false
    }
}

/// A policy chosen at start.
impl AreaSizing for Box<dyn AreaSizing + Send> {
    fn full(&mut self, area: &Area) -> Relief {
        (**self).full(area)
    }

    fn look(&mut self, area: &Area) -> Resizing {
        (**self).look(area)
    }

    fn read(&mut self, source: Source) -> Resizing {
        (**self).read(source)
    }

    fn stalls(&self) -> bool {
        (**self).stalls()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MIB: u64 = 1 << 20;

    /// An area with units of 4 MiB in 1 GiB of memory; sizes in MiB.
    pub(crate) fn area(size: u64, free: u64, available: u64) -> Area {
        Area {
            size: ByteCount(size * MIB),
            free: ByteCount(free * MIB),
            unit: ByteCount(4 * MIB),
            available: ByteCount(available * MIB),
            memory: ByteCount(1024 * MIB),
            size_max: ByteCount(1024 * MIB),
        }
    }
}
