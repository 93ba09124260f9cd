//! Ends: of threads, whose last words the kernel says while it waits for nobody; of programs by their last thread; and of one
//! that executes another, or ends, while it forks.
#![forbid(unsafe_code)]

use std::time::Duration;

use pleat_e2e::{MODES, Run, assert_cold, assert_same, folded, plain, skipped, turn, words};

/// Runs a program plain and under a budget, in each mode.
fn compare(name: &str, source: &str, kind: &str, check: impl Fn(&Run, &Run)) {
    let turn = turn(name);
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // Older libcs have none of these areas, which bring a thread's block in each time the thread gets a processor.
    let command = words(["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", &program, kind]);
    let before = plain(&command);
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "16M"), &command);
        println!("{kind} {mode}: {:.2?} against {:.2?}", after.wall, before.wall);
        assert_same(&before, &after);
        assert!(after.stdout.ends_with(b"all well\n"));
        check(&before, &after);
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    }
}

#[test]
fn robust_mutexes_in_cold_memory_tell_that_their_owner_has_ended() {
    compare("exits-robust", "exits.c", "robust", |_, after| assert_cold(after));
}

/// A main thread that has ended has no memory by which the lists could be read.
#[test]
fn robust_mutexes_tell_so_without_the_main_thread() {
    compare("exits-alone", "exits.c", "robust-alone", |_, after| assert_cold(after));
}

#[test]
fn a_thread_that_ends_far_from_its_thread_block_is_joined() {
    compare("exits-joined", "exits.c", "joined", |_, after| assert_cold(after));
}

/// libc does not see that it is the last one.
#[test]
fn a_program_ends_with_its_last_thread() {
    compare("exits-last", "exits.c", "last", |before, after| {
        assert!(after.wall < before.wall + Duration::from_secs(10), "{:?}", after.wall);
    });
}

/// As the kernel has it: with what the last thread has ended with, if they end one by one. Of the six that end so five have one thread, and end at
/// once; an agent that has to look takes a second for each.
#[test]
fn who_ends_by_threads_ends_with_its_status() {
    compare("exits-statuses", "exits.c", "statuses", |before, after| {
        assert!(after.wall < before.wall + Duration::from_millis(3500), "{:?}", after.wall);
    });
}

#[test]
fn children_that_are_being_forked_survive_an_exec() {
    compare("exits-exec", "forkexec.c", "2", |_, _| {});
}

#[test]
fn children_that_are_being_forked_survive_an_exec_by_descriptor() {
    compare("exits-fexecve", "forkexec.c", "1f", |_, _| {});
    compare("exits-execveat", "forkexec.c", "1a", |_, _| {});
}

#[test]
fn children_that_are_being_forked_survive_their_parents_end() {
    compare("exits-exit", "forkexec.c", "1e", |_, _| {});
    compare("exits-exit-at-once", "forkexec.c", "1u", |_, _| {});
}
