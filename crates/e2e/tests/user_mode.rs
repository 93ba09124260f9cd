//! `pleat run --user-mode`: a plain user without any permission, the same output, nothing left behind.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use pleat_e2e::{Run, Turn, assert_same, folded_by, plain, plain_by, pleat_words, skipped, stats, turn, words};

/// The user with no rights at all.
const NOBODY: &str = "65534";

/// `pleat run --user-mode` as nobody, or as who we are if that is nobody in particular.
fn command(turn: &Turn, ram: &str, program: &[String]) -> Result<Command, String> {
    let mut options = turn.options(ram);
    options.push("--user-mode".to_owned());
    as_nobody(turn, pleat_words(&options, program))
}

/// Runs `pleat` with these words as nobody, or as who we are if that is nobody in particular.
fn as_nobody(turn: &Turn, mut command: Vec<String>) -> Result<Command, String> {
    if nix::unistd::geteuid().is_root() {
        let drop = words(["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        let may = Command::new(&drop[0]).args(&drop[1..]).arg("test").arg("-x").arg(pleat_e2e::pleat()).status();
        if !may.is_ok_and(|status| status.success()) {
            return Err("nobody may not execute pleat where it was built".to_owned());
        }
        for place in [turn.file(""), turn.swap()] {
            let opened = Command::new("chmod").arg("a+rwx").arg(&place).status();
            assert!(opened.is_ok_and(|status| status.success()), "{}", place.display());
        }
        command.splice(0..0, drop);
    }
    Ok(pleat_e2e::command(&command))
}

fn compare(turn: &Turn, ram: &str, program: &[String]) -> Option<Run> {
    if !Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists() || cfg!(not(target_arch = "x86_64")) {
        skipped("no userfaultfd, or no way to trap system calls");
        return None;
    }
    let command = match command(turn, ram, program) {
        Ok(command) => command,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let before = plain(program);
    let after = folded_by(command);
    assert_same(&before, &after);
    let stats = stats(turn);
    assert!(stats["pages_encoded"].as_u64() > Some(1000), "nothing was folded: {}, {stats}", after.stderr);
    turn.assert_clean(&after);
    Some(after)
}

/// Compiles a program of `programs/` and compares.
fn compare_source(name: &str, ram: &str, source: &str, arguments: &[&str]) -> Option<Run> {
    let turn = turn(name);
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let directory = turn.word("");
    let arguments =
        arguments.iter().map(|word| if *word == "DIRECTORY" { directory.clone() } else { (*word).to_owned() });
    compare(&turn, ram, &[program].into_iter().chain(arguments).collect::<Vec<_>>())
}

/// "no permission for userfaultfd (say the ways to get it)": one line with all three, and 125.
#[test]
fn who_may_not_is_told_the_ways() {
    let turn = turn("refused");
    let command = match as_nobody(&turn, pleat_words(&turn.options("32M"), &words(["true"]))) {
        Ok(command) => command,
        Err(why) => return skipped(&why),
    };
    let run = folded_by(command);
    assert_eq!(run.shell_status(), 125, "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "not one line: {}", run.stderr);
    for way in ["CAP_SYS_PTRACE", "pleat doctor", "vm.unprivileged_userfaultfd", "/dev/userfaultfd", "--user-mode"] {
        assert!(run.stderr.contains(way), "`{way}` is not mentioned: {}", run.stderr);
    }
    let doctor = as_nobody(&turn, vec![pleat_e2e::text(&pleat_e2e::pleat()), "doctor".to_owned()]);
    let doctor = plain_by(doctor.expect("it worked above"));
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("sudo setpriv") && said.contains("+sys_ptrace"), "the exact command is not there: {said}");
    turn.assert_clean(&run);
}

#[test]
fn system_calls_in_user_mode() {
    compare_source("user-calls", "32M", "calls.c", &[]);
}

#[test]
fn forks_in_user_mode() {
    compare_source("user-forks", "32M", "calls.c", &["forks"]);
}

/// A call that changes the layout is not interrupted: the handler's fork, or another thread's, would wait for it.
#[test]
fn signals_meet_no_half_done_change_of_the_layout() {
    compare_source("user-interrupted-forks", "24M", "interrupted.c", &["forks"]);
    compare_source("user-interrupted-changes", "24M", "interrupted.c", &["changes"]);
}

#[test]
fn what_a_child_does_not_have_in_user_mode() {
    let Some(run) = compare_source("user-left-out", "24M", "leftout.c", &[]) else { return };
    assert!(!run.stderr.contains("cannot be met"), "{}: memory of the agent's is managed", run.stderr);
}

/// What `kernel_io.rs` does with permissions.
#[test]
fn the_kernel_reads_and_writes_cold_memory_in_user_mode() {
    compare_source("user-kernel-calls", "24M", "kernel_io.c", &["calls", "DIRECTORY"]);
    compare_source("user-kernel-pages", "24M", "kernel_io.c", &["pages", "DIRECTORY"]);
}

/// As docs/user-mode.md has it: missing pages are refused, and never come as something else.
#[test]
fn other_processes_are_refused_in_user_mode() {
    for what in ["children", "parents"] {
        if let Some(run) = compare_source(&format!("user-{what}"), "24M", "others.c", &[what]) {
            assert!(!run.stderr.contains("\n0 pages were refused"), "{what}: {}", run.stderr);
        }
    }
}

/// Without a thread of the agent's in the way; managed as before.
#[test]
fn a_user_namespace_in_user_mode() {
    if let Some(run) = compare_source("user-namespace", "48M", "rights.c", &["early"]) {
        assert!(run.stdout.starts_with(b"0, equal"), "{}", run.stderr);
    }
}
