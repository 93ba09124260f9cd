//! Pages that move from one place to another as those of a program move to the agent, so that somebody can time it.

use page::{PAGE_BYTES, PageCount, PageIndex};

use crate::Errno;
use crate::area::Area;
use crate::kernel::PageRange;
use crate::uffd::{Faults, Uffd};

/// Two areas and the userfaultfd by which pages move between them.
#[derive(Debug)]
pub struct Moving {
    uffd: Uffd,
    source: Area,
    target: Area,
}

impl Moving {
    /// For so many pages. A userfaultfd of user mode, which everybody may open where the call is not filtered, moves pages as well as any.
    pub fn new(pages: PageCount) -> Result<Self, Errno> {
        let uffd = Uffd::open(0, Faults::OfUserMode).or_else(|_| Uffd::open(0, Faults::All))?;
        let bytes = pages.bytes().0 as usize;
        let (source, target) = (Area::reserve(bytes)?, Area::reserve(bytes)?);
        uffd.register_target(PageRange::new(PageIndex::containing(target.base() as u64), pages))?;
        Ok(Self { uffd, source, target })
    }

    /// New pages in the source, and none in the target.
    pub fn refill(&mut self) {
        self.target.release(0, self.target.bytes());
        for at in (0..self.source.bytes()).step_by(PAGE_BYTES) {
            // SAFETY: inside the area, which is open and ours; nobody has a reference into it.
            unsafe { self.source.base().wrapping_add(at).write_volatile(1) };
        }
    }

    /// Moves them all, so many at a time.
    pub fn move_all(&mut self, run: PageCount) -> Result<(), Errno> {
        let pages = PageCount((self.source.bytes() / PAGE_BYTES) as u64);
        let mut done = PageCount::ZERO;
        while done < pages {
            done += self.move_some(done, run.min(pages - done))?;
        }
        Ok(())
    }

    /// Moves the one behind so many.
    pub fn move_one(&mut self, before: PageCount) -> Result<(), Errno> {
        while self.move_some(before, PageCount(1))? == PageCount::ZERO {}
        Ok(())
    }

    /// Of a batch Linux moves a part where somebody has locked a page for a moment.
    fn move_some(&mut self, before: PageCount, count: PageCount) -> Result<PageCount, Errno> {
        let at = before.bytes().0;
        assert!(at + count.bytes().0 <= self.source.bytes() as u64, "{count:?} pages behind {before:?}");
        // SAFETY: both lie inside the areas, into which nobody has a reference.
        let moved =
            unsafe { self.uffd.move_pages(self.target.base() as u64 + at, self.source.base() as u64 + at, count) };
        match moved.error {
            None | Some(Errno::AGAIN) => Ok(moved.done),
            Some(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has moved is in the target and not in the source: a page that is not there is `NOENT` to a move.
    #[test]
    fn all_pages_move_in_runs_of_any_length() {
        let mut moving = match Moving::new(PageCount(10)) {
            Ok(moving) => moving,
            Err(error) => return println!("skipped: {error}"),
        };
        for run in [1, 3, 10, 32] {
            moving.refill();
            moving.move_all(PageCount(run)).unwrap();
            for at in (0..moving.target.bytes()).step_by(PAGE_BYTES) {
                // SAFETY: inside the area; nobody writes to it.
                assert_eq!(unsafe { moving.target.base().wrapping_add(at).read_volatile() }, 1, "{run}");
            }
            moving.target.release(0, moving.target.bytes());
            assert_eq!(moving.move_all(PageCount(run)), Err(Errno::NOENT), "{run}");
        }
        moving.refill();
        // The second time there is one already.
        assert_eq!([3, 3].map(|page| moving.move_one(PageCount(page))), [Ok(()), Err(Errno::EXIST)]);
    }
}
