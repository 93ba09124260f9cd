//! Handlers and devices that do not answer: each is waited for so long, and not for ever.
//!
//! `cargo x test` runs these beside other tests: they wait, and measure no memory.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::Duration;

use pleat_e2e::{MODES, Run, Turn, folded_by, pleat_command, python, text, turn, with_mode, words};

/// 120 MiB that fold well, walked over until somebody ends it.
const WALK: &str = "x = [bytes([i % 251]) * 2000 + b'%d' % i for i in range(60000)]\nprint('built', flush=True)\n\
                    while True: sum(b[0] for b in x)";
/// 56 MiB of noise that two children read too: more than the budget.
const FORKS: &str = "import os, random\nr = random.Random(5)\nx = [r.randbytes(4000) for _ in range(14000)]\n\
                     want = hash(tuple(x))\nfor i in range(2):\n  pid = os.fork()\n\
                     \x20 if pid == 0: os._exit(0 if hash(tuple(x)) == want else 1)\n\
                     \x20 print(os.waitpid(pid, 0)[1], flush=True)\nprint(hash(tuple(x)) == want)";

/// 80 MiB of noise, read twice.
const NOISE: &str = "import random\nr = random.Random(5)\nx = [r.randbytes(4000) for _ in range(20000)]\n\
                     print(hash(tuple(x)) == hash(tuple(b'' + b for b in x)))";

/// A run whose handler has this fault ends in this time, with one line that says this.
fn assert_ended(turn: &Turn, fault: &str, mode: &str, says: &str, time: Range<Duration>) -> Run {
    let options = ["--ram=48M".to_owned(), format!("--swap={}", text(&turn.swap()))];
    let mut command = pleat_command(&with_mode(mode, options.to_vec()), &words([python(), "-c", WALK]));
    command.env("PLEAT_FAULT", fault);
    let run = folded_by(command);
    println!("{fault} {mode}: {:.1?}", run.wall);
    assert_eq!(run.shell_status(), 125, "{fault} {mode}: {}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{fault} {mode}: not one line: {}", run.stderr);
    assert!(run.stderr.contains(says), "{fault} {mode}: {}", run.stderr);
    assert!(time.contains(&run.wall), "{fault} {mode}: {:?}", run.wall);
    run
}

/// With and without permission for a userfaultfd, at the same time, for the watchdog waits.
#[test]
fn a_handler_that_stalls_or_exits_ends_the_program_after_the_time_limit() {
    let turn = turn("handler");
    let patience = |fault| if fault == "handler-exits" { Duration::ZERO } else { Duration::from_secs(10) };
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let start = |fault, mode| {
            // `pleat run` would end it after 30 s.
            let time = patience(fault)..Duration::from_secs(25);
            let turn = &turn;
            scope.spawn(move || assert_ended(turn, fault, mode, "handler", time))
        };
        let both = ["handler-stalls", "handler-exits"];
        let runs = both.iter().flat_map(|fault| MODES.iter().map(move |mode| start(*fault, *mode)));
        let runs: Vec<_> = runs.chain([start("handler-spins", "")]).collect();
        runs.into_iter().map(|run| run.join().expect("see above")).collect()
    });
    for run in &runs {
        turn.assert_clean(run);
    }
}

#[test]
fn a_handler_that_panics_ends_the_program_at_once() {
    let turn = turn("handler-panics");
    for mode in MODES {
        let time = Duration::ZERO..Duration::from_secs(10);
        turn.assert_clean(&assert_ended(&turn, "handler-panics", mode, "bug in the agent", time));
    }
}

/// Disks that start up, and those behind a network, may take longer to answer than a handler may be at one thing.
#[test]
fn a_swap_device_that_answers_late_is_waited_for() {
    let turn = turn("swap-late");
    let late = |mode| {
        let mut command = pleat_command(&turn.options_in(mode, "48M"), &words([python(), "-c", NOISE]));
        command.env("PLEAT_FAULT", "swap-late");
        folded_by(command)
    };
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let runs: Vec<_> = MODES.iter().map(|mode| scope.spawn(|| late(mode))).collect();
        runs.into_iter().map(|run| run.join().expect("see above")).collect()
    });
    for run in &runs {
        assert_eq!((run.shell_status(), &run.stdout[..]), (0, &b"True\n"[..]), "{}", run.stderr);
        assert!(run.stderr.contains("waits for its swap file"), "no read was late: {}", run.stderr);
        assert!(run.wall > Duration::from_secs(12), "{:?}", run.wall);
        turn.assert_clean(run);
    }
}

/// A fork does not wait for a segment that the device does not take, nor does a child that has one to write before its writer is
/// there (with this fault it comes late).
#[test]
fn a_program_forks_while_its_swap_device_hangs() {
    let turn = turn("swap-hangs");
    for mode in MODES {
        let mut command = pleat_command(&turn.options_in(mode, "48M"), &words([python(), "-c", FORKS]));
        command.env("PLEAT_FAULT", "swap-hangs");
        let run = folded_by(command);
        println!("{mode}: {:.1?}", run.wall);
        assert_eq!((run.shell_status(), &run.stdout[..]), (0, &b"0\n0\nTrue\n"[..]), "{mode}: {}", run.stderr);
        assert!(run.stderr.contains("cannot be met"), "{mode}: the device did not hang: {}", run.stderr);
    }
}
