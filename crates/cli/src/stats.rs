//! The JSON document of `--stats`. `docs/stats.md` explains its fields.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use page::ByteCount;
use serde::Serialize;

use crate::numbers::Numbers;
use crate::table::Record;

/// The numbers of a run at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) running: bool,
    pub(crate) elapsed: Duration,
    pub(crate) sum: Numbers,
    pub(crate) best_ratio: Option<f64>,
    pub(crate) processes: Vec<Record>,
}

/// What does not change during a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) command: Vec<OsString>,
    pub(crate) budget: ByteCount,
    pub(crate) threshold: ByteCount,
    pub(crate) swap_max: ByteCount,
}

/// Where the document goes.
#[derive(Debug)]
pub(crate) struct StatsFile {
    path: PathBuf,
    run: Run,
    /// A pipe or a device cannot be replaced: it gets one document, at the end.
    is_special: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    command: Vec<String>,
    budget_bytes: u64,
    threshold_bytes: u64,
    swap_bytes_max: u64,
    running: bool,
    elapsed_seconds: f64,
    #[serde(flatten)]
    sum: &'a Numbers,
    effective_ratio_at_most_held: Option<f64>,
    processes: &'a [Record],
}

impl StatsFile {
    /// Checks that the document can be written by writing the first one.
    pub(crate) fn create(path: &Path, run: Run) -> Result<Self> {
        let shown = path.display();
        let path = std::path::absolute(path).with_context(|| format!("--stats {shown}"))?;
        // A symbolic link stays one: what it leads to is replaced.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let is_special = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
        let file = Self { path, run, is_special };
        let empty = Report {
            running: true,
            elapsed: Duration::ZERO,
            sum: Numbers::zero(),
            best_ratio: None,
            processes: Vec::new(),
        };
        file.write(&empty).with_context(|| format!("--stats {shown}"))?;
        Ok(file)
    }

    /// Replaces the document, so that a reader finds the old one or the new one, and neither in part.
    pub(crate) fn write(&self, report: &Report) -> Result<()> {
        if self.is_special {
            return if report.running { Ok(()) } else { Ok(fs::write(&self.path, document(&self.run, report)?)?) };
        }
        let name = self.path.file_name().context("not a file name")?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}", std::process::id()));
        let temporary = self.path.with_file_name(temporary);
        let written =
            fs::write(&temporary, document(&self.run, report)?).and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            // Nothing is to be left behind; if it was never made, there is nothing to remove.
            let _ = fs::remove_file(&temporary);
        }
        written.context("cannot be written")
    }
}

fn document(run: &Run, report: &Report) -> Result<String> {
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        command: run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        budget_bytes: run.budget.0,
        threshold_bytes: run.threshold.0,
        swap_bytes_max: run.swap_max.0,
        running: report.running,
        elapsed_seconds: report.elapsed.as_secs_f64(),
        sum: &report.sum,
        effective_ratio_at_most_held: report.best_ratio,
        processes: &report.processes,
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}
