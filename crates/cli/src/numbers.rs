//! Numbers of one process, or of all of them: read from the ledger, added up, and written as JSON.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use codec::MAKERS;
use page::{ByteCount, PAGE_BYTES};
use pager::ledger::{BUCKETS, Counter, FaultKind, Gauge, Histogram, Process};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The gauges that make up a footprint, as in [`Process::footprint`].
const FOOTPRINT: [Gauge; 4] = [Gauge::ResidentBytes, Gauge::PoolBytes, Gauge::MetadataBytes, Gauge::AgentBytes];

/// The states a page can be in, by their gauges and their names in `pages`.
const PAGE_STATES: [(&str, Gauge); 7] = [
    ("resident", Gauge::PagesResident),
    ("leaving", Gauge::PagesLeaving),
    ("compressed", Gauge::PagesCompressed),
    ("incompressible", Gauge::PagesIncompressible),
    ("same_filled", Gauge::PagesSameFilled),
    ("writing_back", Gauge::PagesWritingBack),
    ("backed", Gauge::PagesBacked),
];

/// A copy of what a ledger's entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Numbers {
    gauges: [u64; Gauge::ALL.len()],
    peaks: [u64; Gauge::ALL.len()],
    footprint_peak: u64,
    counters: [u64; Counter::ALL.len()],
    encodings: [u64; MAKERS.len()],
    encoded_bytes: [u64; MAKERS.len()],
    /// The buckets that are not empty, kind by kind: of a thousand processes most have none, and all of this is in the budget.
    faults: BTreeMap<u16, u64>,
}

impl Numbers {
    /// All zero.
    pub(crate) fn zero() -> Self {
        Self {
            gauges: [0; Gauge::ALL.len()],
            peaks: [0; Gauge::ALL.len()],
            footprint_peak: 0,
            counters: [0; Counter::ALL.len()],
            encodings: [0; MAKERS.len()],
            encoded_bytes: [0; MAKERS.len()],
            faults: BTreeMap::new(),
        }
    }

    /// Reads an entry. Relaxed: each number is a statistic, true by itself.
    pub(crate) fn of(entry: &Process) -> Self {
        let mut numbers = Self::zero();
        for (copy, gauge) in numbers.gauges.iter_mut().zip(&entry.gauges) {
            *copy = gauge.load(Relaxed);
        }
        for (copy, peak) in numbers.peaks.iter_mut().zip(&entry.peaks) {
            *copy = peak.load(Relaxed);
        }
        for (copy, counter) in numbers.counters.iter_mut().zip(&entry.counters) {
            *copy = counter.load(Relaxed);
        }
        for (copy, count) in numbers.encodings.iter_mut().zip(&entry.encodings) {
            *copy = count.load(Relaxed);
        }
        for (copy, bytes) in numbers.encoded_bytes.iter_mut().zip(&entry.encoded_bytes) {
            *copy = bytes.load(Relaxed);
        }
        let buckets = entry.faults.iter().flat_map(|histogram| &histogram.buckets);
        let counts = (0..).zip(buckets.map(|bucket| u64::from(bucket.load(Relaxed))));
        numbers.faults = counts.filter(|(_, count)| *count > 0).collect();
        numbers.footprint_peak = entry.footprint_peak.load(Relaxed);
        numbers
    }

    /// Sets the resident memory of a process whose agent does not count it yet.
    pub(crate) fn set_resident(&mut self, now: ByteCount, peak: ByteCount) {
        self.gauges[Gauge::ResidentBytes as usize] = now.0;
        self.raise_resident_peak(peak);
    }

    /// Brings in a peak that was seen from outside.
    pub(crate) fn raise_resident_peak(&mut self, peak: ByteCount) {
        let resident = &mut self.peaks[Gauge::ResidentBytes as usize];
        *resident = peak.0.max(*resident);
        self.footprint_peak = self.footprint_peak.max(peak.0);
    }

    /// A dead process holds nothing; its peaks and counters stay.
    pub(crate) fn clear_gauges(&mut self) {
        self.gauges = [0; Gauge::ALL.len()];
    }

    /// Adds another's gauges, counters and faults. Peaks of different processes come at different times and do not
    /// add up: the larger stays.
    pub(crate) fn add(&mut self, other: &Self) {
        let sums = self.gauges.iter_mut().zip(&other.gauges).chain(self.counters.iter_mut().zip(&other.counters));
        let codecs = self.encodings.iter_mut().zip(&other.encodings);
        let codecs = codecs.chain(self.encoded_bytes.iter_mut().zip(&other.encoded_bytes));
        sums.chain(codecs).for_each(|(sum, number)| *sum += number);
        for (bucket, number) in &other.faults {
            *self.faults.entry(*bucket).or_default() += number;
        }
        self.raise_peaks(&other.peaks, other.footprint_peak);
    }

    /// Raises the peaks to those given.
    pub(crate) fn raise_peaks(&mut self, peaks: &[u64; Gauge::ALL.len()], footprint: u64) {
        self.peaks.iter_mut().zip(peaks).for_each(|(mine, peak)| *mine = peak.max(mine).to_owned());
        self.footprint_peak = self.footprint_peak.max(footprint);
    }

    pub(crate) fn gauges(&self) -> &[u64; Gauge::ALL.len()] {
        &self.gauges
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize]
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// What is held of the budget.
    pub(crate) fn footprint(&self) -> ByteCount {
        ByteCount(FOOTPRINT.iter().map(|gauge| self.gauge(*gauge)).sum())
    }

    pub(crate) fn footprint_peak(&self) -> ByteCount {
        ByteCount(self.footprint_peak)
    }

    pub(crate) fn faults(&self, kind: FaultKind) -> Faults {
        let first = first_bucket(kind);
        let mut buckets = [0; BUCKETS];
        for (bucket, count) in self.faults.range(first..first + BUCKETS as u16) {
            buckets[usize::from(bucket - first)] = *count;
        }
        Faults::of(&buckets)
    }

    /// Bytes of the pages in the pool and in the swap file.
    pub(crate) fn held_bytes(&self) -> u64 {
        let held = [Gauge::PagesCompressed, Gauge::PagesIncompressible, Gauge::PagesWritingBack, Gauge::PagesBacked];
        held.iter().map(|gauge| self.gauge(*gauge)).sum::<u64>() * PAGE_BYTES as u64
    }

    /// Held bytes by the bytes they take; `None` when nothing is held.
    pub(crate) fn effective_ratio(&self) -> Option<f64> {
        let taken = self.gauge(Gauge::PoolBytes) + self.gauge(Gauge::SwapFileBytes);
        let held = self.held_bytes();
        (held > 0 && taken > 0).then(|| held as f64 / taken as f64)
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("footprint_bytes", &self.footprint().0)?;
        map.serialize_entry("footprint_bytes_peak", &self.footprint_peak)?;
        for gauge in Gauge::ALL {
            map.serialize_entry(gauge.name(), &self.gauge(*gauge))?;
            map.serialize_entry(&format!("{}_peak", gauge.name()), &self.peaks[*gauge as usize])?;
        }
        for counter in Counter::ALL {
            map.serialize_entry(counter.name(), &self.counter(*counter))?;
        }
        map.serialize_entry("pages", &PageStates(self))?;
        map.serialize_entry("codecs", &Codecs(self))?;
        map.serialize_entry("faults", &FaultKinds(self))?;
        map.serialize_entry("effective_ratio", &self.effective_ratio())?;
        map.end()
    }
}

struct PageStates<'a>(&'a Numbers);

impl Serialize for PageStates<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(PAGE_STATES.iter().map(|(name, gauge)| (name, self.0.gauge(*gauge))))
    }
}

/// Those that have made an encoding.
struct Codecs<'a>(&'a Numbers);

/// What one codec has made.
#[derive(Serialize)]
struct Made {
    encodings: u64,
    bytes: u64,
}

impl Serialize for Codecs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Numbers { encodings, encoded_bytes, .. } = self.0;
        let made = encodings.iter().zip(encoded_bytes).map(|(&encodings, &bytes)| Made { encodings, bytes });
        serializer.collect_map(MAKERS.iter().zip(made).filter(|(_, made)| made.encodings > 0))
    }
}

struct FaultKinds<'a>(&'a Numbers);

impl Serialize for FaultKinds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FaultKind::ALL.iter().map(|kind| (kind.name(), self.0.faults(*kind))))
    }
}

/// Faults of one kind. A percentile is the upper bound of its bucket, at most 25 % above the true one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Faults {
    pub(crate) count: u64,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) p999_ns: Option<u64>,
}

impl Faults {
    fn of(buckets: &[u64; BUCKETS]) -> Self {
        let count = buckets.iter().sum();
        let at = |per_mille| percentile(buckets, count, per_mille);
        Self { count, p50_ns: at(500), p99_ns: at(990), p999_ns: at(999) }
    }
}

/// Where the buckets of a kind begin among those of all.
const fn first_bucket(kind: FaultKind) -> u16 {
    kind as u16 * BUCKETS as u16
}

/// The latency that `per_mille` of the faults did not exceed.
fn percentile(buckets: &[u64; BUCKETS], count: u64, per_mille: u64) -> Option<u64> {
    let rank = (count * per_mille).div_ceil(1000).max(1);
    let mut below = 0;
    let bucket = buckets.iter().position(|number| {
        below += number;
        below >= rank
    })?;
    Some(Histogram::upper_ns(bucket))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Numbers {
        /// Numbers that differ everywhere, for tests.
        pub(crate) fn sample(seed: u64) -> Self {
            let mut numbers = Self::zero();
            for (i, gauge) in numbers.gauges.iter_mut().enumerate() {
                *gauge = seed * 1000 + i as u64;
            }
            numbers.peaks = numbers.gauges.map(|gauge| gauge * 2);
            for (i, counter) in numbers.counters.iter_mut().enumerate() {
                *counter = seed * 77 + i as u64;
            }
            for (i, (count, bytes)) in numbers.encodings.iter_mut().zip(&mut numbers.encoded_bytes).enumerate() {
                (*count, *bytes) = (seed + i as u64, seed * 100 + i as u64);
            }
            for (i, kind) in FaultKind::ALL.iter().enumerate() {
                numbers.faults.insert(first_bucket(*kind) + 20 + i as u16, seed);
            }
            numbers.footprint_peak = seed * 5000;
            numbers
        }
    }

    #[test]
    fn every_page_state_is_listed() {
        let listed: Vec<_> = PAGE_STATES.iter().map(|(name, gauge)| (format!("pages_{name}"), gauge.name())).collect();
        assert!(listed.iter().all(|(state, gauge)| state == gauge));
        assert_eq!(listed.len(), Gauge::ALL.iter().filter(|gauge| gauge.name().starts_with("pages_")).count());
    }

    #[test]
    fn ratio() {
        let mut numbers = Numbers::zero();
        assert_eq!(numbers.effective_ratio(), None);
        numbers.gauges[Gauge::PagesCompressed as usize] = 2;
        numbers.gauges[Gauge::PagesBacked as usize] = 1;
        numbers.gauges[Gauge::PoolBytes as usize] = 4096;
        assert_eq!(numbers.effective_ratio(), Some(3.0));
    }

    #[test]
    fn percentiles_of_nothing() {
        let faults = Numbers::zero().faults(FaultKind::Staged);
        assert_eq!(faults, Faults { count: 0, p50_ns: None, p99_ns: None, p999_ns: None });
    }

    proptest! {
        /// Histograms of several processes, merged, against all latencies sorted.
        #[test]
        fn percentiles_of_merged_histograms(processes in prop::collection::vec(
            prop::collection::vec(1_u64..10_000_000_000, 1..300), 1..5,
        )) {
            let mut sum = Numbers::zero();
            for latencies in &processes {
                let mut numbers = Numbers::zero();
                for ns in latencies {
                    let bucket = first_bucket(FaultKind::Backed) + Histogram::bucket_of(*ns) as u16;
                    *numbers.faults.entry(bucket).or_default() += 1;
                }
                sum.add(&numbers);
            }
            let mut all: Vec<_> = processes.concat();
            all.sort_unstable();
            let faults = sum.faults(FaultKind::Backed);
            prop_assert_eq!(faults.count, all.len() as u64);
            for (shown, per_mille) in [(faults.p50_ns, 500), (faults.p99_ns, 990), (faults.p999_ns, 999)] {
                let exact = all[(all.len() * per_mille).div_ceil(1000) - 1];
                let shown = shown.unwrap();
                prop_assert!(exact < shown && shown as f64 <= exact as f64 * 1.25 + 1.0, "{} {}", exact, shown);
            }
        }
    }
}
