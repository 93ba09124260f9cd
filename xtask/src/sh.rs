//! Other programs: run one, or say clearly which one failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is one below the root")
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A program of the release build.
pub(crate) fn release(name: &str) -> PathBuf {
    target_dir().join("release").join(name)
}

/// `cargo` at the root of the checkout.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// Runs to success, or fails with the command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs to success; what it wrote.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::piped()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}: {}", line(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a program of this name can be found.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Builds everything a user has, and the benchmark programs.
pub(crate) fn build_release() -> Result<()> {
    run(&mut cargo(&["build", "--quiet", "--release"]))?;
    // On its own: built together, its dependencies' features would be switched on for the agent as well.
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "pleat-bench"]))
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
