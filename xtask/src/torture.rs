//! `cargo x torture`: the program that does to its memory whatever Linux allows, plain and under a tiny budget.

mod left;
mod run;
mod swap;

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::run::{Run, Said};
use self::swap::Swap;
use crate::sh;

/// A run of one seed. Short, because more seeds find more than longer runs.
const RUN: Duration = Duration::from_secs(20);
/// What a run may take to end.
const GRACE: Duration = Duration::from_mins(3);
/// Fewer pages folded up and brought back for each step than this, and what was tortured was not pleat. Ten times as many are usual.
const ENCODED_PER_STEP_MIN: u64 = 10;
const DECODED_PER_STEP_MIN: u64 = 3;
/// What pleat says where all is well: children that nobody can follow are ended; the program locks all of its memory now and then,
/// which may be more than the budget; and the machine's disk may have other work.
const USUAL: [&str; 3] = [
    "was forked by a raw system call and is ended",
    "cannot be met, the program goes on above it: raise --ram, or allow more swap",
    "waits for its swap file",
];
/// The same in user mode, which documents what it refuses.
const USUAL_IN_USER_MODE: [&str; 3] =
    ["a seccomp filter is refused", "userfaultfd is refused", "io_uring_setup is refused"];
const USER_MODE: &str = "--user-mode";

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The first seed; each run takes the next
    ///
    /// A seed fixes the steps that each thread takes, what they do it with, and what pages are written to (a sound swap file, a small
    /// one, none, or one that fails). It does not fix the order between threads and processes, nor when pleat folds a page.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long in all.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The budget, of which the program has a multiple in use.
    #[arg(long, default_value = "24M")]
    ram: String,
    /// Options of `pleat run` besides.
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    /// Run it without pleat: then all must be well, too.
    #[arg(long)]
    plain: bool,
}

/// Builds it and runs it with one seed after the other.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("build: release");
    sh::build_release()?;
    build()?;
    torture(options)
}

fn build() -> Result<()> {
    sh::run(&mut sh::cargo(&["build", "--quiet", "--release", "--package", "pleat-torture"]))
}

/// The same with what is built already.
fn torture(options: &Options) -> Result<()> {
    let start = Instant::now();
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let (mut seed, mut steps, mut processes) = (options.seed, 0, 0);
    while start.elapsed() < time {
        let seconds = seconds(time.saturating_sub(start.elapsed()));
        let done = run_seed(options, seed, seconds)
            .with_context(|| format!("seed {seed} is wrong; `{}` repeats it", repeated(options, seed, seconds)))?;
        (steps, processes, seed) = (steps + done.0, processes + done.1, seed + 1);
    }
    let (count, minutes) = (seed - options.seed, start.elapsed().as_secs_f64() / 60.0);
    println!("torture: all well: {count} seeds, {steps} steps in {processes} processes, {minutes:.1} minutes");
    Ok(())
}

/// How long the next seed runs, of what is left of the time.
fn seconds(left: Duration) -> u64 {
    // Rounded: the first of `repeated` has a little less than it was given.
    left.clamp(Duration::from_secs(5), RUN).as_secs_f64().round() as u64
}

/// The command that runs this seed alone, as it has been run.
fn repeated(options: &Options, seed: u64, seconds: u64) -> String {
    let Options { ram, with, plain, .. } = options;
    let minutes = seconds as f64 / 60.0;
    let with = with.iter().map(|option| format!(" --with {option}")).collect::<Vec<_>>().concat();
    let plain = if *plain { " --plain" } else { "" };
    format!("cargo x torture --seed {seed} --minutes {minutes:.4} --ram {ram}{with}{plain}")
}

/// A minute and a half of it, the last third without permissions, with seeds that nobody has had.
pub(crate) fn in_passing() -> Result<()> {
    build()?;
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let ways: &[(f64, &[&str])] =
        if cfg!(target_arch = "x86_64") { &[(1.0, &[]), (0.5, &["--user-mode"])] } else { &[(1.5, &[])] };
    for (minutes, with) in ways {
        let with = with.iter().map(|option| (*option).to_owned()).collect();
        torture(&Options { seed, minutes: *minutes, ram: "24M".to_owned(), with, plain: false })?;
    }
    Ok(())
}

/// One seed; steps and processes of it.
fn run_seed(options: &Options, seed: u64, seconds: u64) -> Result<(u64, u64)> {
    let is_asked = Swap::is_asked(&options.with, |name| std::env::var_os(name));
    let swap = Swap::of(seed, is_asked);
    if !options.plain {
        println!("seed {seed}: {swap}");
    }
    let run = Run::new(&seed.to_string())?;
    let mut command = command(options, swap, &run);
    command.args(["--seed", &seed.to_string(), "--seconds", &seconds.to_string()]);
    let time = Duration::from_secs(seconds) + GRACE;
    let (done, told) = run.judged(&mut command, time, |run, status, said| {
        let done = judge(run, status, said)?;
        if !options.plain {
            let is_in_user_mode = options.with.iter().any(|option| option == USER_MODE);
            assert_usual(&said.complaints, swap, is_in_user_mode)?;
            assert_folded(&run.stats(), done.0)?;
        }
        let is_excused = swap.excuse().is_some_and(|excuse| said.complaints.contains(excuse));
        let beyond = if is_excused { "; beyond its budget" } else { "" };
        Ok((done, said.output.lines().take(2).collect::<Vec<_>>().join("; ") + beyond))
    })?;
    println!("seed {seed}: {told}");
    Ok(done)
}

fn command(options: &Options, swap: Swap, run: &Run) -> Command {
    let program = sh::release("pleat-torture");
    if options.plain {
        return Command::new(program);
    }
    let mut command = Command::new(sh::release("pleat"));
    command.args(["run", "--ram", &options.ram, "--stats"]).arg(run.stats());
    command.args(swap.options(&run.swap(), &options.with)).args(&options.with).arg("--").arg(program);
    command.envs(swap.fault());
    if options.with.iter().any(|option| option == USER_MODE) {
        command.arg("--others-miss");
    }
    command
}

/// Whether the program says that all is well; its steps and processes.
fn judge(run: &Run, status: ExitStatus, said: &Said) -> Result<(u64, u64)> {
    ensure!(status.success() && said.output.contains("all well"), "it ends with {status}");
    ensure!(!run.is_at_work(&sh::release("pleat-torture")), "it has ended, and not all of its processes");
    let line = said.output.lines().next().unwrap_or_default();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    numbers.next().zip(numbers.next()).context("it does not say how much it has done")
}

/// Whether pleat has said nothing but what is known and right.
fn assert_usual(complaints: &str, swap: Swap, is_in_user_mode: bool) -> Result<()> {
    let of_mode: &[&str] = if is_in_user_mode { &USUAL_IN_USER_MODE } else { &[] };
    let is_usual = |line: &&str| of_mode.iter().chain(&USUAL).chain(&swap.excuse()).any(|usual| line.contains(usual));
    let unusual: Vec<&str> =
        complaints.lines().filter(|line| line.starts_with("pleat:")).filter(|line| !is_usual(line)).collect();
    ensure!(unusual.is_empty(), "pleat is not expected to say\n{}", unusual.join("\n"));
    Ok(())
}

/// Whether its memory has gone through pleat, and not beside it.
fn assert_folded(stats: &Path, steps: u64) -> Result<()> {
    let numbers: serde_json::Value = serde_json::from_slice(&std::fs::read(stats)?)?;
    for (name, least) in [("pages_encoded", ENCODED_PER_STEP_MIN), ("pages_decoded", DECODED_PER_STEP_MIN)] {
        let pages = numbers[name].as_u64().with_context(|| format!("no {name} in {}", stats.display()))?;
        ensure!(pages >= least * steps, "{steps} steps, and only {pages} {name}: it ran beside the budget");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(line: &str) -> Options {
        Line::try_parse_from(line.strip_prefix("cargo x ").expect("a line to type").split(' ')).expect(line).options
    }

    /// The line that is shown on failure means the same run, and not one seed more.
    #[test]
    fn a_seed_is_repeated_as_it_was() {
        for options in ["", " --ram 16M", " --with --user-mode --with --store=zones --ram 1.5G", " --plain"] {
            let options = parsed(&format!("cargo x torture{options}"));
            for left in (0..400).map(|tenths| Duration::from_millis(100 * tenths)) {
                let had = seconds(left);
                let again = parsed(&repeated(&options, 77, had));
                let time = Duration::from_secs_f64(again.minutes * 60.0);
                assert_eq!(seconds(time.saturating_sub(Duration::from_millis(20))), had, "{left:?}");
                assert!(time < Duration::from_millis(1000 * had + 200), "{left:?}: a second seed would follow");
                assert_eq!(
                    (again.seed, &again.ram, &again.with, again.plain),
                    (77, &options.ram, &options.with, options.plain)
                );
            }
        }
    }

    #[test]
    fn what_runs_beside_the_budget_is_told() {
        let stats = std::env::temp_dir().join(format!("pleat-torture-{}.json", std::process::id()));
        let told = |numbers: &str| {
            std::fs::write(&stats, numbers).expect("a directory for temporary files");
            assert_folded(&stats, 100).map_err(|error| error.to_string())
        };
        let all = [
            told(r#"{"pages_encoded": 1000, "pages_decoded": 300}"#),
            told(r#"{"pages_encoded": 1000, "pages_decoded": 0}"#),
            told("{}"),
        ];
        std::fs::remove_file(&stats).expect("written above");
        assert_eq!(all[0], Ok(()));
        assert_eq!(all[1], Err("100 steps, and only 0 pages_decoded: it ran beside the budget".to_owned()));
        assert!(all[2].as_ref().is_err_and(|error| error.contains("no pages_encoded")), "{all:?}");
    }

    /// A line that nobody has thought of is a failure; so is one that is right elsewhere.
    #[test]
    fn what_pleat_says_is_known_or_wrong() {
        const FORKED: &str =
            "pleat: process 7 was forked by a raw system call and is ended: pleat can follow libc's fork only";
        const FILTER: &str = "pleat: a seccomp filter is refused in user mode";
        const FULL: &str = "pleat: the budget of 24 MiB cannot be met, the program goes on above it: raise --ram, or allow more swap with --swap";
        const NO_FILE: &str =
            "pleat: the budget of 24 MiB cannot be met, the program goes on above it: there is no swap file";
        let is_usual = |line: &str, swap, is_in_user_mode| {
            assert_usual(&format!("fork 7, spawn 8\n{FORKED}\n{line}\n"), swap, is_in_user_mode).is_ok()
        };
        assert!(is_usual(FORKED, Swap::Sound, false));
        assert_eq!([true, false].map(|mode| is_usual(FILTER, Swap::Sound, mode)), [true, false]);
        let swaps = [Swap::Sound, Swap::Small, Swap::None, Swap::Unwritable, Swap::Asked];
        let says = |line| swaps.map(|swap| is_usual(line, swap, false));
        assert_eq!(says(FULL), [true; 5]);
        assert_eq!(says(NO_FILE), [false, false, true, false, true]);
        assert!(!is_usual("pleat: process 7 runs outside the budget: userfaultfd is not permitted", Swap::Asked, true));
    }
}
