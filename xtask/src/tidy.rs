//! The rules of the house that a machine can check: layers, formatting, lints, sizes, unsafe code, links, decisions.

mod layers;
mod text;

use anyhow::{Context as _, Result, ensure};

use crate::sh;

/// Checks all rules; lists every breach before it fails.
pub(crate) fn run() -> Result<()> {
    let metadata = sh::read(&mut sh::cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let members = layers::members(&serde_json::from_str(&metadata).context("cargo metadata")?)?;
    let files = text::files(sh::root())?;
    let mut breaches = layers::breaches(&members);
    breaches.extend(text::breaches(sh::root(), &files, &members));
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    sh::run(&mut sh::cargo(&["fmt", "--all", "--check"]))?;
    sh::run(&mut sh::cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    ensure!(breaches.is_empty(), "{} breaches of the rules", breaches.len());
    println!("tidy: {} crates, {} files", members.len(), files.len());
    Ok(())
}
