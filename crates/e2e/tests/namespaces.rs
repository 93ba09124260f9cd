//! Processes whose ids mean something else to others: `pleat run` and the agents count, and end, the right ones.
#![forbid(unsafe_code)]

use pleat_e2e::{MODES, Run, assert_cold, assert_same, folded, plain, skipped, stats, turn, words};
use serde_json::Value;

/// Runs `strangers.c` plain and under pleat; with the document of statistics. `None` if there are no such namespaces here.
fn strangers(what: &str) -> Option<(Run, Value)> {
    strangers_in("", what, "swap")
}

/// The same in a mode, with the swap file at a place in the test's directory.
fn strangers_in(mode: &str, what: &str, swap: &str) -> Option<(Run, Value)> {
    let turn = turn(&format!("strangers-{what}"));
    let program = match turn.compile("strangers.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let command = words([&program, what, &turn.word("swap")]);
    let before = plain(&command);
    if before.stdout.starts_with(b"no ") {
        skipped(&String::from_utf8_lossy(&before.stdout));
        return None;
    }
    let mut options = turn.options_in(mode, "24M");
    options.retain(|option| !option.starts_with("--swap="));
    options.push(format!("--swap={}", turn.word(swap)));
    if swap != "swap" {
        std::fs::write(turn.file(swap), "").expect("the directory is there");
    }
    let after = folded(&options, &command);
    print!("{what}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
    assert_same(&before, &after);
    if swap != "swap" {
        let used = std::fs::metadata(turn.file(swap)).expect("a file that was set aside stays").len();
        assert!(used > 1 << 20, "{used}");
        std::fs::remove_file(turn.file(swap)).expect("it is there");
    }
    turn.assert_clean(&after);
    let stats = stats(&turn);
    Some((after, stats))
}

/// Each process of the statistics was there under that number, as seen from outside: the first of a namespace is 1 to itself.
fn assert_known(run: &Run, stats: &Value, folded_min: usize) {
    let processes = stats["processes"].as_array().expect("a list");
    let pid = |process: &Value| process["pid"].as_u64().expect("a number");
    let strange: Vec<_> = processes.iter().map(pid).filter(|pid| !run.peaks.seen.contains(&(*pid as u32))).collect();
    assert!(strange.is_empty(), "{strange:?} are none of {:?}", run.peaks.seen);
    let has_folded = |process: &&Value| process["pages_encoded"].as_u64() > Some(1000);
    assert!(processes.iter().filter(has_folded).count() >= folded_min, "{processes:?}");
}

fn assert_spilled(run: &Run, stats: &Value) {
    assert!(!run.stderr.contains("outside the budget"), "{}", run.stderr);
    assert!(stats["written_back_bytes"].as_u64() > Some(1 << 20), "{stats}");
}

/// Were they known by their own numbers, others would be measured, and ended, in their place.
#[test]
fn children_in_a_namespace_are_known_by_their_numbers_outside() {
    let Some((run, stats)) = strangers("children") else { return };
    assert_known(&run, &stats, 4);
}

/// There /proc tells nobody what he is to `pleat run`; its custodian does.
#[test]
fn with_a_proc_of_their_own_they_ask() {
    for mode in MODES {
        let Some((run, stats)) = strangers_in(mode, "mounted", "swap") else { return };
        assert_known(&run, &stats, 4);
        assert!(!run.stderr.contains("outside the budget"), "{}", run.stderr);
    }
}

/// A sandbox that hides the agent keeps it out of what is executed there. That it would be in before is in the ledger still.
#[test]
fn who_is_not_shown_the_agent_is_told_of() {
    let turn = turn("hidden-agent");
    let place = turn.word("hidden");
    let library = pleat_e2e::pleat().with_file_name("libpleat_agent.so");
    std::fs::create_dir(&place).expect("the directory is there");
    let hidden = format!("{place}/libpleat_agent.so");
    std::fs::copy(library, &hidden).expect("the agent has been built");
    let hide = format!("mount -t tmpfs none {place} && exec sleep 5");
    let command = words(["unshare", "--mount", "sh", "-c", &hide]);
    if plain(&command).shell_status() != 0 {
        return skipped("no namespace of mounts");
    }
    let mut folding = pleat_e2e::pleat_command(&turn.options("24M"), &command);
    folding.env("PLEAT_AGENT", &hidden);
    let after = pleat_e2e::folded_by(folding);
    std::fs::remove_dir_all(&place).expect("it is there");
    assert_eq!(after.shell_status(), 0, "{}", after.stderr);
    assert_eq!(
        after.stderr.matches(" runs outside the budget: the agent has not been loaded").count(),
        1,
        "{}",
        after.stderr
    );
}

/// Nor does it show the ledger to what is executed there, nor the directory of the swap file.
#[test]
fn with_a_proc_of_its_own_a_program_asks_for_the_run() {
    for (mode, swap) in MODES.iter().flat_map(|mode| [(mode, "swap"), (mode, "swap/file")]) {
        let Some((run, stats)) = strangers_in(mode, "executed", swap) else { return };
        assert_known(&run, &stats, 1);
        assert_spilled(&run, &stats);
    }
}

/// Of another namespace of users, /proc shows the ledger to nobody. Its user is the run's. Nor has anybody there the right to a userfaultfd for all faults.
#[test]
fn in_a_namespace_of_users_a_program_asks_for_the_run() {
    for mode in MODES {
        if mode.is_empty() && !std::path::Path::new("/dev/userfaultfd").exists() {
            skipped("the custodian has nothing by which a userfaultfd could be made");
            continue;
        }
        let Some((run, stats)) = strangers_in(mode, "users", "swap") else { return };
        assert_spilled(&run, &stats);
    }
}

/// `pleat run` finds the agent's threads by the numbers that they have there: who attaches to all threads is not given them.
#[test]
fn who_attaches_there_to_every_thread_ends() {
    let turn = turn("attaching-namespace");
    let program = match turn.compile("attaching.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words(["unshare", "--pid", "--fork", "--mount-proc", &program, "calls"]);
    let before = plain(&command);
    if !before.status.success() {
        return skipped(&format!("no namespaces: {}", before.stderr));
    }
    let after = folded(&turn.options("24M"), &command);
    assert_same(&before, &after);
    assert_cold(&after);
    assert!(after.stderr.contains("\n3 threads were refused"), "{}", after.stderr);
    turn.assert_clean(&after);
}

/// With a network of its own, too, it cannot ask, and the user is told.
#[test]
fn a_program_that_cannot_ask_runs_outside_the_budget() {
    for mode in MODES {
        let Some((run, _)) = strangers_in(mode, "walled", "swap") else { return };
        let count = run.stderr.matches("outside the budget: it is in a namespace of process ids").count();
        assert_eq!(count, 1, "{}", run.stderr);
    }
}

/// The custodian is called by a name that is known in one network. Who cannot tell what it is to `pleat run` gets all its memory back, and runs
/// beside the budget.
#[test]
fn with_a_network_of_their_own_they_are_let_go() {
    let Some((run, stats)) = strangers("secluded") else { return };
    assert_known(&run, &stats, 1);
    assert_eq!(run.stderr.matches("namespace of process ids").count(), 1, "{}", run.stderr);
}

/// As docs/programs.md has it: in user mode nobody can give it back. It is ended with a line, and reads no zeros before.
#[test]
fn with_a_network_of_its_own_a_child_is_ended_in_user_mode() {
    let turn = turn("strangers-secluded-user-mode");
    let command = match turn.compile("strangers.c", &["-pthread"]) {
        Ok(program) => words([&program, "secluded", &turn.word("swap")]),
        Err(why) => return skipped(&why),
    };
    if cfg!(not(target_arch = "x86_64")) || plain(&command).stdout.starts_with(b"no ") {
        return skipped("there is no user mode here, or there are no such namespaces");
    }
    let run = folded(&turn.options_in("--user-mode", "24M"), &command);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.starts_with("the first of its namespace\nthe child: 9 instead of 0"), "{said}{}", run.stderr);
    assert_eq!(run.stderr.matches("a forked process cannot take its memory over").count(), 1, "{}", run.stderr);
    turn.assert_clean(&run);
}

/// A child by a raw system call is ended, and not the process that has for us the number that it has for itself. While such a
/// child lives, libc's forks go on.
#[test]
fn a_raw_child_is_ended_and_nobody_in_its_place() {
    let Some((run, _)) = strangers("raw") else { return };
    assert_eq!(run.stderr.matches("was forked by a raw system call").count(), 1, "{}", run.stderr);
}

/// A sandbox shows its programs no directory that can be written. `pleat run` sees the one of the swap file.
#[test]
fn the_swap_file_is_where_pleat_run_sees_its_directory() {
    for (mode, swap) in MODES.iter().flat_map(|mode| [(mode, "swap"), (mode, "swap/file")]) {
        let Some((run, stats)) = strangers_in(mode, "hidden", swap) else { return };
        assert_spilled(&run, &stats);
    }
}
