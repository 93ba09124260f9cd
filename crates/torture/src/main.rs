//! A program that does to its memory whatever Linux allows, at random but repeatable, and checks every byte.
//!
//! Processes with several threads take steps drawn from a seed: it fixes which ones each thread takes, and not the order between
//! threads and processes. Each knows what its memory must hold. The first process
//! only watches: that all of them get on, and that nothing is left at the end. Where something is wrong it says the
//! seed, the thread and the step, and ends with 3.

mod area;
mod calls;
mod clones;
mod content;
mod drawn;
mod forks;
mod heap;
mod kernel_io;
mod memory;
mod pipes;
mod places;
mod random;
mod report;
mod ring;
mod scene;
mod settings;
mod shared;
mod traces;
mod worker;
mod zero_copy;

use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::random::Random;
use crate::report::{Report, Slot};
use crate::worker::{Process, Surroundings, THREADS};

/// A step that takes longer hangs. Two runs at once on two processors have had one of 63 s.
const LATE: Duration = Duration::from_mins(3);
/// At the end the processes hang if none takes or ends a step for so long.
const STUCK: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(20);

/// Does to its memory whatever Linux allows, and checks every byte.
#[derive(Parser)]
#[command(name = "pleat-torture")]
struct Cli {
    /// All that is drawn is drawn from this.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Processes at the start, of three threads each.
    #[arg(long, default_value_t = 2)]
    processes: u64,
    /// Memory at the most, roughly, before anything is forked.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Kinds of steps to leave out, by name.
    #[arg(long)]
    without: Vec<String>,
    /// Processes may find each other's memory missing, which pleat documents for user mode.
    #[arg(long)]
    others_miss: bool,
    /// For a process of our own: end at once.
    #[arg(long, hide = true)]
    begin_and_end: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.begin_and_end {
        return ExitCode::SUCCESS;
    }
    worker::note_faults();
    // SAFETY: takes numbers. Whose parent has ended becomes our child.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let report = Report::new().unwrap_or_else(|errno| panic!("no shared memory: {errno}"));
    report.others_miss.store(u32::from(cli.others_miss), Relaxed);
    let pages_max = (cli.mib << 20) / content::PAGE / (cli.processes as usize * THREADS);
    for (kind, skipped) in worker::kinds().zip(&report.skipped) {
        skipped.store(u32::from(cli.without.iter().any(|name| name == kind.0)), Relaxed);
    }
    let mut first = Vec::new();
    for number in 0..cli.processes {
        match calls::fork().unwrap_or_else(|errno| panic!("fork: {errno}")) {
            0 => lead(report, cli.seed, number, pages_max),
            pid => first.push(pid),
        }
    }
    report.processes.fetch_add(cli.processes, Relaxed);
    let seen = watch(report, &first, &cli);
    end(report, &first, seen, &cli)
}

/// The life of one of the first processes.
fn lead(report: &'static Report, seed: u64, number: u64, pages_max: usize) -> ! {
    let process = Process::new(seed, number, pages_max).unwrap_or_else(|errno| panic!("no memory: {errno}"));
    let process: *mut Process = process;
    // SAFETY: no thread but this one yet.
    unsafe { worker::surround(Surroundings { report, process }) };
    std::thread::scope(|scope| {
        // SAFETY: never unmapped, and each worker is used by one thread; what the threads share is atomic.
        let workers = unsafe { &mut (*process).workers };
        for worker in workers {
            scope.spawn(move || worker.run(u64::MAX));
        }
    });
    calls::exit(0)
}

/// Watches until the time is over or something is wrong; what is wrong.
fn watch(report: &Report, first: &[libc::pid_t], cli: &Cli) -> Option<String> {
    let start = Instant::now();
    let mut random = Random::new(cli.seed, u64::MAX);
    while start.elapsed() < Duration::from_secs(cli.seconds) {
        std::thread::sleep(LOOK);
        if let Some(wrong) = report.failure().or_else(|| stuck(report)).or_else(|| reap(first)) {
            return Some(format!("{wrong} (seed {})", cli.seed));
        }
        if random.one_in(100) {
            let pid = first[random.below(first.len())];
            calls::kill(pid, libc::SIGSTOP);
            std::thread::sleep(LOOK);
            calls::kill(pid, libc::SIGCONT);
        }
    }
    None
}

/// A thread whose step takes too long, and waits for no process below it that gets on.
fn stuck(report: &Report) -> Option<String> {
    let now = calls::now_ns();
    let of_processes = || report.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0);
    let gets_on = |slot: &&Slot| {
        let since = slot.since_ns.load(Relaxed);
        since == 0 || now.saturating_sub(since) <= LATE.as_nanos() as u64
    };
    let slot = of_processes().find(|slot| {
        let pid = slot.pid.load(Relaxed);
        !gets_on(slot) && !of_processes().filter(gets_on).any(|other| scene::descends(other.pid.load(Relaxed), pid))
    })?;
    doings(report);
    eprint!("{}", scene::describe(slot.pid.load(Relaxed) as libc::pid_t));
    Some(format!("process {} hangs in step {} ({})", slot.pid.load(Relaxed), slot.step.load(Relaxed), kind_of(slot)))
}

/// Prints what each thread is at.
fn doings(report: &Report) {
    let now = calls::now_ns();
    for slot in report.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0) {
        let ms = now.saturating_sub(slot.since_ns.load(Relaxed)) / 1_000_000;
        eprintln!("process {} is at {} since {ms} ms", slot.pid.load(Relaxed), kind_of(slot));
    }
}

/// The name of the step that a thread is at.
fn kind_of(slot: &Slot) -> &'static str {
    worker::kinds().nth(slot.kind.load(Relaxed) as usize).map_or("?", |kind| kind.0)
}

/// Takes note of processes that have ended; says so if one of the first has.
fn reap(first: &[libc::pid_t]) -> Option<String> {
    let mut status = 0;
    loop {
        // SAFETY: the status fits.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return None;
        }
        if first.contains(&pid) {
            return Some(format!("process {pid} has ended with wait status {status:#x}"));
        }
        if status != 0 && status != 3 << 8 {
            return Some(format!("process {pid}, whose parent had ended, has wait status {status:#x}"));
        }
    }
}

/// Ends all, and says how it went.
fn end(report: &Report, first: &[libc::pid_t], mut wrong: Option<String>, cli: &Cli) -> ExitCode {
    report.stop.store(1, Relaxed);
    let start = Instant::now();
    // When a step was last done or a process last ended: on a machine with other work the last steps take long.
    let (mut moved, mut steps) = (start, 0);
    let mut left: Vec<_> = first.to_vec();
    let mut is_killed = false;
    loop {
        let mut status = 0;
        // SAFETY: the status fits.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid == -1 {
            break;
        }
        if pid > 0 {
            left.retain(|other| *other != pid);
            moved = Instant::now();
            if status != 0 && !is_killed {
                wrong = wrong.or_else(|| report.failure()).or_else(|| Some(format!("process {pid}: {status:#x}")));
            }
            continue;
        }
        let done = report.steps();
        if done != steps {
            (moved, steps) = (Instant::now(), done);
        }
        let is_stuck = moved.elapsed() > STUCK;
        if is_stuck && !is_killed {
            wrong = wrong.or_else(|| Some("processes do not end".to_owned()));
        }
        if (wrong.is_some() && !is_killed && start.elapsed() > Duration::from_secs(2)) || is_stuck {
            let others = report.slots.iter().map(|slot| slot.pid.load(Relaxed) as libc::pid_t).filter(|pid| *pid > 0);
            let all: BTreeSet<_> = others.chain(left.iter().copied()).collect();
            if is_stuck && !is_killed {
                doings(report);
                eprint!("{}", all.iter().map(|pid| scene::describe(*pid)).collect::<String>());
            }
            is_killed = true;
            for pid in all {
                calls::kill(pid, libc::SIGKILL);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    tell(report, cli, wrong.or_else(|| report.failure()))
}

/// Says what has been done, and whether it is right.
fn tell(report: &Report, cli: &Cli, wrong: Option<String>) -> ExitCode {
    let counts = worker::kinds().zip(&report.done).map(|(kind, done)| format!("{} {}", kind.0, done.load(Relaxed)));
    eprintln!("{}", counts.collect::<Vec<_>>().join(", "));
    println!("{} steps in {} processes", report.steps(), report.processes.load(Relaxed));
    let (drawn, expected) = (report.drawn(cli.processes * THREADS as u64), drawn::expected(cli.seed, cli.processes));
    println!(
        "{}",
        match drawn {
            Some(drawn) => format!("the first {} steps of each thread are {drawn:016x}", drawn::STEPS),
            None => format!("not every thread has taken {} steps", drawn::STEPS),
        }
    );
    let other = drawn.filter(|drawn| *drawn != expected).map(|_| format!("the seed draws {expected:016x}"));
    match wrong.or(other) {
        None => {
            println!("all well");
            ExitCode::SUCCESS
        }
        Some(wrong) => {
            println!("WRONG: {wrong}");
            ExitCode::from(3)
        }
    }
}
