//! `pleat bench codecs`: reads pages, measures, and writes what came out.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use codec_bench::{Plan, Step, pages, subjects};
use page::ByteCount;

use crate::args::CodecsArgs;
use crate::manual::print;
use crate::proc;

pub(crate) mod simulator;

/// Time between two words on progress where they are lines of a log.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// `pleat bench codecs`.
pub(crate) fn codecs(args: &CodecsArgs) -> Result<()> {
    let chosen = subjects::choose(&args.codec).map_err(|refused| anyhow!("--codec {refused}"))?;
    if let Some(skipped) = &chosen.skipped {
        eprintln!("pleat: --codec {skipped}");
    }
    let sources = if args.pages.is_empty() {
        pages::built_in()
    } else {
        pages::read(&args.pages, args.sample).context("--pages")?
    };
    for source in sources.iter().filter(|source| source.pages.is_empty()) {
        eprintln!("pleat: {}: no page that is not all zero; left out", source.name);
    }
    // Before the work: nobody wants to hear of it only afterwards.
    let json = args.json.as_deref().map(|path| create("--json", path)).transpose()?;
    let plot = args.plot.as_deref().map(|path| create("--plot", path)).transpose()?;

    let plan = Plan { sources, subjects: chosen.subjects, cold: affordable(args.cold) };
    let mut progress = Progress::new();
    let report = codec_bench::run(plan, |step| progress.tell(step));
    progress.end();
    let report = report?;
    if let (Some(file), Some(path)) = (json, &args.json) {
        write("--json", path, file, &report.json())?;
    }
    if let (Some(file), Some(path)) = (plot, &args.plot) {
        write("--plot", path, file, &codec_bench::plot(&report).map_err(|reason| anyhow!("--plot: {reason}"))?)?;
    }
    print(report.tables(args.files).as_bytes())
}

fn create(option: &str, path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("{option} {}", path.display()))
}

fn write(option: &str, path: &Path, mut file: File, text: &str) -> Result<()> {
    file.write_all(text.as_bytes()).with_context(|| format!("{option} {}", path.display()))
}

/// As much as was asked for, if twice that is no more than a quarter of what is free; else as much as is.
fn affordable(asked: ByteCount) -> ByteCount {
    let Some(available) = proc::meminfo("MemAvailable") else { return asked };
    let most = ByteCount(available.0 / 8);
    if asked.0 > most.0 {
        eprintln!("pleat: cold times among {} MiB instead of {}: no more memory is free", most.0 >> 20, asked.0 >> 20);
    }
    asked.min(most)
}

/// Says on standard error how far it is: on one line of a terminal, or now and then in a log.
struct Progress {
    is_terminal: bool,
    told: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), told: Instant::now() }
    }

    fn tell(&mut self, step: Step) {
        let text = format!("{}: {} of {}", step.what, step.done, step.of);
        if self.is_terminal {
            eprint!("\r\x1b[Kmeasuring, {text}");
        } else if self.told.elapsed() >= LOG_EVERY {
            eprintln!("pleat: measuring, {text}");
            self.told = Instant::now();
        }
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
