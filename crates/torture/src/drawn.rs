//! Which kinds of steps a seed draws, and a number by which two runs can be compared.

use crate::random::{Random, mix};
use crate::worker::{THREADS, kinds};

/// How many steps of each of the first threads go into the number: as many as the shortest run takes.
pub(crate) const STEPS: u64 = 10;

/// The number of the kind of step that comes next, each as often as its weight says.
pub(crate) fn next_kind(random: &mut Random) -> usize {
    let weight: usize = kinds().map(|kind| kind.1).sum();
    let mut drawn = random.below(weight);
    let is_it = |kind: &crate::worker::Kind| {
        let is_it = drawn < kind.1;
        drawn = drawn.wrapping_sub(kind.1);
        is_it
    };
    kinds().position(is_it).expect("below the sum of all")
}

/// Which thread of which process: what its steps are drawn by, besides the seed.
pub(crate) fn stream(process: u64, thread: usize) -> u64 {
    process * 16 + thread as u64
}

/// What a thread has drawn so far, in one number. Zeros are a valid one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn(u64);

impl Drawn {
    pub(crate) fn add(&mut self, stream: u64, step: u64, kind: usize) {
        self.0 = mix(self.0 ^ stream << 48 ^ step << 8 ^ kind as u64);
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// What the first threads of so many processes draw by this seed, whatever else happens.
pub(crate) fn expected(seed: u64, processes: u64) -> u64 {
    let of_thread = |stream| {
        let (mut random, mut drawn) = (Random::new(seed, stream), Drawn::default());
        (1..=STEPS).for_each(|step| drawn.add(stream, step, next_kind(&mut random)));
        drawn.number()
    };
    // Not in their order: the threads get there as they come.
    let streams = (0..processes).flat_map(|process| (0..THREADS).map(move |thread| stream(process, thread)));
    streams.map(of_thread).fold(0, |all, one| all ^ one)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn steps(seed: u64, stream: u64) -> Vec<usize> {
        let mut random = Random::new(seed, stream);
        (0..STEPS).map(|_| next_kind(&mut random)).collect()
    }

    #[test]
    fn a_seed_draws_the_same_steps_twice_and_another_one_others() {
        let mut numbers = BTreeSet::new();
        for seed in 0..50 {
            assert_eq!(expected(seed, 2), expected(seed, 2));
            assert_eq!(steps(seed, 17), steps(seed, 17));
            assert_ne!(steps(seed, 17), steps(seed, 16), "two threads draw the same");
            assert_ne!(steps(seed, 17), steps(seed + 1, 17));
            assert!(numbers.insert(expected(seed, 2)), "two seeds draw the same");
        }
    }

    /// The names and weights of the kinds are part of what a seed means: with another number here, seeds of old mean other steps.
    #[test]
    fn each_kind_is_drawn() {
        let mut random = Random::new(1, 0);
        let drawn: BTreeSet<usize> = (0..20_000).map(|_| next_kind(&mut random)).collect();
        assert_eq!(drawn.len(), kinds().count());
    }

    #[test]
    fn one_other_step_makes_another_number() {
        let number_of = |kinds: [usize; 3]| {
            let mut drawn = Drawn::default();
            (1..).zip(kinds).for_each(|(step, kind)| drawn.add(1, step, kind));
            drawn.number()
        };
        let all = [[1, 2, 3], [1, 3, 2], [1, 2, 4], [0, 2, 3]].map(number_of);
        assert_eq!(BTreeSet::from(all).len(), 4);
    }
}
