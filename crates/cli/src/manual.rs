//! The man pages and the shell completions, from the definitions in `args.rs`.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::shells;

use crate::args::{Cli, ManArgs, Shell};

/// `pleat man`.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let command = Cli::command();
    let Some(directory) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return print(&page);
    };
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), directory))
        .with_context(|| format!("--out {}", directory.display()))
}

/// `pleat completions`.
pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut command, "pleat", &mut script),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut command, "pleat", &mut script),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut command, "pleat", &mut script),
    }
    print(&script)
}

/// A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &[u8]) -> Result<()> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
