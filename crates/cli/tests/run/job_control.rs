//! Signals through `pleat run`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, require};

/// Starts a script that says when it is ready; returns `pleat run` and the script's process id.
fn start(bench: &Bench, script: &str) -> (Child, u32) {
    let script = format!("{script}\necho $$; while :; do sleep 0.02; done");
    // A process group of its own: `kill` is to reach pleat alone, and a stop nobody but this job.
    let mut command = bench.command(&[], &["sh", "-c", &script]);
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 2..].chars().next().unwrap()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn signals_are_handed_on() {
    let bench = require!(Bench::new("signals"));
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGTERM] {
        let name = signal.as_str().trim_start_matches("SIG");
        let (mut child, _) = start(&bench, &format!("trap 'exit 42' {name}"));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(42), "{name}");
    }
    let (mut child, _) = start(&bench, "");
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn a_job_stops_and_goes_on() {
    let bench = require!(Bench::new("stops"));
    let (mut child, program) = start(&bench, "trap 'exit 42' TERM");
    for _ in 0..3 {
        send(&child, Signal::SIGTSTP);
        wait_for("the program stops", || state(program) == 'T');
        wait_for("pleat stops", || state(child.id()) == 'T');
        send(&child, Signal::SIGCONT);
        wait_for("the program goes on", || state(program) != 'T');
        wait_for("pleat goes on", || state(child.id()) != 'T');
    }
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

#[test]
fn who_stops_the_program_itself_can_continue_it() {
    let bench = require!(Bench::new("stopped-by-others"));
    let (mut child, program) = start(&bench, "trap 'exit 42' TERM");
    kill(Pid::from_raw(program as i32), Signal::SIGSTOP).unwrap();
    wait_for("the program stops", || state(program) == 'T');
    std::thread::sleep(Duration::from_millis(50));
    assert_ne!(state(child.id()), 'T');
    kill(Pid::from_raw(program as i32), Signal::SIGCONT).unwrap();
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

#[test]
fn ignored_signals_stay_ignored() {
    let bench = require!(Bench::new("ignored"));
    let script = "trap '' HUP; exec \"$0\" run -- sh -c 'kill -HUP $$; kill -HUP $PPID; sleep 0.1; exit 9'";
    let pleat = bench.pleat(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.envs(pleat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = shell.args(["-c", script, env!("CARGO_BIN_EXE_pleat")]).status().unwrap();
    assert_eq!(status.code(), Some(9));
}

#[test]
fn an_idle_run_uses_no_time() {
    let bench = require!(Bench::new("idle"));
    let (mut child, _) = start(&bench, "sleep 1");
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    send(&child, Signal::SIGTERM);
    child.wait().unwrap();
    let fields: Vec<u64> =
        stat[stat.rfind(')').unwrap() + 4..].split(' ').map(|field| field.parse().unwrap_or(0)).collect();
    // utime and stime, fields 14 and 15, in hundredths of a second, over a second of watching.
    assert!(fields[10] + fields[11] <= 2, "{stat}");
}
