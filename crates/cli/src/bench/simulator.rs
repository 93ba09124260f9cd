//! `pleat bench sim`: how fast traces are read and replacement is simulated.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use nix::time::ClockId;
use page::PageCount;
use serde::Serialize;
use sim::replacement::{Contest, Policy};
use trace::synth::{Pattern, Plan, synthesize};
use trace::{Header, TimeUnit, Writer};

use super::{Progress, create, write};
use crate::manual::print;

pub(crate) const EXAMPLES: &str = "\
Examples:
  pleat bench sim
  pleat bench sim app.trace --rounds 9 --json speed.json

A table of millions of references in a second of processor time, reading and unpacking included: median of the rounds, and
least to most. Without traces it makes its own, which it plays from memory. `read` plays no policy but numbers the pages;
`lru x 16` is LRU at sixteen sizes; all others have half of a trace's pages.

Exit status 0, or 125 if something is wrong.";

/// Of 256 MiB and 4 GiB of memory.
const PAGES: [u64; 2] = [1 << 16, 1 << 20];
const PATTERNS: [(&str, Pattern); 4] = [
    ("zipf:1", Pattern::Zipf(1.0)),
    ("stack:1.5", Pattern::Stack(1.5)),
    ("sequential", Pattern::Sequential),
    ("uniform", Pattern::Uniform),
];
const MANY: u64 = 16;

/// `pleat bench sim`.
#[derive(Debug, Args)]
pub(crate) struct SimSpeedArgs {
    /// Traces to play [default: four synthetic ones, of 256 MiB and of 4 GiB each]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The length of synthetic traces
    #[arg(long, value_name = "COUNT", default_value = "5000000", value_parser = clap::value_parser!(u64).range(1..))]
    references: u64,

    /// How often each is played; all take turns
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Write an array of objects here, one for each trace and column
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A trace in memory.
struct Source {
    name: String,
    bytes: Vec<u8>,
    references: u64,
    pages: PageCount,
}

/// What is timed.
struct Entry {
    name: String,
    policies: Vec<Policy>,
    sizes: Vec<PageCount>,
}

/// A row of `--json`.
#[derive(Serialize)]
struct Row {
    trace: String,
    pages: u64,
    references: u64,
    played: String,
    /// One for each round, in order.
    million_references_per_second: Vec<f64>,
}

/// `pleat bench sim`.
pub(crate) fn run(args: &SimSpeedArgs) -> Result<()> {
    let json = args.json.as_deref().map(|path| create("--json", path)).transpose()?;
    // Alone, a policy's time is not hidden by what runs beside it.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().context("a thread")?;
    let rows = pool.install(|| measure(args))?;
    if let (Some(file), Some(path)) = (json, &args.json) {
        write("--json", path, file, &crate::sim::document(&rows)?)?;
    }
    print(table(&rows).as_bytes())
}

fn measure(args: &SimSpeedArgs) -> Result<Vec<Row>> {
    let mut progress = Progress::new();
    let mut rows = Vec::new();
    let count = if args.traces.is_empty() { PAGES.len() * PATTERNS.len() } else { args.traces.len() };
    for at in 0..count {
        let source = match args.traces.get(at) {
            Some(path) => recorded(path)?,
            None => synthetic(PATTERNS[at % PATTERNS.len()], PAGES[at / PATTERNS.len()], args.references)?,
        };
        progress.tell(codec_bench::Step { what: "traces", done: at, of: count });
        let entries = entries(source.pages);
        let mut speeds = vec![Vec::new(); entries.len()];
        for _ in 0..args.rounds {
            for (entry, speeds) in entries.iter().zip(&mut speeds) {
                speeds.push(source.references as f64 / seconds(&source, entry)? / 1e6);
            }
        }
        rows.extend(entries.into_iter().zip(speeds).map(|(entry, million_references_per_second)| Row {
            trace: source.name.clone(),
            pages: source.pages.0,
            references: source.references,
            played: entry.name,
            million_references_per_second,
        }));
    }
    progress.end();
    Ok(rows)
}

fn recorded(path: &PathBuf) -> Result<Source> {
    let name = path.display().to_string();
    let bytes = fs::read(path).with_context(|| name.clone())?;
    let (references, pages) = count(&bytes).map_err(|error| anyhow!("{name}: {error}"))?;
    Ok(Source { name, bytes, references, pages })
}

fn synthetic((name, pattern): (&str, Pattern), pages: u64, references: u64) -> Result<Source> {
    let parts = vec![trace::synth::Part { weight: 1.0, pattern }];
    let mut writer = Writer::new(Vec::new(), Header::new(TimeUnit::References))?;
    for reference in synthesize(&Plan { parts, pages, references, writes: 0.3, seed: 1 }) {
        writer.push(reference)?;
    }
    let bytes = writer.finish(None)?;
    let (references, pages) = count(&bytes)?;
    Ok(Source { name: name.to_owned(), bytes, references, pages })
}

fn count(bytes: &[u8]) -> Result<(u64, PageCount)> {
    let mut contest = Contest::new(&[], &[]);
    let mut references = 0;
    contest.play(&mut *trace::open(bytes)?, &mut |played| references = played)?;
    Ok((references, contest.pages()))
}

fn entries(pages: PageCount) -> Vec<Entry> {
    let entry = |name: &str, policies: &[Policy], sizes: Vec<PageCount>| Entry {
        name: name.to_owned(),
        policies: policies.to_vec(),
        sizes,
    };
    let many = (1..=MANY).map(|part| PageCount((pages.0 * part / MANY).max(1))).collect();
    let mut entries = vec![entry("read", &[], vec![]), entry("lru x 16", &[Policy::Lru], many)];
    let half = || vec![PageCount((pages.0 / 2).max(1))];
    entries.extend(Policy::ALL.map(|(name, policy)| entry(name, &[policy], half())));
    entries
}

/// Processor time, for the machine may have other work.
fn seconds(source: &Source, entry: &Entry) -> Result<f64> {
    let now = || -> Result<f64> {
        let time = ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?;
        Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
    };
    let begun = now()?;
    let mut contest = Contest::new(&entry.policies, &entry.sizes);
    contest.play(&mut *trace::open(&source.bytes[..])?, &mut |_| ())?;
    assert_eq!(contest.scores().len(), entry.policies.len() * entry.sizes.len());
    Ok((now()? - begun).max(1e-9))
}

fn table(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for of_trace in rows.chunk_by(|one, next| (&one.trace, one.pages) == (&next.trace, next.pages)) {
        if lines.is_empty() {
            let names: Vec<&str> = of_trace.iter().map(|row| row.played.as_str()).collect();
            lines.push(format!("| trace | pages | {} |\n|{}", names.join(" | "), "---|".repeat(names.len() + 2)));
        }
        let cells: Vec<String> = of_trace.iter().map(|row| cell(&row.million_references_per_second)).collect();
        lines.push(format!("| {} | {} | {} |", of_trace[0].trace, of_trace[0].pages, cells.join(" | ")));
    }
    lines.join("\n") + "\n"
}

/// Median, and least to most.
fn cell(speeds: &[f64]) -> String {
    let mut sorted = speeds.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (least, median, most) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    format!("{median:.1} ({least:.1}–{most:.1})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_the_median_and_the_spread() {
        assert_eq!(cell(&[30.0, 1.04, 20.0]), "20.0 (1.0–30.0)");
    }

    #[test]
    fn each_trace_is_a_row() {
        let row = |trace: &str, played: &str| Row {
            trace: trace.to_owned(),
            pages: 3,
            references: 9,
            played: played.to_owned(),
            million_references_per_second: vec![1.0],
        };
        let rows = ["a", "b"].map(|trace| [row(trace, "read"), row(trace, "lru")]);
        let expected = "| trace | pages | read | lru |\n|---|---|---|---|\n\
            | a | 3 | 1.0 (1.0–1.0) | 1.0 (1.0–1.0) |\n| b | 3 | 1.0 (1.0–1.0) | 1.0 (1.0–1.0) |\n";
        assert_eq!(table(&rows.into_iter().flatten().collect::<Vec<_>>()), expected);
    }
}
