//! Programs that lock their memory, spread it, or limit their addresses.
#![forbid(unsafe_code)]

use std::time::Duration;

use bench::cgroup::{Group, Swap};
use bench::size::mib;
use pleat_e2e::{
    MODES, assert_same, assert_within, folded, folded_by, plain, pleat_command, pleat_words, program, python, skipped,
    stats, turn, words,
};

/// What is mapped and what will be: all of it is the program's own, locked and back in memory; nothing of the agent's
/// reserved addresses, twice the machine's memory, is.
#[test]
fn mlockall_locks_the_program_and_not_the_agent() {
    let turn = turn("mlockall");
    let program = match turn.compile("lock.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // So that a failure ends the program and not the machine.
    let group = match Group::create("pleat-mlockall")
        .and_then(|group| group.limit(512 << 20, Swap::Forbidden).map(|()| group))
    {
        Ok(group) => group,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "33554432"]);
    let before = plain(&command);
    for mode in MODES {
        let after = folded_by(group.command(&pleat_words(&turn.options_in(mode, "48M"), &command)));
        println!("{mode}: {:.2?} against {:.2?}, peak {}", after.wall, before.wall, mib(after.peaks.anon_bytes));
        assert_same(&before, &after);
        // What is locked counts: 64 MiB of it and 1 MiB that came later, and what pleat holds beside them.
        assert!(after.peaks.anon_bytes < 120 << 20, "{mode}: {} bytes", after.peaks.anon_bytes);
        turn.assert_clean(&after);
    }
}

/// The agent reserves twice the machine's memory; the program gets what it would have had, and no more.
#[test]
fn a_limit_on_addresses_is_the_programs_own() {
    let turn = turn("addresses");
    let whens = ["early", "late"].into_iter().flat_map(|when| MODES.iter().map(move |mode| (when, mode)));
    for (when, mode) in whens {
        let command = words([python(), &program("addresses.py"), when, "250"]);
        let before = plain(&command);
        let after = folded(&turn.options_in(mode, "48M"), &command);
        println!("{when} {mode}: {:.2?} against {:.2?}", after.wall, before.wall);
        assert_same(&before, &after);
        let reclaimed = stats(&turn)["pages_reclaimed"].as_u64().expect("a number");
        let peaks = [&after, &before].map(|run| mib(run.peaks.anon_bytes));
        println!("peaks {peaks:?}, {reclaimed} pages reclaimed");
        assert!(after.peaks.anon_bytes < before.peaks.anon_bytes, "nothing was reclaimed: {peaks:?}");
        assert!(reclaimed > 10_000, "{reclaimed}: the run was not managed");
        turn.assert_clean(&after);
    }
}

/// Pages with a quarter of a gigabyte between them: what it costs to go over them does not depend on the distance.
#[test]
fn pages_scattered_over_terabytes() {
    let turn = turn("scattered");
    let program = match turn.compile("scattered.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program]);
    let before = plain(&command);
    let after = folded(&turn.options("48M"), &command);
    println!("{:.2?} against {:.2?}", after.wall, before.wall);
    assert_same(&before, &after);
    // Measured: 1.7 s; 22 s when a sweep looked at each leaf of the page table.
    assert!(after.wall < Duration::from_secs(15), "{:?}", after.wall);
    turn.assert_clean(&after);
}

/// Each of the processes needs an agent, room to grow, and some pages to work with: a fifth of what the plain run takes is no more
/// than that. It once ended in each of them having nothing but its agent.
#[test]
fn many_processes_live_in_a_small_budget() {
    const BUDGET: u64 = 32 << 20;
    let turn = turn("herd");
    let job = match turn.compile("herd.c", &[]) {
        Ok(program) => words([&program, "20", "8192", "100"]),
        Err(why) => return skipped(&why),
    };
    let before = plain(&job);
    let after = folded(&turn.options("32M"), &job);
    println!("{:.2?} against {:.2?}, peak {}", after.wall, before.wall, mib(after.peaks.anon_bytes));
    assert_same(&before, &after);
    assert_within(&before, &after, BUDGET);
    assert!(after.wall < Duration::from_mins(1), "{:?}", after.wall);
    turn.assert_clean(&after);
}

/// Where a limit on processes leaves a forked child no thread for its agent, or too few, its parent brings all that it misses.
#[test]
fn a_child_without_threads_for_its_agent_has_all_its_memory() {
    let turn = turn("threadless");
    let script = "import os\nx = [b'%d' % i * 50 for i in range(200000)]\nfor number in range(3):\n\
                  \x20 pid = os.fork()\n\
                  \x20 if pid == 0: os._exit(7 if x == [b'%d' % i * 50 for i in range(200000)] else 8)\n\
                  \x20 print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let job = words([python(), "-c", script]);
    let before = plain(&job);
    for fault in ["forked-without-thread", "forked-without-crew"] {
        let mut command = pleat_command(&turn.options("40M"), &job);
        command.env("PLEAT_FAULT", fault);
        let after = folded_by(command);
        assert_same(&before, &after);
        assert!(after.stderr.contains("runs outside the budget: no thread for its agent"), "{fault}: {}", after.stderr);
        turn.assert_clean(&after);
    }
}

/// Four processes of 12 MiB each: one at a time has room, four at a time bring back what they have just lost. Decision 29.
#[test]
fn processes_that_thrash_work_by_turns() {
    let turn = turn("turns");
    let job = match turn.compile("herd.c", &[]) {
        Ok(program) => words([&program, "4", "12288", "6000", "busy"]),
        Err(why) => return skipped(&why),
    };
    let before = plain(&job);
    let run = |fault: Option<&str>| {
        let mut command = pleat_command(&turn.options("20M"), &job);
        if let Some(fault) = fault {
            command.env("PLEAT_FAULT", fault);
        }
        let after = folded_by(command);
        assert_same(&before, &after);
        turn.assert_clean(&after);
        after.wall
    };
    let (by_turns, at_once) = (run(None), run(Some("no-turns")));
    println!("{by_turns:.2?} by turns, {at_once:.2?} at once, {:.2?} plain", before.wall);
    // Measured: 3.0 and 7.2 s.
    assert!(by_turns < at_once.mul_f64(0.8), "{by_turns:?} by turns, {at_once:?} at once");
}

/// 47 MiB of the main thread's stack, which does not leave, in a budget of 24: what the faults bring leaves again, and each time they
/// once waited for 40 ms until the budget counted as out of reach.
#[test]
fn a_budget_below_what_cannot_leave_is_gone_beyond_without_waiting() {
    let turn = turn("beyond-budget");
    let command = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => words([&program, "stack"]),
        Err(why) => return skipped(&why),
    };
    let before = plain(&command);
    let after = folded(&turn.options("24M"), &command);
    println!("{:.2?} against {:.2?}", after.wall, before.wall);
    assert_same(&before, &after);
    assert_eq!(after.stderr.matches("cannot be met").count(), 1, "{}", after.stderr);
    // Measured: 5 s; 37 to 42 s when they waited.
    assert!(after.wall < Duration::from_secs(20), "{:?}", after.wall);
    turn.assert_clean(&after);
}

/// A budget of which the program may use next to nothing is no deadlock and no failure, but it is slow, and the user is told why.
#[test]
fn a_budget_of_which_little_can_leave_is_told_of() {
    let turn = turn("stays");
    let program = match turn.compile("stays.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let run = |changed_mib: &str, seconds: &str| {
        let command = words([&program, changed_mib, "24", seconds]);
        // Its seconds end with those of the clock: one might be over before the first look.
        let before = plain(&words([&program, changed_mib, "24", "2"]));
        let after = folded(&turn.options("24M"), &command);
        assert_same(&before, &after);
        turn.assert_clean(&after);
        after.stderr
    };
    let told = run("18", "9");
    let lines: Vec<_> = told.lines().filter(|line| line.contains("cannot leave memory")).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(lines[0].starts_with("pleat: ") && lines[0].ends_with("raise --ram"), "{told}");
    // The same walk in the same budget, with less that cannot leave: it loses as much time, and nothing is told.
    assert!(!run("4", "7").contains("cannot leave memory"));
}
