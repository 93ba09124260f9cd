//! `pleat sim`: plays traces, and writes what came out.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use cache::system::{Admission, SizingName, StoreName, WriteBack};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use page::PageCount;
use serde::Serialize;
use sim::replacement::{Contest, Policy, Score};
use sim::timed::{Device, Machine, System};
use trace::{Ending, Trace};

use crate::manual::print;
use crate::size::Ram;
use crate::system::choice;

mod calibrate;
mod curve;
mod estimate;
mod mxt;
mod plot;
mod timed;

pub(crate) const EXAMPLES: &str = "\
Examples:
  pleat sim app.trace --replacement lru,min --pages 1000,2000,4000
  pleat sim app.trace --curve lru,min --plot plots
  pleat sim app.trace --system pleat,off --ram 25%,50%,75% --backing sata-ssd --ratio 0.35
  pleat sim app.trace --system pleat --sizing fixed --pool-size 10%,30%,50%,70%,90% --ram 50%      # would another pool be better?
  pleat sim core.1234 --estimate 50% --codec pbpm,auto      # how probable is it that this memory does not shrink to a half?
  pleat sim lines.trace --mxt-hardware --ram 512M --content 0.4,1       # what if it turns incompressible half-way?
  pleat sim --calibrate here.json; pleat sim app.trace --system pleat --ram 50% --machine here.json --backing here.json
  pleat sim a.txt b.trace --replacement lru,min,clock --pages 25000 --json out.json --plot plots

A trace is a text with one reference a line (`R 499` or `W 0x1f3`, page numbers), pleat's own compact form, or what
`valgrind --tool=lackey --trace-mem=yes` prints; - is standard input. docs/format/trace.md in pleat's source has the details.

misses are references to pages that have been in memory and are no longer. First references to a page, which miss
whatever the policy, are counted apart, as cold_misses: page faults are misses + cold_misses. For pleat, soft_faults are
references to pages that were on their way out and stayed: what it costs to learn which pages are in use.

--estimate takes the sizes that a trace has samples of, or encodes the pages of any other file (a core dump, for example), and
tells the probability that so many pages together take more than the target; and what it is not above, however sizes lie.

--mxt-hardware takes references to lines of 1 KiB: a trace of pleat record --lines or pleat synth --lines, lackey's output, or a
text whose numbers are addresses divided by 1024.

--system goes by what steps cost on a machine and a device; --costs tells which of these were measured and which are guesses.

Exit status 0, or 125 if something is wrong. A truncated trace is played as far as it is whole, with a warning.";

/// `pleat sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The traces; for --estimate files of pages, too
    #[arg(required_unless_present_any = ["calibrate", "costs", "probe"], value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Count misses of these replacement policies: lru, min (Belady's), fifo, clock, pleat
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', value_parser = policy,
        required_unless_present_any = ["curve", "estimate", "system", "mxt_hardware", "calibrate", "costs", "probe"],
        conflicts_with_all = ["system", "mxt_hardware"],
        requires = "pages", group = "sized")]
    replacement: Vec<Policy>,

    /// Sizes of memory to count them at, in pages of 4 KiB; for --estimate all that were sampled, if none is given
    #[arg(long, value_name = "COUNT", num_args = 1.., value_delimiter = ',', value_parser = pages, requires = "sized")]
    pages: Vec<PageCount>,

    /// Count misses of these at every size of memory, in one pass: lru, min
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', value_parser = curve::curved,
        conflicts_with_all = ["replacement", "system", "mxt_hardware"])]
    curve: Vec<Policy>,

    /// Tell how probable it is that memory takes more than this part of its size once it is encoded (crames): 50% or 0.5
    #[arg(long, value_name = "RATIO", num_args = 1.., value_delimiter = ',', value_parser = estimate::target, group = "sized",
        conflicts_with_all = ["curve", "system", "mxt_hardware"])]
    estimate: Vec<f64>,

    /// Codecs to estimate that for [default: those that a trace has samples of; pbpm for other files]; with --system the one that
    /// replaces the systems' own
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', value_parser = estimate::codec,
        conflicts_with_all = ["replacement", "curve", "mxt_hardware"])]
    codec: Vec<&'static str>,

    /// Tell how long the program would take under these systems: those of pleat run --system, and off (the device alone)
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', requires = "ram", group = "runs",
        value_parser = timed::system)]
    system: Vec<System>,

    /// How encodings lie in RAM [default: that of the system]
    #[arg(long, value_name = "NAME", requires = "system", value_parser = choice::<StoreName>())]
    store: Option<StoreName>,

    /// How much of the RAM they may take [default: that of the system]
    #[arg(long, value_name = "NAME", requires = "system", value_parser = choice::<SizingName>())]
    sizing: Option<SizingName>,

    /// Which pages the store takes [default: that of the system]
    #[arg(long, value_name = "NAME", requires = "system", value_parser = choice::<Admission>())]
    admission: Option<Admission>,

    /// In what form they go from there to the device [default: that of the system]
    #[arg(long, value_name = "NAME", requires = "system", value_parser = choice::<WriteBack>())]
    write_back: Option<WriteBack>,

    /// Sizes of the compressed area, with --sizing fixed: bytes, or a percentage of the RAM
    #[arg(long, value_name = "SIZE|PERCENT%", num_args = 1.., value_delimiter = ',', requires = "system",
        value_parser = timed::pool_size)]
    pool_size: Vec<Ram>,

    /// Tell the same of MXT's hardware, from a trace of lines: a cache of 32 MB in front of lines in sectors
    #[arg(long, group = "runs")]
    mxt_hardware: bool,

    /// What the program writes there, by turns: ratios, or files of pages that are encoded [default: that of --ratio]
    #[arg(long, value_name = "RATIO|FILE", num_args = 1.., value_delimiter = ',', value_parser = mxt::written,
        requires = "mxt_hardware", conflicts_with_all = ["replacement", "curve", "estimate", "system"])]
    content: Vec<mxt::Written>,

    /// Sizes of RAM for that: bytes, or a percentage of the trace's pages; MXT's, of which it makes twice as much, is 512M if none
    /// is given
    #[arg(long, value_name = "SIZE|PERCENT%", num_args = 1.., value_delimiter = ',', requires = "runs",
        value_parser = timed::ram)]
    ram: Vec<Ram>,

    /// What steps cost: reference, castro, tuduce-gross-p4, tuduce-gross-g5, mxt (the default of --mxt-hardware), or a file that
    /// --calibrate has written
    #[arg(long, value_name = "PROFILE", default_value = "reference",
        default_value_if("mxt_hardware", clap::builder::ArgPredicate::Equals("true".into()), "mxt"),
        value_parser = timed::machine)]
    machine: Machine,

    /// What lies below RAM: nvme, sata-ssd, disk-7200, disk-castro, disk-tuduce-gross-p4, disk-tuduce-gross-g5, or a file that
    /// --calibrate has written
    #[arg(long, value_name = "PROFILE", default_value = "nvme", value_parser = timed::device)]
    backing: Device,

    /// Encoded bytes by original bytes, on average, of pages that the trace has no sample of
    #[arg(long, value_name = "PART", default_value = "0.4", value_parser = ratio)]
    ratio: f64,

    /// Write an array of objects here, one for each line of the table, or for each curve; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw SVGs into this directory: misses by pages, one file a trace; or, with --system, faults, pool and resident pages over
    /// time, one file for each trace, system and size
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// Measure this machine, which takes some seconds, and write what its steps cost here, for --machine and --backing. The
    /// device is that of the temporary directory
    #[arg(long, value_name = "FILE", exclusive = true)]
    calibrate: Option<PathBuf>,

    /// Print what steps cost on each machine and device, and how that is known
    #[arg(long, exclusive = true)]
    costs: bool,

    /// What `--calibrate` runs under pleat.
    #[arg(long, hide = true, exclusive = true, value_name = "PATTERN")]
    probe: Option<calibrate::Pattern>,
}

fn policy(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(|(name, _)| name).join(", ");
    Policy::named(name).ok_or_else(|| format!("there is no such policy; there are {}", names()))
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

fn pages(text: &str) -> Result<PageCount, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(PageCount(count)),
        _ => Err("expected a number of pages, at least 1".to_owned()),
    }
}

/// A row of `--json`.
#[derive(Serialize)]
struct Row {
    trace: String,
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
    if let Some(pattern) = args.probe {
        return calibrate::probe(pattern);
    }
    if let Some(path) = &args.calibrate {
        return calibrate::run(path);
    }
    if args.costs {
        return print(timed::costs().as_bytes());
    }
    // Before the work: nobody wants to hear of it only afterwards.
    let json = args.json.as_deref().filter(|path| *path != Path::new("-"));
    let json = json.map(|path| File::create(path).with_context(|| format!("--json {}", path.display()))).transpose()?;
    let mut plots = args.plot.as_deref().map(plot::Folder::new).transpose()?;
    let has_many = args.traces.len() > 1;
    let (document, table) = if !args.curve.is_empty() {
        let rows = curve::run(args)?;
        if let Some(plots) = &mut plots {
            curve::plot(&rows, plots)?;
        }
        (document(&rows)?, curve::table(&rows, has_many))
    } else if !args.estimate.is_empty() {
        let rows = estimate::run(args)?;
        if let Some(plots) = &mut plots {
            estimate::plot(&rows, plots)?;
        }
        (document(&rows)?, estimate::table(&rows))
    } else if args.mxt_hardware {
        let rows = mxt::run(args)?;
        if let Some(plots) = &mut plots {
            mxt::plot(&rows, plots)?;
        }
        (document(&rows)?, mxt::table(&rows))
    } else if args.system.is_empty() {
        let rows = replacement(args)?;
        if let Some(plots) = &mut plots {
            plot_replacement(&rows, plots)?;
        }
        (document(&rows)?, replacement_table(&rows, has_many))
    } else {
        let rows = timed::run(args)?;
        if let Some(plots) = &mut plots {
            timed::plot(&rows, plots)?;
        }
        (document(&rows)?, timed::table(&rows))
    };
    match (&args.json, json) {
        (Some(_), None) => return print(document.as_bytes()),
        (Some(path), Some(file)) => {
            let mut out = BufWriter::new(file);
            let written = out.write_all(document.as_bytes()).and_then(|()| out.flush());
            written.with_context(|| format!("--json {}", path.display()))?;
        }
        (None, _) => {}
    }
    print(table.as_bytes())
}

/// Plays all traces with all policies and sizes.
fn replacement(args: &SimArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in &args.traces {
        let name = path.display().to_string();
        let (scores, ending) = play(path, args).map_err(|error| anyhow!("{name}: {error:#}"))?;
        rows.extend(scores.iter().map(|score| Row {
            trace: name.clone(),
            policy: score.policy.name(),
            pages: score.pages.0,
            references: score.references,
            misses: score.misses,
            cold_misses: score.cold_misses,
            soft_faults: score.soft_faults,
            truncated_at_byte: truncated_at(ending),
        }));
    }
    Ok(rows)
}

/// A file for each trace, a line for each policy.
fn plot_replacement(rows: &[Row], plots: &mut plot::Folder) -> Result<()> {
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let lines = of_trace.chunk_by(|one, next| one.policy == next.policy).map(|of_policy| {
            let share = |row: &Row| (row.pages as f64, row.misses as f64 * 100.0 / row.references.max(1) as f64);
            plot::Line { name: of_policy[0].policy, points: of_policy.iter().map(share).collect() }
        });
        plots.write(&[&of_trace[0].trace, "misses"], &plot::misses(&of_trace[0].trace, lines.collect())?)?;
    }
    Ok(())
}

const fn truncated_at(ending: Ending) -> Option<u64> {
    if let Ending::Truncated { offset } = ending { Some(offset) } else { None }
}

/// Says what is wrong with the end of a trace.
fn warn(path: &Path, ending: Ending) {
    let name = path.display();
    match ending {
        Ending::Truncated { offset } => {
            eprintln!("pleat: {name}: truncated: only the first {offset} bytes are whole, and were played");
        }
        Ending::Unterminated { offset } => {
            eprintln!("pleat: {name}: the last line, at byte {offset}, has no line end; taken as it is");
        }
        Ending::Whole { .. } | Ending::Open => {}
    }
}

/// An array with a line for each row.
pub(crate) fn document(rows: &[impl Serialize]) -> Result<String> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

fn replacement_table(rows: &[Row], has_many: bool) -> String {
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
    let mut contest = Contest::new(&args.replacement, &args.pages);
    let ending = with_trace(path, |trace| {
        let reduced = u64::from(trace.header().reduced_pages);
        if args.pages.iter().any(|pages| pages.0 < reduced) {
            eprintln!(
                "pleat: {}: reduced for memories of {reduced} pages or more; smaller ones miss more",
                path.display()
            );
        }
        Ok(contest.play(trace, &mut |_| ())?)
    })?;
    Ok((contest.scores(), ending))
}

/// Opens a trace, shows how far it has been read, and tells how it ended.
fn with_trace(path: &Path, play: impl FnOnce(&mut dyn Trace) -> Result<()>) -> Result<Ending> {
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
    play(&mut *trace)?;
    bar.finish_and_clear();
    let ending = trace.ending();
    warn(path, ending);
    Ok(ending)
}
