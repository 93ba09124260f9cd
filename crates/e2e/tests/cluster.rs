//! `pleat sim` on more than one machine.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use pleat_e2e::{pleat, python, skipped};

/// The Python package's own tests, on a local cluster of two workers.
#[test]
fn a_sweep_runs_on_two_workers() {
    if !Command::new(python()).args(["-c", "import distributed"]).output().is_ok_and(|run| run.status.success()) {
        return skipped("Dask is not installed (python3-distributed)");
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let words = ["-B", "-m", "unittest", "discover", "--start-directory", "tests"];
    let mut command = Command::new(python());
    command.args(words).current_dir(&package).env("PYTHONPATH", &package).env("PLEAT", pleat());
    let output = command.output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("Ran 5 tests"), "{said}");
}
