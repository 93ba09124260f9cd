//! A plain user without any permission, for whom there is `pleat run --user-mode`.

use std::path::Path;
use std::process::Command;

use crate::{Run, Turn, assert_same, folded_by, plain, pleat, pleat_words, skipped, stats, turn, words};

/// The user with no rights at all.
const NOBODY: &str = "65534";
/// Whether everybody may use userfaultfd.
pub const SYSCTL: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// `pleat run --user-mode` as nobody, or as who we are if that is nobody in particular.
///
/// # Errors
/// The reason to skip.
pub fn command(turn: &Turn, ram: &str, program: &[String]) -> Result<Command, String> {
    let mut options = turn.options(ram);
    options.push("--user-mode".to_owned());
    as_nobody(turn, pleat_words(&options, program))
}

/// Runs `pleat` with these words as nobody, or as who we are if that is nobody in particular.
///
/// # Errors
/// The reason to skip.
///
/// # Panics
/// If the places of the test cannot be opened to everybody.
pub fn as_nobody(turn: &Turn, mut command: Vec<String>) -> Result<Command, String> {
    if nix::unistd::geteuid().is_root() {
        let drop = words(["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        let may = Command::new(&drop[0]).args(&drop[1..]).arg("test").arg("-x").arg(pleat()).status();
        if !may.is_ok_and(|status| status.success()) {
            return Err("nobody may not execute pleat where it was built".to_owned());
        }
        for place in [turn.file(""), turn.swap()] {
            let opened = Command::new("chmod").arg("a+rwx").arg(&place).status();
            assert!(opened.is_ok_and(|status| status.success()), "{}", place.display());
        }
        command.splice(0..0, drop);
    }
    Ok(crate::command(&command))
}

/// Whether there is a user mode here.
///
/// # Errors
/// Why not.
pub fn possible() -> Result<(), String> {
    if !Path::new(SYSCTL).exists() || cfg!(not(target_arch = "x86_64")) {
        return Err("no userfaultfd, or no way to trap system calls".to_owned());
    }
    Ok(())
}

/// Runs a program plain and in user mode, which must fold, and compares; `None` where it is skipped.
///
/// # Panics
/// If they differ, if nothing was folded, or if something is left behind.
pub fn compare(turn: &Turn, ram: &str, program: &[String]) -> Option<Run> {
    let command = match possible().and_then(|()| command(turn, ram, program)) {
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

/// Compiles a program of `programs/` and compares. The argument DIRECTORY is one of its own.
///
/// # Panics
/// As [`compare`].
pub fn compare_source(name: &str, ram: &str, source: &str, arguments: &[&str]) -> Option<Run> {
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
