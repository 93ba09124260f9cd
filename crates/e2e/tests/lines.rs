//! Where pleat's lines are written, when one comes at a time: the user of a run sees them, and no log or reader of the program's does.
#![forbid(unsafe_code)]

use std::fs;

use pleat_e2e::{MODES, Turn, folded, folded_by, plain, pleat_command, python, skipped, text, turn, words};

/// A job whose agent stays out, and says so.
const ZYGOTE: &str = "print('out', flush=True)";

/// `sh -c` on a line in which `$0` is the interpreter, `$1` a Python program and `$2` a log.
fn with_log(turn: &Turn, line: &str, program: &str) -> Vec<String> {
    words(["sh", "-c", line, python(), program, &text(&turn.file("log"))])
}

fn log(turn: &Turn) -> String {
    fs::read_to_string(turn.file("log")).expect("the shell has made it")
}

#[test]
fn a_line_of_a_process_with_a_log_is_printed_by_the_run() {
    let turn = turn("lines-log");
    let quiet = with_log(&turn, "echo own >&2; \"$0\" -c \"$1\" --type=zygote 2> \"$2\"; echo $?", ZYGOTE);
    let run = folded(&turn.options("64M"), &quiet);
    assert_eq!(run.stdout, b"out\n0\n");
    assert_eq!(run.stderr.matches("outside the budget: a zygote").count(), 1, "{}", run.stderr);
    assert_eq!(log(&turn), "");
}

#[test]
fn who_fails_with_a_log_is_told_of_by_the_run() {
    for mode in MODES {
        let turn = turn("lines-failed");
        let fills = "x = [bytes(range(256)) * 16 + b'%d' % i for i in range(30000)]; print('not ended')";
        let job = with_log(&turn, "exec \"$0\" -c \"$1\" 2> \"$2\"", fills);
        let mut command = pleat_command(&turn.options_in(mode, "32M"), &job);
        command.env("PLEAT_FAULT", "handler-panics");
        let run = folded_by(command);
        assert_eq!(run.stdout, b"", "{mode}: the handler has not failed");
        assert_eq!(run.stderr.matches("bug in the agent, the program is ended").count(), 1, "{mode}: {}", run.stderr);
        assert_eq!(log(&turn), "", "{mode}");
    }
}

/// It has no way to the run's ledger: the custodian says so for it.
#[test]
fn who_may_not_join_the_run_is_told_of_by_the_run() {
    let turn = turn("lines-other");
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" -c \"$1\" 2> \"$2\"";
    // In the place of a process that was of the run, and as a child of one.
    for (line, out) in [(format!("exec {other}"), "out\n"), (format!("{other}; {other}"), "out\nout\n")] {
        let job = with_log(&turn, &line, ZYGOTE);
        if plain(&job).stdout != out.as_bytes() {
            return skipped("no setpriv, or no right to it");
        }
        let run = folded(&turn.options("64M"), &job);
        if log(&turn).contains("cannot be preloaded") {
            return skipped("the agent lies where another user cannot read it");
        }
        assert_eq!(run.stdout, out.as_bytes());
        assert_eq!(
            run.stderr.matches("its user may not join the run (see --other-users)").count(),
            1,
            "{}",
            run.stderr
        );
        assert_eq!(log(&turn), "");
    }
}
