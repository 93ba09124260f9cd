//! `pleat run`: checks everything that can be checked, starts the program with the agent, and ends as it ends.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use cache::system::{Choice as _, System};
use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use page::ByteCount;
use pager::ledger::{LEDGER_VARIABLE, Ledger, MAGIC};
use policy::sizing;
use sys::host::SharedFile;
use sys::process::StandardError;

use crate::agent::SANITIZER_VARIABLE;
use crate::args::{RunArgs, WhenFull};
use crate::bell::Bell;
use crate::custodian::Custodian;
use crate::custody::Custody;
use crate::failure::{Failure, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND, STATUS_PLEAT, STATUS_STOPPED, pass_on};
use crate::signals::Signals;
use crate::stats::{Run, StatsFile};
use crate::strays::Strays;
use crate::supervise::{End, Supervisor};
use crate::swap::{self, Place, Swap};
use crate::table::Table;
use crate::tight::Tight;
use crate::{agent, budget, occupant, program, summary, system, tracers, userfaultfd};

/// Runs the program.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    run_watched(args, |_| {}, |_| Ok(|| Ok(())))
}

/// The same, with somebody who looks at the ledger: what is to be in it when the program starts, who looks, and what that returns, which is called once it
/// has ended.
pub(crate) fn run_watched<End: FnOnce() -> Result<()>>(
    args: &RunArgs,
    prepare: impl FnOnce(&Ledger),
    watch: impl FnOnce(&'static Ledger) -> Result<End>,
) -> Result<ExitCode> {
    let system = system::chosen(args)?;
    let budget = budget::budget(args.ram)?;
    let agent = agent::find()?;
    let path = program::find(&args.command[0])?;
    program::check(&path)?;
    if args.user_mode {
        userfaultfd::check_user_mode()?;
    } else {
        userfaultfd::check()?;
    }
    let swap = swap::choose(args.swap.as_deref(), args.swap_size, budget)?;
    let run = Run {
        command: args.command.clone(),
        budget,
        threshold: sizing::threshold(budget),
        name: args.system.name,
        system,
        swap_max: swap.as_ref().map_or(ByteCount::ZERO, |swap| swap.bytes_max),
    };
    let stats = args.stats.as_deref().map(|path| StatsFile::create(path, run.clone())).transpose()?;
    let place =
        swap.as_ref().map(|swap| Place::of(&swap.path).with_context(|| swap.path.display().to_string())).transpose()?;
    let file = create_ledger(&run, place.as_ref(), args)?;
    let custodian = Custodian::of(&file, place.as_ref(), args.other_users)?;
    // Before the program starts: a signal that comes now is handed on as soon as there is somebody to hand it to.
    let signals = Signals::catch().context("cannot catch signals")?;
    let started = Instant::now();
    let ledger = file.content();
    prepare(ledger);
    let mut child = spawn(args, &path, &agent, &file)?;
    let begun = Custody::begin(custodian).and_then(|custody| {
        let tracers =
            tracers::Watch::begin(ledger, tracers::LOOK).context("no thread for those who trace the agents")?;
        Ok((custody, tracers, Bell::hang(ledger).context("cannot listen to the agents")?, watch(ledger)?))
    });
    let (custody, tracers, bell, end_watch) = begun.inspect_err(|_| {
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    occupant::start(ledger);
    let mut supervisor = Supervisor {
        ledger,
        child,
        custody,
        signals,
        bell,
        table: Table::new(ledger),
        tracers,
        strays: Strays::of(&agent),
        tight: Tight::new(budget),
        swap_warning: swap.as_ref().and_then(Swap::warning),
        stats,
        started,
        ended_stuck: false,
    };
    let end = supervisor.run();
    supervisor.custody.end(&supervisor.tracers);
    // What was left while we stopped printing.
    pass_on(ledger);
    let end = end?;
    supervisor.write_stats(false);
    end_watch()?;
    if args.verbose {
        let summary = summary::Summary { run: &run, report: &supervisor.report(false) };
        let _ = write!(std::io::stderr(), "{summary}");
    }
    Ok(leave(end))
}

fn create_ledger(run: &Run, place: Option<&Place>, args: &RunArgs) -> Result<SharedFile<Ledger>> {
    let file = SharedFile::<Ledger>::create(c"pleat-ledger")
        .map_err(|errno| anyhow!("no shared memory: {}", userfaultfd::words(errno)))?;
    let ledger = file.content();
    // Relaxed: the magic number below publishes all of it.
    ledger.budget_bytes.store(run.budget.0, Relaxed);
    ledger.threshold_bytes.store(run.threshold.0, Relaxed);
    ledger.room_bytes.store(run.threshold.0, Relaxed);
    ledger.stop_when_full.store(u32::from(args.when_full == WhenFull::Stop), Relaxed);
    let System { store, codec, sizing, admission, write_back } = run.system;
    let codec = codec::ALL.iter().position(|one| one.name() == codec).expect("presets and options name codecs");
    ledger.codec.store(codec as u32, Relaxed);
    ledger.store.store(store.place(), Relaxed);
    ledger.sizing.store(sizing.place(), Relaxed);
    ledger.admission.store(admission.place(), Relaxed);
    ledger.write_back.store(write_back.place(), Relaxed);
    ledger.area_bytes.store(args.pool_size.map_or(0, |size| size.0), Relaxed);
    ledger.user_mode.store(u32::from(args.user_mode), Relaxed);
    ledger.attachable.store(u64::from(args.attachable), Relaxed);
    ledger.runner_pid.store(std::process::id(), Relaxed);
    // Who asks to be traced before there is a tracer waits for him.
    ledger.tracer_pid.store(std::process::id(), Relaxed);
    if let Some(StandardError::Terminal(file) | StandardError::File(file)) = sys::process::standard_error_leads_to() {
        ledger.standard_error.store(file);
    }
    ledger.id_namespace.store(sys::process::id_namespace().unwrap_or(0), Relaxed);
    ledger.runner_start_ticks.store(sys::process::start_ticks().unwrap_or(0), Relaxed);
    ledger.runner_ticks_ahead.store(sys::process::start_ticks_ahead().unwrap_or(0).cast_unsigned(), Relaxed);
    if let Some(place) = place {
        ledger.swap_bytes_max.store(run.swap_max.0, Relaxed);
        ledger.set_swap_path(place.path.as_bytes());
        ledger.swap_place.identity.store(place.identity);
        ledger.swap_place.descriptor.store(place.file.as_raw_fd() as u64, Relaxed);
    }
    // Release: an agent that finds the magic number finds the rest.
    ledger.magic.store(MAGIC, Release);
    Ok(file)
}

/// What leads an agent to the ledger; see [`LEDGER_VARIABLE`].
fn address(file: &SharedFile<Ledger>) -> String {
    let (process, ledger) = (std::process::id(), file.content());
    let custodian = String::from_iter(ledger.custodian().map(char::from));
    let secret = String::from_iter(ledger.secret().map(char::from));
    let namespace = ledger.id_namespace.load(Relaxed);
    format!("/proc/{process}/fd/{} {custodian} {namespace} {secret}", file.descriptor())
}

fn spawn(args: &RunArgs, path: &Path, agent: &Path, ledger: &SharedFile<Ledger>) -> Result<Child> {
    let ledger = address(ledger);
    let preload = agent::preload_value(agent, std::env::var_os("LD_PRELOAD"));
    let sanitizer = agent::sanitizer_value(std::env::var_os(SANITIZER_VARIABLE));
    let prepare = |mut command: Command| {
        command.env("LD_PRELOAD", &preload).env(LEDGER_VARIABLE, &ledger).env(SANITIZER_VARIABLE, &sanitizer);
        command
    };
    let mut command = prepare(Command::new(path));
    command.arg0(&args.command[0]).args(&args.command[1..]);
    let error = match command.spawn() {
        Ok(child) => return Ok(child),
        Err(error) => error,
    };
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    if errno == Errno::ENOEXEC {
        // `execvp` gives a file that the kernel does not know to the shell.
        let mut command = prepare(Command::new("/bin/sh"));
        command.arg(path).args(&args.command[1..]);
        return command.spawn().context("/bin/sh");
    }
    let status = match errno {
        Errno::ENOENT => STATUS_NOT_FOUND,
        // Not the program's fault.
        Errno::EAGAIN | Errno::ENOMEM => STATUS_PLEAT,
        _ => STATUS_NOT_EXECUTABLE,
    };
    let shown = PathBuf::from(&args.command[0]);
    Err(Failure { status, message: format!("{}: {}", shown.display(), errno.desc()) }.into())
}

/// Ends as the program ended, so that a shell sees no difference.
fn leave(end: End) -> ExitCode {
    match end {
        End::Program(status) => leave_with(status),
        End::Failed => ExitCode::from(STATUS_PLEAT),
        End::Stopped => ExitCode::from(STATUS_STOPPED),
    }
}

fn leave_with(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // The program has dumped its core if it was to; ours would hide it. The limit can always be lowered.
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        // Comes back only for the signals that have no default action here (real-time ones).
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return ExitCode::from(128 + signal as u8);
    }
    ExitCode::from(status.code().unwrap_or(0) as u8)
}
