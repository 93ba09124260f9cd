//! Which words before a group to compare it with, chosen for each page.
//!
//! Records repeat after some number of words, lists and tables after others: each page has a few distances at which most of
//! its words find what they are like. A look at some groups finds them, so that all others are compared with seven words
//! instead of thirty.

use super::{CHOICES, GROUP, LISTED, WINDOW};

/// Groups that are looked at.
pub(super) const SAMPLES: usize = 8;
/// The last place of a window that a group can be compared with: it ends with the window. The first is 1, so that nothing is ever compared with
/// the first word of a window, and a decoder can have zero there.
pub(super) const LAST_PLACE: usize = WINDOW - GROUP;

/// Of random bytes one in 256 is the same by chance: here 48, and more than this in no page of a million.
const SCORE_OF_NOISE: u32 = 88;

/// The group that a sample looks at.
#[inline]
pub(super) const fn sampled(sample: usize, groups: usize) -> usize {
    if groups <= SAMPLES { sample } else { (2 * sample + 1) * groups / (2 * SAMPLES) }
}

/// For each place, how many bytes are the same there. Zero where there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub(super) struct Scores(pub(super) [u16; WINDOW]);

impl Scores {
    /// The places of the highest scores, of equals the nearest.
    #[inline]
    pub(super) fn best(&self) -> Places {
        let mut best = [0; CHOICES - LISTED];
        for (place, score) in self.0.iter().enumerate().take(LAST_PLACE + 1).skip(1) {
            let mut key = score << 5 | place as u16;
            for slot in &mut best {
                (*slot, key) = ((*slot).max(key), (*slot).min(key));
            }
        }
        Places(best.map(|key| key as u8 & (WINDOW as u8 - 1)))
    }

    /// Whether a page whose words are all listed has nothing that could be told.
    pub(super) fn are_of_noise(&self) -> bool {
        self.0.iter().map(|score| u32::from(*score)).sum::<u32>() <= SCORE_OF_NOISE
    }
}

/// Where in the window word 0 of a group has its predictors of the last choices. Word *i* has them *i* words further on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places(pub(super) [u8; CHOICES - LISTED]);

impl Places {
    /// None if one of them is no place.
    #[inline]
    pub(super) fn new(places: [u8; CHOICES - LISTED]) -> Option<Self> {
        places.iter().all(|&place| (1..=LAST_PLACE).contains(&place.into())).then_some(Self(places))
    }

    /// The places of each choice, for each word of a group. That of zero is the one where there is never another.
    #[inline]
    pub(super) fn table(self) -> [[u8; CHOICES]; GROUP] {
        const LAST: u8 = WINDOW as u8 - 1;
        let [three, four, five, six, seven] = self.0;
        let first = u64::from_le_bytes([0, LAST, LAST - 1, three, four, five, six, seven]);
        core::array::from_fn(|lane| (first + lane as u64 * 0x0101_0101_0100_0000).to_le_bytes())
    }
}
