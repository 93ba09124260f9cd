//! `pleat record --light`: the program runs inside a budget, and each page that it asks for is a reference.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use pager::ledger::Ledger;
use pager::ledger::reference_log::Noted;
use trace::{Access, Header, Reference, Sample, TimeUnit, Writer};

use crate::args::{Cli, Command, RunArgs};
use crate::failure::usage_line;
use crate::run::run_watched;
use crate::synth::create;

/// Time between two looks: the log has room for some tens of milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs the program and writes the trace.
pub(super) fn record(out: &Path, ram: &str, command: &[OsString]) -> Result<ExitCode> {
    let args = run_args(ram, command)?;
    let writer = create(out)?;
    let path = out.to_owned();
    let watch = move |ledger| {
        let watcher = Watcher::start(ledger, writer)?;
        Ok(move || watcher.end(ledger).map_err(|error| anyhow!("--out {}: {error}", path.display())))
    };
    run_watched(&args, |ledger| ledger.references.open(), watch)
}

/// Those of `pleat run` with the same command.
fn run_args(ram: &str, command: &[OsString]) -> Result<RunArgs> {
    let options = ["pleat", "run", "--ram", ram, "--"].map(OsString::from);
    let parsed = Cli::try_parse_from(options.iter().chain(command)).map_err(|error| anyhow!(usage_line(&error)))?;
    let Cli { command: Command::Run(args) } = parsed else { unreachable!("it says run") };
    Ok(args)
}

/// A thread that empties the log into the trace.
struct Watcher {
    has_ended: Arc<AtomicBool>,
    /// Says whether anything has been written.
    thread: JoinHandle<io::Result<bool>>,
}

impl Watcher {
    fn start(ledger: &'static Ledger, out: Box<dyn Write + Send>) -> Result<Self> {
        let codec = codec::ALL[ledger.codec.load(Relaxed) as usize].name();
        let header = Header { codecs: vec![codec.to_owned()], ..Header::new(TimeUnit::Nanoseconds) };
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let work = move || {
            let written = write(ledger, out, header, &ended);
            // Where the disk is full the program goes on.
            ledger.references.close();
            written
        };
        let thread = std::thread::Builder::new().name("pleat-record".into()).spawn(work).context("no thread")?;
        Ok(Self { has_ended, thread })
    }

    /// The program has ended.
    fn end(self, ledger: &Ledger) -> io::Result<()> {
        self.has_ended.store(true, Relaxed);
        if !self.thread.join().expect("it does not panic")? {
            eprintln!(
                "pleat: the trace is empty: nothing is seen before the program holds half of --ram; give it less"
            );
        }
        let lost = ledger.references.lost();
        if lost > 0 {
            eprintln!("pleat: {lost} references are not in the trace: they came faster than they could be written");
        }
        Ok(())
    }
}

/// Writes what comes until the program has ended. Says whether anything came.
fn write(ledger: &Ledger, out: Box<dyn Write + Send>, header: Header, has_ended: &AtomicBool) -> io::Result<bool> {
    let mut recording = Recording { writer: Writer::new(out, header)?, threads: HashMap::new(), first_ns: None };
    loop {
        // Before the look: what is told until then is taken.
        let is_last = has_ended.load(Relaxed);
        recording.take_all(ledger)?;
        if is_last {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    while ledger.references.pass_gap() {
        recording.take_all(ledger)?;
    }
    recording.writer.finish(None)?.flush()?;
    Ok(recording.first_ns.is_some())
}

/// The trace as it is written.
struct Recording {
    writer: Writer<Box<dyn Write + Send>>,
    /// Numbers of threads in the trace, by the kernel's.
    threads: HashMap<u32, u32>,
    /// When the first reference came, which is the trace's zero.
    first_ns: Option<u64>,
}

impl Recording {
    fn take_all(&mut self, ledger: &Ledger) -> io::Result<()> {
        while let Some(noted) = ledger.references.take() {
            match noted {
                Noted::Reference { page, thread, is_write, ns } => {
                    let next = self.threads.len() as u32;
                    let thread = *self.threads.entry(thread).or_insert(next);
                    let first_ns = *self.first_ns.get_or_insert(ns);
                    let access = if is_write { Access::Write } else { Access::Read };
                    self.writer.push(Reference { page, time: ns.saturating_sub(first_ns), thread, access })?;
                }
                Noted::Sample { page, bytes } => self.writer.push_sample(Sample { page, sizes: vec![bytes] })?,
            }
        }
        Ok(())
    }
}
