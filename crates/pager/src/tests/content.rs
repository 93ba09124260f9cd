//! What pages hold, in a few bytes, so that the plain copy of the memory is small and failures can be read.

use page::{PAGE_BYTES, PageBytes};

/// A generator of random numbers (`SplitMix64`, Steele et al. 2014): the same on every machine and in every version.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Zero,
    /// One word repeated.
    Word(u64),
    /// Gets smaller, by a half to a tenth.
    Text(u64),
    /// Does not get smaller.
    Noise(u64),
}

impl Content {
    pub(super) fn bytes(self) -> PageBytes {
        let mut page = PageBytes::ZERO;
        match self {
            Self::Zero => {}
            Self::Word(word) => codec::fill(&mut page, word),
            Self::Text(seed) => {
                let mut random = Random::new(seed);
                let noise = 200 + random.below(1600) as usize;
                fill(&mut page.0[..noise], &mut random);
                page.0[PAGE_BYTES - 8..].copy_from_slice(&seed.to_le_bytes());
            }
            Self::Noise(seed) => fill(&mut page.0, &mut Random::new(seed)),
        }
        page
    }
}

fn fill(bytes: &mut [u8], random: &mut Random) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
}
