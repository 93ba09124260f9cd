//! Tells the crate the commit that it is built from: a measurement without one is worth little.
#![forbid(unsafe_code)]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without git, or outside a checkout, the commit is not known.
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    println!("cargo::rustc-env=PLEAT_COMMIT={commit}");
    // Each commit and each checkout adds a line to this file.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What git says, if it says anything.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
