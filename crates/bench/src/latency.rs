//! Latencies in buckets: eight for each power of two, so that a percentile is right within 9 %.

const SUB_BITS: u32 = 3;
const BUCKETS: usize = 64 << SUB_BITS;

/// Counts of latencies in nanoseconds.
#[derive(Debug)]
pub struct Latencies {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
    }

    /// The latency that `share` of all stay at or below (the upper edge of its bucket); 0 if nothing was counted.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (share * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return upper(at);
            }
        }
        0
    }
}

const fn bucket(ns: u64) -> usize {
    if ns < 1 << SUB_BITS {
        return ns as usize;
    }
    let exponent = ns.ilog2();
    (((exponent - SUB_BITS + 1) << SUB_BITS) as usize) + ((ns >> (exponent - SUB_BITS)) & 7) as usize
}

const fn upper(bucket: usize) -> u64 {
    if bucket < 1 << SUB_BITS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((((bucket & 7) as u64 + 9) << shift) - 1) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_falls_into_them() {
        for ns in (0..100_000).chain([1 << 33, (1 << 40) + 17]) {
            let at = bucket(ns);
            assert!(ns <= upper(at) && (at == 0 || ns > upper(at - 1)), "{ns} in {at}");
        }
    }

    #[test]
    fn percentiles() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(0.5), 0);
        for ns in 1..=1000 {
            latencies.record(ns);
        }
        let median = latencies.percentile(0.5);
        assert!((500..550).contains(&median), "{median}");
        assert!((999..1100).contains(&latencies.percentile(0.999)));
    }
}
