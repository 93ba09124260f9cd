//! The badge: a page by which a process's memory is told from that of its children.
//!
//! Many children may be forked at the same time, past libc too, and the kernel gives us a userfaultfd for each of them, but not
//! the number of its process. The badge is registered with the program's userfaultfd, and forked children find it empty
//! (`MADV_WIPEONFORK`). So what is filled into it through one of their userfaultfds only the child reads whose it is.

use page::{PAGE_BYTES, PageBytes, PageIndex};
use rustix::mm::Advice;

use crate::linux::area_range;
use crate::uffd::Uffd;
use crate::{Area, Errno};

/// What it says in a process that needs no number: the first one, or the only child of its moment.
const HOME: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Badge(Area);

impl Badge {
    /// Reserves it.
    pub fn reserve() -> Result<Self, Errno> {
        let area = Area::reserve(PAGE_BYTES)?;
        // SAFETY: the page is ours, and nobody needs it in a forked child.
        unsafe { rustix::mm::madvise(area.base().cast(), area.bytes(), Advice::LinuxWipeOnFork) }?;
        Ok(Self(area))
    }

    /// The addresses it takes.
    pub fn span(&self) -> core::ops::Range<u64> {
        self.0.span()
    }

    /// Registers it with the userfaultfd of a process that has none yet.
    pub(crate) fn appear_in(&self, program: &Uffd) -> Result<(), Errno> {
        program.register(area_range(&self.0))
    }

    /// Tells the process that has this userfaultfd that it is at home, unless it has been told a number.
    pub(crate) fn appear_to(&self, program: &Uffd) -> Result<(), Errno> {
        self.tell(program, HOME)
    }

    /// Tells the child that has this userfaultfd its number, which is not 0, unless it has been told one. `AGAIN`: its layout is changing.
    pub fn tell(&self, child: &Uffd, number: u32) -> Result<(), Errno> {
        let mut page = PageBytes::ZERO;
        page.0[..4].copy_from_slice(&number.to_le_bytes());
        match child.fill(PageIndex::containing(self.0.base() as u64), &page) {
            Err(Errno::EXIST) => Ok(()),
            told => told,
        }
    }

    /// What this process has been told; waits until it has.
    pub fn number(&self) -> u32 {
        #[expect(clippy::cast_ptr_alignment, reason = "an area begins at a page")]
        let word = self.0.base().cast::<u32>();
        // SAFETY: the area is readable and lives as long as `self`; nobody writes to it but the kernel, a page at once.
        unsafe { word.read_volatile() }
    }

    /// Whether this process has an agent: a child of a raw system call has none, and is ended by its parent's when it asks,
    /// if there still is one.
    pub fn is_at_home(&self) -> bool {
        self.number() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uffd::{Faults, feature};

    /// On the real kernel, where the test may open a userfaultfd.
    #[test]
    fn what_is_told_first_is_read() {
        let Ok(uffd) = Uffd::open(feature::MOVE, Faults::All) else {
            println!("skipped: no userfaultfd");
            return;
        };
        let badge = Badge::reserve().unwrap();
        badge.appear_in(&uffd).unwrap();
        badge.tell(&uffd, 7).unwrap();
        badge.appear_to(&uffd).unwrap();
        assert_eq!(badge.number(), 7);
        drop(uffd);
        assert!(badge.is_at_home());
    }
}
