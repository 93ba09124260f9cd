//! A whole measurement: warm, then cold, then the report.

use std::fmt;

use page::{ByteCount, PageBytes};

use crate::clock::Clock;
use crate::figures::Samples;
use crate::pages::Source;
use crate::report::Report;
use crate::subjects::Subject;
use crate::{cold, warm};

/// What to measure.
pub struct Plan {
    /// The pages.
    pub sources: Vec<Source>,
    /// The codecs, with the references.
    pub subjects: Vec<Box<dyn Subject>>,
    /// How much memory the pages take among which cold times are measured; zero for none.
    pub cold: ByteCount,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What is measured now.
    pub what: &'static str,
    /// Parts that are done, of all.
    pub done: usize,
    /// All parts.
    pub of: usize,
}

/// A codec did not bring a page back: that is a bug of the codec, and its figures would mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct WrongPage {
    /// Its name.
    pub codec: &'static str,
}

impl fmt::Display for WrongPage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: a page does not come back as it was", self.codec)
    }
}

impl std::error::Error for WrongPage {}

/// Measures, and says between the parts how far it is.
pub fn run(mut plan: Plan, mut progress: impl FnMut(Step)) -> Result<Report, WrongPage> {
    let clock = Clock::new();
    // Pages of one file that lie together would let the processor learn them: batches go across files.
    let placed = interleaved(&plan.sources);
    let pages: Vec<&PageBytes> = placed.iter().map(|&(file, page)| &plan.sources[file].pages[page]).collect();
    let mut samples = vec![vec![Samples::default(); plan.sources.len()]; plan.subjects.len()];

    let mut bench = warm::Bench::new(clock);
    let batches = pages.len().div_ceil(warm::BATCH_PAGES);
    for (done, (batch, placed)) in pages.chunks(warm::BATCH_PAGES).zip(placed.chunks(warm::BATCH_PAGES)).enumerate() {
        progress(Step { what: "warm", done, of: batches });
        for (subject, samples) in plan.subjects.iter_mut().zip(&mut samples) {
            for (taken, &(file, _)) in bench.time(subject.as_mut(), batch)?.into_iter().zip(placed) {
                samples[file].encoded_bytes.push(taken.encoded_bytes as u64);
                samples[file].encode_ns.push(taken.encode_ns);
                samples[file].decode_ns.push(taken.decode_ns);
            }
        }
    }
    if plan.cold.0 > 0 {
        let mut bench = cold::Bench::new(plan.cold, clock);
        let of = plan.subjects.len();
        for (done, (subject, samples)) in plan.subjects.iter_mut().zip(&mut samples).enumerate() {
            progress(Step { what: "cold", done, of });
            for (page, ns) in bench.time(subject.as_mut(), &pages)? {
                samples[placed[page].0].cold_decode_ns.push(ns);
            }
        }
    }
    let names: Vec<_> = plan.subjects.iter().map(|subject| subject.name()).collect();
    Ok(Report::new(&plan.sources, &names, &samples, plan.cold))
}

/// File and place of each page: eight neighbours of one file, then of the next.
fn interleaved(sources: &[Source]) -> Vec<(usize, usize)> {
    const NEIGHBOURS: usize = 8;
    let longest = sources.iter().map(|source| source.pages.len()).max().unwrap_or(0);
    let mut placed = Vec::new();
    for start in (0..longest).step_by(NEIGHBOURS) {
        for (file, source) in sources.iter().enumerate() {
            let end = source.pages.len().min(start + NEIGHBOURS);
            placed.extend((start..end).map(|page| (file, page)));
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::built_in;
    use crate::subjects::{ROOM_BYTES, choose};
    use codec::Corrupt;

    #[test]
    fn every_page_is_measured_once() {
        let mut sources = built_in();
        sources[1].pages.truncate(3);
        sources[2].pages.clear();
        let mut placed = interleaved(&sources);
        assert_eq!(placed.len(), 120 - 5 - 8);
        placed.dedup();
        placed.sort_unstable();
        assert!(placed.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn the_built_in_pages_with_some_codecs() {
        let wanted = ["fold", "zstd-1"].map(str::to_owned);
        let plan = Plan { sources: built_in(), subjects: choose(&wanted).unwrap().subjects, cold: ByteCount(4 << 20) };
        let mut steps = Vec::new();
        let report = run(plan, |step| steps.push((step.what, step.done, step.of))).unwrap();
        assert!(steps.contains(&("warm", 0, 2)) && steps.contains(&("cold", 3, 4)), "{steps:?}");
        // Four codecs; HEAP, ALL and fifteen files.
        assert_eq!(report.results.len(), 4 * 17);
        for result in &report.results {
            let is_memcpy = result.codec == "memcpy";
            assert!(is_memcpy == (result.ratio > 0.99), "{result:?}");
            assert!(result.decode_ns_p50 <= result.decode_ns_p99, "{result:?}");
            assert!(result.encode_ns_mean > 0.0 && result.decode_ns_mean > 0.0, "{result:?}");
            assert!(result.cold_decode_ns_p50.unwrap() > 0, "{result:?}");
        }
        let mean = |codec: &str| report.result(codec, "ALL").unwrap().encode_ns_mean;
        assert!(mean("memcpy") < mean("lz4") && mean("lz4") < mean("zstd-1"), "{report:?}");
    }

    /// Decodes each page with its first byte wrong.
    struct Spoiling;

    impl Subject for Spoiling {
        fn name(&self) -> &'static str {
            "spoiling"
        }

        fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
            out[0] = page.0[0];
            Some(1)
        }

        fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
            page.0[0] = !encoding[0];
            Ok(())
        }
    }

    /// The canary: were pages not compared, this would be the best codec of all.
    #[test]
    fn canary_a_codec_that_spoils_pages_has_no_figures() {
        let plan = Plan { sources: built_in(), subjects: vec![Box::new(Spoiling)], cold: ByteCount(0) };
        assert_eq!(run(plan, |_| ()).unwrap_err().codec, "spoiling");
    }
}
