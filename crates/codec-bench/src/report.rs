//! What came out: a document for programs, tables for people.

use std::fmt::Write as _;

use page::{ByteCount, PAGE_BYTES};
use serde::Serialize;

use crate::figures::{Samples, Set, mean, percentile, sets};
use crate::machine::{COMMIT, Machine, unix_seconds};
use crate::pages::{SETS, Source};
use crate::subjects::{LZ4, MEMCPY};

/// A measurement.
#[derive(Clone, Serialize, Debug)]
pub struct Report {
    /// Of pleat.
    pub version: &'static str,
    /// That pleat was built from; empty if that is not known.
    pub commit: &'static str,
    /// When the measurement ended.
    pub unix_seconds: u64,
    /// Where it was made.
    pub machine: Machine,
    /// Memory among which cold times were measured.
    pub cold_bytes: u64,
    /// The files, and which of their pages were measured.
    pub files: Vec<File>,
    /// One for each codec and set.
    pub results: Vec<Figures>,
}

/// A file that pages were taken from.
#[derive(Clone, Serialize, Debug)]
pub struct File {
    /// Its set.
    pub name: String,
    /// Pages that were measured.
    pub pages: u64,
    /// Pages of the sample that were left out, because they are all zero.
    pub zero_pages: u64,
    /// Pages of the file.
    pub file_pages: u64,
}

/// What one codec does to one set of pages. Times are for a page.
#[derive(Clone, Serialize, Debug)]
pub struct Figures {
    /// Its name.
    pub codec: &'static str,
    /// `HEAP`, `ALL`, or a file's name.
    pub set: String,
    /// Encoded bytes by original bytes; pages that were not made smaller count as they are.
    pub ratio: f64,
    /// Encoding, caches warm.
    pub encode_ns_mean: f64,
    /// The same.
    pub encode_ns_p50: u64,
    /// The same.
    pub encode_ns_p99: u64,
    /// Decoding, caches warm.
    pub decode_ns_mean: f64,
    /// The same.
    pub decode_ns_p50: u64,
    /// The same.
    pub decode_ns_p99: u64,
    /// Decoding, caches cold; `None` if that was not measured.
    pub cold_decode_ns_p50: Option<u64>,
    /// How many times as fast as LZ4 it encodes, by means.
    pub encode_speed_of_lz4: Option<f64>,
    /// How many times as fast as LZ4 it decodes, by means.
    pub decode_speed_of_lz4: Option<f64>,
    /// How many times as long as a copy decoding takes, by means.
    pub decode_time_of_memcpy: Option<f64>,
    /// The same with caches cold, by medians.
    pub cold_decode_time_of_memcpy: Option<f64>,
}

impl Report {
    /// Adds up what was measured; `samples` has a row for each codec and a column for each file.
    pub(crate) fn new(sources: &[Source], codecs: &[&'static str], samples: &[Vec<Samples>], cold: ByteCount) -> Self {
        let mut results = Vec::new();
        for set in sets(sources) {
            let start = results.len();
            results.extend(codecs.iter().zip(samples).map(|(codec, samples)| figures(codec, &set, samples)));
            relate(&mut results[start..]);
        }
        let file = |source: &Source| File {
            name: source.name.clone(),
            pages: source.pages.len() as u64,
            zero_pages: source.zero_pages,
            file_pages: source.file_pages,
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            unix_seconds: unix_seconds(),
            machine: Machine::this(),
            cold_bytes: cold.0,
            files: sources.iter().map(file).collect(),
            results,
        }
    }

    /// What a codec did to a set.
    pub fn result(&self, codec: &str, set: &str) -> Option<&Figures> {
        self.results.iter().find(|result| result.codec == codec && result.set == set)
    }

    /// `HEAP`, `ALL` and the files, as far as they were measured.
    pub fn sets(&self) -> Vec<&str> {
        let mut sets: Vec<&str> = self.results.iter().map(|result| result.set.as_str()).collect();
        sets.dedup();
        sets
    }

    /// As a document.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a report has nothing that JSON lacks");
        text + "\n"
    }

    /// As tables in Markdown: of the averages, or of each set.
    pub fn tables(&self, all: bool) -> String {
        let mut text = String::new();
        let sets = self.sets();
        // With one file its average says it all.
        let shown = sets.iter().filter(|set| SETS.contains(set) || (all && sets.len() > 2));
        for set in shown {
            self.table(set, &mut text).expect("a string takes all that is written");
        }
        text
    }

    fn table(&self, set: &str, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{set}: times in ns for a page of {PAGE_BYTES} bytes, mean (p50, p99)\n")?;
        writeln!(out, "| codec | ratio | encode | x lz4 | decode | x lz4 | / memcpy | cold decode p50 | / memcpy |")?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        for figures in self.results.iter().filter(|result| result.set == set) {
            let ratio = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(
                out,
                "| {} | {:.3} | {:.0} ({}, {}) | {} | {:.0} ({}, {}) | {} | {} | {} | {} |",
                figures.codec,
                figures.ratio,
                figures.encode_ns_mean,
                figures.encode_ns_p50,
                figures.encode_ns_p99,
                ratio(figures.encode_speed_of_lz4),
                figures.decode_ns_mean,
                figures.decode_ns_p50,
                figures.decode_ns_p99,
                ratio(figures.decode_speed_of_lz4),
                ratio(figures.decode_time_of_memcpy),
                figures.cold_decode_ns_p50.map_or("–".to_owned(), |ns| ns.to_string()),
                ratio(figures.cold_decode_time_of_memcpy),
            )?;
        }
        writeln!(out)
    }
}

/// The figures of a set, not yet related to the references.
fn figures(codec: &'static str, set: &Set, samples: &[Samples]) -> Figures {
    let files = || set.files.iter().map(|&file| &samples[file]);
    let encode = || files().map(|file| &file.encode_ns[..]);
    let decode = || files().map(|file| &file.decode_ns[..]);
    let bytes = mean(files().map(|file| &file.encoded_bytes[..])).unwrap_or(0.0);
    Figures {
        codec,
        set: set.name.clone(),
        ratio: bytes / PAGE_BYTES as f64,
        encode_ns_mean: mean(encode()).unwrap_or(0.0),
        encode_ns_p50: percentile(encode(), 0.5).unwrap_or(0),
        encode_ns_p99: percentile(encode(), 0.99).unwrap_or(0),
        decode_ns_mean: mean(decode()).unwrap_or(0.0),
        decode_ns_p50: percentile(decode(), 0.5).unwrap_or(0),
        decode_ns_p99: percentile(decode(), 0.99).unwrap_or(0),
        cold_decode_ns_p50: percentile(files().map(|file| &file.cold_decode_ns[..]), 0.5),
        encode_speed_of_lz4: None,
        decode_speed_of_lz4: None,
        decode_time_of_memcpy: None,
        cold_decode_time_of_memcpy: None,
    }
}

/// Relates the figures of a set to those of the references among them.
fn relate(results: &mut [Figures]) {
    let reference = |name: &str| results.iter().find(|result| result.codec == name).cloned();
    let (memcpy, lz4) = (reference(MEMCPY), reference(LZ4));
    let quotient = |of: f64, by: f64| (by > 0.0).then(|| of / by);
    for result in results {
        if let Some(lz4) = &lz4 {
            result.encode_speed_of_lz4 = quotient(lz4.encode_ns_mean, result.encode_ns_mean);
            result.decode_speed_of_lz4 = quotient(lz4.decode_ns_mean, result.decode_ns_mean);
        }
        if let Some(memcpy) = &memcpy {
            result.decode_time_of_memcpy = quotient(result.decode_ns_mean, memcpy.decode_ns_mean);
            let cold = result.cold_decode_ns_p50.zip(memcpy.cold_decode_ns_p50);
            result.cold_decode_time_of_memcpy = cold.and_then(|(own, copy)| quotient(own as f64, copy as f64));
        }
    }
}
