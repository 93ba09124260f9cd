//! `cargo x validity`: what `pleat sim` foretells, beside what `pleat run` does.
//!
//! Each program is recorded once, by `pleat record`. At each budget it then runs live, some times, and its trace is played
//! with the costs of this machine, measured before those runs and behind them. How small pages get the trace has samples
//! of; how long they take to encode and decode, which depends on them as well, is what they took live. Of the program's own
//! time the simulator is taken none: what it adds goes on top of a plain run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bench::size;
use clap::Args;
use serde_json::{Value, json};

use crate::compare::cases::Case;
use crate::compare::report::spread;
use crate::compare::{self, Output};
use crate::sh;

/// What to compare.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs; all if none is named.
    #[arg(long = "case", value_delimiter = ',')]
    cases: Vec<Case>,
    /// Budgets, as shares of what a program wants.
    #[arg(long = "fraction", value_delimiter = ',', value_parser = size::parse_share, default_value = "0.8,0.65,0.5")]
    fractions: Vec<f64>,
    /// What a program is to want, about: it is recorded some hundred times slower than it runs.
    #[arg(long, value_parser = size::parse, default_value = "48M")]
    bytes: u64,
    /// Live runs of each program at each budget; the middle one counts.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Append all lines to this file as well.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Take traces that are there from before, of the same programs and sizes.
    #[arg(long)]
    keep_traces: bool,
    /// Take what is built already.
    #[arg(long)]
    no_build: bool,
}

/// Seconds after which a run is given up.
const TIMEOUT: u32 = 600;
/// Of each page, how much folds away in the walks.
const COMPRESSIBLE: f64 = 0.6;
/// The goals: simulated by live.
const FAULTS_WITHIN: f64 = 0.10;
const TIME_WITHIN: f64 = 0.20;

/// Records, runs and simulates, and prints a line for each program and budget.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "no rounds, no result");
    if !options.no_build {
        sh::build_release()?;
    }
    let work = sh::target_dir().join("validity");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let mut out = Output::open(options.json.as_deref())?;
    let mut rows = Vec::new();
    for case in compare::chosen(&options.cases, Case::ALL) {
        let program = Recorded::new(*case, options, &work)?;
        for fraction in &options.fractions {
            let row = program.compare(*fraction, options, &work)?;
            out.line(&row.json())?;
            rows.push(row);
        }
    }
    eprint!("{}", table(&rows));
    Ok(())
}

fn pleat() -> Command {
    Command::new(sh::release("pleat"))
}

/// What steps cost here, just now.
fn calibrated(work: &Path) -> Result<Value> {
    let path = work.join("costs.json");
    sh::run(pleat().args(["sim", "--calibrate"]).arg(&path).stdout(Stdio::null()))?;
    Ok(serde_json::from_str(&fs::read_to_string(&path)?)?)
}

/// Of two documents of the same form, with the means of their fractions.
fn mean_of(one: Value, other: &Value) -> Value {
    match one {
        Value::Object(fields) => {
            let mean = |(name, value)| {
                let beside = &other[&name];
                (name, mean_of(value, beside))
            };
            Value::Object(fields.into_iter().map(mean).collect())
        }
        Value::Number(number) if number.is_f64() => match (number.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => json!(f64::midpoint(one, other)),
            _ => Value::Number(number),
        },
        value => value,
    }
}

/// What `pleat sim` says of a trace: its first row.
fn simulate(trace: &Path, words: &[&str]) -> Result<Value> {
    let rows: Value =
        serde_json::from_str(&sh::read(pleat().arg("sim").arg(trace).args(words).args(["--json", "-"]))?)?;
    Ok(rows[0].clone())
}

/// A program that has run plain and has been recorded.
struct Recorded {
    case: Case,
    words: Vec<String>,
    trace: PathBuf,
    plain_seconds: f64,
    wants_bytes: u64,
    /// Pages in the trace.
    pages: u64,
    expected: String,
}

impl Recorded {
    fn new(case: Case, options: &Options, work: &Path) -> Result<Self> {
        let mut words = case.command(options.bytes, COMPRESSIBLE, work)?;
        if words[0] == "python3" {
            // Not a script that looks for it, which would be recorded too.
            let executable = sh::read(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
            executable.trim().clone_into(&mut words[0]);
        }
        let runs =
            (0..options.rounds).map(|_| compare::measure(&words, 5, None, TIMEOUT)).collect::<Result<Vec<_>>>()?;
        let plain = runs.last().expect("one round at least");
        ensure!(plain.status == Some(0), "{} fails: {}", words.join(" "), plain.stderr);
        let trace = work.join(format!("{}.trace", case.name()));
        if !(options.keep_traces && trace.exists()) {
            eprintln!("recording {}", words.join(" "));
            sh::run(pleat().args(["record", "--out"]).arg(&trace).arg("--").args(&words).stdout(Stdio::null()))?;
        }
        Ok(Self {
            case,
            plain_seconds: median(runs.iter().map(|run| run.wall_s)),
            wants_bytes: plain.anon_peak_bytes.context("the run was watched")?,
            pages: simulate(&trace, &["--replacement", "lru", "--pages", "1"])?["cold_misses"]
                .as_u64()
                .context("pleat sim counts pages")?,
            expected: compare::result_of(plain).0,
            trace,
            words,
        })
    }

    fn compare(&self, fraction: f64, options: &Options, work: &Path) -> Result<Row> {
        let budget = (self.wants_bytes as f64 * fraction) as u64;
        // A machine that others use is not always as fast.
        let before = calibrated(work)?;
        let live = (0..options.rounds).map(|_| self.live(budget, work)).collect::<Result<Vec<_>>>()?;
        let costs = mean_of(before, &calibrated(work)?);
        let ratio = median(live.iter().map(|live| live.ratio));
        // The trace has pages of files, too, which no budget counts.
        let ram = budget + (self.pages * 4096).saturating_sub(self.wants_bytes);
        let (ram, ratio_word) = (format!("--ram={ram}"), format!("--ratio={ratio:.4}"));
        let costs = self.with_own_pages(costs, &live, work)?;
        let costs = costs.to_str().context("the target directory's path is no UTF-8")?;
        let words = ["--system", "pleat", &ram, &ratio_word, "--machine", costs, "--backing", costs];
        let simulated = simulate(&self.trace, &words)?;
        let seconds = |name: &str| simulated[name].as_f64().context("pleat sim tells seconds");
        Ok(Row {
            program: self.case.name(),
            fraction,
            budget_bytes: budget,
            ratio,
            plain_seconds: self.plain_seconds,
            live_faults: spread_of(live.iter().map(|live| live.faults as f64)),
            live_seconds: spread_of(live.iter().map(|live| live.seconds)),
            simulated_faults: refaults(&simulated["faults"], Value::as_u64) as f64,
            simulated_seconds: self.plain_seconds + seconds("run_seconds")? - seconds("unlimited_seconds")?,
        })
    }

    /// Those costs with what this program's pages take to encode and decode: the pages of the probe that `--calibrate` runs are others.
    fn with_own_pages(&self, mut own: Value, live: &[Live], work: &Path) -> Result<PathBuf> {
        let [encode_ns, decode_ns] = [0, 1].map(|step| median(live.iter().map(|live| live.codec_ns[step])));
        for (step, ns) in [("encode", encode_ns), ("decode", decode_ns)] {
            own["machine"][step]["ns"] = json!(ns.round());
        }
        let path = work.join(format!("costs-{}.json", self.case.name()));
        fs::write(&path, own.to_string()).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    fn live(&self, budget: u64, work: &Path) -> Result<Live> {
        let stats = work.join("stats.json");
        let mut words = vec![
            sh::release("pleat").display().to_string(),
            "run".into(),
            format!("--ram={budget}"),
            format!("--swap={}", work.display()),
            format!("--stats={}", stats.display()),
            "--".into(),
        ];
        words.extend(self.words.iter().cloned());
        let run = compare::measure(&words, 1000, None, TIMEOUT)?;
        ensure!(run.status == Some(0), "{} fails: {}", words.join(" "), run.stderr);
        ensure!(compare::result_of(&run).0 == self.expected, "another output: this is a bug");
        let stats: Value = serde_json::from_str(&fs::read_to_string(stats)?)?;
        let codecs = stats["codecs"].as_object().context("the statistics tell codecs")?;
        let sum = |name: &str| codecs.values().filter_map(|made| made[name].as_u64()).sum::<u64>() as f64;
        let number = |name: &str| stats[name].as_f64().with_context(|| format!("the statistics have no {name}"));
        let each = |ns: &str, pages: &str| Ok::<_, anyhow::Error>(number(ns)? / number(pages)?.max(1.0));
        Ok(Live {
            codec_ns: [each("encode_ns", "pages_encoded")?, each("decode_ns", "pages_decoded")?],
            seconds: run.wall_s,
            faults: refaults(&stats["faults"], |kind| kind["count"].as_u64()),
            ratio: if sum("encodings") > 0.0 { sum("bytes") / sum("encodings") / 4096.0 } else { 0.4 },
        })
    }
}

/// One live run.
struct Live {
    seconds: f64,
    faults: u64,
    /// Of encodings, by their pages.
    ratio: f64,
    /// What a page took to encode, and to decode.
    codec_ns: [f64; 2],
}

/// Faults on pages that had left. The statistics call soft ones staged.
fn refaults(faults: &Value, count: impl Fn(&Value) -> Option<u64>) -> u64 {
    ["soft", "staged", "same_filled", "compressed", "backed"].iter().filter_map(|kind| count(&faults[*kind])).sum()
}

/// One program at one budget. Live numbers are median, least and most.
struct Row {
    program: &'static str,
    fraction: f64,
    budget_bytes: u64,
    ratio: f64,
    plain_seconds: f64,
    live_faults: [f64; 3],
    live_seconds: [f64; 3],
    simulated_faults: f64,
    simulated_seconds: f64,
}

impl Row {
    fn faults_by_live(&self) -> f64 {
        self.simulated_faults / self.live_faults[0]
    }

    fn seconds_by_live(&self) -> f64 {
        self.simulated_seconds / self.live_seconds[0]
    }

    fn line(&self) -> String {
        let ([median, least, most], [seconds, quickest, slowest]) = (self.live_faults, self.live_seconds);
        format!(
            "| {} | {:.0} % | {median:.0} ({least:.0}–{most:.0}) | {:.0} | {:.2} | \
             {seconds:.2} ({quickest:.2}–{slowest:.2}) | {:.2} | {:.2} |\n",
            self.program,
            self.fraction * 100.0,
            self.simulated_faults,
            self.faults_by_live(),
            self.simulated_seconds,
            self.seconds_by_live()
        )
    }

    fn json(&self) -> Value {
        json!({
            "program": self.program, "fraction": self.fraction, "budget_bytes": self.budget_bytes, "ratio": self.ratio,
            "plain_seconds": self.plain_seconds, "live_faults": self.live_faults, "live_seconds": self.live_seconds,
            "simulated_faults": self.simulated_faults, "simulated_seconds": self.simulated_seconds,
        })
    }
}

fn table(rows: &[Row]) -> String {
    let head = "\n| program | budget | faults, live | simulated | by live | seconds, live | simulated | by live |\n\
                |---|---|---|---|---|---|---|---|\n";
    let lines: String = rows.iter().map(Row::line).collect();
    let met =
        |ratio: fn(&Row) -> f64, within: f64| rows.iter().filter(|row| (ratio(row) - 1.0).abs() <= within).count();
    format!(
        "{head}{lines}\nfaults within {:.0} % in {} of {}, time within {:.0} % in {}\n",
        FAULTS_WITHIN * 100.0,
        met(Row::faults_by_live, FAULTS_WITHIN),
        rows.len(),
        TIME_WITHIN * 100.0,
        met(Row::seconds_by_live, TIME_WITHIN)
    )
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    spread_of(numbers)[0]
}

/// Median, least and most.
fn spread_of(numbers: impl Iterator<Item = f64>) -> [f64; 3] {
    let spread = spread(numbers.collect()).expect("one round at least");
    [spread.median, spread.min, spread.max]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_count_pages_that_had_left() {
        let live = json!({ "zero_fill": { "count": 9 }, "staged": { "count": 1 }, "compressed": { "count": 20 },
            "backed": { "count": 300 }, "same_filled": { "count": 4000 }, "raced": { "count": 7 } });
        let simulated = json!({ "first_touch": 9, "soft": 1, "same_filled": 4000, "compressed": 20, "backed": 300 });
        assert_eq!(refaults(&live, |kind| kind["count"].as_u64()), 4321);
        assert_eq!(refaults(&simulated, Value::as_u64), 4321);
    }

    #[test]
    fn costs_are_means_of_two_measurements() {
        let measured = |ns: f64| json!({ "machine": { "processors": 2, "fault": { "ns": ns, "source": "a test" } } });
        assert_eq!(mean_of(measured(3000.0), &measured(5000.0)), measured(4000.0));
    }

    #[test]
    fn the_table_counts_who_is_near_enough() {
        let row = |simulated_faults, simulated_seconds| Row {
            program: "p",
            fraction: 0.5,
            budget_bytes: 1,
            ratio: 0.4,
            plain_seconds: 1.0,
            live_faults: [100.0, 90.0, 110.0],
            live_seconds: [2.0, 1.9, 2.1],
            simulated_faults,
            simulated_seconds,
        };
        let text = table(&[row(109.0, 2.3), row(112.0, 1.7), row(91.0, 1.5)]);
        assert!(text.ends_with("faults within 10 % in 2 of 3, time within 20 % in 2\n"), "{text}");
    }
}
