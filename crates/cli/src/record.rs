//! `pleat record`: a trace of every page that a program references, by valgrind, or of those that it asks for inside a budget
//! ([`light`]); and traces of other programs, reduced.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use std::os::fd::AsRawFd;
use trace::{Ending, Grain, Header, Reducer, Reference, Trace, TraceError, Writer};

use crate::failure::{Failure, STATUS_NOT_FOUND};
use crate::signals::Signals;
use crate::synth::create;

mod light;
mod sampler;

use self::sampler::Sampler;

/// Room between valgrind and us: what it writes in some milliseconds.
const PIPE_BYTES: i32 = 1 << 20;
/// A read that brings less is followed by a pause.
const READ_BYTES_MIN: usize = 128 << 10;
const PIPE_PAUSE: Duration = Duration::from_millis(2);
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// Samples that are written together.
const SAMPLES_AT_ONCE: usize = 4096;

/// What traces of pages and of lines are reduced for, if nothing is said.
const PAGES: u32 = 256;
const LINES: u32 = 4;

pub(crate) const EXAMPLES: &str = "\
Examples:
  pleat record --out sort.trace -- sort words.txt
  pleat record --out all.trace --reduce 0 -- ./solver in.dat
  pleat record --out lines.trace --lines -- ./solver in.dat
  pleat record --out app.trace --from lackey.txt            # import what lackey, or any other program, has written
  pleat record --light --ram 64M --out app.trace -- ./solver in.dat

The program runs under valgrind's lackey (Debian: valgrind), some hundred times slower, and every access that it makes to
memory is seen, but none that the kernel makes for it. Processes that it starts are not recorded, nor what it becomes by exec, as a
wrapper does: name the program itself. Time is instructions.

A trace has samples of how short pages get, by the codec of each system, taken when a page is referenced for the first, second, fourth, …
time of what is kept.

A reduced trace is smaller and gives the same: LRU and MIN fault exactly as often on it as on the whole trace, for every
memory of COUNT pages or more (safely-allowed-drop: Kaplan, Smaragdakis and Wilson, 2003).

With --light the program runs under pleat run instead, so that no page stays for long without being asked for again. The trace has
each page that was missing, whether it was to be read or written, by which thread and when, in nanoseconds of the program's own
time; and how short the pages that left got. It has no use of a page that was there, so it tells less than a whole trace, and the
more the smaller the budget. Only the first process that becomes large is recorded, and what it
becomes by exec.

Exit status: that of the program; 125 when pleat itself fails.";

/// `pleat record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Where the trace goes; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,

    /// Leave out references that no memory of so many pages or more can notice; 0 keeps all [default: 256, or 4 with --lines]
    #[arg(long, value_name = "COUNT")]
    reduce: Option<u32>,

    /// Record lines of 1 KiB, for pleat sim --mxt-hardware
    #[arg(long)]
    lines: bool,

    /// Run the program inside this budget instead, at nearly its own speed, and record what is not there when it asks for it
    ///
    /// Small budgets show more: what stays in memory is used unseen.
    #[arg(long, requires = "ram", conflicts_with_all = ["reduce", "lines", "from"])]
    light: bool,

    /// The budget of --light, as for pleat run
    #[arg(long, value_name = "SIZE|PERCENT%", requires = "light")]
    ram: Option<String>,

    /// Take references from this trace instead of a program
    #[arg(long, value_name = "TRACE", conflicts_with = "command", required_unless_present = "command")]
    from: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl RecordArgs {
    /// Of so many pages, or lines: each memory of as many notices nothing. Lines are for a cache that has four to a set.
    fn reduced(&self) -> Result<u32> {
        match (self.lines, self.reduce) {
            (false, reduce) => Ok(reduce.unwrap_or(PAGES)),
            (true, Some(reduce)) if reduce > LINES => {
                bail!(
                    "--reduce {reduce}: with --lines at most {LINES}, or a cache with {LINES} lines to a set would notice"
                )
            }
            (true, reduce) => Ok(reduce.unwrap_or(LINES)),
        }
    }

    fn grain(&self) -> Grain {
        if self.lines { Grain::Line } else { Grain::Page }
    }
}

/// `pleat record`.
pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    if let (true, Some(ram)) = (args.light, &args.ram) {
        return light::record(&args.out, ram, &args.command);
    }
    args.reduced()?;
    let Some(from) = &args.from else { return record(args) };
    let name = from.display();
    let file = File::open(from).with_context(|| name.to_string())?;
    let opened = if args.lines { trace::open_lines(file) } else { trace::open(file) };
    let mut trace = opened.map_err(|error| anyhow!("{name}: {error}"))?;
    if trace.header().reduced_pages > 0 {
        bail!("{name}: reduced already, for memories of {} pages or more", trace.header().reduced_pages);
    }
    copy(&mut *trace, None, args, &name.to_string())?;
    match trace.ending() {
        Ending::Truncated { offset } => {
            eprintln!("pleat: {name}: truncated: only the first {offset} bytes are whole, and were taken");
        }
        Ending::Unterminated { offset } => {
            eprintln!("pleat: {name}: the last line, at byte {offset}, has no line end; taken as it is");
        }
        Ending::Whole { .. } | Ending::Open => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn record(args: &RecordArgs) -> Result<ExitCode> {
    // They end the program; what was recorded until then is kept.
    let signals = Signals::catch_ends().context("cannot catch signals")?;
    let (lines, mut child) = start(&args.command)?;
    signals.forward_for_good(Pid::from_raw(child.id() as i32));
    let watch = watch(child.id());
    let mut sampler = (!args.lines).then(|| Sampler::new(child.id()));
    let mut trace = trace::open_lackey(Unhurried(lines), args.grain());
    let copied = copy(&mut *trace, sampler.as_mut(), args, "lackey");
    if copied.is_err() {
        // Nobody reads any more: valgrind would run on for nothing.
        let _ = child.kill();
    }
    let status = child.wait()?;
    if let Ok(Some(program)) = watch.join() {
        let program = program.display();
        eprintln!(
            "pleat: the trace ends where the program executed {program}, which is not recorded: name that one itself"
        );
    }
    copied?;
    Ok(ExitCode::from(status_of(status)))
}

/// What comes to run in place of valgrind's tool, which does not go along with an exec; it keeps the pipe open, so that its end tells nothing.
fn watch(pid: u32) -> JoinHandle<Option<PathBuf>> {
    std::thread::spawn(move || {
        let mut had_tool = false;
        while let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) {
            let is_tool = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lackey-"));
            if had_tool && !is_tool {
                return Some(program);
            }
            had_tool = is_tool;
            std::thread::sleep(WATCH_PAUSE);
        }
        None
    })
}

/// Starts the program under lackey, whose lines come out of the pipe.
fn start(command: &[OsString]) -> Result<(PipeReader, Child)> {
    let program = command.first().map(Path::new).context("no program")?;
    let (reader, writer) = io::pipe()?;
    // Where so much is not allowed, the usual 64 KiB do.
    let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    // To be handed on to valgrind, which hides it from the program.
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=lackey", "--trace-mem=yes", "--child-silent-after-fork=yes"])
        .arg(format!("--log-fd={}", writer.as_raw_fd()))
        .args(command);
    let child = valgrind.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = "valgrind is not installed (Debian: apt-get install valgrind)".to_owned();
            anyhow::Error::new(Failure { status: STATUS_NOT_FOUND, message })
        }
        _ => anyhow!("valgrind {}: {error}", program.display()),
    })?;
    Ok((reader, child))
}

/// Leaves a pipe time to fill: its writer makes a system call for each line, and to be woken for each would cost as much
/// again.
struct Unhurried<R>(R);

impl<R: io::Read> io::Read for Unhurried<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(room)?;
        if (1..READ_BYTES_MIN).contains(&read) {
            std::thread::sleep(PIPE_PAUSE);
        }
        Ok(read)
    }
}

fn status_of(status: ExitStatus) -> u8 {
    // As a shell tells it: 128 and the signal.
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
}

/// Reads a trace to its end and writes it, reduced, with samples if somebody takes them.
fn copy(trace: &mut dyn Trace, mut sampler: Option<&mut Sampler>, args: &RecordArgs, name: &str) -> Result<()> {
    let reduced_pages = args.reduced()?;
    let mut header = Header { reduced_pages, ..trace.header().clone() };
    if let Some(sampler) = &sampler {
        header.codecs = sampler.codecs();
    }
    let codecs = header.codecs.len();
    let written = |error: io::Error| anyhow!("--out {}: {error}", args.out.display());
    let mut writer = Writer::new(create(&args.out)?, header).map_err(written)?;
    let mut reducer = (reduced_pages > 0).then(|| Reducer::new(reduced_pages));
    let (mut batch, mut samples) = (Vec::new(), Vec::new());
    let (mut taken, mut sampled) = (0_u64, Vec::new());
    loop {
        trace.read(&mut batch, &mut samples).map_err(|error: TraceError| anyhow!("{name}: {error}"))?;
        if codecs > 0 {
            for sample in samples.drain(..) {
                writer.push_sample(sample).map_err(written)?;
            }
        }
        if batch.is_empty() {
            break;
        }
        taken += batch.len() as u64;
        for &reference in &batch {
            let mut keep = |reference: Reference| {
                if let Some(sampler) = &mut sampler {
                    sampler.note(reference.page);
                }
                writer.push(reference)
            };
            match &mut reducer {
                Some(reducer) => reducer.push(reference, &mut keep),
                None => keep(reference),
            }
            .map_err(written)?;
        }
        if let Some(sampler) = &mut sampler {
            sampler.take(&mut sampled);
        }
        // Many at a time: they end the block of references, and short blocks do not get small.
        if sampled.len() >= SAMPLES_AT_ONCE {
            sampled.drain(..).try_for_each(|sample| writer.push_sample(sample)).map_err(written)?;
        }
    }
    sampled.into_iter().try_for_each(|sample| writer.push_sample(sample)).map_err(written)?;
    if let Some(reducer) = reducer {
        reducer.finish(&mut |reference| writer.push(reference)).map_err(written)?;
    }
    writer.finish(Some(taken)).and_then(|mut out| out.flush()).map_err(written)
}
