//! `cargo x test`: all tests, with the programs they need.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::{sh, tidy, torture};

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

/// Runs everything; `quick` leaves the end-to-end tests out.
pub(crate) fn run(quick: bool) -> Result<()> {
    let start = Instant::now();
    if !quick {
        install()?;
    }
    println!("build: release");
    sh::build_release()?;
    tidy::run()?;
    println!("test: workspace");
    sh::run(&mut sh::cargo(&["test", "--quiet", "--workspace", "--exclude", "pleat-e2e"]))?;
    let mut skipped = Vec::new();
    if !quick {
        skipped.extend(check_other_architecture()?);
        println!("test: end to end");
        skipped.extend(end_to_end()?);
        println!("test: torture");
        torture::in_passing()?;
    }
    for why in &skipped {
        println!("{why}");
    }
    let count = skipped.len();
    println!("cargo x test: passed in {:.0} s, {count} skipped", start.elapsed().as_secs_f64());
    Ok(())
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

/// Runs them one after the other, shows what they print, and returns the lines that say why one was skipped.
fn end_to_end() -> Result<Vec<String>> {
    let mut command = sh::cargo(&[
        "test",
        "--quiet",
        "--package",
        "pleat-e2e",
        "--no-fail-fast",
        "--",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("PLEAT_BIN", sh::release("pleat")).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let mut skipped = Vec::new();
    for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
        let line = line?;
        println!("{line}");
        std::io::stdout().flush()?;
        skipped.extend(line.find("skipped: ").map(|at| line[at..].to_owned()));
    }
    ensure!(child.wait()?.success(), "an end-to-end test failed");
    Ok(skipped)
}
