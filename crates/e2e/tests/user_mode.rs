//! `pleat run --user-mode`: a plain user without any permission, the same output, nothing left behind.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use pleat_e2e::{Turn, assert_same, folded_by, plain, plain_by, pleat_words, skipped, stats, turn, words};

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

fn compare(turn: &Turn, ram: &str, program: &[String]) {
    if !Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists() || cfg!(not(target_arch = "x86_64")) {
        return skipped("no userfaultfd, or no way to trap system calls");
    }
    let command = match command(turn, ram, program) {
        Ok(command) => command,
        Err(why) => return skipped(&why),
    };
    let before = plain(program);
    let after = folded_by(command);
    assert_same(&before, &after);
    let stats = stats(turn);
    assert!(stats["pages_encoded"].as_u64() > Some(1000), "nothing was folded: {}, {stats}", after.stderr);
    turn.assert_clean(&after);
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
    let turn = turn("user-calls");
    match turn.compile("calls.c", &["-pthread"]) {
        Ok(program) => compare(&turn, "32M", &[program]),
        Err(why) => skipped(&why),
    }
}

#[test]
fn forks_in_user_mode() {
    let turn = turn("user-forks");
    match turn.compile("calls.c", &["-pthread"]) {
        Ok(program) => compare(&turn, "32M", &[program, "forks".to_owned()]),
        Err(why) => skipped(&why),
    }
}
