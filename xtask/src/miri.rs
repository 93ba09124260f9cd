//! `cargo x miri`: the tests of the codec crate under Miri, which sees each access that is out of bounds, unaligned or to bytes that
//! nobody wrote. It has no vectors: what runs is the scalar paths, on a few of the pages.

use std::process::Command;

use anyhow::Result;

use crate::sh;

/// A nightly by name, where the default one is not to be used.
const TOOLCHAIN: &str = "PLEAT_MIRI_TOOLCHAIN";
/// Those in which the word codecs and their plain twins decode what is good and what is not, and copies and tapes of the others. Whole
/// pages (`papers::tests`, `sequences`, `dense`) take Miri hours: it needs some thousand times as long.
const TESTS: [&str; 3] = ["papers::bad::", "papers::lz::", "papers::pack::"];

/// Runs them; says why not where it cannot be done.
pub(crate) fn run() -> Result<()> {
    let toolchain = std::env::var(TOOLCHAIN).unwrap_or_else(|_| "nightly".to_owned());
    let rustup = |words: &[&str]| {
        let mut command = Command::new("rustup");
        // What cargo has set would say which compiler it is.
        command.args(["run", &toolchain]).args(words).current_dir(sh::root()).env_remove("RUSTUP_TOOLCHAIN");
        // Beside what stable has built, which Miri's flags would otherwise throw away.
        command.env("CARGO_TARGET_DIR", sh::target_dir().join("miri")).env_remove("CARGO").env_remove("RUSTC");
        command
    };
    // Once, some minutes: Miri needs a standard library of its own.
    if let Err(why) = sh::read(&mut rustup(&["cargo", "miri", "setup"])) {
        println!("skipped: no Miri in {toolchain}: {why:#}");
        println!("rustup toolchain install nightly --component miri,rust-src would bring it");
        return Ok(());
    }
    let test = ["cargo", "miri", "test", "--package", "pleat-codec", "--lib", "--"];
    sh::run(&mut rustup(&[&test[..], &TESTS].concat()))
}
