//! What is kept of a trace depends on its pages, not on its length. A test alone in its process: it looks at the whole of it.
#![forbid(unsafe_code)]

use std::fs;

use page::PageCount;
use pleat_sim::replacement::{Contest, Policy};
use trace::synth::{Plan, synthesize};
use trace::{Ending, Header, Reference, Sample, TimeUnit, Trace, TraceError};

const BATCH: usize = 1 << 14;
const PAGES: u64 = 20_000;
/// Less than a byte for each further reference.
const GROWTH_BYTES_MAX: u64 = 1 << 20;

/// A trace that no file has.
struct Stream<I> {
    header: Header,
    references: I,
}

impl<I: Iterator<Item = Reference>> Trace for Stream<I> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self, batch: &mut Vec<Reference>, samples: &mut Vec<Sample>) -> Result<(), TraceError> {
        batch.clear();
        samples.clear();
        batch.extend(self.references.by_ref().take(BATCH));
        Ok(())
    }

    fn ending(&self) -> Ending {
        Ending::Open
    }
}

fn play(contest: &mut Contest, references: u64) {
    let parts = vec!["zipf:1".parse().unwrap()];
    let plan = Plan { parts, pages: PAGES, references, writes: 0.3, seed: 1 };
    let mut trace = Stream { header: Header::new(TimeUnit::References), references: synthesize(&plan) };
    contest.play(&mut trace, &mut |_| ()).unwrap();
}

fn resident_bytes_max() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_long_trace_takes_no_more_memory_than_a_short_one() {
    let policies = Policy::ALL.map(|(_, policy)| policy);
    let mut contest = Contest::new(&policies, &[PageCount(PAGES / 4), PageCount(PAGES / 2)]);
    // All pages, and the axes drawn anew several times.
    play(&mut contest, 1_000_000);
    let before = resident_bytes_max();
    play(&mut contest, 2_000_000);
    let growth = resident_bytes_max() - before;
    assert!(contest.pages().0 > PAGES * 9 / 10 && contest.scores()[0].references == 3_000_000);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more");
}
