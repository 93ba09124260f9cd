//! The estimate against plain twins, and each sentence of the paper that it implements.

use proptest::prelude::*;
use trace::Random;

use super::*;

fn sizes(bytes: impl IntoIterator<Item = usize>) -> Sizes {
    let mut sizes = Sizes::default();
    for bytes in bytes {
        sizes.push(bytes);
    }
    sizes
}

/// The probability itself: the distribution of the sum, a page at a time. Bytes are multiples of `unit`.
fn exact(sizes: &Sizes, target: f64, pages: usize, unit: usize) -> f64 {
    let mut sums = vec![1.0];
    let steps = PAGE_BYTES / unit;
    for _ in 0..pages {
        let mut next = vec![0.0; sums.len() + steps];
        for (ratio, share) in sizes.shares() {
            let step = (ratio * steps as f64).round() as usize;
            for (at, part) in sums.iter().enumerate() {
                next[at + step] += part * share;
            }
        }
        sums = next;
    }
    let most = target * (pages * steps) as f64;
    sums.iter().enumerate().filter(|(sum, _)| *sum as f64 > most + 1e-9).map(|(_, part)| part).sum()
}

/// The same by trial.
fn drawn(bytes: &[usize], target: f64, pages: usize, trials: usize) -> f64 {
    let mut random = Random::new(5);
    let mut trial = || (0..pages).map(|_| bytes[random.below(bytes.len() as u64) as usize]).sum::<usize>();
    let most = target * (pages * PAGE_BYTES) as f64;
    (0..trials).filter(|_| trial() as f64 > most).count() as f64 / trials as f64
}

/// "Approximate the probability of exceeding the target compression ratio (assuming 50%) by using statistical techniques".
#[test]
fn the_probability_of_exceeding_50_percent_is_approximated() {
    let bytes = [256, 1024, 1536, 1792, 2048, 2304, 3072, 4096];
    let sizes = sizes(bytes);
    for pages in [50, 200] {
        let estimate = sizes.estimate(0.5, PageCount(pages as u64));
        let (exact, drawn) = (exact(&sizes, 0.5, pages, 256), drawn(&bytes, 0.5, pages, 20_000));
        println!("{pages} pages: {} estimated, {exact} exactly, {drawn} drawn", estimate.probability);
        assert!((drawn - exact).abs() < 0.015, "{drawn} {exact}");
        assert!((estimate.probability - exact).abs() < 0.02, "{} {exact}", estimate.probability);
    }
}

/// "The probability of exceeding our target compression ratio of 50% can be estimated as the area under the aggregate PDF".
#[test]
fn it_is_the_area_under_the_aggregate_pdf() {
    const STEPS: u32 = 100_000;
    let sizes = sizes((0..4096).step_by(7).map(|bytes| bytes * bytes / 4096));
    let estimate = sizes.estimate(0.5, PageCount(60));
    let width = 0.5 / f64::from(STEPS);
    let pdf = |ratio: f64| {
        let z = (ratio - estimate.mean_ratio) / estimate.aggregate_deviation;
        (-z * z / 2.0).exp() / (estimate.aggregate_deviation * std::f64::consts::TAU.sqrt())
    };
    let area: f64 = (0..STEPS).map(|at| pdf(0.5 + (f64::from(at) + 0.5) * width) * width).sum();
    assert!((area / estimate.probability - 1.0).abs() < 1e-6, "{area} {estimate:?}");
}

/// "3.40 x 10^(-158)". Pages of 44 % on average, PBPM's ratio in the paper, with a deviation of 20 % (which it does not tell),
/// in the 32 MB of its machine come to such a number, which the bound does not contradict.
#[test]
fn the_papers_probability_is_of_the_size_that_its_machine_gives() {
    let estimate = sizes([4096 * 24 / 100, 4096 * 64 / 100]).estimate(0.5, PageCount(8192));
    let exponent = estimate.log10_probability.unwrap();
    assert!((-170.0..-150.0).contains(&exponent), "{estimate:?}");
    assert!(estimate.probability > 0.0 && estimate.log10_bound.unwrap() < -150.0, "{estimate:?}");
}

/// "although no guarantee that a particular set of applications produce pages with an aggregate compression ratio below a
/// particular target compression ratio".
#[test]
fn incompressible_pages_miss_the_target() {
    let noise = sizes([4096; 9]).estimate(0.5, PageCount(1000));
    assert_eq!((noise.probability, noise.log10_probability, noise.log10_bound), (1.0, Some(0.0), Some(0.0)));
    let zeros = sizes([0; 9]).estimate(0.5, PageCount(1000));
    assert_eq!((zeros.probability, zeros.log10_probability, zeros.log10_bound), (0.0, None, None));
    let mixed = sizes([0, 4096, 4096]).estimate(0.5, PageCount(1000));
    assert!(mixed.probability > 0.999_999 && mixed.log10_bound == Some(0.0), "{mixed:?}");
    // Too small for a number, but not for its logarithm.
    let tiny = sizes([0, 1000, 4096]).estimate(0.9, PageCount(1_000_000));
    assert!(tiny.probability == 0.0 && tiny.log10_probability.unwrap() < -10_000.0, "{tiny:?}");
}

proptest! {
    /// Whatever the sizes: the bound is above the true probability, and one page more or a lower target never makes the
    /// estimate better than it must be.
    #[test]
    fn the_bound_holds(steps in prop::collection::vec(0_usize..=16, 1..12), pages in 1_usize..40, target in 0.02..0.99_f64) {
        let sizes = sizes(steps.iter().map(|step| step * 256));
        let estimate = sizes.estimate(target, PageCount(pages as u64));
        let exact = exact(&sizes, target, pages, 256);
        let bound = estimate.log10_bound.map_or(0.0, |log| 10_f64.powf(log));
        prop_assert!(exact <= bound * (1.0 + 1e-9) + 1e-300, "{exact} {bound} {estimate:?}");
        prop_assert!((0.0..=1.0).contains(&estimate.probability));
        let lower = sizes.estimate(target - 0.01, PageCount(pages as u64));
        prop_assert!(lower.probability >= estimate.probability);
        prop_assert!(lower.log10_bound.unwrap_or(f64::MIN) >= estimate.log10_bound.unwrap_or(f64::MIN) - 1e-9);
    }

    /// The mean and deviation of a histogram are those of the list.
    #[test]
    fn moments_are_those_of_the_list(bytes in prop::collection::vec(0_usize..=PAGE_BYTES, 1..200)) {
        let sizes = sizes(bytes.iter().copied());
        let ratios = || bytes.iter().map(|&bytes| bytes as f64 / PAGE_BYTES as f64);
        let mean = ratios().sum::<f64>() / bytes.len() as f64;
        let variance = ratios().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / bytes.len() as f64;
        prop_assert_eq!(sizes.pages(), PageCount(bytes.len() as u64));
        prop_assert!((sizes.mean_ratio() - mean).abs() < 1e-12 && (sizes.deviation() - variance.sqrt()).abs() < 1e-9);
    }
}
