//! Areas: mappings of private anonymous memory, and what their pages should hold.
//!
//! The shadow lies in a private mapping of a file: pleat leaves that alone, and a forked child has a copy of its own.

use core::ffi::c_int;

use crate::calls::{self, Errno, MADV_GUARD_REMOVE, READ_WRITE};
use crate::content::{self, Key, PAGE, Wrong};
use crate::random::Random;

/// Pages of an area at most.
pub(crate) const PAGES_MAX: usize = 768;

/// What may be done with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Access {
    All = 0,
    ReadOnly,
    None,
    /// A guard region: any access is a fault.
    Guarded,
}

/// What a page should hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) key: Key,
    pub(crate) access: Access,
    /// Freed lazily: it may be zeros by now.
    pub(crate) may_be_zero: bool,
}

impl Page {
    pub(crate) const FRESH: Self = Self { key: Key::ZERO, access: Access::All, may_be_zero: false };
}

/// A mapping; none if it has no pages.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) base: usize,
    pub(crate) count: usize,
    pub(crate) pages: [Page; PAGES_MAX],
    /// Not there in a forked child.
    pub(crate) stays_behind: bool,
    /// Zeros in a forked child.
    pub(crate) is_wiped: bool,
    /// May have parts whose flags differ.
    pub(crate) is_mixed: bool,
}

/// What is wrong with a page.
#[derive(Debug)]
#[expect(dead_code, reason = "shown by its Debug, when something is wrong")]
pub(crate) struct Bad {
    pub(crate) page: usize,
    pub(crate) address: usize,
    pub(crate) wrong: Wrong,
}

impl Area {
    pub(crate) fn is_mapped(&self) -> bool {
        self.count > 0
    }

    pub(crate) fn at(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    pub(crate) fn bytes(&self) -> usize {
        self.count * PAGE
    }

    /// The area is now this mapping of untouched pages.
    pub(crate) fn begin(&mut self, base: usize, count: usize) {
        (self.base, self.count) = (base, count);
        (self.stays_behind, self.is_wiped, self.is_mixed) = (false, false, false);
        self.pages[..count].fill(Page::FRESH);
    }

    /// These pages hold zeros now, whoever may touch them.
    pub(crate) fn clear(&mut self, first: usize, count: usize) {
        for page in &mut self.pages[first..first + count] {
            (page.key, page.may_be_zero) = (Key::ZERO, false);
        }
    }

    pub(crate) fn write(&mut self, page: usize, key: Key) -> bool {
        if self.pages[page].access != Access::All {
            return false;
        }
        content::write(self.at(page), key);
        self.pages[page] = Page { key, ..Page::FRESH };
        true
    }

    pub(crate) fn check(&mut self, page: usize) -> Result<(), Bad> {
        let Page { key, access, may_be_zero } = self.pages[page];
        if matches!(access, Access::None | Access::Guarded) {
            return Ok(());
        }
        let address = self.at(page);
        let Err(wrong) = content::check(address, key) else { return Ok(()) };
        if may_be_zero && content::check(address, Key::ZERO).is_ok() {
            self.clear(page, 1);
            return Ok(());
        }
        Err(Bad { page, address, wrong })
    }

    pub(crate) fn check_all(&mut self) -> Result<(), Bad> {
        (0..self.count).try_for_each(|page| self.check(page))
    }

    /// A page that can be read and written.
    pub(crate) fn draw_open(&self, random: &mut Random) -> Option<usize> {
        let start = random.below(self.count);
        (start..self.count).chain(0..start).find(|page| self.pages[*page].access == Access::All)
    }

    /// Makes all flags alike, so that the kernel sees one mapping where the program does.
    pub(crate) fn unify(&mut self) -> Result<(), Errno> {
        if !self.is_mixed {
            return Ok(());
        }
        let (base, bytes) = (self.base, self.bytes());
        if self.pages[..self.count].iter().any(|page| page.access == Access::Guarded) {
            calls::advise(base, bytes, MADV_GUARD_REMOVE)?;
        }
        calls::protect(base, bytes, READ_WRITE)?;
        calls::unlock(base, bytes)?;
        for advice in [libc::MADV_DOFORK, libc::MADV_KEEPONFORK, libc::MADV_NOHUGEPAGE, libc::MADV_NORMAL] {
            calls::advise(base, bytes, advice)?;
        }
        for page in &mut self.pages[..self.count] {
            page.access = Access::All;
        }
        (self.stays_behind, self.is_wiped, self.is_mixed) = (false, false, false);
        Ok(())
    }

    /// Changes who may touch a part.
    pub(crate) fn restrict(
        &mut self,
        first: usize,
        count: usize,
        access: Access,
        protection: c_int,
    ) -> Result<(), Errno> {
        calls::protect(self.at(first), count * PAGE, protection)?;
        self.is_mixed = true;
        for page in &mut self.pages[first..first + count] {
            if page.access != Access::Guarded {
                page.access = access;
            }
        }
        Ok(())
    }

    /// A part that was to be guarded may be in part, and then it holds zeros.
    pub(crate) fn clear_after_failed_guard(&mut self, first: usize, count: usize) {
        for page in &mut self.pages[first..first + count] {
            page.may_be_zero = true;
        }
    }

    /// In a forked child: what the kernel has made of it.
    pub(crate) fn has_been_forked(&mut self) {
        if self.stays_behind {
            self.count = 0;
        } else if self.is_wiped {
            for page in 0..self.count {
                let mut access = self.pages[page].access;
                // The guard is gone, and what it hid may have been protected since.
                if access == Access::Guarded && calls::protect(self.at(page), PAGE, READ_WRITE).is_ok() {
                    access = Access::All;
                }
                self.pages[page] = Page { access, ..Page::FRESH };
            }
        }
    }
}
