//! The three walks: `thrasher` and `rand` of tuduce-gross, section 5.1, and a sequential read-write `sweep`.
//!
//! Each fills a working set with [`Content`], warms up, then makes its accesses and takes the time of each. Every
//! word that is read is compared with what must be there.
//!
//! | walk | order | an access is |
//! |---|---|---|
//! | thrasher | linear, again and again | a whole page read, checked and written |
//! | rand | random pages | one word read and checked, one more read or written |
//! | sweep | linear, again and again | as in rand, so that almost nothing but the fault is measured |

use std::time::Instant;

use crate::content::{Content, Draw, PAGE_WORDS};
use crate::latency::Latencies;

/// Which walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Walk {
    /// Cycles through the working set, reading and writing all of it.
    Thrasher,
    /// Reads and writes at random.
    Rand,
    /// Cycles through the working set, one word a page.
    Sweep,
}

/// What to walk over, and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Which walk.
    pub walk: Walk,
    /// Bytes of the working set.
    pub bytes: u64,
    /// Accesses to take the time of.
    pub accesses: u64,
    /// Accesses before that.
    pub warmup: u64,
    /// Share of each page that folds away.
    pub compressible: f64,
    /// Share of accesses that write. `Walk::Thrasher` always writes.
    pub write_share: f64,
    /// Seed of contents and draws.
    pub seed: u64,
}

/// What a walk found.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Timed accesses.
    pub accesses: u64,
    /// Sum over everything that was read: equal for equal plans, whatever lies below.
    pub checksum: String,
    /// Mean time of an access.
    pub ns_per_access: f64,
    /// Half of the accesses took no longer.
    pub ns_p50: u64,
    /// 99 % took no longer.
    pub ns_p99: u64,
    /// 99.9 % took no longer.
    pub ns_p999: u64,
    /// Seconds to fill the working set.
    pub fill_s: f64,
}

/// A word that was not what was written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Page of the working set.
    pub page: u64,
    /// How often it had been written.
    pub version: u32,
}

struct Walker {
    plan: Plan,
    content: Content,
    words: Vec<u64>,
    /// How often each page has been written: four bytes a page that stay resident under any pager.
    versions: Vec<u32>,
    draw: Draw,
    next: u64,
    checksum: u64,
}

/// Fills, warms up, walks.
pub fn run(plan: Plan) -> Result<Outcome, Mismatch> {
    let mut walker = Walker::new(plan);
    let start = Instant::now();
    walker.fill();
    let fill_s = start.elapsed().as_secs_f64();
    for _ in 0..plan.warmup {
        walker.access()?;
    }
    let mut latencies = Latencies::default();
    let start = Instant::now();
    let mut before = start;
    for _ in 0..plan.accesses {
        walker.access()?;
        let now = Instant::now();
        latencies.record((now - before).as_nanos() as u64);
        before = now;
    }
    Ok(Outcome {
        accesses: plan.accesses,
        checksum: format!("{:016x}", walker.checksum),
        ns_per_access: (before - start).as_nanos() as f64 / plan.accesses.max(1) as f64,
        ns_p50: latencies.percentile(0.5),
        ns_p99: latencies.percentile(0.99),
        ns_p999: latencies.percentile(0.999),
        fill_s,
    })
}

impl Walker {
    fn new(plan: Plan) -> Self {
        let pages = pages(&plan);
        Self {
            content: Content::new(plan.seed, plan.compressible),
            words: vec![0; pages * PAGE_WORDS],
            versions: vec![0; pages],
            draw: Draw::new(plan.seed ^ 0x1234_5678),
            next: 0,
            checksum: 0,
            plan,
        }
    }

    fn fill(&mut self) {
        for (page, words) in self.words.chunks_exact_mut(PAGE_WORDS).enumerate() {
            self.content.fill(words, page as u64, 0);
        }
    }

    fn access(&mut self) -> Result<(), Mismatch> {
        let pages = self.versions.len() as u64;
        let page = match self.plan.walk {
            Walk::Rand => self.draw.below(pages),
            Walk::Thrasher | Walk::Sweep => {
                self.next = (self.next + 1) % pages;
                self.next
            }
        };
        match self.plan.walk {
            Walk::Thrasher => self.whole_page(page),
            Walk::Rand | Walk::Sweep => self.one_word(page),
        }
    }

    fn whole_page(&mut self, page: u64) -> Result<(), Mismatch> {
        let version = self.versions[page as usize];
        let words = &mut self.words[page as usize * PAGE_WORDS..][..PAGE_WORDS];
        let sum = self.content.check(words, page, version).ok_or(Mismatch { page, version })?;
        self.content.fill(words, page, version + 1);
        self.versions[page as usize] = version + 1;
        self.checksum = self.checksum.rotate_left(1) ^ sum;
        Ok(())
    }

    /// Checks a random word that is never written and the one word of the page that is; writes the latter or not.
    fn one_word(&mut self, page: u64) -> Result<(), Mismatch> {
        let version = self.versions[page as usize];
        let words = &mut self.words[page as usize * PAGE_WORDS..][..PAGE_WORDS];
        let probe = 1 + self.draw.below(PAGE_WORDS as u64 - 1) as usize;
        if words[0] != self.content.word(page, version, 0) || words[probe] != self.content.word(page, 0, probe) {
            return Err(Mismatch { page, version });
        }
        self.checksum = self.checksum.rotate_left(1) ^ words[0] ^ words[probe];
        if self.draw.chance(self.plan.write_share) {
            words[0] = self.content.word(page, version + 1, 0);
            self.versions[page as usize] = version + 1;
        }
        Ok(())
    }
}

/// Whole pages of the working set, one at least.
pub fn pages(plan: &Plan) -> usize {
    (plan.bytes as usize / (PAGE_WORDS * 8)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(walk: Walk) -> Plan {
        Plan { walk, bytes: 1 << 20, accesses: 3000, warmup: 100, compressible: 0.5, write_share: 0.5, seed: 3 }
    }

    #[test]
    fn equal_plans_give_equal_sums_and_others_do_not() {
        for walk in [Walk::Thrasher, Walk::Rand, Walk::Sweep] {
            let one = run(plan(walk)).unwrap();
            assert_eq!(one.checksum, run(plan(walk)).unwrap().checksum);
            assert_ne!(one.checksum, run(Plan { seed: 4, ..plan(walk) }).unwrap().checksum);
            assert_eq!(one.accesses, 3000);
            assert!(one.ns_p50 <= one.ns_p99 && one.ns_p99 <= one.ns_p999);
        }
    }

    #[test]
    fn a_spoiled_page_is_noticed() {
        for walk in [Walk::Thrasher, Walk::Rand, Walk::Sweep] {
            let mut walker = Walker::new(plan(walk));
            walker.fill();
            // Whole pages, as a pager would lose them: all zeros.
            walker.words[17 * PAGE_WORDS..][..PAGE_WORDS].fill(0);
            let found = (0..3000).find_map(|_| walker.access().err());
            assert_eq!(found.map(|mismatch| mismatch.page), Some(17), "{walk:?}");
        }
    }
}
