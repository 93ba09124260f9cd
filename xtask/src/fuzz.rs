//! `cargo x fuzz`: the fuzz targets of the codecs for as long as is asked for. As tests they run for two seconds each.

use anyhow::Result;

use crate::sh;

/// Runs them one behind the other; each prints its seed, and how often it was executed.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let words = ["test", "--release", "--quiet", "--package", "pleat-codec", "--test", "fuzz"];
    let mut command = sh::cargo(&[&words[..], &["--", "--nocapture", "--test-threads=1"]].concat());
    sh::run(command.env("PLEAT_FUZZ_SECONDS", seconds.to_string()))
}
