//! Programs that are built with a sanitizer: its functions stand in for libc's, its shadow is memory like any other, and at the end
//! a leak checker stops all threads of the process.
#![forbid(unsafe_code)]

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleat_e2e::{
    MODES, Run, Turn, assert_same, assert_within, folded, folded_again, plain, pleat_command, skipped, stats, turn,
    words,
};

const MIB: u64 = 1 << 20;

fn compiled(turn: &Turn, source: &str, flag: &str) -> Option<String> {
    turn.compile(source, &[flag, "-g", "-lpthread"]).map_err(|why| skipped(&why)).ok()
}

/// What the sanitizers of parent and child have found, without numbers of processes and addresses.
fn findings(run: &Run) -> Vec<&str> {
    run.stderr.lines().filter(|line| line.contains(" leak of ") || line.starts_with("SUMMARY")).collect()
}

/// Whether it ran beside the budget for what it is built with.
fn stays_out(run: &Run) -> bool {
    run.stderr.contains("outside the budget: it is built with a sanitizer")
}

/// The agent's threads run on while all others are stopped, and what is out comes back, in a forked child as well.
#[test]
fn leaks_are_found_in_memory_that_is_out() {
    for flag in ["-fsanitize=address", "-fsanitize=leak"] {
        let turn = turn("leaks");
        let Some(program) = compiled(&turn, "leaks.c", flag) else { return };
        let command = words([&program]);
        let before = plain(&command);
        if findings(&before).len() < 4 {
            skipped(&format!("{flag} finds no leaks here: {}", before.stderr));
            continue;
        }
        let options = turn.options("32M");
        let after = folded_again(&options, &command, &before, 32 * MIB);
        assert_eq!(findings(&after), findings(&before), "{}", after.stderr);
        assert!(!after.stderr.contains("pleat: "), "{}", after.stderr);
        let decoded = stats(&turn)["pages_decoded"].as_u64().unwrap_or(0);
        assert!(decoded > 4000, "{decoded} pages came back: the test proves nothing");
        if flag.ends_with("address") {
            assert_within(&before, &after, 32 * MIB);
        }
        turn.assert_clean(&after);
        // What user mode does not trap it cannot serve.
        let beside = folded(&turn.options_in("--user-mode", "32M"), &command);
        assert_same(&before, &beside);
        assert!(stays_out(&beside), "{}", beside.stderr);
        assert_eq!(findings(&beside), findings(&before));
    }
}

/// `pleat run` traces the agent's threads of such a program, and is told when it stops.
#[test]
fn a_program_that_looks_for_leaks_stops_and_goes_on() {
    let turn = turn("leaks-stopped");
    let Some(program) = compiled(&turn, "leaks.c", "-fsanitize=address") else { return };
    let mut command = pleat_command(&turn.options("32M"), &words([&program, "stop"]));
    let run = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("pleat");
    let stopped = loop {
        let listed = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap_or_default();
        let is_stopped = |pid: &&str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(") T ")
        };
        if let Some(pid) = listed.split_whitespace().find(is_stopped) {
            break Pid::from_raw(pid.parse().expect("a number"));
        }
        assert!(std::fs::exists(format!("/proc/{}", run.id())).unwrap_or(false));
        std::thread::sleep(Duration::from_millis(20));
    };
    std::thread::sleep(Duration::from_millis(300));
    kill(stopped, Signal::SIGCONT).expect("it is stopped");
    let ended = run.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines.len() == 4 && lines[0] == lines[1] && lines[3].ends_with("child 1"), "{told}");
}

/// In a namespace of process ids `pleat run` knows the agent's threads by other numbers. With a /proc of its own: in ours what looks for leaks finds its threads
/// at a process of that number, if there is one.
#[test]
fn where_its_agent_cannot_be_traced_it_runs_beside_the_budget() {
    let turn = turn("leaks-namespace");
    let Some(program) = compiled(&turn, "leaks.c", "-fsanitize=address") else { return };
    let command = words(["unshare", "--pid", "--fork", "--mount-proc", &program]);
    let before = plain(&command);
    if findings(&before).len() < 4 {
        return skipped(&format!("no namespaces, or no leaks are found: {}", before.stderr));
    }
    let after = folded(&turn.options("32M"), &command);
    assert_same(&before, &after);
    assert_eq!(findings(&after), findings(&before));
    assert!(after.stderr.contains("outside the budget: it would stop the agent's threads"), "{}", after.stderr);
}

/// One ends where the agent would have its own: the agent must not work there.
#[test]
fn a_sanitizer_that_wants_all_addresses_gets_them() {
    let turn = turn("sanitizer-thread");
    let Some(program) = compiled(&turn, "static.c", "-fsanitize=thread") else { return };
    let command = words([&program]);
    let before = plain(&command);
    if before.stdout != b"static\n" {
        return skipped(&format!("-fsanitize=thread does not work here: {}", before.stderr));
    }
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "32M"), &command);
        assert_same(&before, &after);
        assert!(stays_out(&after), "{}", after.stderr);
        turn.assert_clean(&after);
    }
}
