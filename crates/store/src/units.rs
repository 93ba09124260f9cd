//! Units: the equal pieces in which the area of a paper's store grows and shrinks.

use alloc::vec::Vec;

use page::PAGE_BYTES;
use sys::Errno;

use crate::pool::Pool;

/// A pool cut into equal units of whole frames, which are taken and given back one by one.
pub(crate) struct Units {
    pub(crate) pool: Pool,
    unit_bytes: usize,
    count_max: usize,
    /// Those below `fresh` that are not taken.
    free: Vec<u32>,
    /// Those from here on have never been taken.
    fresh: u32,
}

impl Units {
    pub(crate) fn reserve(bytes_max: usize, unit_bytes: usize) -> Result<Self, Errno> {
        assert!(unit_bytes > 0 && unit_bytes.is_multiple_of(PAGE_BYTES), "a unit of {unit_bytes} bytes");
        let count_max = (bytes_max / unit_bytes).min(u32::MAX as usize / 2);
        Ok(Self { pool: Pool::reserve(bytes_max)?, unit_bytes, count_max, free: Vec::new(), fresh: 0 })
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let fresh = ((self.fresh as usize) < self.count_max).then_some(self.fresh)?;
            self.pool.open_to((fresh as usize + 1) * self.unit_bytes).ok()?;
            self.fresh += 1;
            Some(fresh)
        })
    }

    /// The frames of `unit` go back to the system.
    pub(crate) fn give_back(&mut self, unit: u32) {
        self.pool.release(self.offset(unit), self.unit_bytes / PAGE_BYTES);
        self.free.push(unit);
    }

    /// Units taken now.
    pub(crate) fn taken(&self) -> usize {
        self.fresh as usize - self.free.len()
    }

    pub(crate) fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Where `unit` starts in the pool.
    pub(crate) fn offset(&self, unit: u32) -> usize {
        unit as usize * self.unit_bytes
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of_val(&self.free[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_back_and_end() {
        let mut units = Units::reserve(4 * 8192, 8192).unwrap();
        assert_eq!([(); 5].map(|()| units.take()), [Some(0), Some(1), Some(2), Some(3), None]);
        units.pool.bytes_mut(units.offset(2), 1)[0] = 7;
        units.give_back(2);
        units.give_back(0);
        assert_eq!((units.taken(), units.take(), units.take(), units.take()), (2, Some(0), Some(2), None));
        assert_eq!(units.pool.bytes(2 * 8192, 1), [0]);
    }
}
