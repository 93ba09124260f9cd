//! Runs of MXT's hardware: each sentence of the paper that they implement, and what must hold of any.

use proptest::prelude::*;
use trace::synth::{Plan, synthesize};
use trace::{Header, Reducer, TimeUnit, Writer, open_lines};

use super::*;

const MIB: u64 = 1 << 20;
const LINES_PER_MIB: u64 = MIB / cache::LINE_BYTES;

/// References to lines, one every `ns` nanoseconds.
fn walk(pattern: &str, mib: u64, references: u64, ns: u64) -> Vec<Reference> {
    let parts = pattern.split(' ').map(|part| part.parse().unwrap()).collect();
    let plan = Plan { parts, pages: mib * LINES_PER_MIB, references, writes: 0.5, seed: 2 };
    synthesize(&plan).map(|reference| Reference { time: reference.time * ns, ..reference }).collect()
}

fn written(references: &[Reference], samples: &[Sample]) -> Vec<u8> {
    let header = Header { grain: Grain::Line, codecs: vec!["mxt-lz1".into()], ..Header::new(TimeUnit::Nanoseconds) };
    let mut writer = Writer::new(vec![], header).unwrap();
    for sample in samples {
        writer.push_sample(sample.clone()).unwrap();
    }
    for &reference in references {
        writer.push(reference).unwrap();
    }
    writer.finish(None).unwrap()
}

fn simulate(references: &[Reference], contents: &[Content], physical_mib: u64) -> Outcome {
    simulate_on("sata-ssd", references, contents, physical_mib)
}

fn simulate_on(device: &str, references: &[Reference], contents: &[Content], physical_mib: u64) -> Outcome {
    let device = &Device::ALL.into_iter().find(|profile| profile.name == device).unwrap();
    let machine = &Machine::ALL.into_iter().find(|profile| profile.name == "mxt").unwrap();
    let setup = Setup {
        physical: ByteCount(physical_mib * MIB),
        machine,
        latencies: &Latencies::PAPER,
        device,
        contents,
        references: references.len() as u64,
    };
    play(setup, &mut *open_lines(&written(references, &[])[..]).unwrap()).unwrap()
}

/// Without the moments.
fn told(outcome: &Outcome) -> String {
    format!("{:?}", Outcome { over_time: vec![], ..outcome.clone() })
}

/// "It hides the latency of accessing the compressed main memory", and "the last column shows that the average execution time is
/// 1.5 percent longer for the compression-on case". Figure 2: most of its programs are larger than the cache; the walk is skewed as theirs.
#[test]
fn compression_costs_a_percent_or_two() {
    let fits = simulate(&walk("uniform", 24, 400_000, 1000), &[Content::Ratio(0.43)], 512);
    // Each page comes in once, as zeros.
    assert_eq!((fits.cache_misses, fits.lines_decoded), (24 * LINES_PER_MIB, 0), "{}", told(&fits));
    let skewed = simulate(&walk("zipf:1.2", 128, 2_000_000, 1000), &[Content::Ratio(0.43)], 512);
    println!("{} % of references miss, {} % longer", skewed.cache_misses as f64 / 2e4, skewed.overhead_percent);
    assert!(skewed.lines_decoded > 1000 && (0.2..5.0).contains(&skewed.overhead_percent), "{}", told(&skewed));
    assert!(fits.overhead_percent < skewed.overhead_percent);
    let on_by_off = skewed.run_seconds / skewed.compression_off_seconds;
    assert!((on_by_off - 1.0 - skewed.overhead_percent / 100.0).abs() < 1e-9, "no page was forced out");
}

/// "while the real memory utilization has been nearly constant, the physical memory utilization varies between 170 and 300 MB as the
/// application changes the contents of the memory".
#[test]
fn physical_memory_varies_while_real_memory_does_not() {
    let contents = [0.3, 0.6, 0.3].map(Content::Ratio);
    let outcome = simulate(&walk("uniform", 100, 1_500_000, 1000), &contents, 512);
    let at = |part: f64| {
        let seconds = outcome.run_seconds * part;
        outcome.over_time.iter().rfind(|moment| moment.seconds <= seconds).unwrap()
    };
    let [early, middle, late] = [0.3, 0.66, 1.0].map(at);
    assert!(early.real_bytes == late.real_bytes && middle.real_bytes == late.real_bytes, "{early:?} {late:?}");
    let by = |one: &Moment, other: &Moment| one.physical_bytes as f64 / other.physical_bytes as f64;
    assert!(by(middle, early) > 1.3 && by(middle, late) > 1.3, "{early:?} {middle:?} {late:?}");
}

/// "We defined the average compression ratio as the time averaged real memory utilization over time averaged physical memory
/// utilization." Not the mean of ratios: long spells count for long.
#[test]
fn the_average_ratio_is_that_of_averages() {
    let outcome = simulate(&walk("uniform", 100, 1_200_000, 1000), &[Content::Ratio(0.2), Content::Ratio(1.0)], 512);
    let (mut real, mut physical) = (0.0, 0.0);
    for pair in outcome.over_time.windows(2) {
        let seconds = pair[1].seconds - pair[0].seconds;
        real += (pair[0].real_bytes + pair[1].real_bytes) as f64 * seconds;
        physical += (pair[0].physical_bytes + pair[1].physical_bytes) as f64 * seconds;
    }
    assert!(
        (outcome.average_ratio / (real / physical) - 1.0).abs() < 0.03,
        "{} {}",
        outcome.average_ratio,
        real / physical
    );
    assert!(outcome.average_ratio > 1.0, "{}", told(&outcome));
}

/// "a trivial line of 1 KB occupies only 16 bytes in the physical memory resulting in a compression ratio of 64:1".
#[test]
fn zeros_take_a_64th() {
    let walk = walk("sequential", 100, 200 * LINES_PER_MIB, 1000);
    let outcome = simulate(&walk, &[Content::Pages(vec![[10; LINES]])], 64);
    assert!((outcome.average_ratio - 64.0).abs() < 1e-9, "{}", told(&outcome));
    assert_eq!((outcome.lines_decoded, outcome.interrupts), (0, 0));
}

/// "The main problem in such a system occurs when application(s) start filling the memory with incompressible data while the operating
/// system had committed more real memory than physically available." What is done about it keeps physical memory from being
/// exhausted, and the program goes on.
#[test]
fn a_program_that_turns_incompressible_is_kept_inside() {
    let walk = walk("uniform", 200, 1_500_000, 5000);
    let contents = [Content::Ratio(0.35), Content::Ratio(1.0)];
    let outcome = simulate(&walk, &contents, 128);
    let half = outcome.over_time.iter().rfind(|moment| moment.pages_forced_out == 0).unwrap();
    // All of it was there while it was compressible: more than physical memory.
    assert!(half.real_bytes > 195 * MIB && half.physical_bytes < 110 * MIB, "{half:?}");
    // "Receives a warning interrupt", "forcing some memory freed".
    assert!(outcome.interrupts >= 1 && outcome.pages_forced_out > 10_000, "{}", told(&outcome));
    assert!(outcome.pages_read_back > 1000 && outcome.references == 1_500_000, "{}", told(&outcome));
    assert!(outcome.physical_bytes_max <= 128 * MIB, "{}", told(&outcome));
    // What is left in use at the end has room beside the lines of the cache.
    let last = outcome.over_time.last().unwrap();
    assert!(last.real_bytes < 128 * MIB && last.physical_bytes < 96 * MIB, "{last:?}");
    assert!(outcome.run_seconds > 1.2 * outcome.compression_off_seconds, "{}", told(&outcome));
    // The same again: the same to the last digit.
    assert_eq!(outcome, simulate(&walk, &contents, 128));
    // Neither the manager nor what it forced out is the hardware's overhead.
    let enough = simulate(&walk, &contents, 512);
    assert_eq!((enough.interrupts, enough.pages_forced_out), (0, 0));
    let by = outcome.compression_off_seconds / enough.compression_off_seconds;
    assert!((by - 1.0).abs() < 0.05 && outcome.overhead_percent < enough.overhead_percent * 1.1, "{by}");
    let compressible = simulate(&walk, &contents[..1], 128);
    assert_eq!((compressible.interrupts, compressible.pages_forced_out), (0, 0));
}

/// "Activates a set of busy spinning threads to stall the execution of processes that exhaust physical memory if items 2 and 3 above
/// cannot offset the increase": only where the device does not keep up.
#[test]
fn who_writes_faster_than_the_device_is_stalled() {
    let contents = [Content::Ratio(0.35), Content::Ratio(1.0)];
    let [fast, slow] =
        [100, 400_000].map(|ns| simulate_on("disk-7200", &walk("thrasher", 150, 900_000, ns), &contents, 128));
    assert!(fast.stalled_seconds > 0.0 && fast.pages_forced_out > 0, "{}", told(&fast));
    assert!(slow.stalled_seconds == 0.0 && slow.pages_forced_out > 0, "{}", told(&slow));
}

/// What was reserved is given back when there is room again.
#[test]
fn relief_gives_memory_back() {
    let contents = [0.35, 1.0, 0.2, 0.2, 0.2].map(Content::Ratio);
    let outcome = simulate(&walk("uniform", 200, 5_000_000, 2000), &contents, 128);
    let least =
        outcome.over_time.iter().skip_while(|moment| moment.pages_forced_out == 0).map(|moment| moment.real_bytes);
    let (least, last) = (least.min().unwrap(), outcome.over_time.last().unwrap());
    assert!(least < 150 * MIB && last.real_bytes > 190 * MIB, "{} MiB, {last:?}", least / MIB);
}

/// A trace that was reduced for four lines misses as the whole one: no set of four lines notices.
#[test]
fn a_reduced_trace_misses_as_the_whole_one() {
    let whole = walk("stack:2 zipf:1", 80, 600_000, 1000);
    let (mut reduced, mut reducer) = (Vec::new(), Reducer::new(4));
    let mut keep = |reference| {
        reduced.push(reference);
        Ok::<(), ()>(())
    };
    for &reference in &whole {
        reducer.push(reference, &mut keep).unwrap();
    }
    reducer.finish(&mut keep).unwrap();
    assert!(reduced.len() < whole.len() * 19 / 20, "{} of {}", reduced.len(), whole.len());
    let [all, less] = [&whole, &reduced].map(|trace| simulate(trace, &[Content::Ratio(0.4)], 512));
    assert_eq!(
        (all.cache_misses, all.lines_decoded, all.lines_written_back),
        (less.cache_misses, less.lines_decoded, less.lines_written_back)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever the program does: physical memory is enough (which is asserted at each line that is written back), each page is
    /// somewhere, and time only grows.
    #[test]
    fn physical_memory_is_never_exhausted(
        pattern in prop::sample::select(vec!["uniform", "zipf:0.5", "sequential", "thrasher", "phases:5"]),
        ratios in prop::collection::vec(0.0..1.3_f64, 1..4),
        (mib, physical, ns) in (20_u64..200, 64_u64..100, 1_u64..20_000),
        device in prop::sample::select(vec!["nvme", "disk-7200"]),
    ) {
        let contents: Vec<Content> = ratios.into_iter().map(Content::Ratio).collect();
        let outcome = simulate_on(device, &walk(pattern, mib, 200_000, ns), &contents, physical);
        prop_assert!(outcome.physical_bytes_max <= physical * MIB, "{}", told(&outcome));
        let last = outcome.over_time.last().unwrap();
        let resident = outcome.trace_pages + outcome.pages_read_back - outcome.pages_forced_out;
        prop_assert_eq!(last.real_bytes, resident * PAGE_BYTES as u64);
        prop_assert!(outcome.over_time.iter().all(|moment| moment.real_bytes <= 2 * physical * MIB));
        prop_assert!(outcome.over_time.is_sorted_by(|one, next| one.seconds < next.seconds));
        prop_assert!(outcome.run_seconds >= outcome.compression_off_seconds + outcome.stalled_seconds);
        prop_assert!(outcome.cache_misses >= 4 * outcome.trace_pages);
    }
}

#[test]
fn samples_decide_how_small_lines_get() {
    let samples: Vec<Sample> =
        (0..25_600).map(|page| Sample { page: page::PageIndex(page), sizes: vec![1024] }).collect();
    let references: Vec<Reference> = walk("sequential", 100, 300 * LINES_PER_MIB, 1000)
        .into_iter()
        .map(|reference| Reference { access: Access::Write, ..reference })
        .collect();
    let setup = Setup {
        physical: ByteCount(128 * MIB),
        machine: &Machine::ALL[4],
        latencies: &Latencies::PAPER,
        device: &Device::ALL[0],
        contents: &[Content::Ratio(1.0)],
        references: references.len() as u64,
    };
    let outcome = play(setup, &mut *open_lines(&written(&references, &samples)[..]).unwrap()).unwrap();
    // A sector for each line: those in the cache keep theirs.
    let last = outcome.over_time.last().unwrap();
    assert_eq!(last.physical_bytes, 100 * LINES_PER_MIB * (256 + 16), "{last:?}");
}
