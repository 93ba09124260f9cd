//! `cargo x bench`: whole programs under pleat and under what Linux has, one against the other.
//!
//! In each round every system runs every case once, so that a slow minute of the machine falls on all of them; the
//! order turns from round to round. A ratio is formed inside a round, and reported as median, least and most.

pub(crate) mod cases;
pub(crate) mod report;
mod suite;
mod systems;
mod undo;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bench::loads::Outcome;
use bench::measure::Measured;
use bench::size::{self, mib};
use clap::Args;
use serde_json::{Value, json};

use crate::sh;
use cases::Case;
use report::{Run, Verdict};
use suite::Suite;
use systems::{Setting, Stage, System};

/// Calibration of a limit ends when anonymous memory and pool together are this near to the total.
const NEAR: f64 = 0.01;
const CALIBRATIONS_MAX: usize = 5;
/// How often the memory of a run is looked at, ms. Where a program and its pager have both processors in use each look takes time from them, and
/// more than from a single thread: every 20 ms, with the shares of pages, it was a tenth.
pub(crate) const WATCH_MS: u32 = 50;
/// No cgroup limit below this: a shell and a loader could not start.
const LIMIT_BYTES_MIN: u64 = 16 << 20;

/// What to compare.
#[derive(Args)]
pub(crate) struct Options {
    /// What is compared where no other option says so.
    #[arg(value_enum, default_value = "kernel")]
    suite: Suite,
    /// How often each system runs each case.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Cases; those of the suite by default.
    #[arg(long = "case", value_delimiter = ',')]
    cases: Vec<Case>,
    /// A program of yours, as a command line for `sh`, instead of the cases; may be given several times.
    #[arg(long = "command", value_name = "LINE")]
    commands: Vec<String>,
    /// Systems; those of the suite by default. `none` always runs: its output is what the others must print.
    #[arg(long = "system", value_delimiter = ',')]
    systems: Vec<System>,
    /// The system that ratios are formed against [default: none, with systems pleat]
    #[arg(long)]
    baseline: Option<System>,
    /// Memory given, as shares of what the case wants [default: 0.5, with systems 0.97 to 0.5]
    #[arg(long = "fraction", value_delimiter = ',', value_parser = size::parse_share)]
    fractions: Vec<f64>,
    /// Shares of a page that fold away, for thrasher, rand and sweep.
    #[arg(long, value_delimiter = ',', default_value = "0.5", value_parser = size::parse_share)]
    compressible: Vec<f64>,
    /// What a case is to want, about [default: 512M, with systems 96M]
    #[arg(long, value_parser = size::parse)]
    bytes: Option<u64>,
    /// Codec of zram and zswap.
    #[arg(long, default_value = "lz4")]
    kernel_codec: String,
    /// Seconds after which a run is given up.
    #[arg(long, default_value_t = 600)]
    timeout: u32,
    /// Append all lines to this file as well.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Take what is built already.
    #[arg(long)]
    no_build: bool,
    /// Where swap files and inputs go; a disk, not a tmpfs.
    #[arg(long)]
    work: Option<PathBuf>,
}

impl Options {
    fn baseline(&self) -> System {
        self.baseline.unwrap_or_else(|| self.suite.baseline())
    }
}

/// What was asked for, or else what the suite has.
pub(crate) fn chosen<'a, T>(asked: &'a [T], suite: &'a [T]) -> &'a [T] {
    if asked.is_empty() { suite } else { asked }
}

/// One case at one size with one total.
struct Contest {
    case: String,
    compressible: f64,
    fraction: f64,
    words: Vec<String>,
    setting: Setting,
    /// Output and result of the case without a limit.
    expected: String,
    /// Calibrated limits, by system.
    limits: Vec<(System, u64)>,
}

/// Runs all rounds and prints the lines.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "no rounds, no result");
    undo::on_every_end()?;
    if !options.no_build {
        sh::build_release()?;
    }
    let work = options.work.clone().unwrap_or_else(|| sh::target_dir().join("compare"));
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let mut out = Output::open(options.json.as_deref())?;
    out.line(&header(options))?;
    let prepared = contests(options, &work, &mut out)?;
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for contest in &prepared {
            let turn = round as usize % contest.limits.len();
            let (later, first) = contest.limits.split_at(turn);
            for (system, limit) in first.iter().chain(later) {
                match contest.run(*system, *limit, round, options) {
                    Ok(run) => {
                        out.line(&serde_json::to_value(&run)?)?;
                        runs.push(run);
                    }
                    Err(why) => out.line(&skipped(contest, *system, &why))?,
                }
            }
        }
    }
    let summary = report::summary(&runs, options.baseline().name());
    for line in &summary {
        out.line(line)?;
    }
    eprint!("{}", report::table(&summary));
    let wrong = runs.iter().filter(|run| run.verdict == Verdict::Wrong).count();
    ensure!(wrong == 0, "{wrong} runs printed something else than without a limit");
    Ok(())
}

/// What runs under all systems.
struct Program {
    name: String,
    compressible: f64,
    words: Vec<String>,
}

/// The commands that were asked for, and the cases: those of the suite only where there are no commands.
fn programs(options: &Options, work: &Path) -> Result<Vec<Program>> {
    let commands = options.commands.iter().map(|line| {
        let words = ["sh", "-c", line].map(str::to_owned).to_vec();
        Program { name: line.clone(), compressible: 0.0, words }
    });
    let mut programs: Vec<Program> = commands.collect();
    let suite = if programs.is_empty() { options.suite.cases() } else { &[] };
    let bytes = options.bytes.unwrap_or_else(|| options.suite.bytes());
    for case in chosen(&options.cases, suite) {
        let kinds = if case.is_walk() { options.compressible.as_slice() } else { &[0.0] };
        for &compressible in kinds {
            let words = case.command(bytes, compressible, work)?;
            programs.push(Program { name: case.name().into(), compressible, words });
        }
    }
    Ok(programs)
}

/// Prepares each case: its wish, its output, and the limit of each system.
fn contests(options: &Options, work: &Path, out: &mut Output) -> Result<Vec<Contest>> {
    let mut systems = chosen(&options.systems, options.suite.systems()).to_vec();
    systems.retain(|system| *system != System::None);
    systems.insert(0, System::None);
    let mut prepared = Vec::new();
    for Program { name, compressible, words } in programs(options, work)? {
        // 5 ms: often enough to see the peak, and nobody takes this run's time.
        let plain = measure(&words, 5, None, options.timeout)?;
        ensure!(plain.status == Some(0), "{} fails without a limit: {}", words.join(" "), plain.stderr);
        let wants_bytes = plain.anon_peak_bytes.context("the run was watched")?;
        for fraction in chosen(&options.fractions, options.suite.fractions()) {
            let total_bytes = (wants_bytes as f64 * fraction) as u64;
            let setting =
                Setting { work: work.to_owned(), codec: options.kernel_codec.clone(), wants_bytes, total_bytes };
            let (words, expected) = (words.clone(), result_of(&plain).0);
            let mut contest = Contest {
                case: name.clone(),
                compressible,
                fraction: *fraction,
                words,
                setting,
                expected,
                limits: Vec::new(),
            };
            for system in &systems {
                match contest.calibrate(*system, options) {
                    Ok(limit) => contest.limits.push((*system, limit)),
                    Err(why) => out.line(&skipped(&contest, *system, &why))?,
                }
            }
            prepared.push(contest);
        }
    }
    Ok(prepared)
}

impl Contest {
    /// The limit at which anonymous memory and pool together take the total, as pleat's budget counts it.
    fn calibrate(&self, system: System, options: &Options) -> Result<u64, String> {
        let total = self.setting.total_bytes;
        if !system.in_cgroup() {
            return Ok(total);
        }
        // Also shows whether the system can be had here at all.
        drop(Stage::build(system, total, &self.setting)?);
        let mut limit = if system == System::Swap { total } else { total * 2 / 3 };
        for _ in 0..CALIBRATIONS_MAX {
            let run = self.run(system, limit, 0, options)?;
            let anonymous = run.measured.anon_peak_bytes.ok_or("the run was not watched")?;
            let excess = (anonymous + run.outside_bytes) as f64 - total as f64;
            eprintln!(
                "calibrating {} {}: limit {}, anonymous {} + pool {} of {}: {:?}",
                self.case,
                system.name(),
                mib(limit),
                mib(anonymous),
                mib(run.outside_bytes),
                mib(total),
                run.verdict
            );
            if excess.abs() <= NEAR * total as f64 || (excess > 0.0 && limit == LIMIT_BYTES_MIN) {
                break;
            }
            // Each byte taken off the limit puts a share of itself into the pool.
            let spilled = self.setting.wants_bytes.saturating_sub(limit).max(1);
            let share = (run.outside_bytes as f64 / spilled as f64).min(0.9);
            limit = ((limit as f64 - excess / (1.0 - share)) as u64).clamp(LIMIT_BYTES_MIN, 2 * total);
        }
        Ok(limit)
    }

    fn run(&self, system: System, limit: u64, round: u32, options: &Options) -> Result<Run, String> {
        let stage = Stage::build(system, limit, &self.setting)?;
        let stats = self.setting.work.join("stats.json");
        let mut words = self.words.clone();
        if let Some(chosen) = system.options(limit) {
            let mut prefix = vec![
                sh::release("pleat").display().to_string(),
                "run".into(),
                format!("--ram={limit}"),
                format!("--swap={}", self.setting.work.display()),
                format!("--stats={}", stats.display()),
            ];
            prefix.extend(chosen);
            prefix.push("--".into());
            words.splice(0..0, prefix);
        }
        let dir = stage.group.as_ref().map(bench::cgroup::Group::dir);
        let mut measured = measure(&words, WATCH_MS, dir, options.timeout).map_err(|error| format!("{error:#}"))?;
        let (result, own) = result_of(&measured);
        let oom_kills = stage.group.as_ref().map_or(0, bench::cgroup::Group::oom_kills);
        let verdict = match &measured {
            Measured { timed_out: true, .. } => Verdict::Timeout,
            _ if oom_kills > 0 => Verdict::Killed,
            Measured { status: Some(0), .. } if result == self.expected => Verdict::Ok,
            Measured { status: Some(0), .. } => Verdict::Wrong,
            _ => Verdict::Failed,
        };
        // Compared by now; its sum stays.
        measured.stdout.clear();
        Ok(Run {
            round,
            case: self.case.clone(),
            system: system.name().into(),
            compressible: self.compressible,
            fraction: self.fraction,
            wants_bytes: self.setting.wants_bytes,
            total_bytes: self.setting.total_bytes,
            limit_bytes: system.in_cgroup().then_some(limit),
            outside_bytes: stage.outside_bytes(),
            cgroup_peak_bytes: stage.group.as_ref().and_then(bench::cgroup::Group::peak_bytes),
            codec: stage.codec(system),
            verdict,
            measured,
            own,
        })
    }
}

/// What must be equal: the walk's checksum, or the sum over the output; and what the walk says of itself.
pub(crate) fn result_of(measured: &Measured) -> (String, Option<Outcome>) {
    match serde_json::from_str::<Outcome>(&measured.stdout) {
        Ok(outcome) => (outcome.checksum.clone(), Some(outcome)),
        Err(_) => (measured.stdout_sum.clone(), None),
    }
}

/// Runs one command to its end under `pleat-bench measure`.
pub(crate) fn measure(words: &[String], watch_ms: u32, cgroup: Option<&Path>, timeout: u32) -> Result<Measured> {
    let mut command = Command::new(sh::release("pleat-bench"));
    command.arg("measure").args(["--watch-ms", &watch_ms.to_string(), "--timeout", &timeout.to_string()]);
    if words[0] == sh::release("pleat").display().to_string() {
        command.arg("--runner");
    }
    if let Some(dir) = cgroup {
        command.arg("--cgroup").arg(dir);
    }
    command.arg("--").args(words).env("LC_ALL", "C").stdout(Stdio::piped());
    undo::stop_if_ending();
    let child = command.spawn().context("cannot start pleat-bench")?;
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    // It passes the signal on to what it runs. If it has ended by then, its pid waits for us and hits nobody else.
    let stop = undo::later(move || {
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    });
    let output = child.wait_with_output().context("cannot wait for pleat-bench")?;
    stop.forget();
    undo::stop_if_ending();
    ensure!(output.status.success(), "pleat-bench measure ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("pleat-bench measure prints JSON")
}

fn skipped(contest: &Contest, system: System, why: &str) -> Value {
    json!({ "skipped": { "case": contest.case, "system": system.name(), "fraction": contest.fraction, "why": why } })
}

/// Lines to standard output and, if asked for, to a file.
pub(crate) struct Output(Option<fs::File>);

impl Output {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| path.display().to_string())
        };
        Ok(Self(path.map(open).transpose()?))
    }

    pub(crate) fn line(&mut self, line: &Value) -> Result<()> {
        println!("{line}");
        if let Some(file) = &mut self.0 {
            writeln!(file, "{line}")?;
        }
        Ok(())
    }
}

/// Where and how: enough to run it again.
fn header(options: &Options) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let git = |words: &[&str]| sh::read(Command::new("git").args(words).current_dir(sh::root())).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    json!({ "header": {
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "commit": git(&["rev-parse", "HEAD"]).trim(),
        "changed_files": git(&["status", "--porcelain", "--untracked-files=no"]).lines().count(),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpu": cpu.unwrap_or_default(),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory": read("/proc/meminfo").lines().next().unwrap_or_default(),
        "page_cluster": read("/proc/sys/vm/page-cluster").trim(),
        "swappiness": read("/proc/sys/vm/swappiness").trim(),
        "kernel_codec": options.kernel_codec,
        "rounds": options.rounds,
        "baseline": options.baseline().name(),
    }})
}
