//! Areas under the normal density.

/// From here on outwards the continued fraction is used; nearer to the mean the series, which loses no digits there.
const FAR: f64 = 3.0;
/// Enough at `FAR`, where it converges slowest, for all digits of a number.
const FRACTIONS: u32 = 300;

/// The logarithm of the area above `z` under the density with mean 0 and deviation 1. Also where the area itself is too
/// small for a number.
pub(super) fn ln_tail(z: f64) -> f64 {
    if z >= FAR {
        // Laplace: density / (z + 1 / (z + 2 / (z + 3 / ...))).
        let fraction = (1..=FRACTIONS).rev().fold(z, |below, number| z + f64::from(number) / below);
        ln_density(z) - fraction.ln()
    } else if z <= -FAR {
        (-ln_tail(-z).exp()).ln_1p()
    } else {
        (0.5 - from_mean(z)).ln()
    }
}

fn ln_density(z: f64) -> f64 {
    -0.5 * (z * z + std::f64::consts::TAU.ln())
}

/// The area from 0 to `z`: density * (z + z^3 / 3 + z^5 / (3 * 5) + ...).
fn from_mean(z: f64) -> f64 {
    let (mut term, mut sum) = (z, z);
    let mut odd = 1.0;
    while term.abs() > f64::EPSILON * sum.abs() {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    ln_density(z).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The area as a sum of narrow trapezia, as far out as it counts.
    fn plain_tail(z: f64) -> f64 {
        const STEPS: usize = 400_000;
        let width = (12.0 / (1.0 + z.max(0.0)) + (-z).max(0.0) + 10.0) / STEPS as f64;
        let heights = (0..=STEPS).map(|at| ln_density(z + at as f64 * width).exp() * width);
        heights.enumerate().map(|(at, area)| if at % STEPS == 0 { area / 2.0 } else { area }).sum()
    }

    #[test]
    fn areas_are_those_of_the_plain_sum() {
        for step in -60..=120 {
            let z = f64::from(step) / 10.0;
            let (fast, plain) = (ln_tail(z).exp(), plain_tail(z));
            assert!((fast / plain - 1.0).abs() < 1e-8, "{z}: {fast} {plain}");
        }
    }

    /// From printed tables, and where the area has no number: its leading term is the density over `z`.
    #[test]
    fn known_areas() {
        for (z, area) in
            [(0.0, 0.5), (1.0, 0.158_655_253_931_457), (1.959_963_984_540_054, 0.025), (5.0, 2.866_515_718_791_9e-7)]
        {
            assert!((ln_tail(z).exp() / area - 1.0).abs() < 1e-12, "{z}: {}", ln_tail(z).exp());
            assert!((ln_tail(-z).exp() / (1.0 - area) - 1.0).abs() < 1e-12, "{z}");
        }
        assert!((ln_tail(1e6) - (ln_density(1e6) - 1e6_f64.ln())).abs() < 1e-3);
        assert!((ln_tail(FAR) - ln_tail(FAR - 1e-12)).abs() < 1e-11);
    }
}
