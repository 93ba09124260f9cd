//! Synthetic traces: patterns with a known behaviour, the same for the same seed.

use std::str::FromStr;

use page::PageIndex;

use crate::random::Random;
use crate::{Access, Reference};

mod walks;

use walks::Walk;

/// The most pages of a synthetic trace: 4 TiB.
pub const SYNTHETIC_PAGES_MAX: u64 = 1 << 30;

/// How a program walks over its pages. As text `NAME`, or `NAME:NUMBER`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// One page after the other, again and again: `sequential`.
    Sequential,
    /// As `sequential`, in steps of so many pages, first all pages 0, k, 2k, …, then 1, k + 1, …: `strided:K`.
    Strided(u64),
    /// Anywhere: `uniform`.
    Uniform,
    /// The page of rank *r* with a probability in proportion to 1 / *r*^*a*, ranks dealt to pages at random: `zipf:A`.
    Zipf(f64),
    /// A trace in so many phases of equal length, each with another tenth of the pages, anywhere among them: `phases:N`.
    Phases(u64),
    /// `tuduce-gross`, section 5.1: cycles linearly through the pages, reading and writing each: `thrasher`.
    Thrasher,
    /// `tuduce-gross`, section 5.1: reads and writes anywhere, half of each: `rand`.
    Rand,
    /// The page that is *d*-th in the order of last use with a probability in proportion to 1 / *d*^*a*, so that the stack
    /// distances of the trace have this distribution: `stack:A`.
    Stack(f64),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let count = |default: u64| match number {
            None => Ok(default),
            Some(digits) => digits.parse().ok().filter(|&count| count > 0).ok_or("a whole number, at least 1"),
        };
        let exponent = |default: f64| match number.map_or(Ok(default), str::parse) {
            Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(exponent),
            _ => Err("a number from 0 to 10"),
        };
        let pattern = match (name, number) {
            ("sequential", None) => Ok(Self::Sequential),
            ("uniform", None) => Ok(Self::Uniform),
            ("thrasher", None) => Ok(Self::Thrasher),
            ("rand", None) => Ok(Self::Rand),
            ("strided", _) => count(16).map(Self::Strided),
            ("phases", _) => count(10).map(Self::Phases),
            ("zipf", _) => exponent(1.0).map(Self::Zipf),
            ("stack", _) => exponent(1.5).map(Self::Stack),
            _ => {
                let known = "sequential, strided:K, uniform, zipf:A, phases:N, thrasher, rand, stack:A";
                return Err(format!("there is no pattern \"{text}\"; there are {known}"));
            }
        };
        pattern.map_err(|expected| format!("behind \"{name}:\" {expected} is expected"))
    }
}

/// A pattern and how often it is chosen in a mixture. As text `PATTERN`, or `WEIGHT*PATTERN`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part {
    /// In proportion to those of the other parts.
    pub weight: f64,
    /// The pattern.
    pub pattern: Pattern,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((weight, pattern)) = text.split_once('*') else {
            return Ok(Self { weight: 1.0, pattern: text.parse()? });
        };
        match weight.parse() {
            Ok(weight) if weight > 0.0 && weight < 1e9 => Ok(Self { weight, pattern: pattern.parse()? }),
            _ => Err(format!("\"{weight}\" is no weight")),
        }
    }
}

/// What a synthetic trace is to be.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// One pattern, or several, of which each reference is of one, chosen at random. All walk over the same pages.
    pub parts: Vec<Part>,
    /// How many pages, 1 to [`SYNTHETIC_PAGES_MAX`].
    pub pages: u64,
    /// How many references.
    pub references: u64,
    /// The part of references that write, where the pattern leaves that open.
    pub writes: f64,
    /// Another seed, another trace.
    pub seed: u64,
}

/// The references of a plan.
pub fn synthesize(plan: &Plan) -> impl Iterator<Item = Reference> {
    assert!(!plan.parts.is_empty() && (1..=SYNTHETIC_PAGES_MAX).contains(&plan.pages));
    let mut random = Random::new(plan.seed);
    let mut walks: Vec<Walk> = plan.parts.iter().map(|part| Walk::new(part.pattern, plan, &mut random)).collect();
    let weights: Vec<f64> = plan.parts.iter().map(|part| part.weight).collect();
    let total: f64 = weights.iter().sum();
    let writes = plan.writes;
    (0..plan.references).map(move |time| {
        let chosen = if walks.len() == 1 { 0 } else { choose(&weights, random.part() * total) };
        let step = walks[chosen].step(time, &mut random);
        let is_write = step.is_write.unwrap_or_else(|| writes > 0.0 && random.part() < writes);
        let access = if is_write { Access::Write } else { Access::Read };
        Reference { page: PageIndex(step.page), time, thread: 0, access }
    })
}

/// Into which of the weights laid side by side a point falls.
fn choose(weights: &[f64], mut point: f64) -> usize {
    for (at, weight) in weights.iter().enumerate() {
        point -= weight;
        if point < 0.0 {
            return at;
        }
    }
    weights.len() - 1
}

#[cfg(test)]
mod tests;
