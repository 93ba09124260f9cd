//! `cargo x test`: all tests, with the programs they need.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::suite::TestProgram;
use crate::{sh, suite, tidy, torture};

/// Programs the end-to-end tests run, and the Debian package of each.
const NEEDED: &[(&str, &str)] = &[
    ("python3", "python3"),
    ("g++", "g++"),
    ("gcc", "gcc"),
    ("node", "nodejs"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("perl", "perl"),
    ("sort", "coreutils"),
];

/// Lines of Python that fail where a test would be skipped, and the Debian package of each.
const PYTHON_NEEDED: &[(&str, &str)] = &[
    ("import numpy, sqlite3", "python3-numpy"),
    ("import ctypes; ctypes.CDLL('liblzo2.so.2')", "liblzo2-2"),
    ("import distributed", "python3-distributed"),
];

/// End-to-end tests that measure no memory, and wait most of the time: until what stands still would have been ended, or is.
const IDLE: &[&str] = &["hung", "stopped"];

/// End-to-end tests that nothing may run beside: they measure time or peaks closely, change settings of the machine, or leave something
/// in its shared memory for a while, which others look for.
const ALONE: &[&str] = &["bad_input", "cluster", "overhead", "programs", "settings", "stats"];

/// Runs everything; `quick` leaves the end-to-end tests out.
pub(crate) fn run(quick: bool) -> Result<()> {
    let start = Instant::now();
    let programs = std::thread::scope(|scope| {
        // Downloads, while both processors compile.
        let installed = scope.spawn(|| if quick { Ok(()) } else { install() });
        tidy::run()?;
        println!("build: release and tests");
        let programs = build()?;
        installed.join().expect("it does not panic")?;
        anyhow::Ok(programs)
    })?;
    let (ours, others): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.of() == "e2e");
    println!("test: workspace");
    sh::run(&mut sh::cargo(&["test", "--quiet", "--workspace", "--doc", "--profile", suite::PROFILE]))?;
    let skipped = Mutex::new(Vec::new());
    if quick {
        suite::run_side_by_side(others, TestProgram::run_beside)?;
    } else {
        let (idle, busy): (Vec<_>, Vec<_>) = ours.into_iter().partition(|program| IDLE.contains(&program.name()));
        beside(&idle, others, &skipped)?;
        skipped.lock().expect("nobody panics with it").extend(check_other_architecture()?);
        println!("test: end to end");
        let (alone, steady): (Vec<_>, Vec<_>) = busy.into_iter().partition(|program| ALONE.contains(&program.name()));
        let ran = suite::run_side_by_side(steady, |program| program.run_under_pleat_beside(&skipped));
        end_to_end(&alone, &skipped).and(ran)?;
        println!("test: torture");
        torture::in_passing()?;
    }
    let skipped = skipped.into_inner().expect("nobody panics with it");
    for why in &skipped {
        println!("{why}");
    }
    let count = skipped.len();
    println!("cargo x test: passed in {:.0} s, {count} skipped", start.elapsed().as_secs_f64());
    Ok(())
}

/// The product and the tests at once: each has its crates that all others wait for.
fn build() -> Result<Vec<TestProgram>> {
    std::thread::scope(|scope| {
        let tests = scope.spawn(suite::build);
        sh::build_release()?;
        tests.join().expect("it does not panic")
    })
}

/// Checks that the product compiles for aarch64; the reason if that cannot be told here.
fn check_other_architecture() -> Result<Option<String>> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    println!("check: {TARGET}");
    let added = Command::new("rustup").args(["--quiet", "target", "add", TARGET]).output();
    if !added.is_ok_and(|run| run.status.success()) {
        return Ok(Some(format!("skipped: rustup cannot add the target {TARGET}")));
    }
    let mut check = sh::cargo(&["check", "--quiet", "--target", TARGET, "-p", "pleat-cli", "-p", "pleat-agent"]);
    // Nothing is linked, so that any compiler is good enough for the few lines of C in a dependency.
    sh::run(check.env("CC_aarch64_unknown_linux_gnu", "cc"))?;
    Ok(None)
}

/// Installs what is missing, where that can be done.
fn install() -> Result<()> {
    let mut packages: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !sh::has(program)).map(|(_, package)| *package).collect();
    packages.extend(PYTHON_NEEDED.iter().filter(|(code, _)| !python_runs(code)).map(|(_, package)| *package));
    packages.dedup();
    install_packages(&packages)
}

/// Installs Debian packages where that can be done; says which are missing where not.
pub(crate) fn install_packages(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if !sh::has("apt-get") || !nix_root() {
        println!("missing (their tests will be skipped): {}", packages.join(" "));
        return Ok(());
    }
    println!("installing {}", packages.join(" "));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-y"]).args(words).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        sh::run(&mut command)
    };
    apt(&["update"])?;
    apt(&[&["install", "--no-install-recommends"], packages].concat())
}

/// Whether Debian's Python runs `code` without an error. Distributions put numpy and pip's Python side by side: the tests
/// take Debian's.
fn python_runs(code: &str) -> bool {
    Command::new("/usr/bin/python3").args(["-c", code]).output().is_ok_and(|run| run.status.success())
}

fn nix_root() -> bool {
    // The owner of /proc/self is the effective user.
    std::fs::metadata("/proc/self").is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

/// Runs end-to-end tests that wait most of the time, and those of the workspace meanwhile.
fn beside(idle: &[&TestProgram], others: Vec<&TestProgram>, skipped: &Mutex<Vec<String>>) -> Result<()> {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| end_to_end(idle, skipped));
        suite::run_side_by_side(others, TestProgram::run_beside).and(waiting.join().expect("it does not panic"))
    })
}

/// Runs all of them, one after the other: they measure memory and time.
fn end_to_end(programs: &[&TestProgram], skipped: &Mutex<Vec<String>>) -> Result<()> {
    let mut failed = Vec::new();
    for program in programs {
        if !program.run_alone(skipped)? {
            failed.push(program.name());
        }
    }
    ensure!(failed.is_empty(), "an end-to-end test failed: {}", failed.join(", "));
    Ok(())
}
