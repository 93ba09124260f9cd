//! Random numbers that are the same on every machine: `splitmix64` (Steele, Lea and Flood, 2014).

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// All 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a product: its bias, `end` in 2^64, is nothing for numbers of pages.
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// From 0 up to, not including, 1.
    pub fn part(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The numbers below `count` in a random order (Fisher and Yates).
    pub fn order(&mut self, count: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..count).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.below(at as u64 + 1) as usize);
        }
        order
    }
}
