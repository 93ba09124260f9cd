//! Limits that leave the agent no memory for itself: it does without what it has not begun, and ends with a line where it cannot
//! stop. Never wrong bytes, and never an end without a word.
#![forbid(unsafe_code)]

use pleat_e2e::{MODES, Run, Turn, assert_same, folded, plain, skipped, turn};

/// Where what it takes ends the agent's work, it says this.
const NO_MEMORY: &str = "its agent gets no memory";

/// A command by root without the right to raise hard limits; `None` if that cannot be had.
fn without_raising(command: &[&str]) -> Option<Vec<String>> {
    let drop = ["setpriv", "--bounding-set=-sys_resource"];
    let words = |tail: &[&str]| drop.iter().chain(tail).map(|word| (*word).to_owned()).collect::<Vec<_>>();
    if plain(&words(&["sh", "-c", "ulimit -n 6; ! ulimit -n 256 2>&-"])).status.success() {
        return Some(words(command));
    }
    skipped("no setpriv, or no hard limit that holds");
    None
}

/// `tight.c` with so much in 20 MiB, plain and under pleat in this mode.
fn tight(turn: &Turn, mode: &str, program: &str, kind: &str, kib: u32) -> Option<Run> {
    let command = without_raising(&[program, "36", kind, &kib.to_string()])?;
    let before = plain(&command);
    assert_eq!(before.stdout, b"equal, child 0\n", "it does not fail without pleat: {}", before.stderr);
    let after = folded(&turn.options_in(mode, "20M"), &command);
    println!(
        "{mode} {kind} + {kib} KiB: {}, {:.2?}: {} | {}",
        after.shell_status(),
        after.wall,
        String::from_utf8_lossy(&after.stdout).trim(),
        after.stderr.trim()
    );
    turn.assert_clean(&after);
    Some(after)
}

/// From nothing at all, at steps at which something else does not fit any more, to enough of addresses. What the agent takes does not
/// count for data.
#[test]
fn limits_that_leave_the_agent_nothing_lose_nothing() {
    let turn = turn("tight");
    let program = match turn.compile("tight.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let limits = [("data", [0, 300, 700, 1700]), ("as", [0, 300, 1700, 3300])];
    for (mode, (kind, steps)) in MODES.iter().flat_map(|mode| limits.map(|limit| (mode, limit))) {
        for kib in steps {
            let Some(run) = tight(&turn, mode, &program, kind, kib) else { return };
            let is_ended = run.stderr.contains(NO_MEMORY);
            assert!(!run.stderr.contains("bug in the agent"), "{}", run.stderr);
            assert!(
                kind == "as" || run.shell_status() == 0 && run.stderr.is_empty(),
                "what counts for data is not ours"
            );
            match (run.shell_status(), &run.stdout[..]) {
                (0, b"equal, child 0\n") => {}
                (0, b"equal, child 9\n") => assert!(is_ended, "the child ended without a word: {}", run.stderr),
                (125, b"") => assert!(is_ended, "it ended without a word: {}", run.stderr),
                (status, said) => panic!("{status}, {}: {}", String::from_utf8_lossy(said), run.stderr),
            }
        }
    }
}

/// What is too small for an agent starts as it does without one.
#[test]
fn limits_that_leave_an_agent_no_room_to_start() {
    let turn = turn("tight-start");
    let program = match turn.compile("tight.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for limit in ["-d 3000", "-d 4000", "-d 5000", "-v 7000", "-v 8000", "-v 9000"] {
        let script = format!("ulimit {limit}; exec {program} 0");
        let Some(command) = without_raising(&["sh", "-c", &script]) else { return };
        let before = plain(&command);
        for mode in MODES {
            let after = folded(&turn.options_in(mode, "24M"), &command);
            print!("{limit} {mode}: {}", after.stderr);
            assert_same(&before, &after);
            turn.assert_clean(&after);
        }
    }
}

/// A limit on data leaves a program as much as it does without pleat, but for what the agent's library has in its file.
#[test]
fn a_limit_on_data_is_the_programs() {
    const LIBRARY_PIECES: u32 = 4;
    let turn = turn("allowed");
    let program = match turn.compile("allowed.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let Some(command) = without_raising(&["sh", "-c", &format!("ulimit -d 81920; exec {program}")]) else { return };
    let pieces = |run: &Run| -> u32 {
        let line = run.stderr.lines().find_map(|line| line.strip_suffix(" pieces"));
        line.and_then(|count| count.parse().ok()).expect("it says how many")
    };
    let before = plain(&command);
    assert!(pieces(&before) > 60, "{} pieces are no more than the budget", pieces(&before));
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "32M"), &command);
        let [left, all] = [pieces(&after), pieces(&before)];
        println!("{mode}: {left} pieces against {all}, {:.2?} against {:.2?}", after.wall, before.wall);
        assert_same(&before, &after);
        assert!(left + LIBRARY_PIECES >= all, "{mode}: {left} against {all}");
        turn.assert_clean(&after);
    }
}
