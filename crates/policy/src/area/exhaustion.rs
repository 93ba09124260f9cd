//! `exhaustion`: physical memory that fills because what is in it compresses less, after IBM's MXT (Abali and others,
//! 2000), section 2, "The Compressed Memory Management Software".
//!
//! MXT promises more real memory than there is physical memory, and must not run out of it. So this policy does not
//! size an area, which is all of memory, but says how hard to work against its filling. Where the memory that the area
//! does not need yet is of use to others, it takes it as it fills, and gives back what it does not use.

use page::{ByteCount, PageCount};

use super::{Area, AreaSizing, Relief, Resizing};

/// What is done against exhaustion; each stage includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Nothing.
    Calm,
    /// The warning has come: no further memory is given out, pages are forced out, freed pages are filled with zeros.
    Blocking,
    /// And who writes to memory is held up, because the rest does not suffice.
    Stalling,
}

/// The warning's place, in percent of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhaustion {
    /// With less free than this the warning comes.
    pub warn_percent: u64,
    /// With less than this, or less at each of so many looks, processes are stalled.
    pub stall_percent: u64,
    /// Looks in a row at which physical memory has become less in spite of blocking.
    pub losing_looks_max: u32,
    stage: Stage,
    free_before: ByteCount,
    losing_looks: u32,
}

/// The paper gives no numbers ("near exhaustion"). These leave room for a few thousand incompressible pages in 512 MiB.
impl Default for Exhaustion {
    fn default() -> Self {
        Self {
            warn_percent: 6,
            stall_percent: 1,
            losing_looks_max: 3,
            stage: Stage::Calm,
            free_before: ByteCount::ZERO,
            losing_looks: 0,
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measures {
    /// How hard.
    pub stage: Stage,
    /// Pages to force out. Freed pages are zeroed, so that each leaves hardly more than its table entries.
    pub force_out: PageCount,
}

impl Exhaustion {
    /// A look at physical memory: `free` of `size` bytes.
    pub fn physical(&mut self, size: ByteCount, free: ByteCount) -> Measures {
        let warn = ByteCount(size.0 / 100 * self.warn_percent);
        let stall = ByteCount(size.0 / 100 * self.stall_percent);
        if free >= warn {
            (self.stage, self.losing_looks) = (Stage::Calm, 0);
            return Measures { stage: Stage::Calm, force_out: PageCount::ZERO };
        }
        let losing = self.stage >= Stage::Blocking && free < self.free_before;
        self.losing_looks = if losing { self.losing_looks + 1 } else { 0 };
        let desperate = free < stall || self.losing_looks >= self.losing_looks_max;
        // Who has been stalled goes on once blocking and forcing out suffice again, that is, when memory is gained.
        let gaining = self.stage == Stage::Stalling && free > self.free_before && free >= stall;
        self.stage = match (desperate, self.stage) {
            (true, _) => Stage::Stalling,
            (false, Stage::Stalling) if !gaining => Stage::Stalling,
            (false, _) => Stage::Blocking,
        };
        self.free_before = free;
        // As many as would bring the warning to an end if none of them could be compressed.
        Measures { stage: self.stage, force_out: (warn - free).pages_up() }
    }
}

/// Units that may be free before one is given back.
const FREE_UNITS_MAX: u64 = 4;

impl AreaSizing for Exhaustion {
    /// Physical memory has one size. Without room in it pages are forced out.
    fn full(&mut self, area: &Area) -> Relief {
        if area.may_grow() { Relief::Grow } else { Relief::ReleaseOldest }
    }

    fn look(&mut self, area: &Area) -> Resizing {
        let measures = self.physical(area.size_max, area.size_max.saturating_sub(area.used()));
        if measures.force_out > PageCount::ZERO {
            Resizing::ReleaseOldest
        } else if area.free.0 > FREE_UNITS_MAX * area.unit.0 {
            Resizing::Shrink
        } else {
            Resizing::Keep
        }
    }

    fn stalls(&self) -> bool {
        self.stage == Stage::Stalling
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, area};
    use super::*;

    /// The stage at each look at 100 MiB of physical memory, with so much free.
    fn stages<const N: usize>(free: [u64; N]) -> [Stage; N] {
        let mut policy = Exhaustion::default();
        free.map(|free| policy.physical(ByteCount(100 * MIB), ByteCount(free * MIB)).stage)
    }

    /// "Receives a warning interrupt from the memory controller that physical memory exhaustion is near. Blocks further memory
    /// allocation".
    #[test]
    fn near_exhaustion_no_memory_is_given_out() {
        let (calm, blocking) = (Stage::Calm, Stage::Blocking);
        assert_eq!(stages([50, 6, 5, 5, 6, 5]), [calm, calm, blocking, blocking, calm, blocking]);
    }

    /// "Activates the swap daemon to shrink file caches and to swap out some user process pages, hence forcing some memory
    /// freed."
    #[test]
    fn pages_are_forced_out_until_the_warning_ends() {
        let mut policy = Exhaustion::default();
        let size = ByteCount(100 * MIB);
        assert_eq!(policy.physical(size, ByteCount(6 * MIB)).force_out, PageCount::ZERO);
        assert_eq!(policy.physical(size, ByteCount(4 * MIB)).force_out, PageCount(512));
    }

    /// "Activates a set of busy spinning threads to stall the execution of processes that exhaust physical memory if items 2 and
    /// 3 above cannot offset the increase in the physical memory utilization."
    #[test]
    fn writers_are_stalled_if_nothing_else_helps() {
        use Stage::{Blocking, Stalling};
        assert_eq!(stages([5, 4, 3, 2]), [Blocking, Blocking, Blocking, Stalling]);
        // It does help: not at each look is there less.
        assert_eq!(stages([5, 4, 3, 4, 3, 2]), [Blocking; 6]);
        // At the very end at once, and until memory is gained.
        assert_eq!(stages([5, 0, 0, 2, 3, 6]), [Blocking, Stalling, Stalling, Blocking, Blocking, Stage::Calm]);
    }

    /// The area of 1024 MiB takes units of 4 MiB as it fills. Of the last 6 % pages are forced out, in the last one who needs
    /// memory waits until some has been gained.
    #[test]
    fn an_area_grows_to_all_of_memory_and_is_kept_from_its_end() {
        let mut policy = Exhaustion::default();
        let full = [0, 960, 1020, 1024].map(|size| policy.full(&area(size, 0, 0)));
        assert_eq!(full, [Relief::Grow, Relief::Grow, Relief::Grow, Relief::ReleaseOldest]);
        let looks = [(100, 16), (100, 17), (962, 0), (963, 0), (1024, 62), (1020, 5)];
        let expected = [
            (Resizing::Keep, false),
            (Resizing::Shrink, false),
            (Resizing::Keep, false),
            (Resizing::ReleaseOldest, false),
            (Resizing::Shrink, false),
            (Resizing::ReleaseOldest, true),
        ];
        assert_eq!(looks.map(|(size, free)| (policy.look(&area(size, free, 0)), policy.stalls())), expected);
        assert_eq!((policy.look(&area(1020, 8, 0)), policy.stalls()), (Resizing::ReleaseOldest, false));
    }
}
