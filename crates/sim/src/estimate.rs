//! How probable it is that memory does not shrink to a target ratio, after CRAMES, "Probability of Running out of Memory".
//!
//! The pages in memory are taken for independent draws from the sizes that were sampled. The ratio of all of them together
//! is a mean of many draws, so its density (the paper's "aggregate PDF") is about normal, and the estimate is the area under
//! it above the target. Far from the mean the normal density is a poor guess of the true one; beside the estimate stands
//! a bound that holds for any sizes (Chernoff, 1952).

use page::{PAGE_BYTES, PageCount};
use serde::Serialize;

mod normal;

/// Sizes of encoded pages, as sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// How many pages were so long, from 0 to a whole page.
    counts: Vec<u64>,
}

/// What is to be expected of so many pages.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Encoded bytes by original bytes that are not to be exceeded.
    pub target: f64,
    /// Pages in memory.
    pub pages: u64,
    /// The ratio of all of them that is to be expected: the mean of the samples.
    pub mean_ratio: f64,
    /// The standard deviation of the ratio of all of them.
    pub aggregate_deviation: f64,
    /// The area under the aggregate density above the target. 0 also where it is smaller than a number can tell.
    pub probability: f64,
    /// Its decimal logarithm; none where nothing exceeds the target.
    pub log10_probability: Option<f64>,
    /// The decimal logarithm of what the true probability is not above, for independent pages; none where no page that was
    /// sampled is above the target.
    pub log10_bound: Option<f64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { counts: vec![0; PAGE_BYTES + 1] }
    }
}

impl Sizes {
    /// Takes note of a page whose encoding has so many bytes, at most a page.
    pub fn push(&mut self, bytes: usize) {
        assert!(bytes <= PAGE_BYTES, "an encoding of {bytes} bytes");
        self.counts[bytes] += 1;
    }

    /// Pages so far.
    pub fn pages(&self) -> PageCount {
        PageCount(self.counts.iter().sum())
    }

    /// Each ratio that was seen, from the smallest, with the part of the pages that have it.
    pub fn shares(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        let pages = self.pages().0 as f64;
        let seen = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        seen.map(move |(bytes, &count)| (bytes as f64 / PAGE_BYTES as f64, count as f64 / pages))
    }

    /// The mean ratio.
    pub fn mean_ratio(&self) -> f64 {
        self.shares().map(|(ratio, share)| ratio * share).sum()
    }

    /// The standard deviation of a page's ratio.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean_ratio();
        self.shares().map(|(ratio, share)| (ratio - mean).powi(2) * share).sum::<f64>().sqrt()
    }

    /// What is to be expected of `pages` pages such as these. There must be a sample, and a page.
    pub fn estimate(&self, target: f64, pages: PageCount) -> Estimate {
        assert!(self.pages().0 > 0 && pages.0 > 0, "an estimate from nothing, or of nothing");
        let mean_ratio = self.mean_ratio();
        let aggregate_deviation = self.deviation() / (pages.0 as f64).sqrt();
        let ln_probability = if aggregate_deviation > 0.0 {
            normal::ln_tail((target - mean_ratio) / aggregate_deviation)
        } else if mean_ratio > target {
            0.0
        } else {
            f64::NEG_INFINITY
        };
        let log10 = |ln: f64| ln.is_finite().then_some(ln / std::f64::consts::LN_10);
        Estimate {
            target,
            pages: pages.0,
            mean_ratio,
            aggregate_deviation,
            probability: ln_probability.exp(),
            log10_probability: log10(ln_probability),
            log10_bound: log10(self.ln_bound(target, pages)),
        }
    }

    /// Chernoff's bound: for each tilt `t`, the probability that the mean of `n` draws exceeds `a` is at most
    /// `(E exp(t (x - a)))^n`. The tilt at which this is least is the one that makes `a` the mean.
    fn ln_bound(&self, target: f64, pages: PageCount) -> f64 {
        // Halvings of an interval of tilts: more than a number has bits.
        const HALVINGS: u32 = 100;
        let shares: Vec<(f64, f64)> = self.shares().map(|(ratio, share)| (ratio - target, share)).collect();
        let largest = shares.last().expect("there are samples").0;
        if largest <= 0.0 {
            return f64::NEG_INFINITY;
        }
        if self.mean_ratio() >= target {
            return 0.0;
        }
        let mut above = 1.0;
        while tilted(&shares, above).1 < 0.0 {
            above *= 2.0;
        }
        let mut below = 0.0;
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(below, above);
            if tilted(&shares, middle).1 < 0.0 { below = middle } else { above = middle }
        }
        // Any tilt gives a bound, so this is one, however near the least it came.
        pages.0 as f64 * tilted(&shares, below).0.min(0.0)
    }
}

/// The logarithm of the mean of `exp(tilt * x)`, and whether, as its sign, `x` is above zero on average with those weights.
fn tilted(shares: &[(f64, f64)], tilt: f64) -> (f64, f64) {
    // The largest weight is one: nothing overflows, and what underflows is nothing beside it.
    let largest = tilt * shares.last().expect("there are samples").0;
    let weight = |x: f64, share: f64| share * (tilt * x - largest).exp();
    let sum: f64 = shares.iter().map(|&(x, share)| weight(x, share)).sum();
    (largest + sum.ln(), shares.iter().map(|&(x, share)| x * weight(x, share)).sum())
}

#[cfg(test)]
mod tests;
