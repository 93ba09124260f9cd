//! Replacement: a clock whose pages carry a small age.
//!
//! The hand passes over the resident pages. A page with an age loses some of it and stays; a page without is reclaimed.
//! What gives a page its age is how it came to be resident. The kernel shows us no accessed bits (docs/userfaultfd.md,
//! "Finding cold pages"), so the one honest sign of use is a fault: a page that comes back soon after it was moved out,
//! while it still waits in the frames to be encoded, was reclaimed too early and is kept longest.

/// How many more rounds of the hand a page survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Age(u8);

impl Age {
    /// Bits that an age needs.
    pub const BITS: u32 = 2;
    /// Goes at the next look: fetched ahead, or of unknown use.
    pub const NONE: Self = Self(0);
    /// Asked for by the program.
    pub const TOUCHED: Self = Self(1);
    /// Came back before it was even encoded, or could not be moved out.
    pub const HOT: Self = Self(3);

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
    fn ages_fit_their_bits() {
        for bits in 0..1 << Age::BITS {
            assert_eq!(Age::from_bits(bits).bits(), bits);
        }
    }
}
