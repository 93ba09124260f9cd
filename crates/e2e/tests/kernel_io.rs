//! The kernel, and other processes, read and write memory that has left: by calls, files, pipes, sockets, rings, ptrace.
//! The same without permissions is in `user_mode.rs`.
#![forbid(unsafe_code)]

use std::fs;
use std::time::{Duration, Instant};

use pleat_e2e::{MODES, Run, assert_cold, assert_same, folded, plain, skipped, turn, words};

/// Runs a program of `programs/` plain and in 24 MiB, with the test's directory as its last argument; `None` if it cannot be built.
fn crossed(source: &str, what: &str) -> Option<Run> {
    crossed_in("24M", source, what)
}

fn crossed_in(ram: &str, source: &str, what: &str) -> Option<Run> {
    crossed_with("", ram, source, what)
}

/// The same, in one of the [`MODES`].
fn crossed_with(mode: &str, ram: &str, source: &str, what: &str) -> Option<Run> {
    let turn = turn(&format!("{}-{what}", source.trim_end_matches(".c")));
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let command = words([&program, what, &turn.word("")]);
    let before = plain(&command);
    assert!(before.status.success(), "{what} fails without pleat: {}", String::from_utf8_lossy(&before.stdout));
    let after = folded(&turn.options_in(mode, ram), &command);
    print!("{what} {mode}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
    assert_same(&before, &after);
    turn.assert_clean(&after);
    if let Some(reason) = String::from_utf8_lossy(&before.stdout).lines().find(|line| line.starts_with("no ")) {
        skipped(&format!("{what}: {reason}"));
    }
    Some(after)
}

/// The numbers before `text` in the lines of a program's standard error, added up.
fn number(run: &Run, text: &str) -> u64 {
    let lines = run.stderr.lines().filter_map(|line| line.strip_suffix(text));
    lines.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Buffers, strings, vectors, mutexes, signals, vfork, `posix_spawn`, and mremap over several mappings.
#[test]
fn system_calls_on_cold_memory() {
    let turn = turn("calls");
    let program = match turn.compile("calls.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for command in [words([&program]), words([&program, "forks"])] {
        let before = plain(&command);
        let after = folded(&turn.options("32M"), &command);
        println!("{:.2?} against {:.2?}", after.wall, before.wall);
        assert_same(&before, &after);
        let stats = pleat_e2e::stats(&turn);
        assert!(stats["pages_encoded"].as_u64() > Some(1000), "nothing was folded: {}, {stats}", after.stderr);
        turn.assert_clean(&after);
    }
}

/// `epoll_wait`, sendmmsg and recvmmsg, writev and preadv2, statx, getrandom, futexes that are not private.
#[test]
fn messages_vectors_answers_and_futexes() {
    if let Some(run) = crossed("kernel_io.c", "calls") {
        assert_cold(&run);
    }
}

/// What `user_mode.rs` proves where calls are trapped.
#[test]
fn every_pointer_of_a_call_is_brought_in() {
    if let Some(run) = crossed("answers.c", "calls") {
        assert_cold(&run);
    }
}

/// `O_DIRECT` under pressure, vmsplice and splice, `MSG_ZEROCOPY`: what the kernel holds by itself, longer than a call.
#[test]
fn pages_that_the_kernel_holds() {
    if let Some(run) = crossed("kernel_io.c", "pages") {
        assert_cold(&run);
    }
}

/// The same behind a slow device, in whose queue the pages lie for half a second.
#[test]
fn pages_that_wait_in_a_devices_queue() {
    if let Some(run) = crossed("kernel_io.c", "held")
        && !run.stdout.starts_with(b"no ")
    {
        assert_cold(&run);
    }
}

/// Inline and from the kernel's own threads, in registered buffers and in others, and reads that wait.
#[test]
fn io_uring_reads_and_writes() {
    if let Some(run) = crossed("kernel_io.c", "ring")
        && !run.stdout.starts_with(b"no ")
    {
        assert_cold(&run);
    }
}

/// Linux AIO: what a device is still at work on when `io_submit` has returned, and what it waits for.
#[test]
fn requests_that_the_kernel_goes_on_with() {
    if let Some(run) = crossed("kernel_io.c", "requests") {
        assert_cold(&run);
    }
}

/// `process_vm_readv` and `process_vm_writev` bring what is missing.
#[test]
fn a_child_reads_and_writes_its_parents_memory() {
    if let Some(run) = crossed("others.c", "children") {
        assert_cold(&run);
        assert_eq!(number(&run, " pages were refused"), 0);
    }
}

/// As docs/programs.md has it: EIO, and never something else than what is there.
#[test]
fn a_debugger_reads_what_is_there_or_is_refused() {
    if let Some(run) = crossed("others.c", "parents") {
        assert_cold(&run);
        assert!(number(&run, " pages were refused") > 300, "ptrace reads what is folded: mend docs/programs.md");
    }
}

/// Who stops every thread at every call does not stop the agent's, which bring what it reads then; nor does a filter that asks him for some
/// calls, and answers for him where he does not trace.
#[test]
fn who_traces_every_thread_does_not_hold_the_agents() {
    for how in ["calls", "filter"] {
        if let Some(run) = crossed("tracer.c", how) {
            assert_cold(&run);
        }
    }
}

/// Who attaches to a program that runs already takes every thread that he is given: the agent's are traced by `pleat run` then. A debugger,
/// which does not take no for an answer, is given them once nobody misses a page and stand-ins go on for them. Where he comes before
/// `pleat run` they go on as others.
#[test]
fn who_attaches_to_every_thread_ends() {
    for (how, is_refused) in [("calls", true), ("debugger", true), ("stops", true), ("first", false)] {
        if let Some(run) = crossed("attaching.c", how) {
            assert_cold(&run);
            assert_eq!(number(&run, " threads were refused") > 0, is_refused, "{}", run.stderr);
        }
    }
}

/// Behind the end of the run the custodian traces the agents' threads, also of who begins to be managed only then, and where `pleat run` has
/// been killed.
#[test]
fn who_attaches_when_the_run_is_over_ends() {
    for how in ["left", "late"] {
        if let Some(run) = crossed("attaching.c", how) {
            assert_cold(&run);
            assert_eq!((number(&run, " threads were refused"), number(&run, " processes went on")), (3, 0));
        }
    }
    let turn = turn("attaching-lost");
    let Ok(program) = turn.compile("attaching.c", &["-pthread"]) else { return skipped("there is no gcc") };
    let command = words([&program, "lost"]);
    let (before, after) = (plain(&command), folded(&turn.options("24M"), &command));
    assert_eq!(after.shell_status(), 128 + 9, "`pleat run` was killed: {}", after.stderr);
    assert_eq!(String::from_utf8_lossy(&after.stdout), String::from_utf8_lossy(&before.stdout));
    assert_cold(&after);
    assert_eq!((number(&after, " threads were refused"), number(&after, " processes went on")), (3, 0));
}

/// Also to a forked child as soon as there is one, whose parent's pages are out, and while a process begins to be managed.
#[test]
fn who_attaches_to_a_process_that_has_just_begun_ends() {
    for (how, expected) in [("forked", 60), ("begins", 4)] {
        for mode in MODES {
            if let Some(run) = crossed_with(mode, "24M", "newborn.c", how) {
                assert_cold(&run);
                assert!(number(&run, " were followed") >= expected, "{}", run.stderr);
            }
        }
    }
}

/// While a debugger is there stand-ins bring pages: they depend on nobody whom he stops, and end with the program, however it ends. It
/// ends with them: nobody would bring its pages any more.
#[test]
fn who_is_debugged_forks_executes_and_ends_and_leaves_nothing() {
    const ABANDONED: &str = "has been ended, and the program with it";
    for how in ["forks", "filtered", "executes", "ends", "killed", "abandoned"] {
        if let Some(run) = crossed("attaching.c", how) {
            assert!(number(&run, " threads were refused") > 0, "{}", run.stderr);
            // One for each thread of the agent's; who forks has children beside them.
            let went_on = number(&run, " processes went on");
            assert!(went_on == 3 || how == "forks" && went_on > 3, "{}", run.stderr);
            assert_eq!(run.stderr.contains(ABANDONED), how == "abandoned", "{}", run.stderr);
            // Of the others none comes to the end, where that is told.
            assert!(how != "forks" || number(&run, " of 1024 pages were out") > 0, "{}", run.stderr);
        }
    }
}

/// lldb and gdbserver give up at the first thread that they are refused.
#[test]
fn who_attaches_is_given_every_thread_if_the_user_says_so() {
    let turn = turn("attachable");
    let program = match turn.compile("attaching.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "once"]);
    let before = plain(&command);
    for (options, is_refused) in [(&[][..], true), (&["--attachable".to_owned()][..], false)] {
        let after = folded(&[&turn.options("24M"), options].concat(), &command);
        assert_same(&before, &after);
        assert_cold(&after);
        assert_eq!(number(&after, " threads were refused") > 0, is_refused, "{options:?}: {}", after.stderr);
    }
}

/// Attributes, counts and answers of performance events; and stacks that are copied where nobody may wait for a page.
#[test]
fn performance_events_of_cold_memory() {
    // Whether a sample meets a stack that is out is a matter of luck.
    for _ in 0..4 {
        let Some(run) = crossed("perf.c", "events") else { return };
        if run.stdout.starts_with(b"no ") {
            return;
        }
        assert_cold(&run);
        if cut_stacks(&run) > 0 {
            return;
        }
    }
    panic!("in four runs the stack was never out");
}

fn cut_stacks(run: &Run) -> u64 {
    let mut lines = run.stderr.lines().filter(|line| line.ends_with(" were cut"));
    lines.next().and_then(|line| line.split(' ').next()?.parse().ok()).expect("the program says so")
}

/// As README.md has it: zeros where pages are folded, and otherwise what was there.
#[test]
fn a_core_dump_holds_what_is_there() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let number = fs::read_to_string("/proc/sys/kernel/core_uses_pid").unwrap_or_default();
    if (pattern.trim_end(), number.trim_end()) != ("core", "0") {
        return skipped(&format!("core dumps go to `{}`", pattern.trim_end()));
    }
    let turn = turn("dumped");
    let program = match turn.compile("dumped.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let (command, check) = (words([&program, &turn.word("")]), words([&program, &turn.word(""), "check"]));
    let look = |run: &Run| {
        assert_eq!((run.shell_status(), &run.stdout[..]), (134, &b"aborts\n"[..]), "{}", run.stderr);
        let core = turn.file("core");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !core.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let checked = plain(&check);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{said}");
        print!("{:.1?}: {said}", run.wall);
        fs::remove_file(core).expect("it was read");
        said.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
    };
    assert_eq!(look(&plain(&command)), [1024, 0, 0]);
    let after = folded(&turn.options("24M"), &command);
    let [right, zeros, hot_zeros] = look(&after)[..] else { unreachable!("equal above") };
    assert!(right >= 128 && zeros >= 128, "{right} right, {zeros} zeros: the test proves nothing");
    assert_cold(&after);
    assert!(hot_zeros < 64, "{hot_zeros} of 256 pages in use are missing");
    assert!(after.wall < Duration::from_secs(10), "{:?}", after.wall);
    turn.assert_clean(&after);
}

/// A mapping that grows downwards, shared memory of both kinds with holes: what is beside them leaves meanwhile.
#[test]
fn other_memory_beside_it_is_left_alone() {
    for what in ["down", "shared"] {
        if let Some(run) = crossed("shapes.c", what) {
            assert_cold(&run);
        }
    }
}

/// What the program registers is left to it, as its own userfaultfd would find it without us: before memory is short, fresh behind
/// that, and with pages that are out.
#[test]
fn a_userfaultfd_of_the_programs_own_is_left_alone() {
    if let Some(run) = crossed("shapes.c", "userfaultfd")
        && !run.stdout.starts_with(b"no ")
    {
        assert_cold(&run);
    }
}

/// What the agent writes to does not count for the program's limit. Where it did, the run took a hundred seconds and wrote nothing to
/// the swap file.
#[test]
fn a_limit_on_data_leaves_the_agent_room() {
    if let Some(run) = crossed("shapes.c", "data") {
        let peak = run.peaks.anon_bytes;
        assert!(peak < 30 << 20, "{}", bench::size::mib(peak));
        assert!(run.wall < Duration::from_secs(30), "{:?}", run.wall);
    }
}

/// The swap file may not grow beyond a mebibyte: what does not fit stays in memory, with a line, and nobody gets SIGXFSZ.
#[test]
fn a_limit_on_files_loses_nothing() {
    if let Some(run) = crossed("shapes.c", "file") {
        assert!(run.stderr.contains("cannot be met"), "{}", run.stderr);
    }
}
