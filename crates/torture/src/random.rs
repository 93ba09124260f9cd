//! Numbers drawn from a seed.

/// splitmix64, by Steele, Lea and Flood (2014).
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A stream of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ mix(stream.wrapping_add(0x5eed)))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Where a part of `count` begins and how long it is: one at least, often short.
    pub(crate) fn part(&mut self, count: usize) -> (usize, usize) {
        let first = self.below(count);
        let rest = count - first;
        let longest = if self.one_in(2) { rest.min(8) } else { rest };
        (first, 1 + self.below(longest))
    }
}
