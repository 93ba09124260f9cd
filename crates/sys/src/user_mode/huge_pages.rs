//! No huge pages while a forked child's memory is registered with nobody.
//!
//! khugepaged (mm/khugepaged.c) makes one huge page of many small ones in any process, at times of its own, and fills what is
//! missing between them with zeros; memory with a userfaultfd it leaves alone. A child is forked without one: until it has
//! registered what it inherits, zeros would stand where pages of the program are to come back.

use crate::arch::{number, syscall};

const PR_SET_THP_DISABLE: usize = 41;
const PR_GET_THP_DISABLE: usize = 42;

/// Whether a prctl reads or sets what a fork sets for a moment.
pub(super) fn is_setting(arguments: &[u64; 6]) -> bool {
    [PR_SET_THP_DISABLE as u64, PR_GET_THP_DISABLE as u64].contains(&arguments[0])
}

/// What the program has said about huge pages: 1 if it wants none; from Linux 6.18 flags may stand above that bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct Barred(usize);

impl Barred {
    /// From now on there are none in this process, nor in one that is forked from it.
    pub(super) fn begin() -> Self {
        let before = Self(prctl([PR_GET_THP_DISABLE, 0, 0, 0, 0]).unwrap_or(0));
        set(Self(1));
        before
    }

    /// As the program has said, in this process.
    pub(super) fn end(self) {
        set(self);
    }
}

fn set(Barred(said): Barred) {
    let (disable, flags) = (said & 1, said & !1);
    // Where a kernel knows no such setting it has no huge pages either.
    let _ = prctl([PR_SET_THP_DISABLE, disable, flags, 0, 0]);
}

fn prctl([option, second, third, fourth, fifth]: [usize; 5]) -> Option<usize> {
    // SAFETY: numbers only.
    let answer = unsafe { syscall(number::PRCTL, [option, second, third, fourth, fifth, 0]) };
    usize::try_from(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_setting_comes_back() {
        let said = || prctl([PR_GET_THP_DISABLE, 0, 0, 0, 0]).unwrap();
        let at_first = said();
        for own in [0, 1] {
            set(Barred(own));
            let barred = Barred::begin();
            assert_eq!((said(), barred), (1, Barred(own)));
            barred.end();
            assert_eq!(said(), own);
        }
        set(Barred(at_first));
    }
}
