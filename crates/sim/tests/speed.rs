//! How fast replacement is simulated. Not part of the suite: it takes two minutes and wants the machine for itself.
//!
//! `RAYON_NUM_THREADS=1 cargo test --release -p pleat-sim --test speed -- --ignored --nocapture`
#![forbid(unsafe_code)]

use std::fs;

use page::PageCount;
use pleat_sim::replacement::{Contest, Policy};
use trace::synth::{Plan, synthesize};
use trace::{Header, TimeUnit, Writer};

const REFERENCES: u64 = 10_000_000;
/// 256 MiB, and 4 GiB.
const PAGES: [u64; 2] = [1 << 16, 1 << 20];

#[test]
#[ignore = "a measurement"]
fn references_a_second() {
    let names = Policy::ALL.map(|(name, _)| name).join(" | ");
    println!("\nmillions of references in a second of processor time\n");
    println!("| trace | pages | reading alone | lru, 16 sizes | {names} |");
    for (pages, pattern) in
        PAGES.iter().flat_map(|&pages| ["zipf:1", "stack:1.5", "sequential", "uniform"].map(|pattern| (pages, pattern)))
    {
        let parts = vec![pattern.parse().unwrap()];
        let plan = Plan { parts, pages, references: REFERENCES, writes: 0.3, seed: 1 };
        let mut writer = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
        for reference in synthesize(&plan) {
            writer.push(reference).unwrap();
        }
        let bytes = writer.finish(None).unwrap();
        let played = |policies: &[Policy], sizes: &[u64]| {
            let sizes: Vec<PageCount> = sizes.iter().map(|&size| PageCount(size)).collect();
            let mut contest = Contest::new(policies, &sizes);
            let begun = processor_seconds();
            contest.play(&mut *trace::open(&bytes[..]).unwrap(), &mut |_| ()).unwrap();
            let seconds = processor_seconds() - begun;
            assert_eq!(contest.scores().len(), policies.len() * sizes.len());
            format!("{:.1}", REFERENCES as f64 / seconds / 1e6)
        };
        let sixteen: Vec<u64> = (1..=16).map(|part| part * pages / 16).collect();
        let mut cells = vec![played(&[], &[]), played(&[Policy::Lru], &sixteen)];
        cells.extend(Policy::ALL.map(|(_, policy)| played(&[policy], &[pages / 2])));
        println!("| {pattern} | {pages} | {} |", cells.join(" | "));
    }
}

/// User and system time of this process: the machine may have other work.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in hundredths of a second; the first one behind the name is 3.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
