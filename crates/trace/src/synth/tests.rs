//! Each pattern is what its name says.

use std::collections::HashMap;

use super::*;

fn plan(patterns: &[&str], pages: u64, references: u64) -> Plan {
    let parts = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    Plan { parts, pages, references, writes: 0.0, seed: 1 }
}

fn pages(plan: &Plan) -> Vec<u64> {
    synthesize(plan).map(|reference| reference.page.0).collect()
}

#[test]
fn walks_in_order_are_in_order() {
    assert_eq!(pages(&plan(&["sequential"], 3, 7)), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(pages(&plan(&["strided:3"], 8, 10)), [0, 3, 6, 1, 4, 7, 2, 5, 0, 3]);
    let thrasher: Vec<_> = synthesize(&plan(&["thrasher"], 2, 5)).collect();
    assert!(thrasher.iter().map(|reference| reference.page.0).eq([0, 0, 1, 1, 0]));
    assert!(thrasher.iter().map(|reference| reference.access == Access::Write).eq([false, true, false, true, false]));
}

#[test]
fn random_walks_have_their_distributions() {
    let count = |pages: &[u64]| {
        pages.iter().fold(HashMap::new(), |mut counts: HashMap<u64, u64>, &page| {
            *counts.entry(page).or_default() += 1;
            counts
        })
    };
    for pattern in ["uniform", "rand"] {
        let counts = count(&pages(&plan(&[pattern], 100, 200_000)));
        assert!(counts.len() == 100 && counts.values().all(|n| (1700..2300).contains(n)), "{pattern}: {counts:?}");
    }
    let mut counts: Vec<u64> = count(&pages(&plan(&["zipf:1"], 100, 200_000))).into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    // The sum of 1/r up to 100 is 5.187.
    for rank in [1, 2, 4, 10] {
        let (seen, expected) = (counts[rank - 1] as f64, 200_000.0 / 5.187 / rank as f64);
        assert!((seen / expected - 1.0).abs() < 0.05, "rank {rank}: {seen} of {expected}");
    }
    let phases = pages(&plan(&["phases:4"], 1000, 40_000));
    for phase in phases.chunks(10_000) {
        assert_eq!(count(phase).len(), 100);
    }
    assert!(count(&phases).len() > 200);
}

#[test]
fn the_stack_model_has_its_distances() {
    let walk = pages(&plan(&["stack:1"], 50, 100_000));
    let mut stack: Vec<u64> = vec![];
    let mut counts = [0_u64; 50];
    let mut known = 0_u64;
    for page in walk {
        if let Some(depth) = stack.iter().rev().position(|&other| other == page) {
            known += 1;
            counts[depth] += 1;
            stack.retain(|&other| other != page);
        }
        stack.push(page);
    }
    // The sum of 1/d up to 50 is 4.499.
    for distance in [1, 2, 5, 20] {
        let (seen, expected) = (counts[distance - 1] as f64, known as f64 / 4.499 / distance as f64);
        assert!((seen / expected - 1.0).abs() < 0.08, "distance {distance}: {seen} of {expected}");
    }
}

#[test]
fn mixtures_and_seeds() {
    let mut plan = plan(&["3*sequential", "uniform"], 1 << 30, 10_000);
    plan.writes = 0.25;
    let one: Vec<_> = synthesize(&plan).collect();
    assert!(one.iter().copied().eq(synthesize(&plan)), "the same seed, another trace");
    let low = one.iter().filter(|reference| reference.page.0 < 10_000).count();
    assert!((7300..7700).contains(&low), "{low}");
    let writes = one.iter().filter(|reference| reference.access == Access::Write).count();
    assert!((2300..2700).contains(&writes), "{writes}");
    plan.seed = 2;
    assert!(!one.into_iter().eq(synthesize(&plan)), "another seed, the same trace");
}

#[test]
fn bad_patterns_are_refused() {
    for bad in ["", "zip", "zipf:x", "zipf:-1", "strided:0", "uniform:3", "phases:1.5", "0*uniform", "x*uniform", "2*"]
    {
        assert!(bad.parse::<Part>().is_err(), "{bad}");
    }
}
