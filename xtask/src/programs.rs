//! `cargo x programs`: real programs, plain and under `pleat run` at a part of the memory that they take by themselves.
//!
//! What they are is in `table`, how one is run and looked at in `run`. A program is right if its output and status are
//! those of the plain run, if its memory stays inside the budget, and if pleat has nothing to say.

mod documents;
mod languages;
mod numbers;
mod run;
mod servers;
mod stress;
mod table;
mod tools;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bench::size::mib;

use self::documents::DOCUMENTS;
use self::languages::LANGUAGES;
use self::numbers::NUMBERS;
use self::run::{Ran, Under};
use self::servers::SERVERS;
use self::stress::STRESS;
use self::table::{PROGRAMS, Program};
use self::tools::TOOLS;
use crate::{sh, test};

/// The budget may be passed by this share, and by what the kernel's counters may be wrong by.
const TOLERANCE: f64 = 0.02;
const TOLERANCE_BYTES: u64 = 1 << 20;
/// The least budget that `pleat run` takes.
const BUDGET_MIN: u64 = 16 << 20;
/// `pleat run` says so (`cli::tight`) of any program whose budget is hardly more than what has to stay in memory: no reason to object.
const ADVICE: &str = "cannot leave memory";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which programs; all if none is named
    names: Vec<String>,
    /// Parts of its memory that a program gets, in percent
    #[arg(long, value_delimiter = ',', default_value = "60,40")]
    share: Vec<u64>,
    /// Another option for `pleat run`, such as `--user-mode`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<String>,
    /// Append one JSON line a run here
    #[arg(long)]
    json: Option<PathBuf>,
    /// Longest time of one run, in seconds
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Print the names and what each is, and run nothing
    #[arg(long)]
    list: bool,
    /// Take what is there, and leave out the programs that are not
    #[arg(long)]
    no_install: bool,
    /// Show what pleat and the programs wrote to standard error
    #[arg(long)]
    errors: bool,
}

/// Every program there is.
fn all() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().chain(LANGUAGES).chain(TOOLS).chain(DOCUMENTS).chain(SERVERS).chain(NUMBERS).chain(STRESS)
}

/// One run, as a line of JSON.
#[derive(serde::Serialize)]
struct Line<'a> {
    program: &'a str,
    share_percent: u64,
    /// What the budget is of the plain peak: more than asked for where that would be less than pleat takes.
    real_percent: u64,
    with: &'a [String],
    budget_bytes: u64,
    verdict: &'a str,
    plain_peak_bytes: u64,
    peak_bytes: u64,
    plain_s: f64,
    wall_s: f64,
    processes: usize,
    pages_reclaimed: u64,
    written_back_bytes: u64,
    messages: &'a [String],
}

impl<'a> Line<'a> {
    fn of(
        program: &'a Program,
        share: u64,
        with: &'a [String],
        budget: u64,
        verdict: &'a str,
        plain: &Ran,
        folded: &'a Ran,
    ) -> Self {
        Self {
            program: program.name,
            share_percent: share,
            real_percent: real_percent(budget, plain.peak_bytes),
            with,
            budget_bytes: budget,
            verdict,
            plain_peak_bytes: plain.peak_bytes,
            peak_bytes: folded.peak_bytes,
            plain_s: plain.wall_s,
            wall_s: folded.wall_s,
            processes: folded.processes,
            pages_reclaimed: folded.pages_reclaimed,
            written_back_bytes: folded.written_back_bytes,
            messages: &folded.messages,
        }
    }
}

/// The part of its memory that a program gets.
fn real_percent(budget: u64, plain_peak_bytes: u64) -> u64 {
    (budget as f64 * 100.0 / plain_peak_bytes.max(1) as f64).round() as u64
}

/// Runs them one after the other.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = choose(&options.names)?;
    if options.list {
        for program in chosen {
            println!("{:<16} {}", program.name, program.what);
        }
        return Ok(());
    }
    if !options.no_install {
        let packages: Vec<&str> = chosen.iter().flat_map(|program| program.missing()).collect();
        test::install_packages(&packages)?;
    }
    println!("build: release");
    sh::run(&mut sh::cargo(&["build", "--quiet", "--release"]))?;
    let (mut bad, mut skipped) = (0, 0);
    for program in chosen {
        if let Some(package) = program.missing().first() {
            println!("{:<16} skipped: {package} is not installed", program.name);
            skipped += 1;
            continue;
        }
        bad += check(program, options)?;
    }
    println!("cargo x programs: {bad} failed, {skipped} skipped");
    ensure!(bad == 0, "{bad} runs were not as they should be");
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Program>> {
    if names.is_empty() {
        return Ok(all().collect());
    }
    let find = |name: &String| all().find(|program| program.name == name);
    if let Some(unknown) = names.iter().find(|name| find(name).is_none()) {
        bail!("{unknown} is not in the list: cargo x programs --list");
    }
    Ok(names.iter().filter_map(find).collect())
}

/// Runs one program plain, then at each share; how many of the runs were wrong.
fn check(program: &Program, options: &Options) -> Result<usize> {
    let dir = sh::target_dir().join("programs").join(program.name);
    let _ = fs::remove_dir_all(&dir);
    let timeout = Duration::from_secs(options.timeout);
    let checked = run::prepare(program, &dir).and_then(|()| check_in(program, options, &dir, timeout));
    let _ = fs::remove_dir_all(&dir);
    checked.or_else(|error| {
        println!("{:<16} {error:#}", program.name);
        Ok(1)
    })
}

fn check_in(program: &Program, options: &Options, dir: &Path, timeout: Duration) -> Result<usize> {
    let plain = run::run(program, dir, Under::Nothing, timeout)?;
    ensure!(plain.status == program.status, "ends with {} without pleat: {}", plain.status, plain.stderr);
    let mut bad = 0;
    for share in &options.share {
        let budget = budget(plain.peak_bytes, *share);
        let under = Under::Pleat { budget, with: &options.with };
        let mut folded = run::run(program, dir, under, timeout)?;
        if verdict(program, &plain, &folded, budget) == "over" {
            // The machine is shared: a peak counts if it comes again.
            folded = run::run(program, dir, under, timeout)?;
        }
        let verdict = verdict(program, &plain, &folded, budget);
        bad += usize::from(verdict != "same");
        let line = Line::of(program, *share, &options.with, budget, verdict, &plain, &folded);
        report(&line, &plain, &folded, options)?;
    }
    Ok(bad)
}

/// What a program gets that is to have this share of its memory.
fn budget(plain_peak_bytes: u64, share: u64) -> u64 {
    (plain_peak_bytes * share / 100).max(BUDGET_MIN)
}

/// What to say of a run.
fn verdict(program: &Program, plain: &Ran, folded: &Ran, budget: u64) -> &'static str {
    let allowed = budget + (budget as f64 * TOLERANCE) as u64 + TOLERANCE_BYTES;
    let is_expected = |message: &String| {
        message.contains(ADVICE) || program.messages.iter().any(|expected| message.contains(expected))
    };
    if folded.timed_out {
        "hangs"
    } else if folded.status != plain.status {
        "status"
    } else if folded.stdout != plain.stdout {
        "differs"
    } else if folded.peak_bytes > allowed && program.is_managed {
        "over"
    } else if !folded.messages.iter().all(is_expected) {
        "message"
    } else if folded.pages_reclaimed == 0 && program.is_managed {
        "unmanaged"
    } else {
        "same"
    }
}

fn report(line: &Line<'_>, plain: &Ran, folded: &Ran, options: &Options) -> Result<()> {
    let verdict = line.verdict;
    let raised = if line.real_percent == line.share_percent {
        String::new()
    } else {
        format!(" (the least budget: {} %)", line.real_percent)
    };
    println!(
        "{:<16} {:>3} %{raised}  {verdict:<9} peak {} of {} ({:.0} %), {:.1} s against {:.1} s, {} processes, {} reclaimed",
        line.program,
        line.share_percent,
        mib(line.peak_bytes),
        mib(line.budget_bytes),
        line.peak_bytes as f64 * 100.0 / line.budget_bytes as f64,
        line.wall_s,
        line.plain_s,
        line.processes,
        line.pages_reclaimed,
    );
    for message in &folded.messages {
        println!("    {message}");
    }
    let is_other = matches!(verdict, "differs" | "status" | "hangs");
    if is_other {
        println!("  plain ended with {} and wrote\n{}", plain.status, indented(&plain.stdout));
        println!("  folded ended with {} and wrote\n{}", folded.status, indented(&folded.stdout));
    }
    if options.errors || is_other {
        println!("{}", indented(&folded.stderr));
    }
    if let Some(path) = &options.json {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(file, "{}", serde_json::to_string(line)?)?;
    }
    Ok(())
}

/// The end of a text, for the eye.
fn indented(text: &str) -> String {
    const LINES: usize = 30;
    let skipped = text.lines().count().saturating_sub(LINES);
    text.lines().skip(skipped).fold(String::new(), |all, line| all + "    " + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 34 MiB, 40 % would be less than pleat takes: it gets 47 %, and that is what is said.
    #[test]
    fn the_share_that_is_told_is_the_real_one() {
        let real = |peak: u64, share| real_percent(budget(peak, share), peak);
        assert_eq!([60, 40].map(|share| real(34 << 20, share)), [60, 47]);
        assert_eq!([60, 40].map(|share| real(23 << 20, share)), [70, 70]);
        assert!((1..=100).all(|share| real(12_345_678_901, share) == share));
    }
}
