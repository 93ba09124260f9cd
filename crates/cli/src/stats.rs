//! The JSON document of `--stats`. `docs/stats.md` explains its fields.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use cache::system::{Choice as _, System};
use page::ByteCount;
use serde::Serialize;

use crate::numbers::Numbers;
use crate::table::Record;

/// The numbers of a run at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) running: bool,
    pub(crate) elapsed: Duration,
    pub(crate) occupied: Duration,
    pub(crate) sum: Numbers,
    pub(crate) best_ratio: Option<f64>,
    pub(crate) processes: Vec<Rc<Record>>,
}

/// What does not change during a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) command: Vec<OsString>,
    pub(crate) budget: ByteCount,
    pub(crate) threshold: ByteCount,
    /// `--system`.
    pub(crate) name: &'static str,
    /// What it is made of, with what has been replaced.
    pub(crate) system: System,
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
    system: &'static str,
    store: &'static str,
    codec: &'static str,
    sizing: &'static str,
    admission: &'static str,
    write_back: &'static str,
    swap_bytes_max: u64,
    running: bool,
    elapsed_seconds: f64,
    occupied_seconds: f64,
    #[serde(flatten)]
    sum: &'a Numbers,
    effective_ratio_at_most_held: Option<f64>,
    processes: &'a [Rc<Record>],
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
            occupied: Duration::ZERO,
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
            return if report.running { Ok(()) } else { write_document(&self.path, &self.run, report) };
        }
        let name = self.path.file_name().context("not a file name")?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}", std::process::id()));
        let temporary = self.path.with_file_name(temporary);
        let written =
            write_document(&temporary, &self.run, report).and_then(|()| Ok(fs::rename(&temporary, &self.path)?));
        if written.is_err() {
            // Nothing is to be left behind; if it was never made, there is nothing to remove.
            let _ = fs::remove_file(&temporary);
        }
        written.context("cannot be written")
    }
}

/// Piece by piece: the text about a thousand processes is long, and would lie in the budget.
fn write_document(path: &Path, run: &Run, report: &Report) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut file, &document(run, report))?;
    file.write_all(b"\n")?;
    Ok(file.flush()?)
}

fn document<'a>(run: &Run, report: &'a Report) -> Document<'a> {
    Document {
        version: env!("CARGO_PKG_VERSION"),
        command: run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        budget_bytes: run.budget.0,
        threshold_bytes: run.threshold.0,
        system: run.name,
        store: run.system.store.name(),
        codec: run.system.codec,
        sizing: run.system.sizing.name(),
        admission: run.system.admission.name(),
        write_back: run.system.write_back.name(),
        swap_bytes_max: run.swap_max.0,
        running: report.running,
        elapsed_seconds: report.elapsed.as_secs_f64(),
        occupied_seconds: report.occupied.as_secs_f64(),
        sum: &report.sum,
        effective_ratio_at_most_held: report.best_ratio,
        processes: &report.processes,
    }
}

#[cfg(test)]
mod tests {
    use cache::system::PRESETS;
    use pager::ledger::{Counter, FaultKind, Gauge};
    use serde_json::Value;

    use super::*;
    use crate::table::sum_of;

    fn run() -> Run {
        Run {
            command: vec!["job".into(), "-x".into()],
            budget: ByteCount(64 << 20),
            threshold: ByteCount(48 << 20),
            name: PRESETS[0].0,
            system: PRESETS[0].1,
            swap_max: ByteCount::ZERO,
        }
    }

    fn report() -> Report {
        let record = |pid: u32| Record {
            pid,
            name: format!("p{pid}"),
            phase: "managing",
            alive: pid != 2,
            numbers: Numbers::sample(u64::from(pid)),
        };
        let mut records = [1, 2, 3].map(record);
        records[1].numbers.clear_gauges();
        let processes: Vec<_> = records.map(Rc::new).into();
        Report {
            running: true,
            elapsed: Duration::from_secs(2),
            occupied: Duration::from_millis(1500),
            sum: sum_of(&processes),
            best_ratio: None,
            processes,
        }
    }

    /// Every gauge, counter and fault count at the top is the sum over the processes; no peak is below one of theirs.
    #[test]
    fn sums_add_up() {
        let document = serde_json::to_value(document(&run(), &report())).unwrap();
        let processes = document["processes"].as_array().unwrap();
        let names =
            Gauge::ALL.iter().map(|gauge| gauge.name()).chain(Counter::ALL.iter().map(|counter| counter.name()));
        let number = |value: &Value| value.as_u64().unwrap();
        for name in names.chain(["footprint_bytes"]) {
            let sum: u64 = processes.iter().map(|process| number(&process[name])).sum();
            assert_eq!(number(&document[name]), sum, "{name}");
            assert!(sum > 0, "{name}");
        }
        for name in Gauge::ALL.iter().map(|gauge| gauge.name()).chain(["footprint_bytes"]) {
            let name = format!("{name}_peak");
            let largest = processes.iter().map(|process| number(&process[&name])).max().unwrap();
            assert_eq!(number(&document[&name]), largest, "{name}");
        }
        for kind in FaultKind::ALL {
            let count = |value: &Value| number(&value["faults"][kind.name()]["count"]);
            assert_eq!(count(&document), processes.iter().map(count).sum::<u64>(), "{}", kind.name());
        }
        for (codec, sum) in document["codecs"].as_object().unwrap() {
            for name in ["encodings", "bytes"] {
                let of_all = processes.iter().map(|process| number(&process["codecs"][codec][name])).sum::<u64>();
                assert_eq!(number(&sum[name]), of_all, "{codec} {name}");
            }
        }
        assert_eq!(document["codecs"].as_object().unwrap().len(), codec::MAKERS.len());
        for (state, sum) in document["pages"].as_object().unwrap() {
            assert_eq!(number(sum), number(&document[format!("pages_{state}")]), "{state}");
        }
        assert_eq!(number(&processes[1]["resident_bytes"]), 0);
        assert!(number(&processes[1]["pages_reclaimed"]) > 0);
    }

    #[test]
    fn every_field_is_explained() {
        let text = include_str!("../../../docs/stats.md");
        let document = serde_json::to_value(document(&run(), &report())).unwrap();
        let mut names: Vec<String> = document.as_object().unwrap().keys().cloned().collect();
        names.extend(document["processes"][0].as_object().unwrap().keys().cloned());
        names.extend(document["pages"].as_object().unwrap().keys().cloned());
        names.extend(document["codecs"]["fold-deep"].as_object().unwrap().keys().cloned());
        names.extend(document["faults"].as_object().unwrap().keys().cloned());
        names.extend(document["faults"]["raced"].as_object().unwrap().keys().cloned());
        names.retain(|name| !name.ends_with("_peak"));
        for name in names {
            assert!(text.contains(&format!("`{name}`")), "docs/stats.md does not explain {name}");
        }
    }

    #[test]
    fn the_file_is_replaced_and_nothing_is_left_beside_it() {
        let directory = std::env::temp_dir().join(format!("pleat-stats-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let file = StatsFile::create(&directory.join("s.json"), run()).unwrap();
        file.write(&report()).unwrap();
        let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let text = fs::read_to_string(directory.join("s.json")).unwrap();
        let missing = StatsFile::create(&directory.join("no/s.json"), run());
        let directory_itself = StatsFile::create(&directory, run());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(names, ["s.json"]);
        assert!(text.contains("\"elapsed_seconds\": 2.0"));
        assert!(missing.is_err() && directory_itself.is_err());
    }
}
