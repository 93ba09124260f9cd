//! `pleat sim --mxt-hardware`: runs on MXT's machine.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ParallelProgressIterator, ProgressBar, ProgressFinish};
use page::{ByteCount, PAGE_BYTES, PageBytes};
use rayon::prelude::*;
use serde::Serialize;
use sim::mxt::{self, Content, Latencies, Moment, Outcome, PHYSICAL_BYTES_MIN, Setup};
use sim::timed::Basis;
use trace::Trace;

use super::plot::{Folder, Line, Panel, draw};
use super::{SimArgs, truncated_at, warn};
use crate::size::{Human, Ram};

/// Physical memory of the paper's machine.
const PHYSICAL: ByteCount = ByteCount(512 << 20);
/// Of a file of content no more pages are encoded: runs of neighbours, evenly spaced.
const CONTENT_PAGES_MAX: u64 = 16_384;

/// `--content`, not read yet.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Written {
    Ratio(f64),
    File(PathBuf),
}

/// A row of `--json`.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    ram_bytes: u64,
    machine: String,
    backing: String,
    /// Those of the costs that are guesses.
    estimates: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at_byte: Option<u64>,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What is known of a trace before it is played.
struct Counted {
    references: u64,
    pages: u64,
}

/// `--content`.
pub(super) fn written(text: &str) -> Result<Written, String> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Written::Ratio(ratio)),
        Ok(_) => Err("expected a ratio from 0 to 1, or a file".to_owned()),
        Err(_) => Ok(Written::File(PathBuf::from(text))),
    }
}

/// Plays all traces with all sizes.
pub(super) fn run(args: &SimArgs) -> Result<Vec<Row>> {
    let contents = contents(args)?;
    let sizes = if args.ram.is_empty() { vec![Ram::Bytes(PHYSICAL)] } else { args.ram.clone() };
    let mut cells = Vec::new();
    for path in &args.traces {
        let counted = count(path)?;
        for ram in &sizes {
            let physical = match *ram {
                Ram::Percent(percent) => (counted.pages * PAGE_BYTES as u64) as f64 * percent / 100.0,
                Ram::Bytes(bytes) => bytes.0 as f64,
                Ram::Auto => unreachable!("refused when the options were read"),
            };
            let physical = ByteCount(physical as u64 / PAGE_BYTES as u64 * PAGE_BYTES as u64);
            if physical.0 < PHYSICAL_BYTES_MIN {
                bail!("--ram: {} is too little; at least {}", Human(physical.0), Human(PHYSICAL_BYTES_MIN));
            }
            cells.push((path, counted.references, physical));
        }
    }
    let bar = ProgressBar::new(cells.len() as u64).with_finish(ProgressFinish::AndClear);
    let rows = cells.into_par_iter().progress_with(bar).map(|(path, references, physical)| {
        let setup = Setup {
            physical,
            machine: &args.machine,
            latencies: &Latencies::PAPER,
            device: &args.backing,
            contents: &contents,
            references,
        };
        cell(path, setup)
    });
    rows.collect()
}

/// What the program writes: of one ratio, if nothing is said.
fn contents(args: &SimArgs) -> Result<Vec<Content>> {
    if args.content.is_empty() {
        return Ok(vec![Content::Ratio(args.ratio)]);
    }
    let read = |written: &Written| match written {
        Written::Ratio(ratio) => Ok(Content::Ratio(*ratio)),
        Written::File(path) => {
            let sources =
                codec_bench::pages::read(std::slice::from_ref(path), CONTENT_PAGES_MAX).context("--content")?;
            let source = sources.first().context("--content: no file")?;
            let zeros = (0..source.zero_pages).map(|_| PageBytes::ZERO);
            Ok(Content::of_pages(&source.pages.iter().cloned().chain(zeros).collect::<Vec<_>>()))
        }
    };
    args.content.iter().map(read).collect()
}

/// What is wrong with a trace is told here, before the work, and once.
fn count(path: &Path) -> Result<Counted> {
    if path == Path::new("-") {
        bail!("--mxt-hardware reads a trace twice: it cannot come from standard input");
    }
    let mut trace = open(path)?;
    let (mut batch, mut samples) = (Vec::new(), Vec::new());
    let (mut references, mut pages) = (0, HashSet::new());
    loop {
        trace.read(&mut batch, &mut samples).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        if batch.is_empty() {
            break;
        }
        references += batch.len() as u64;
        pages.extend(batch.iter().map(|reference| reference.page.0 / store::LINES as u64));
    }
    warn(path, trace.ending());
    Ok(Counted { references, pages: pages.len() as u64 })
}

fn open(path: &Path) -> Result<Box<dyn Trace>> {
    let name = path.display();
    let file = File::open(path).with_context(|| name.to_string())?;
    trace::open_lines(file).map_err(|error| anyhow!("{name}: {error}"))
}

fn cell(path: &Path, setup: Setup<'_>) -> Result<Row> {
    let name = path.display();
    let mut trace = open(path)?;
    let outcome = mxt::play(setup, &mut *trace).map_err(|error| anyhow!("{name}: {error}"))?;
    let (machine, device, latencies) = (setup.machine.costs(), setup.device.costs(), setup.latencies.costs());
    let used = ["first_touch", "kernel_fault", "reference", "instruction"];
    let all = machine.iter().filter(|(step, _)| used.contains(step)).chain(&device).chain(&latencies);
    Ok(Row {
        trace: name.to_string(),
        ram_bytes: setup.physical.0,
        machine: setup.machine.name.to_string(),
        backing: setup.device.name.to_string(),
        estimates: all.filter(|(_, cost)| cost.basis == Basis::Estimate).map(|(step, _)| *step).collect(),
        truncated_at_byte: truncated_at(trace.ending()),
        outcome,
    })
}

/// A file for each row.
pub(super) fn plot(rows: &[Row], plots: &mut Folder) -> Result<()> {
    for row in rows {
        let ram = Human(row.ram_bytes).to_string();
        plots.write(&[&row.trace, "mxt-hardware", &ram], &draw(&panels(row))?)?;
    }
    Ok(())
}

/// Real and physical memory (the paper's figure 4), above what was forced out until then.
fn panels(row: &Row) -> [Panel<'static>; 2] {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let moments = &row.outcome.over_time;
    let line = |name, value: &dyn Fn(&Moment) -> f64| Line {
        name,
        points: moments.iter().map(|moment| (moment.seconds, value(moment))).collect(),
    };
    let memory = vec![
        line("real", &|moment| mib(moment.real_bytes)),
        line("physical", &|moment| mib(moment.physical_bytes)),
        Line { name: "RAM", points: [0.0, row.outcome.run_seconds].map(|at| (at, mib(row.ram_bytes))).to_vec() },
    ];
    let forced = vec![line("forced out", &|moment| moment.pages_forced_out as f64)];
    let title = format!("{}: mxt-hardware in {}", row.trace, Human(row.ram_bytes));
    [
        Panel { title, x: "seconds", y: "MiB", lines: memory },
        Panel { title: String::new(), x: "seconds", y: "pages so far", lines: forced },
    ]
}

/// Rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    const HEAD: &str = "| RAM | seconds | compression off | longer by | misses | average ratio | most physical | interrupts | forced out | stalled |";
    let mut lines = Vec::new();
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let Row { trace, machine, backing, estimates, outcome, .. } = &of_trace[0];
        let (size, references) = (Human(outcome.trace_pages * PAGE_BYTES as u64), outcome.references);
        lines.push(format!("{trace}: {size}, {references} references, on {machine} with {backing}"));
        lines.push(format!("estimates, not measured: {}\n", estimates.join(", ")));
        lines.push(format!("{HEAD}\n|{}", "---|".repeat(10)));
        lines.extend(of_trace.iter().map(line));
    }
    lines.join("\n") + "\n"
}

fn line(row: &Row) -> String {
    let outcome = &row.outcome;
    let cells = [
        Human(row.ram_bytes).to_string(),
        format!("{:.3}", outcome.run_seconds),
        format!("{:.3}", outcome.compression_off_seconds),
        format!("{:.2} %", outcome.overhead_percent),
        outcome.cache_misses.to_string(),
        format!("{:.2}", outcome.average_ratio),
        Human(outcome.physical_bytes_max).to_string(),
        outcome.interrupts.to_string(),
        outcome.pages_forced_out.to_string(),
        format!("{:.3}", outcome.stalled_seconds),
    ];
    format!("| {} |", cells.join(" | "))
}
