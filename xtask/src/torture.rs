//! `cargo x torture`: the program that does to its memory whatever Linux allows, plain and under a tiny budget.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::sh;

/// A run of one seed. Short, because more seeds find more than longer runs.
const RUN: Duration = Duration::from_secs(20);
/// What a run may take to end.
const GRACE: Duration = Duration::from_mins(3);
/// In the environment of a run, for what it starts to be told from what others do.
const MARK: &str = "PLEAT_TORTURE";
/// Fewer pages folded up and brought back for each step than this, and what was tortured was not pleat. Ten times as many are usual.
const ENCODED_PER_STEP_MIN: u64 = 10;
const DECODED_PER_STEP_MIN: u64 = 3;
/// What is said where all is well: children that nobody can follow are ended, and filters are refused in user mode.
const USUAL: [&str; 2] = ["was forked by a raw system call", "a seccomp filter is refused"];

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The first seed; each run takes the next.
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
    let swap = sh::target_dir().join("torture").join(format!("swap-{}", std::process::id()));
    std::fs::create_dir_all(&swap)?;
    let stats = swap.with_extension("json");
    let mark = format!("{}-{seed}", std::process::id());
    let before = leavings(&mark);
    let program = sh::release("pleat-torture");
    let mut command = if options.plain {
        Command::new(&program)
    } else {
        let mut command = Command::new(sh::release("pleat"));
        command.args(["run", "--ram", &options.ram, "--swap"]).arg(&swap).arg("--stats").arg(&stats);
        command.args(&options.with).arg("--").arg(&program);
        command
    };
    command.args(["--seed", &seed.to_string(), "--seconds", &seconds.to_string()]);
    if options.with.iter().any(|option| option == "--user-mode") {
        command.arg("--others-miss");
    }
    command.env(MARK, &mark);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let late = Instant::now() + Duration::from_secs(seconds) + GRACE;
    while child.try_wait()?.is_none() {
        if Instant::now() > late {
            child.kill()?;
            child.wait()?;
            bail!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && said.contains("all well"), "{}: {said}{complaints}", output.status);
    ensure!(std::fs::read_dir(&swap)?.next().is_none(), "files left in {}", swap.display());
    std::fs::remove_dir(&swap)?;
    ensure!(processes_of(&program).is_empty(), "processes left: {:?}", processes_of(&program));
    let left = left_since(&before, &mark);
    ensure!(left.is_empty(), "left behind: {left:?}");
    let line = said.lines().next().unwrap_or_default();
    println!("seed {seed}: {line}");
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let done = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if !options.plain {
        let unusual = complaints.lines().filter(|line| line.starts_with("pleat:"));
        unusual.filter(|line| !USUAL.iter().any(|usual| line.contains(usual))).for_each(|line| println!("  {line}"));
        assert_folded(&stats, done.0)?;
        std::fs::remove_file(&stats)?;
    }
    Ok(done)
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

/// What is there of all that a run could leave: shared memory of both kinds, semaphores, messages, cgroups in which there is
/// nobody, and processes of `pleat` with this mark.
fn leavings(mark: &str) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = entries(Path::new("/dev/shm")).map(|path| path.display().to_string()).collect();
    for kind in ["shm", "sem", "msg"] {
        let table = std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        let ids = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        all.extend(ids.map(|id| format!("System V {kind} {id}")));
    }
    add_empty_groups(Path::new("/sys/fs/cgroup"), &mut all);
    let marked = processes_of(&sh::release("pleat")).into_iter().filter(|process| has_mark(process, mark));
    all.extend(marked.map(|process| format!("pleat: {}", process.display())));
    all
}

/// Whether this is in the environment that a process was started with.
fn has_mark(process: &Path, mark: &str) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    let wanted = format!("{MARK}={mark}");
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Adds the cgroups below `dir` that hold no process.
fn add_empty_groups(dir: &Path, all: &mut BTreeSet<String>) {
    for group in entries(dir).filter(|path| path.is_dir() && !path.is_symlink()) {
        if std::fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty()) {
            all.insert(group.display().to_string());
        }
        add_empty_groups(&group, all);
    }
}

/// What is new since then, and stays: other programs of the machine make such things for a moment.
fn left_since(before: &BTreeSet<String>, mark: &str) -> BTreeSet<String> {
    let late = Instant::now() + Duration::from_secs(2);
    let mut left = &leavings(mark) - before;
    while !left.is_empty() && Instant::now() < late {
        std::thread::sleep(Duration::from_millis(50));
        left = &left & &leavings(mark);
    }
    left
}

/// Processes that run this program. Those of this target directory only: another checkout may be tested beside.
fn processes_of(program: &Path) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.filter(|path| std::fs::read_link(path.join("exe")).is_ok_and(|exe| exe == program)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

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

    /// Not those that others run of the same program.
    #[test]
    fn a_process_is_known_by_its_mark() {
        let mut command = Command::new("cat");
        command.env(MARK, "1-2").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut marked = command.spawn().expect("there is a cat");
        // It has an environment once it runs, a moment after it was started.
        marked.stdin.as_mut().expect("piped above").write_all(b"x").expect("it runs");
        marked.stdout.as_mut().expect("piped above").read_exact(&mut [0]).expect("it runs");
        let process = PathBuf::from(format!("/proc/{}", marked.id()));
        let found = ["1-2", "1-22"].map(|mark| has_mark(&process, mark));
        marked.kill().expect("it runs");
        marked.wait().expect("it was started here");
        assert_eq!(found, [true, false]);
    }
}
