//! Replacement: a clock whose pages carry a small age, and a level that they have earned.
//!
//! The hand passes over the resident pages. A page with an age loses some of it and stays; a page without is reclaimed.
//! What gives a page its age is how it came to be resident, now and before. The kernel shows us no accessed bits
//! (docs/userfaultfd.md, "Finding cold pages"), so the one honest sign of use is a fault, and the sooner it comes behind the
//! page's leaving, the longer the page is kept. Who comes back soon again and again is kept longer each time: its level rises.

use page::{PageCount, PageIndex};

/// How a page comes to be resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Along with another that was asked for, or found there by a scan.
    Along,
    /// Asked for by the program.
    Asked,
    /// Asked for before it was even encoded, or there was no room for its encoding.
    Recalled,
    /// Not asked for: it takes no less memory encoded, or could not be moved out.
    Refused,
}

/// How many more rounds of the hand a page survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Age(u8);

impl Age {
    /// Bits that an age needs.
    pub const BITS: u32 = 3;
    /// Goes at the next look: fetched ahead, or of unknown use.
    pub const NONE: Self = Self(0);
    /// Asked for by the program for the first time.
    pub const TOUCHED: Self = Self(1);
    /// Goes along with the page beside it. Alone it would go a round or two later, which saves it less than a move of its own costs
    /// (docs/decisions/0040-who-lies-beside-goes-along.md).
    pub const BESIDE: Self = Self(2);

    /// The age with these low bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

/// How many rounds of the hand a page has earned each time it is asked for. It keeps its level while it is away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Level(u8);

impl Level {
    /// Bits that a level needs: as many as an age.
    pub const BITS: u32 = Age::BITS;
    /// Of a page that has never come back soon.
    pub const NONE: Self = Self(0);
    const MAX: Self = Self((1 << Self::BITS) - 1);

    fn raised(self) -> Self {
        Self(self.0 + 1).min(Self::MAX)
    }

    fn lowered(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The level with these low bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

/// Spreads pages over rounds (Knuth: multiplicative hashing).
const HASH: u32 = 0x9e37_79b1;

/// How often in a row a page has been refused: encoded in vain, or not moved. The more often, the longer the hand spares it: where a
/// program holds more such pages than its budget, they would be encoded in vain all the time, and what does fold is rarely met among
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Refusals(u8);

impl Refusals {
    /// Bits that it needs.
    pub const BITS: u32 = 3;
    /// Of a page that has not been tried yet, or has left.
    pub const NONE: Self = Self(0);
    const MAX: Self = Self(4);

    /// Behind an arrival.
    #[must_use]
    pub fn after(self, arrival: Arrival) -> Self {
        match arrival {
            Arrival::Refused => Self(self.0 + 1).min(Self::MAX),
            Arrival::Recalled => self,
            Arrival::Along | Arrival::Asked => Self::NONE,
        }
    }

    /// Rounds of the hand for which `page` is spared behind the last one: up to twice as many for some as for others, or all that have
    /// been refused in one round would be tried again in one.
    pub const fn rounds(self, page: PageIndex) -> u32 {
        let least = 4 << self.0;
        let spread = (page.0 as u32).wrapping_mul(HASH);
        least + ((spread as u64 * least as u64) >> u32::BITS) as u32
    }

    /// The number with these low bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

/// The age and the level of a page that arrives and had `level` when it left. `distance` pages have left since it did, `None` if
/// it never had; memory holds `memory` of them.
///
/// With so much more memory it would not have left (the refault distance of Linux, `mm/workingset.c`). So who comes back within
/// half of a round of the hand is used more than once in the next, and who comes back later is no better than those that leave
/// for it. Within a quarter, or before it was encoded, the level rises; beyond a half it falls.
pub fn arrive(arrival: Arrival, level: Level, distance: Option<PageCount>, memory: PageCount) -> (Age, Level) {
    match (arrival, distance) {
        (Arrival::Along | Arrival::Refused, _) => (Age::NONE, level),
        (Arrival::Asked, None) => (Age::TOUCHED, Level::NONE),
        (Arrival::Recalled, _) => {
            let level = level.raised();
            (Age(level.0), level)
        }
        (Arrival::Asked, Some(distance)) => {
            let halvings = [2, 4, 8].into_iter().take_while(|part| distance.0 < memory.0 / part).count();
            let level = match halvings {
                0 => level.lowered(),
                1 => level,
                _ => level.raised(),
            };
            (Age((halvings as u8).max(level.0)), level)
        }
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
        for (age, looks) in [(Age::NONE, 0), (Age::TOUCHED, 1), (Age::BESIDE, 2)] {
            let mut age = age;
            for _ in 0..looks {
                let Verdict::Keep(younger) = look(age) else { panic!("{age:?} went too early") };
                age = younger;
            }
            assert_eq!(look(age), Verdict::Reclaim);
        }
    }

    const MEMORY: PageCount = PageCount(800);

    #[test]
    fn who_comes_back_sooner_stays_longer() {
        let age = |distance| arrive(Arrival::Asked, Level::NONE, Some(PageCount(distance)), MEMORY).0.bits();
        assert_eq!([0, 99, 100, 199, 200, 399, 400, 1 << 22].map(age), [3, 3, 2, 2, 1, 1, 0, 0]);
        assert_eq!(arrive(Arrival::Asked, Level(5), None, MEMORY), (Age::TOUCHED, Level::NONE));
        assert_eq!(arrive(Arrival::Asked, Level::NONE, Some(PageCount::ZERO), PageCount::ZERO).0, Age::NONE);
    }

    /// A round more each time, up to seven; and each time that it was away for long, a round less.
    #[test]
    fn who_comes_back_soon_again_and_again_is_kept_for_longer() {
        let stays = |arrival, distance: u64, times| {
            let mut level = Level::NONE;
            let mut stay = |_| {
                let (age, earned) = arrive(arrival, level, Some(PageCount(distance)), MEMORY);
                level = earned;
                age.bits()
            };
            (0..times).map(&mut stay).collect::<Vec<_>>()
        };
        assert_eq!(stays(Arrival::Recalled, 10, 9), [1, 2, 3, 4, 5, 6, 7, 7, 7]);
        assert_eq!(stays(Arrival::Asked, 150, 5), [2, 2, 3, 4, 5]);
        assert_eq!(stays(Arrival::Asked, 300, 3), [1, 1, 1]);
        let late = arrive(Arrival::Asked, Level(4), Some(PageCount(700)), MEMORY);
        assert_eq!(late, (Age(3), Level(3)));
        assert_eq!(arrive(Arrival::Along, Level(4), Some(PageCount(1)), MEMORY), (Age::NONE, Level(4)));
    }

    #[test]
    fn ages_fit_their_bits() {
        for bits in 0..1 << Age::BITS {
            assert_eq!((Age::from_bits(bits).bits(), Level::from_bits(bits).bits()), (bits, bits));
        }
    }
}
