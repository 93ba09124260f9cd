//! Replacement: a clock whose pages carry a small age.
//!
//! The hand passes over the resident pages. A page with an age loses some of it and stays; a page without is reclaimed.
//! What gives a page its age is how it came to be resident. The kernel shows us no accessed bits (docs/userfaultfd.md,
//! "Finding cold pages"), so the one honest sign of use is a fault, and the sooner it comes behind the page's leaving, the
//! longer the page is kept: longest if it was still waiting in the frames to be encoded.

use page::PageCount;

/// How a page comes to be resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Along with another that was asked for, or found there by a scan.
    Along,
    /// Asked for by the program.
    Asked,
    /// Asked for before it was even encoded, or it could not be moved out.
    Recalled,
}

/// How many more rounds of the hand a page survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Age(u8);

impl Age {
    /// Bits that an age needs.
    pub const BITS: u32 = 2;
    /// Goes at the next look: fetched ahead, or of unknown use.
    pub const NONE: Self = Self(0);
    /// Asked for by the program for the first time.
    pub const TOUCHED: Self = Self(1);
    /// Came back before it was even encoded, or could not be moved out.
    pub const HOT: Self = Self(3);

    /// Of a page that the program asks for. `distance` pages have left since it did, `None` if it never had; memory holds
    /// `memory` of them.
    ///
    /// With so much more memory it would not have left (the refault distance of Linux, `mm/workingset.c`). So who comes back
    /// within half of a round of the hand is used more than once in the next, and who comes back later is no better than
    /// those that leave for it.
    pub fn of_refault(distance: Option<PageCount>, memory: PageCount) -> Self {
        let Some(distance) = distance else { return Self::TOUCHED };
        let halvings = [2, 4, 8].into_iter().take_while(|part| distance.0 < memory.0 / part).count();
        Self(halvings as u8)
    }

    /// The age with these low bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & 3) as u8)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

/// What the hand does with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It stays, with this age.
    Keep(Age),
    /// It goes.
    Reclaim,
}

/// The hand looks at a page.
pub const fn look(age: Age) -> Verdict {
    match age.0 {
        0 => Verdict::Reclaim,
        older => Verdict::Keep(Age(older - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_survives_as_many_looks_as_its_age() {
        for (age, looks) in [(Age::NONE, 0), (Age::TOUCHED, 1), (Age::HOT, 3)] {
            let mut age = age;
            for _ in 0..looks {
                let Verdict::Keep(younger) = look(age) else { panic!("{age:?} went too early") };
                age = younger;
            }
            assert_eq!(look(age), Verdict::Reclaim);
        }
    }

    #[test]
    fn who_comes_back_sooner_stays_longer() {
        let memory = PageCount(800);
        let age = |distance| Age::of_refault(Some(PageCount(distance)), memory).bits();
        assert_eq!([0, 99, 100, 199, 200, 399, 400, 1 << 22].map(age), [3, 3, 2, 2, 1, 1, 0, 0]);
        assert_eq!(Age::of_refault(None, memory), Age::TOUCHED);
        assert_eq!(Age::of_refault(Some(PageCount::ZERO), PageCount::ZERO), Age::NONE);
    }

    #[test]
    fn ages_fit_their_bits() {
        for bits in 0..1 << Age::BITS {
            assert_eq!(Age::from_bits(bits).bits(), bits);
        }
    }
}
