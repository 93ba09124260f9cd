//! Programs that give up a right or lower a limit while some of their memory is folded, and then fork.
#![forbid(unsafe_code)]

use std::fs;

use pleat_e2e::{Run, assert_same, folded, plain, skipped, text, turn, words};

/// Runs the program plain and under pleat and compares. What pleat said, unless the machine does not allow it.
fn goes_on(what: &str, number: &str) -> Option<Run> {
    let turn = turn(&format!("rights-{what}{number}"));
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    fs::create_dir_all(turn.file("empty")).expect("the target directory can be written");
    let number = if what == "root" { text(&turn.file("empty")) } else { number.to_owned() };
    let command = words([&program, what, &number]);
    let before = plain(&command);
    if before.stdout != b"0, equal, child 0\n" {
        skipped(&format!("{what} cannot be given up here: {}", String::from_utf8_lossy(&before.stdout)));
        return None;
    }
    let after = folded(&turn.options("48M"), &command);
    println!("{what} {number}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
    assert_same(&before, &after);
    turn.assert_clean(&after);
    Some(after)
}

/// The agent's threads keep theirs, and the child's agent is let in because it is a child. It cannot reach the swap
/// directory, so its parent brings all that it misses.
#[test]
fn another_user_forks() {
    goes_on("user", "");
}

#[test]
fn without_capabilities_it_forks() {
    goes_on("capabilities", "");
}

/// Flags that take rights to /proc away, or huge pages.
#[test]
fn with_other_flags_it_forks() {
    goes_on("flags", "");
    goes_on("pages", "");
}

#[test]
fn with_limits_on_data_locks_and_stack_it_forks() {
    for what in ["data", "locked", "stack"] {
        goes_on(what, "");
    }
}

/// Other mounts over /proc and /dev/shm.
#[test]
fn with_mounts_of_its_own_it_forks() {
    goes_on("mounts", "");
}

/// By glibc's signal to each thread that it knows: the agent's are none of them.
#[test]
fn threads_change_their_user_together() {
    goes_on("threads", "");
}

/// As docs/programs.md has it: the agent's thread stands in the way. The program goes on.
#[test]
fn a_user_namespace_is_refused() {
    let turn = turn("rights-people");
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "people"]);
    if plain(&command).stdout != b"0, equal, child 0\n" {
        return skipped("no user namespaces here");
    }
    let after = folded(&turn.options("48M"), &command);
    assert_eq!(after.stdout, b"-1, equal, child 0\n", "mend docs/programs.md: {}", after.stderr);
    turn.assert_clean(&after);
}

/// There is no /proc inside, and no swap directory: the child's agent reaches its own /proc through its parent's.
#[test]
fn inside_another_root_it_forks() {
    goes_on("root", "");
}

/// The child's agent may open nothing: the parent brings all that the child misses, and the child runs unmanaged.
#[test]
fn with_calls_forbidden_it_forks() {
    let Some(run) = goes_on("calls", "") else { return };
    assert!(run.stderr.contains("runs outside the budget"), "{}", run.stderr);
}

/// Another user's processes have no access to the run. One line says so, however many they are.
#[test]
fn what_another_user_executes_says_that_it_is_not_managed() {
    let turn = turn("another-user");
    let script = "sh -c 'sh -c true; echo here'; sh -c true";
    let command = words(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
    let before = plain(&command);
    if before.stdout != b"here\n" {
        return skipped("no setpriv, or no right to it");
    }
    let after = folded(&turn.options("48M"), &command);
    if after.stderr.contains("cannot be preloaded") {
        return skipped("the agent lies where another user cannot read it");
    }
    assert_same(&before, &after);
    assert_eq!(after.stderr.matches("its user may not join the run").count(), 1, "{}", after.stderr);
    turn.assert_clean(&after);
}

#[test]
fn with_few_descriptors_it_goes_on_and_forks() {
    for number in ["3", "16"] {
        goes_on("descriptors", number);
    }
}

/// From before the start: what the agent opens it opens under a limit that it raises for a moment.
#[test]
fn with_few_descriptors_from_the_start_it_is_managed() {
    let turn = turn("few-descriptors");
    let program = match turn.compile("fork.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let script = format!("ulimit -S -n 6; exec {program} 64 2");
    let command = words(["sh", "-c", &script]);
    let before = plain(&command);
    let after = folded(&turn.options("48M"), &command);
    assert_same(&before, &after);
    assert!(after.stderr.is_empty(), "{}", after.stderr);
    assert!(after.peaks.anon_bytes < before.peaks.anon_bytes, "nothing was reclaimed");
    turn.assert_clean(&after);
}
