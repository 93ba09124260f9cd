//! `cargo x demo`: one Python job of 600 MiB, plain and inside a budget, side by side.

use anyhow::{Context as _, Result, ensure};
use bench::measure::Measured;
use bench::size::mib;

use crate::{compare, sh};

/// Longest time for one of the two runs, seconds.
const TIMEOUT_S: u32 = 600;

/// Runs the job twice and compares.
pub(crate) fn run(ram: &str) -> Result<()> {
    println!("building …");
    sh::build_release()?;
    let job = sh::root().join("bench/jobs/dictionary.py");
    let job = ["python3", job.to_str().context("the checkout's path is no UTF-8")?, "1500000"];
    let pleat = sh::release("pleat");
    let pleat = pleat.to_str().context("the target directory's path is no UTF-8")?;

    println!("plain:  {}", job.join(" "));
    let plain = measure(&job)?;
    show(&plain)?;
    let prefix = ["pleat", "run", "--ram", ram, "-v", "--"];
    println!("folded: {} {}", prefix.join(" "), job.join(" "));
    let folded = measure(&[&[pleat], &prefix[1..], &job].concat())?;
    show(&folded)?;

    ensure!(plain.stdout_sum == folded.stdout_sum, "the outputs differ: this is a bug");
    println!(
        "same output; peak of anonymous memory {} instead of {}, in {:.2} times the time",
        mib(folded.anon_peak_bytes.unwrap_or(0)),
        mib(plain.anon_peak_bytes.unwrap_or(0)),
        folded.wall_s / plain.wall_s
    );
    Ok(())
}

fn measure(words: &[&str]) -> Result<Measured> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    compare::measure(&words, compare::WATCH_MS, None, TIMEOUT_S)
}

fn show(run: &Measured) -> Result<()> {
    ensure!(run.status == Some(0), "it ended with {:?} / signal {:?}: {}", run.status, run.signal, run.stderr.trim());
    print!("  {}", run.stdout);
    for line in run.stderr.lines() {
        println!("  {line}");
    }
    let (cpu_s, rss) = (run.user_s + run.system_s, mib(run.max_rss_bytes));
    println!("  {:.2} s ({cpu_s:.2} s of CPU), peak RSS {rss}", run.wall_s);
    Ok(())
}
