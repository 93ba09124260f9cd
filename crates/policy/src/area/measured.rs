//! What faults cost, as measured: means of what has happened since the look before.

use super::marginal::Costs;

/// Faults of a kind since the last look that make a mean.
const FAULTS_MIN: u64 = 16;
/// What they count for until there has been one.
const AT_FIRST: Costs = Costs { compressed_ns: 10_000, below_ns: 200_000 };
/// What a fault takes besides being served: its way through the kernel, two changes of thread, and moving another page out
/// (docs/userfaultfd.md).
const FAULT_NS: u64 = 8_000;

/// How many, and what they took together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Sum {
    /// One more.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns += ns;
    }

    /// The mean since `before`, if that is long enough ago.
    fn mean_since(self, before: &mut Self) -> Option<u64> {
        let count = self.count.saturating_sub(before.count);
        let mean = (count >= FAULTS_MIN).then(|| self.ns.saturating_sub(before.ns) / count);
        if mean.is_some() {
            *before = self;
        }
        mean
    }
}

/// All that has been measured so far: sums that only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Faults on compressed pages, from when they are seen until they are served.
    pub compressed: Sum,
    /// Those on pages that are below.
    pub below: Sum,
    /// Pages encoded.
    pub encoded: Sum,
}

/// The latest means.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    served: Costs,
    encode_ns: u64,
    before: Sums,
}

impl Default for Measured {
    fn default() -> Self {
        Self { served: AT_FIRST, encode_ns: 0, before: Sums::default() }
    }
}

impl Measured {
    /// What pages cost that are asked for, with what has been measured until now: whatever comes back makes another page leave, which has to
    /// be encoded.
    pub fn costs(&mut self, now: &Sums) -> Costs {
        let Self { served, encode_ns, before } = self;
        served.compressed_ns = now.compressed.mean_since(&mut before.compressed).unwrap_or(served.compressed_ns);
        served.below_ns = now.below.mean_since(&mut before.below).unwrap_or(served.below_ns);
        *encode_ns = now.encoded.mean_since(&mut before.encoded).unwrap_or(*encode_ns);
        let beside = FAULT_NS + *encode_ns;
        Costs { compressed_ns: served.compressed_ns + beside, below_ns: served.below_ns + beside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_what_has_happened_since() {
        let mut measured = Measured::default();
        let mut sums = Sums::default();
        assert_eq!(measured.costs(&sums), Costs { compressed_ns: 18_000, below_ns: 208_000 });
        (0..16).for_each(|_| sums.compressed.add(2000));
        (0..100).for_each(|_| sums.encoded.add(500));
        assert_eq!(measured.costs(&sums), Costs { compressed_ns: 10_500, below_ns: 208_500 });
        // Fifteen are too few, and wait for the sixteenth.
        (0..15).for_each(|_| sums.compressed.add(6000));
        sums.below = Sum { count: 20, ns: 1_000_000 };
        assert_eq!(measured.costs(&sums), Costs { compressed_ns: 10_500, below_ns: 58_500 });
        sums.compressed.add(6000);
        assert_eq!(measured.costs(&sums), Costs { compressed_ns: 14_500, below_ns: 58_500 });
    }
}
