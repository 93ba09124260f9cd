//! `pleat sim`: plays traces, and writes what came out.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use page::PageCount;
use serde::Serialize;
use sim::replacement::{Contest, Policy, Score};
use trace::Ending;

use crate::manual::print;

pub(crate) const EXAMPLES: &str = "\
Examples:
  pleat sim app.trace --replacement lru,min --pages 1000,2000,4000
  pleat sim a.txt b.trace --replacement lru,min,clock --pages 25000 --json out.json

A trace is a text with one reference a line (`R 499` or `W 0x1f3`, page numbers), pleat's own compact form, or what
`valgrind --tool=lackey --trace-mem=yes` prints; - is standard input. docs/format/trace.md in pleat's source has the details.

misses are references to pages that have been in memory and are no longer. First references to a page, which miss
whatever the policy, are counted apart, as cold_misses: page faults are misses + cold_misses. For pleat, soft_faults are
references to pages that were on their way out and stayed: what it costs to learn which pages are in use.

Exit status 0, or 125 if something is wrong. A truncated trace is played as far as it is whole, with a warning.";

/// `pleat sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Count misses of these replacement policies: lru, min (Belady's), fifo, clock, pleat
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', required = true, value_parser = policy)]
    replacement: Vec<Policy>,

    /// Sizes of memory to count them at, in pages of 4 KiB
    #[arg(long, value_name = "COUNT", num_args = 1.., value_delimiter = ',', required = true, value_parser = pages)]
    pages: Vec<PageCount>,

    /// Write an array of objects here, one for each trace, policy and size; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn policy(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(|(name, _)| name).join(", ");
    Policy::named(name).ok_or_else(|| format!("there is no such policy; there are {}", names()))
}

fn pages(text: &str) -> Result<PageCount, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(PageCount(count)),
        _ => Err("expected a number of pages, at least 1".to_owned()),
    }
}

/// A row of `--json`.
#[derive(Serialize)]
struct Row<'a> {
    trace: &'a str,
    policy: &'static str,
    pages: u64,
    references: u64,
    misses: u64,
    cold_misses: u64,
    /// Of `pleat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_faults: Option<u64>,
    /// Where a truncated trace stops being whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at_byte: Option<u64>,
}

/// `pleat sim`.
pub(crate) fn run(args: &SimArgs) -> Result<()> {
    // Before the work: nobody wants to hear of it only afterwards.
    let json = args.json.as_deref().filter(|path| *path != Path::new("-"));
    let json = json.map(|path| File::create(path).with_context(|| format!("--json {}", path.display()))).transpose()?;
    let mut played = Vec::new();
    for path in &args.traces {
        let name = path.display().to_string();
        let (scores, ending) = play(path, args).map_err(|error| anyhow!("{name}: {error:#}"))?;
        played.push((name, scores, ending));
    }
    let mut rows = Vec::new();
    for (trace, scores, ending) in &played {
        let truncated_at_byte = if let Ending::Truncated { offset } = ending { Some(*offset) } else { None };
        rows.extend(scores.iter().map(|score| Row {
            trace,
            policy: score.policy.name(),
            pages: score.pages.0,
            references: score.references,
            misses: score.misses,
            cold_misses: score.cold_misses,
            soft_faults: score.soft_faults,
            truncated_at_byte,
        }));
    }
    match (&args.json, json) {
        (Some(_), None) => return print(document(&rows)?.as_bytes()),
        (Some(path), Some(file)) => {
            let mut out = BufWriter::new(file);
            let written = out.write_all(document(&rows)?.as_bytes()).and_then(|()| out.flush());
            written.with_context(|| format!("--json {}", path.display()))?;
        }
        (None, _) => {}
    }
    print(table(&rows, args.traces.len() > 1).as_bytes())
}

/// An array with a line for each row.
fn document(rows: &[Row<'_>]) -> Result<String> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

fn table(rows: &[Row<'_>], has_many: bool) -> String {
    let mut lines = Vec::new();
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let Row { trace, references, cold_misses, .. } = &of_trace[0];
        let name = if has_many { format!("{trace}: ") } else { String::new() };
        lines.push(format!("{name}{references} references, {cold_misses} of them the first to a page\n"));
        lines.push("| policy | pages | misses | % of references |\n|---|---|---|---|".to_owned());
        lines.extend(of_trace.iter().map(|row| {
            let share = row.misses as f64 * 100.0 / row.references.max(1) as f64;
            format!("| {} | {} | {} | {share:.4} |", row.policy, row.pages, row.misses)
        }));
    }
    lines.join("\n") + "\n"
}

/// Plays one trace with all policies and sizes.
fn play(path: &Path, args: &SimArgs) -> Result<(Vec<Score>, Ending)> {
    let bar = ProgressBar::no_length();
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)?;
        bar.set_length(file.metadata()?.len());
        Box::new(file)
    };
    bar.set_style(ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta} left")?);
    let mut trace = trace::open(bar.wrap_read(input))?;
    let reduced = u64::from(trace.header().reduced_pages);
    if args.pages.iter().any(|pages| pages.0 < reduced) {
        eprintln!("pleat: {}: reduced for memories of {reduced} pages or more; smaller ones miss more", path.display());
    }
    let mut contest = Contest::new(&args.replacement, &args.pages);
    contest.play(&mut *trace, &mut |_| ())?;
    bar.finish_and_clear();
    let ending = trace.ending();
    match ending {
        Ending::Truncated { offset } => {
            eprintln!("pleat: {}: truncated: only the first {offset} bytes are whole, and were played", path.display());
        }
        Ending::Unterminated { offset } => {
            eprintln!("pleat: {}: the last line, at byte {offset}, has no line end; taken as it is", path.display());
        }
        Ending::Whole { .. } | Ending::Open => {}
    }
    Ok((contest.scores(), ending))
}
