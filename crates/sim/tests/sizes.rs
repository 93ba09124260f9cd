//! Sizing against a sweep of fixed sizes, as in Figures 4 and 5 of `tuduce-gross`: on the best of nine a policy must come near
//! without knowing it. docs/systems.md has more traces and sizes, and those where it does not.
#![forbid(unsafe_code)]

use cache::system::{SizingName, System as Parts};
use page::{ByteCount, PAGE_BYTES};
use pleat_sim::timed::{Device, Machine, Setup, System, play};
use trace::synth::{Plan, synthesize};
use trace::{Header, TimeUnit, Writer};

fn trace(pattern: &str, pages: u64, references: u64) -> Vec<u8> {
    let parts = vec![pattern.parse().unwrap()];
    let mut writer = Writer::new(vec![], Header::new(TimeUnit::References)).unwrap();
    let plan = Plan { parts, pages, references, writes: 0.25, seed: 1 };
    synthesize(&plan).for_each(|reference| writer.push(reference).unwrap());
    writer.finish(None).unwrap()
}

fn seconds(trace: &[u8], system: System, ram: ByteCount, pool: ByteCount) -> f64 {
    let setup = Setup { system, ram, machine: &Machine::ALL[0], device: &Device::ALL[0], ratio: 0.4, pool };
    play(setup, &mut *trace::open(trace).unwrap()).unwrap().run_seconds
}

/// How many times as long as with the best of nine sizes it takes.
fn by_best(name: &'static str, pattern: &str, pages: u64, part: f64, references: u64) -> f64 {
    let trace = trace(pattern, pages, references);
    let ram = ByteCount((pages as f64 * part) as u64 * PAGE_BYTES as u64);
    let system = System::named(name).unwrap();
    let fixed = System::Cached(name, Parts { sizing: SizingName::Fixed, ..system.parts().unwrap() });
    let sizes = (1..10).map(|tenths| ByteCount(ram.0 / 10 * tenths));
    let times: Vec<f64> = sizes.map(|pool| seconds(&trace, fixed, ram, pool)).collect();
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let own = seconds(&trace, system, ram, ByteCount::ZERO);
    println!("{name}, {pattern} in {part}: {own:.3} s, {times:.3?} with fixed sizes");
    own / best
}

/// Figures 4 and 5: what it finds by itself is near the best size that was found by trying.
#[test]
fn free_space_is_within_5_percent_of_the_best_fixed_size() {
    const PAGES: u64 = 16_384;
    // 13 MiB would be less than a process may have: the log's buffers are a quarter of it.
    let cases =
        [("zipf:1", PAGES, 0.3), ("zipf:1", PAGES, 0.5), ("stack:1.3", 2 * PAGES, 0.2), ("thrasher", PAGES, 0.9)];
    for (pattern, pages, part) in cases {
        let times = by_best("tuduce-gross", pattern, pages, part, 100_000);
        assert!(times <= 1.05, "{pattern} in {part}: {times}");
    }
}

#[test]
fn marginal_is_within_2_percent_of_the_best_fixed_size() {
    for (pattern, part) in [("zipf:1", 0.5), ("rand", 0.3), ("stack:1.3", 0.2), ("thrasher", 0.7)] {
        // It finds out by and by: over half as many references it is 3 % behind.
        let times = by_best("pleat", pattern, 32_768, part, 400_000);
        assert!(times <= 1.02, "{pattern} in {part}: {times}");
    }
}
