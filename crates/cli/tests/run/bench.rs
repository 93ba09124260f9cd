//! A directory with a stand-in agent, and `pleat` ready to run.

use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::{fs, mem};

use pager::ledger::{BUCKETS, Counter, FaultKind, Gauge, Ledger, MAGIC, Process};

/// Unwraps, or says why the test cannot run and ends it.
macro_rules! require {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        }
    };
}
pub(crate) use require;

/// Removed when dropped.
pub(crate) struct Bench {
    directory: PathBuf,
}

impl Bench {
    /// Fails where there is no C compiler or no userfaultfd.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        if sys::host::accepts_features(sys::uffd::feature::NEEDED).is_err() {
            return Err("pleat run (userfaultfd is not permitted)".to_owned());
        }
        let directory = std::env::temp_dir().join(format!("pleat-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let bench = Self { directory };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/agent.c");
        let offsets = [
            ("LEDGER_BYTES", size_of::<Ledger>() as u64),
            ("MAGIC", MAGIC),
            ("AT_ACTIVE", offset_of!(Ledger, active) as u64),
            ("AT_USED", offset_of!(Ledger, processes_used) as u64),
            ("AT_PROCESSES", offset_of!(Ledger, processes) as u64),
            ("ENTRY_BYTES", size_of::<Process>() as u64),
            ("AT_PHASE", offset_of!(Process, phase) as u64),
            ("AT_START_TICKS", offset_of!(Process, start_ticks) as u64),
            ("AT_GAUGES", offset_of!(Process, gauges) as u64),
            ("AT_PEAKS", offset_of!(Process, peaks) as u64),
            ("AT_COUNTERS", offset_of!(Process, counters) as u64),
            ("AT_FAULTS", offset_of!(Process, faults) as u64),
            ("GAUGES", Gauge::ALL.len() as u64),
            ("COUNTERS", Counter::ALL.len() as u64),
            ("FAULTS", FaultKind::ALL.len() as u64),
            ("BUCKETS", BUCKETS as u64),
        ];
        let defines = offsets.map(|(name, value)| format!("-D{name}={value}u"));
        let defines: Vec<_> = defines.iter().map(String::as_str).collect();
        bench.compile(&[&["-shared", "-fPIC", source][..], &defines].concat(), "agent.so")?;
        Ok(bench)
    }

    /// A path inside the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, content: &[u8], mode: u32) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    pub(crate) fn static_program(&self, source: &str) -> Result<String, String> {
        let source = self.file("static.c", source.as_bytes(), 0o644);
        self.compile(&["-static", &source], "static")
    }

    /// `pleat` with these words.
    pub(crate) fn pleat(&self, words: &[&str]) -> Command {
        // Whoever runs the tests may ignore signals (nohup, a shell's background job); pleat would hand that on.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_pleat")]);
        for option in ["RAM", "SWAP", "SWAP_SIZE", "WHEN_FULL", "STATS", "VERBOSE"] {
            command.env_remove(format!("PLEAT_{option}"));
        }
        command.args(words).env("PLEAT_AGENT", self.path("agent.so")).env_remove("LD_PRELOAD");
        command
    }

    /// `pleat run OPTIONS -- PROGRAM`.
    pub(crate) fn command(&self, options: &[&str], program: &[&str]) -> Command {
        self.pleat(&[&["run"], options, &["--"], program].concat())
    }

    pub(crate) fn run_with(&self, options: &[&str], program: &[&str]) -> Output {
        self.command(options, program).output().unwrap()
    }

    pub(crate) fn run(&self, program: &[&str]) -> Output {
        self.run_with(&[], program)
    }

    fn compile(&self, words: &[&str], name: &str) -> Result<String, String> {
        let path = self.path(name);
        let output = Command::new("cc").args(words).args(["-O1", "-o", &path]).output();
        let output = output.map_err(|error| format!("{name} (no C compiler: {error})"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(path) } else { Err(format!("{name} (cannot be compiled: {text})")) }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What stays behind lies in the temporary directory; a failed test is better told by its own message.
        let _ = fs::remove_dir_all(mem::take(&mut self.directory));
    }
}
