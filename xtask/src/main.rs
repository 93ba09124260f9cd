//! `cargo x tidy | test | torture | fuzz | neon | miri | demo | bench | validity | programs`: everything a checkout can be asked to do. Rules are in
//! `tidy`, tests in `test`, random ones in `torture` and `fuzz`, those of another processor in
//! `neon`, those that look at each access in `miri`, whole-program comparisons in `bench` and `programs`, the simulator's with live runs in `validity`.
#![forbid(unsafe_code)]

mod compare;
mod demo;
mod fuzz;
mod miri;
mod neon;
mod programs;
mod sh;
mod suite;
mod test;
mod tidy;
mod torture;
mod validity;

use clap::{Parser, Subcommand};

/// What a checkout can be asked to do.
#[derive(Parser)]
#[command(name = "cargo x")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check layers, formatting, lints, sizes, unsafe code and links.
    Tidy,
    /// Install what the tests need, build, tidy, and run all tests.
    Test {
        /// Leave the end-to-end tests out.
        #[arg(long)]
        quick: bool,
    },
    /// Run a 600 MiB Python job inside half its memory and compare.
    Demo {
        /// The budget.
        #[arg(long, default_value = "300M")]
        ram: String,
    },
    /// Do to memory whatever Linux allows, at random, and check every byte.
    Torture(torture::Options),
    /// Feed each codec's decoder garbage and its encoder drawn pages, and count.
    Fuzz {
        /// How long for each of the targets.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
    },
    /// Run the tests of `fold` for aarch64, by qemu on other processors.
    Neon,
    /// Run the tests of the page codecs' scalar paths under Miri.
    Miri,
    /// Compare whole programs under pleat, swap, zswap, zram and without a limit.
    Bench(Box<compare::Options>),
    /// Compare what `pleat sim` foretells with live runs.
    Validity(validity::Options),
    /// Run real programs at a part of their memory, and compare with a plain run.
    Programs(programs::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Tidy => tidy::run(),
        Task::Test { quick } => test::run(quick),
        Task::Demo { ram } => demo::run(&ram),
        Task::Torture(options) => torture::run(&options),
        Task::Fuzz { seconds } => fuzz::run(seconds),
        Task::Neon => neon::run(),
        Task::Miri => miri::run(),
        Task::Bench(options) => compare::run(&options),
        Task::Validity(options) => validity::run(&options),
        Task::Programs(options) => programs::run(&options),
    }
}
