//! `pleat run --user-mode`: a plain user without any permission, the same output, nothing left behind.
#![forbid(unsafe_code)]

use std::fs;

use pleat_e2e::nobody::{command, compare, compare_source, possible};
use pleat_e2e::{Spill, assert_cold, compare_in, folded_by, skipped, stats, turn, words};

/// "Refused, or different" of docs/user-mode.md: an error, never a call that the agent does not know of. A line for each filter, one in a run for
/// what programs do without where it is not known.
#[test]
fn what_user_mode_refuses() {
    const ANSWERS: &str = "io_uring_setup: ENOSYS\nio_pgetevents: ENOSYS\nuserfaultfd: ENOSYS\nfilter: EINVAL\n\
                           filter of all threads: EINVAL\nfilter by prctl: EINVAL\nno filter: EFAULT\nstrict with flags: EINVAL\nstrict: EINVAL\nstrict by prctl: EINVAL\n\
                           dispatch off: EINVAL\ndispatch on: EINVAL\nclone3 without handlers: EINVAL\nposix_spawn: works\n\
                           mode: 0\nis an action known: works\n";
    let turn = turn("user-refusals");
    let program = possible().and_then(|()| turn.compile("refusals.c", &["-pthread"]));
    let command = match program.and_then(|program| command(&turn, "24M", &[program])) {
        Ok(command) => command,
        Err(why) => return skipped(&why),
    };
    let run = folded_by(command);
    let asked = ["main", "thread", "child", "again"].map(|who| format!("{who}\n{ANSWERS}")).concat();
    let expected = asked + "stacks without end: ENOMEM\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), expected, "{}", run.stderr);
    assert_eq!(run.shell_status(), 0, "{}", run.stderr);
    let count = |what: &str| run.stderr.lines().filter(|line| line.contains(what)).count();
    let lines =
        ["a seccomp filter is refused (EINVAL)", "io_uring_setup is refused", "userfaultfd is refused"].map(count);
    assert_eq!((lines, run.stderr.lines().count()), ([20, 1, 1], 22), "{}", run.stderr);
    assert!(stats(&turn)["pages_encoded"].as_u64() > Some(1000), "nothing was folded: {}", run.stderr);
    turn.assert_clean(&run);
}

#[test]
fn system_calls_in_user_mode() {
    compare_source("user-calls", "32M", "calls.c", &[]);
}

#[test]
fn forks_in_user_mode() {
    compare_source("user-forks", "32M", "calls.c", &["forks"]);
    // Past libc, which is refused with permission.
    compare_source("user-suspended", "32M", "calls.c", &["suspended"]);
}

/// A call that changes the layout is not interrupted: the handler's fork, or another thread's, would wait for it.
#[test]
fn signals_meet_no_half_done_change_of_the_layout() {
    compare_source("user-interrupted-forks", "24M", "interrupted.c", &["forks"]);
    compare_source("user-interrupted-changes", "24M", "interrupted.c", &["changes"]);
}

#[test]
fn threads_use_and_change_the_same_memory_in_user_mode() {
    let seed = std::process::id().to_string();
    println!("seed {seed}");
    compare_source("user-contended", "24M", "contended.c", &[&seed, "5"]);
}

#[test]
fn what_a_child_does_not_have_in_user_mode() {
    for arguments in [&[][..], &["raw"]] {
        let Some(run) = compare_source("user-left-out", "24M", "leftout.c", arguments) else { return };
        assert!(!run.stderr.contains("cannot be met"), "{}: memory of the agent's is managed", run.stderr);
    }
}

/// What `kernel_io.rs` does with permissions.
#[test]
fn the_kernel_reads_and_writes_cold_memory_in_user_mode() {
    for what in ["calls", "pages", "requests"] {
        if let Some(run) = compare_source(&format!("user-kernel-{what}"), "24M", "kernel_io.c", &[what, "DIRECTORY"]) {
            assert_cold(&run);
        }
    }
}

/// The rows of `calls.rs` in pleat-sys: each piece of memory, but for aligned words, lies across two pages that are out, with one byte on
/// the second.
#[test]
fn every_pointer_of_a_call_is_brought_in() {
    let Some(run) = compare_source("user-answers", "24M", "answers.c", &["DIRECTORY"]) else { return };
    assert_cold(&run);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.lines().count() > 300, "{said}");
    let refused: Vec<_> = said.lines().filter(|line| line.contains("Bad address")).collect();
    assert_eq!(refused, Vec::<&str>::new());
}

/// Stacks are kept.
#[test]
fn performance_events_in_user_mode() {
    let paranoia = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if !paranoia.trim_end().parse::<i32>().is_ok_and(|level| level <= 2) {
        return skipped("performance events are not for everybody");
    }
    if let Some(run) = compare_source("user-perf", "24M", "perf.c", &[]) {
        match String::from_utf8_lossy(&run.stdout).lines().find(|line| line.starts_with("no ")) {
            Some(reason) => skipped(reason),
            None => assert_cold(&run),
        }
    }
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

/// Agents of keys do not want to be dumped: their page map is root's. They are managed, and so are their children.
#[test]
fn who_is_not_dumped_forks_in_user_mode() {
    let Some(run) = compare_source("user-flags", "48M", "rights.c", &["flags"]) else { return };
    assert_eq!((&run.stdout[..], &run.stderr[..]), (&b"0, equal, child 0\n"[..], ""));
}

/// As docs/programs.md has it: a child that gets no thread for its agent is ended with a line. Its parent goes on.
#[test]
fn a_child_without_a_thread_for_its_agent_is_ended() {
    let turn = turn("user-processes");
    let program = possible().and_then(|()| turn.compile("rights.c", &["-pthread"]));
    let command = program.and_then(|program| command(&turn, "48M", &words([&program, "processes"])));
    let run = match command {
        Ok(command) => folded_by(command),
        Err(why) => return skipped(&why),
    };
    let said = String::from_utf8_lossy(&run.stdout);
    // For root no limit holds; and there is none left where somebody of this user has started something since it was set.
    if ["0, equal, child 0\n", "0, equal, child 2\n"].contains(&&said[..]) && run.stderr.is_empty() {
        return skipped("a limit on processes does not hold, or others have reached it");
    }
    assert_eq!(said, "0, equal, child 109\n", "{}", run.stderr);
    assert!(run.stderr.contains("a forked process gets no thread"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    turn.assert_clean(&run);
}

/// Without a thread of the agent's in the way; managed as before.
#[test]
fn a_user_namespace_in_user_mode() {
    for what in ["early", "entered"] {
        if let Some(run) = compare_source(&format!("user-namespace-{what}"), "48M", "rights.c", &[what]) {
            assert!(run.stdout.starts_with(b"0, equal"), "{what}: {}", run.stderr);
        }
    }
}

/// Nothing of ours begins on it, nor below it.
#[test]
fn a_signal_stack_of_8_kib_is_enough() {
    compare_source("small-signal-stack", "24M", "altstack.c", &[]);
}

/// Of a stack that the program supplies what its thread uses comes in, and no more.
#[test]
fn threads_on_stacks_of_the_programs_own_stay_inside_the_budget() {
    let turn = turn("supplied");
    match turn.compile("supplied.c", &["-pthread"]) {
        Ok(program) => compare_in("--user-mode", &turn, &words([&program]), &[32, 24], Spill::May),
        Err(why) => skipped(&why),
    }
}

/// More of them than there are signal stacks of ours: each gives its own back, however it ends.
#[test]
fn threads_one_after_the_other_stay_inside_the_budget() {
    let turn = turn("generations");
    match turn.compile("generations.c", &["-pthread"]) {
        Ok(program) => compare_in("--user-mode", &turn, &words([&program]), &[32, 24], Spill::May),
        Err(why) => skipped(&why),
    }
}

/// What is traced from its start is left alone, for each trap of a system call would stop it: its debugger sees the stop of its exec.
#[test]
fn a_debugger_in_user_mode() {
    let Some(run) = compare_source("debugger", "24M", "debugger.c", &[]) else { return };
    assert_eq!(run.stderr.matches("runs outside the budget: it is traced").count(), 1, "{}", run.stderr);
    assert_cold(&run);
}

/// 48 MiB filled by one call, of which nothing may leave while the call holds it, and gone over once: in one piece it came to all of it.
#[test]
fn what_one_call_fills_leaves_while_it_is_filled() {
    const FILL: &str = "import mmap, sys\nm = mmap.mmap(-1, 48 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                        m.madvise(int(sys.argv[1]))\n\
                        for at in range(0, len(m), 4096): m[at:at + 8] = at.to_bytes(8, 'little')\n\
                        print(sum(int.from_bytes(m[at:at + 8], 'little') == at for at in range(0, len(m), 4096)))";
    for advice in ["22", "23"] {
        let turn = turn(&format!("filled-{advice}"));
        let Some(run) = compare(&turn, "32M", &words([pleat_e2e::python(), "-c", FILL, advice])) else { return };
        let peak = run.peaks.anon_bytes;
        assert!(peak < 35 << 20, "{advice}: {}", bench::size::mib(peak));
    }
}

/// Calls on 48 MiB, which were held as a whole: what they say is what they say without us, whatever signals come, and what has been
/// read or written leaves before all has.
#[test]
fn reads_and_writes_of_more_than_the_budget() {
    let turn = turn("transfers");
    let program = match turn.compile("transfers.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let Some(run) = compare(&turn, "32M", &words([&program, &turn.word("data")])) else { return };
    let peak = run.peaks.anon_bytes;
    assert!(peak < 34 << 20, "{}", bench::size::mib(peak));
    // What a child has had in common with its parent takes longer to leave: no bound on these.
    assert!(compare(&turn, "32M", &words([&program, &turn.word("data"), "forks"])).is_some());
}
