//! Misses at every size of memory, in one pass: miss-ratio curves.
//!
//! Of LRU and MIN a larger memory holds whatever a smaller one does (Mattson et al., 1970). So each reference has a distance:
//! the least memory that it does not miss in. How often each distance occurs is the curve.

use page::PageCount;
use rayon::prelude::*;
use trace::Trace;

use super::touch::Numbering;
use super::{Policy, Touch};
use super::{opt::Opt, stack::Stack};
use crate::PlayError;

/// The distances of one policy.
pub(super) trait Distances: Send {
    /// Gives `each` the distance of each touch that is not the first to its page.
    fn play(&mut self, touches: &[Touch], each: &mut dyn FnMut(u64));
}

/// Policies that play the same trace.
pub struct Curves {
    numbering: Numbering,
    players: Vec<Player>,
}

struct Player {
    policy: Policy,
    distances: Box<dyn Distances>,
    /// How often each distance occurred.
    counts: Vec<u64>,
}

/// Misses by size of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// The policy.
    pub policy: Policy,
    /// References of the trace.
    pub references: u64,
    /// First references, which miss in any case: the pages of the trace.
    pub cold_misses: u64,
    /// Sizes of memory from which on there are fewer misses, the smallest first, with the misses but for cold ones. Starts
    /// with one page; the last has none.
    pub steps: Vec<(PageCount, u64)>,
}

impl Curves {
    /// Whether a policy has a curve that one pass gives.
    pub const fn has(policy: Policy) -> bool {
        matches!(policy, Policy::Lru | Policy::Min)
    }

    /// Each of these policies, which are among those that have one.
    pub fn new(policies: &[Policy]) -> Self {
        let player = |&policy: &Policy| Player { policy, distances: distances(policy), counts: Vec::new() };
        Self { numbering: Numbering::default(), players: policies.iter().map(player).collect() }
    }

    /// Plays a trace to its end, or to where it is damaged.
    pub fn play(&mut self, trace: &mut dyn Trace) -> Result<(), PlayError> {
        let Self { numbering, players } = self;
        numbering.play(trace, &mut |batch| {
            players.par_iter_mut().for_each(|player| player.play(batch.touches));
            Ok(())
        })
    }

    /// The curves so far.
    pub fn curves(&self) -> Vec<Curve> {
        let curve = |player: &Player| Curve {
            policy: player.policy,
            references: self.numbering.references,
            cold_misses: self.numbering.pages.count(),
            steps: steps(&player.counts),
        };
        self.players.iter().map(curve).collect()
    }
}

impl Player {
    fn play(&mut self, touches: &[Touch]) {
        let counts = &mut self.counts;
        self.distances.play(touches, &mut |distance| {
            let distance = distance as usize;
            if distance >= counts.len() {
                counts.resize(distance + 1, 0);
            }
            counts[distance] += 1;
        });
    }
}

fn distances(policy: Policy) -> Box<dyn Distances> {
    match policy {
        Policy::Lru => Box::new(Stack::new()),
        Policy::Min => Box::new(Opt::new()),
        Policy::Fifo | Policy::Clock | Policy::Pleat => panic!("{policy:?} has no distances"),
    }
}

/// A memory of n pages misses what has a distance above n.
fn steps(counts: &[u64]) -> Vec<(PageCount, u64)> {
    let mut misses = counts.iter().sum();
    let mut steps = vec![(PageCount(1), misses)];
    for (distance, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        misses -= count;
        steps.push((PageCount(distance as u64), misses));
    }
    steps
}

impl Curve {
    /// Misses but for cold ones with a memory of this size, which is at least one page.
    pub fn misses(&self, pages: PageCount) -> u64 {
        let reached = self.steps.partition_point(|step| step.0 <= pages);
        self.steps[reached - 1].1
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use trace::synth::{Plan, synthesize};
    use trace::{Header, TimeUnit, Writer};

    use super::*;
    use crate::replacement::Contest;
    use crate::replacement::tests::{Listed, plain, references};

    /// Plays random traces, and compares the curve at each size with a plain twin.
    pub(in super::super) fn against_the_plain_twin(
        make: impl Fn() -> Box<dyn Distances>,
        twin: impl Fn(&[u64], usize) -> u64,
    ) {
        proptest!(ProptestConfig::with_cases(100), |(pages in references())| {
            let mut curves = Curves::new(&[Policy::Lru]);
            curves.players[0].distances = make();
            curves.play(&mut Listed::new(&pages)).unwrap();
            let curve = &curves.curves()[0];
            for size in 1..curve.cold_misses + 2 {
                prop_assert_eq!(curve.misses(PageCount(size)), twin(&pages, size as usize), "{} pages", size);
            }
        });
    }

    #[test]
    fn lru_misses_at_each_size_as_a_list_does() {
        against_the_plain_twin(|| Box::new(Stack::new()), plain::lru);
    }

    /// Longer traces, whose axes are drawn anew, against the simulations of single sizes.
    #[test]
    fn curves_are_what_single_sizes_miss() {
        for pattern in ["zipf:1", "stack:1.5", "sequential", "uniform", "rand", "thrasher"] {
            let parts = vec![pattern.parse().unwrap()];
            let plan = Plan { parts, pages: 3000, references: 150_000, writes: 0.0, seed: 5 };
            let mut writer = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
            synthesize(&plan).for_each(|reference| writer.push(reference).unwrap());
            let bytes = writer.finish(None).unwrap();
            let sizes: Vec<PageCount> = (1..30).chain((100..3100).step_by(100)).map(PageCount).collect();
            let policies = [Policy::Lru, Policy::Min];
            let (mut contest, mut curves) = (Contest::new(&policies, &sizes), Curves::new(&policies));
            contest.play(&mut *trace::open(&bytes[..]).unwrap(), &mut |_| {}).unwrap();
            curves.play(&mut *trace::open(&bytes[..]).unwrap()).unwrap();
            let curves = curves.curves();
            for score in contest.scores() {
                let curve = curves.iter().find(|curve| curve.policy == score.policy).unwrap();
                assert_eq!(curve.misses(score.pages), score.misses, "{pattern}: {score:?}");
                assert_eq!((curve.references, curve.cold_misses), (score.references, score.cold_misses));
            }
            for Curve { steps, .. } in curves {
                assert!(steps.is_sorted_by(|one, next| one.0 < next.0 && one.1 > next.1), "{pattern}");
                assert_eq!(steps.last().map(|last| last.1), Some(0));
            }
        }
    }

    #[test]
    fn a_loop_has_the_curves_that_paper_and_pencil_give() {
        // Four pages, three times round: LRU keeps all or none; MIN keeps one page more with each frame.
        let mut curves = Curves::new(&[Policy::Lru, Policy::Min]);
        curves.play(&mut Listed::new(&[1, 2, 3, 4].repeat(3))).unwrap();
        let steps = curves.curves().into_iter().map(|curve| curve.steps);
        let steps: Vec<Vec<(u64, u64)>> =
            steps.map(|steps| steps.iter().map(|step| (step.0.0, step.1)).collect()).collect();
        assert_eq!(steps, [vec![(1, 8), (4, 0)], vec![(1, 8), (2, 5), (3, 2), (4, 0)]]);
    }
}
