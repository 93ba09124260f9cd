//! pleat keeps an unmodified program's memory inside a RAM budget: `pleat run`, and what helps with it.
#![forbid(unsafe_code)]

mod agent;
mod args;
mod bell;
mod bench;
mod budget;
mod custodian;
mod custody;
mod doctor;
mod entries;
mod failure;
mod manual;
mod numbers;
mod occupant;
mod proc;
mod program;
mod promises;
mod record;
mod run;
mod sharing;
mod signals;
mod sim;
mod size;
mod stats;
mod strays;
mod summary;
mod supervise;
mod swap;
mod synth;
mod system;
mod table;
mod tight;
mod tracers;
mod userfaultfd;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Bench, Cli, Command};
use failure::say;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench { what: Bench::Codecs(args) } => bench::codecs(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench { what: Bench::Sim(args) } => bench::simulator::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Sim(args) => sim::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Synth(args) => synth::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Record(args) => record::run(&args),
        Command::Man(args) => manual::man(&args).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => manual::completions(shell).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        say(format_args!("{error:#}"));
        ExitCode::from(failure::status_of(&error))
    })
}

/// Help and version go where clap puts them; an error becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print();
            if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(failure::STATUS_PLEAT) }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(failure::STATUS_PLEAT)
        }
        _ => {
            say(format_args!("{}", failure::usage_line(error)));
            ExitCode::from(failure::STATUS_PLEAT)
        }
    }
}
