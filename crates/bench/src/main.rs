//! `pleat-bench thrasher | rand | sweep`: a walk over a working set; `pleat-bench measure`: one command's measure.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use pleat_bench::loads::{self, Plan, Walk};
use pleat_bench::tree::Root;
use pleat_bench::{measure, size};

/// Programs with a known memory behaviour. Each prints one line of JSON.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Cycles through the working set, reading and writing all of it.
    Thrasher(WalkArgs),
    /// Reads and writes single words of random pages.
    Rand(WalkArgs),
    /// Cycles through the working set, one word a page.
    Sweep(WalkArgs),
    /// Runs a command to its end and prints what it took.
    Measure(MeasureArgs),
}

#[derive(Args)]
struct WalkArgs {
    /// Working set.
    #[arg(long, default_value = "512M", value_parser = size::parse)]
    bytes: u64,
    /// Accesses to time; twice the pages of the working set by default.
    #[arg(long)]
    accesses: Option<u64>,
    /// Accesses before that; as many as pages by default.
    #[arg(long)]
    warmup: Option<u64>,
    /// Share of each page that a codec can fold away.
    #[arg(long, default_value = "0.5", value_parser = size::parse_share)]
    compressible: f64,
    /// Share of the accesses that write.
    #[arg(long, default_value = "0.5", value_parser = size::parse_share)]
    write_fraction: f64,
    /// Seed of contents and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct MeasureArgs {
    /// End the command after so many seconds.
    #[arg(long, default_value_t = 600.0)]
    timeout: f64,
    /// Sample the anonymous memory of its processes every so many milliseconds.
    #[arg(long)]
    watch_ms: Option<u64>,
    /// The command runs a program, with which it has no page in common: then nobody need look which pages those are.
    #[arg(long)]
    runner: bool,
    /// Run it inside this cgroup.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// The command.
    #[arg(required = true, trailing_var_arg = true)]
    words: Vec<String>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Thrasher(args) => walk(Walk::Thrasher, &args),
        Task::Rand(args) => walk(Walk::Rand, &args),
        Task::Sweep(args) => walk(Walk::Sweep, &args),
        Task::Measure(args) => take_measure(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pleat-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn walk(walk: Walk, args: &WalkArgs) -> anyhow::Result<()> {
    let mut plan = Plan {
        walk,
        bytes: args.bytes,
        accesses: 0,
        warmup: 0,
        compressible: args.compressible,
        write_share: args.write_fraction,
        seed: args.seed,
    };
    let pages = loads::pages(&plan) as u64;
    plan.accesses = args.accesses.unwrap_or(2 * pages);
    plan.warmup = args.warmup.unwrap_or(pages);
    match loads::run(plan) {
        Ok(outcome) => println!("{}", serde_json::to_string(&outcome)?),
        Err(wrong) => anyhow::bail!("page {} at version {} does not hold what was written", wrong.page, wrong.version),
    }
    Ok(())
}

fn take_measure(args: &MeasureArgs) -> anyhow::Result<()> {
    let mut command = Command::new(&args.words[0]);
    command.args(&args.words[1..]);
    if let Some(dir) = &args.cgroup {
        command = pleat_bench::cgroup::enter(dir, &args.words);
    }
    let timeout = Duration::from_secs_f64(args.timeout);
    let root = if args.runner { Root::Runner } else { Root::Program };
    let watch = args.watch_ms.map(|ms| (root, Duration::from_millis(ms)));
    let measured = measure::run(command, timeout, watch).with_context(|| format!("cannot run {}", args.words[0]))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}
