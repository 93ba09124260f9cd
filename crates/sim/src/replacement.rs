//! Replacement alone: how often policies miss, at several memory sizes, in one pass over a trace.
//!
//! A reference to a page that is not in memory is a miss; the first reference to a page is a cold miss whatever the policy,
//! and is counted apart. A reference to the same page as the reference before changes nothing in any policy and is counted
//! only. What is kept depends on the pages of a trace, never on its length.

use page::PageCount;
use rayon::prelude::*;
use trace::Trace;

use crate::PlayError;

mod axis;
mod curve;
mod empty;
mod floor;
mod frames;
mod lru;
mod min;
mod opt;
mod pleat;
mod stack;
#[cfg(test)]
mod tests;
mod touch;

pub use curve::{Curve, Curves};
use touch::{AHEAD, Numbering, Touch};

/// A replacement policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The page that has not been used for longest goes.
    Lru,
    /// The page that will not be used for longest goes (Belady): no policy misses less.
    Min,
    /// The page that has been in memory longest goes.
    Fifo,
    /// First in, first out, but a page that was used since the hand passed it last stays for one more round. A page is used
    /// when it comes in.
    Clock,
    /// pleat's own: see `replacement/pleat.rs`.
    Pleat,
}

impl Policy {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] =
        [("lru", Self::Lru), ("min", Self::Min), ("fifo", Self::Fifo), ("clock", Self::Clock), ("pleat", Self::Pleat)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, policy)| *policy == self).expect("all are in the table").0
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

/// What a policy came to with one size of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Score {
    /// The policy.
    pub policy: Policy,
    /// The memory's size.
    pub pages: PageCount,
    /// References of the trace.
    pub references: u64,
    /// References to pages that had been in memory, but were no longer.
    pub misses: u64,
    /// First references, which miss in any case: the pages of the trace.
    pub cold_misses: u64,
    /// For `pleat`: references to pages that were about to leave, and stayed. Each costs a fault, but no page.
    pub soft_faults: Option<u64>,
}

/// One policy with some sizes of memory.
trait Contender: Send {
    fn play(&mut self, touches: &[Touch]);

    /// Misses but for cold ones, in the order of the sizes.
    fn misses(&self) -> Vec<u64>;

    /// Of a policy that has them, and one size.
    fn soft_faults(&self) -> Option<u64> {
        None
    }
}

/// Policies and sizes that play the same trace.
pub struct Contest {
    numbering: Numbering,
    policies: Vec<Policy>,
    sizes: Vec<PageCount>,
    contenders: Vec<Entrant>,
}

struct Entrant {
    policy: Policy,
    sizes: Vec<PageCount>,
    contender: Box<dyn Contender>,
}

impl Contest {
    /// Each policy with each of the sizes, which are at least one page.
    pub fn new(policies: &[Policy], sizes: &[PageCount]) -> Self {
        assert!(sizes.iter().all(|&size| size > PageCount::ZERO), "a memory has at least one page");
        let mut contenders = Vec::new();
        for &policy in policies {
            // As many at a time as one processor should play: they share what depends on the trace alone.
            let share = match policy {
                Policy::Lru => sizes.len(),
                Policy::Min => sizes.len().div_ceil(rayon::current_num_threads()),
                Policy::Fifo | Policy::Clock | Policy::Pleat => 1,
            };
            for sizes in sizes.chunks(share.max(1)) {
                let contender = contender(policy, sizes);
                contenders.push(Entrant { policy, sizes: sizes.to_vec(), contender });
            }
        }
        let (policies, sizes) = (policies.to_vec(), sizes.to_vec());
        Self { numbering: Numbering::default(), policies, sizes, contenders }
    }

    /// Plays a trace to its end, or to where it is damaged. `progress` hears now and then how many references were played.
    pub fn play(&mut self, trace: &mut dyn Trace, progress: &mut dyn FnMut(u64)) -> Result<(), PlayError> {
        let Self { numbering, policies, contenders, .. } = self;
        numbering.play(trace, &mut |batch| {
            if policies.contains(&Policy::Pleat) {
                crate::live::check_addresses(batch.references)?;
            }
            contenders.par_iter_mut().for_each(|entrant| entrant.contender.play(batch.touches));
            progress(batch.played);
            Ok(())
        })
    }

    /// The pages so far.
    pub fn pages(&self) -> PageCount {
        PageCount(self.numbering.pages.count())
    }

    /// The scores so far, in the order of policies and, for each, of sizes.
    pub fn scores(&self) -> Vec<Score> {
        let mut scores = Vec::new();
        for entrant in &self.contenders {
            for (&pages, misses) in entrant.sizes.iter().zip(entrant.contender.misses()) {
                let (references, cold_misses) = (self.numbering.references, self.numbering.pages.count());
                let soft_faults = entrant.contender.soft_faults();
                scores.push(Score { policy: entrant.policy, pages, references, misses, cold_misses, soft_faults });
            }
        }
        debug_assert_eq!(scores.len(), self.policies.len() * self.sizes.len());
        scores
    }
}

fn contender(policy: Policy, sizes: &[PageCount]) -> Box<dyn Contender> {
    match policy {
        Policy::Lru if sizes.len() > lru::SIZES_MAX => Box::new(stack::Sizes::new(sizes)),
        Policy::Lru => Box::new(lru::Lru::new(sizes)),
        Policy::Min => Box::new(min::Min::new(sizes)),
        Policy::Fifo => Box::new(frames::Frames::new(sizes[0], frames::Hand::Fifo)),
        Policy::Clock => Box::new(frames::Frames::new(sizes[0], frames::Hand::Clock)),
        Policy::Pleat => Box::new(pleat::Pleat::new(sizes[0])),
    }
}
