//! `pleat synth`: makes traces with a known behaviour.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressFinish, ProgressIterator};
use trace::synth::{Part, Plan, SYNTHETIC_PAGES_MAX, synthesize};
use trace::{Grain, Header, TimeUnit, Writer, text_line};

pub(crate) const EXAMPLES: &str = "\
Examples:
  pleat synth zipf:0.9 --pages 100000 --references 10000000 --out hot.trace
  pleat synth '3*zipf:1' '1*sequential' --writes 0.3 --seed 7 --out mixed.trace
  pleat synth sequential --lines --pages 400000 --references 2000000 --out lines.trace
  pleat synth phases:20 --text --out - | pleat sim - --replacement lru,min --pages 1000,5000

Patterns: sequential, strided:K (every K-th page), uniform, zipf:A (rank r in proportion to 1/r^A), phases:N (N phases with a
tenth of the pages each), thrasher (round and round, reading and writing), rand (reads and writes anywhere), stack:A (the
d-th last used page in proportion to 1/d^A). Several patterns, with weights or without, mix at random.

The same options give the same bytes.";

/// `pleat synth`.
#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// What the trace walks like: NAME, NAME:NUMBER, or WEIGHT*NAME:NUMBER
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<Part>,

    /// How many pages there are
    #[arg(long, value_name = "COUNT", default_value = "10000",
        value_parser = clap::value_parser!(u64).range(1..=SYNTHETIC_PAGES_MAX))]
    pages: u64,

    /// How many references to make
    #[arg(long, value_name = "COUNT", default_value = "1000000")]
    references: u64,

    /// The part of references that write, 0 to 1; thrasher and rand have their own
    #[arg(long, value_name = "PART", default_value = "0.25", value_parser = part)]
    writes: f64,

    /// Another number, another trace
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    seed: u64,

    /// Where the trace goes; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,

    /// Write plain text, a line for each reference
    #[arg(long)]
    text: bool,

    /// Reference lines of 1 KiB, four of which are a page, for pleat sim --mxt-hardware: --pages counts lines then
    #[arg(long)]
    lines: bool,
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// `pleat synth`.
pub(crate) fn run(args: &SynthArgs) -> Result<()> {
    let SynthArgs { patterns, pages, references, writes, seed, .. } = args;
    let plan = Plan { parts: patterns.clone(), pages: *pages, references: *references, writes: *writes, seed: *seed };
    let name = args.out.display();
    let out = create(&args.out)?;
    let bar = ProgressBar::new(plan.references).with_finish(ProgressFinish::AndClear);
    match write(&plan, out, args, bar) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| anyhow!("--out {name}: {error}")),
    }
}

/// A file to be written, or standard output.
pub(crate) fn create(path: &Path) -> Result<Box<dyn Write + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    }
    let file = File::create(path).with_context(|| format!("--out {}", path.display()))?;
    Ok(Box::new(BufWriter::with_capacity(1 << 18, file)))
}

fn write(plan: &Plan, mut out: Box<dyn Write>, args: &SynthArgs, bar: ProgressBar) -> io::Result<()> {
    let mut references = synthesize(plan).progress_with(bar);
    if args.text {
        references.try_for_each(|reference| out.write_all(text_line(&reference).as_bytes()))?;
        return out.flush();
    }
    let grain = if args.lines { Grain::Line } else { Grain::Page };
    let mut writer = Writer::new(out, Header { grain, ..Header::new(TimeUnit::References) })?;
    references.try_for_each(|reference| writer.push(reference))?;
    writer.finish(None)?.flush()
}
