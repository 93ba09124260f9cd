//! Pages of known content: every word is a function of seed, page and version, so that any read can be checked.
//!
//! A page is cut into blocks of 256 bytes. The first part of each block is noise, the rest one word repeated. An LZ
//! codec copies the noise and folds the rest into one match of about five bytes, so an encoding takes
//! `1 - compressible` of the page plus about 2 %. `compressible = 0.5` is the 50 % of tuduce-gross, section 5.1.

/// 64-bit words in a page of 4 KiB.
pub const PAGE_WORDS: usize = 512;
const BLOCK_WORDS: usize = 32;

/// A rule for the content of all pages.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    seed: u64,
    /// Words of each block that are noise.
    noise_words: usize,
}

impl Content {
    /// Pages that lose about `compressible` of their size in an LZ codec.
    pub fn new(seed: u64, compressible: f64) -> Self {
        let noise_words = ((1.0 - compressible.clamp(0.0, 1.0)) * BLOCK_WORDS as f64).round() as usize;
        Self { seed, noise_words }
    }

    /// The word at `index` of `page`, written for the `version`th time.
    pub fn word(&self, page: u64, version: u32, index: usize) -> u64 {
        let base = self.base(page, version);
        if index % BLOCK_WORDS < self.noise_words { noise(base, index) } else { base }
    }

    /// Writes a whole page.
    pub fn fill(&self, words: &mut [u64], page: u64, version: u32) {
        let base = self.base(page, version);
        for (block, words) in words.chunks_exact_mut(BLOCK_WORDS).enumerate() {
            let (random, repeated) = words.split_at_mut(self.noise_words);
            for (at, word) in random.iter_mut().enumerate() {
                *word = noise(base, block * BLOCK_WORDS + at);
            }
            repeated.fill(base);
        }
    }

    /// Checks a whole page; the sum of its words, or `None` if one of them is wrong.
    pub fn check(&self, words: &[u64], page: u64, version: u32) -> Option<u64> {
        let base = self.base(page, version);
        let mut wrong = 0;
        let mut sum = 0_u64;
        for (block, words) in words.chunks_exact(BLOCK_WORDS).enumerate() {
            let (random, repeated) = words.split_at(self.noise_words);
            for (at, word) in random.iter().enumerate() {
                wrong |= word ^ noise(base, block * BLOCK_WORDS + at);
                sum = sum.wrapping_add(*word);
            }
            wrong |= repeated.iter().fold(0, |wrong, word| wrong | (word ^ base));
        }
        (wrong == 0).then_some(sum)
    }

    /// What all words of one version of a page hang on.
    fn base(&self, page: u64, version: u32) -> u64 {
        mix(self.seed ^ mix(page.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (u64::from(version) << 40)))
    }
}

/// One word of noise: cheap enough that a page takes a fraction of a microsecond, and nothing a page codec can fold.
fn noise(base: u64, index: usize) -> u64 {
    let word = base.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (word ^ (word >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The finaliser of splitmix64: every input bit reaches every output bit.
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A seeded stream of numbers: splitmix64.
#[derive(Clone, Copy, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// True for `share` of all calls.
    pub fn chance(&mut self, share: f64) -> bool {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64 <= share && share > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_fill_and_check_agree() {
        for compressible in [0.0, 0.3, 0.5, 1.0] {
            let content = Content::new(7, compressible);
            let mut page = [0; PAGE_WORDS];
            content.fill(&mut page, 11, 3);
            for (at, word) in page.iter().enumerate() {
                assert_eq!(*word, content.word(11, 3, at), "{compressible} {at}");
            }
            assert!(content.check(&page, 11, 3).is_some());
            assert!(content.check(&page, 11, 4).is_none());
            assert!(content.check(&page, 12, 3).is_none());
        }
    }

    #[test]
    fn one_wrong_bit_is_found_anywhere() {
        let content = Content::new(7, 0.5);
        for at in 0..PAGE_WORDS {
            let mut page = [0; PAGE_WORDS];
            content.fill(&mut page, 1, 0);
            page[at] ^= 1 << (at % 64);
            assert!(content.check(&page, 1, 0).is_none(), "word {at}");
        }
    }

    /// Distinct words among all, a stand-in for compressibility that needs no codec here.
    #[test]
    fn compressible_share_repeats() {
        let content = Content::new(7, 0.5);
        let mut page = [0; PAGE_WORDS];
        content.fill(&mut page, 1, 0);
        let repeated = page.iter().filter(|word| **word == page[PAGE_WORDS - 1]).count();
        assert_eq!(repeated, PAGE_WORDS / 2);
        page.sort_unstable();
        let distinct = page.chunk_by(|a, b| a == b).count();
        assert_eq!(distinct, PAGE_WORDS / 2 + 1);
    }

    #[test]
    fn draws_stay_below_and_repeat() {
        let mut draw = Draw::new(5);
        let first: Vec<_> = (0..1000).map(|_| draw.below(10)).collect();
        assert!(first.iter().all(|number| *number < 10));
        assert!((0..10).all(|number| first.contains(&number)));
        let mut again = Draw::new(5);
        assert!(first.iter().all(|number| *number == again.below(10)));
        let mut draw = Draw::new(6);
        assert_eq!((0..1000).filter(|_| draw.chance(0.0)).count(), 0);
        assert_eq!((0..1000).filter(|_| draw.chance(1.0)).count(), 1000);
    }
}
