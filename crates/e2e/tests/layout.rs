//! Programs that change their mappings and fork under pressure, checking every page themselves.
#![forbid(unsafe_code)]

use bench::size::mib;
use pleat_e2e::{
    MODES, Run, Spill, Turn, assert_cold, assert_same, compare_in, compare_spilling, folded, folded_by, plain,
    pleat_command, program, python, skipped, stats, turn, words,
};

/// Each parent exits at once: the child's memory must be its own by then.
#[test]
fn a_daemon_outlives_its_parents() {
    let turn = turn("daemon");
    let command = words([python(), &program("daemon.py"), "60"]);
    let before = plain(&command);
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "40M"), &command);
        assert_same(&before, &after);
        assert_eq!(after.stdout, b"equal\n");
        turn.assert_clean(&after);
    }
}

/// Stacks of fibers: thousands of mappings, each of which waits to be managed. Where each waited for a scan of all of them this
/// took half a minute; it takes a second or two.
#[test]
fn many_pieces_are_managed_without_a_look_at_all_of_them_each_time() {
    let turn = turn("fibers");
    let program = match turn.compile("fibers.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "1500", "8"]);
    let before = plain(&command);
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "20M"), &command);
        let stats = stats(&turn);
        println!("{mode}: {:.2?}, {} bytes, {} scans", after.wall, after.peaks.anon_bytes, stats["scans"]);
        assert_same(&before, &after);
        assert!(after.peaks.anon_bytes <= (20 << 20) * 102 / 100 + (1 << 20), "{} bytes", after.peaks.anon_bytes);
        let is_quick = stats["scans"].as_u64() < Some(500) && after.wall.as_secs() < 15;
        assert!(is_quick || !tells_of_one_mapping(), "{:?}, {} scans", after.wall, stats["scans"]);
        turn.assert_clean(&after);
    }
}

/// Each of them is too small to be worth much.
#[test]
fn thousands_of_small_pieces_stay_inside_the_budget() {
    let turn = turn("small");
    let program = match turn.compile("small.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let (several, single) = (words([&program, "4000", "5"]), words([&program, "8000", "1"]));
    compare_in(MODES[0], &turn, &several, &[40], Spill::May);
    for (mode, command) in MODES.iter().flat_map(|mode| [(mode, &several), (mode, &single)]) {
        compare_in(mode, &turn, command, &[24], Spill::May);
    }
}

/// Whether the kernel tells of one mapping alone (Linux 6.11).
fn tells_of_one_mapping() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version = [(); 2].map(|()| numbers.next().unwrap_or(0));
    version >= [6, 11]
}

/// Nothing holds up who fills new memory at once, until it is registered.
#[test]
fn blocks_that_are_filled_at_once_stay_inside_the_budget() {
    let turn = turn("blocks");
    let program = match turn.compile("blocks.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    compare_spilling(&turn, &words([&program, "16", "8"]), &[96, 32], Spill::May);
}

/// The same where the kernel is to fill it before mmap returns.
#[test]
fn blocks_that_are_populated_stay_inside_the_budget() {
    let turn = turn("populated");
    let program = match turn.compile("blocks.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for mode in MODES {
        compare_in(mode, &turn, &words([&program, "3", "48", "populate"]), &[96, 40], Spill::May);
    }
}

/// The same where malloc asks for the memory, inside libc: by brk, for a thread's heap by mprotect, for large blocks by mmap.
#[test]
fn heaps_that_are_filled_at_once_stay_inside_the_budget() {
    let turn = turn("heaps");
    let program = match turn.compile("heaps.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for (threads, mib, block) in [
        ("1", "120", "4000"),
        ("4", "30", "4000"),
        ("4", "30", "100000"),
        ("2", "60", "2000000"),
        ("1", "120", "120000000"),
    ] {
        compare_spilling(&turn, &words([&program, threads, mib, block]), &[96, 48], Spill::May);
    }
}

/// The same of processes that are small when the run is short of memory.
#[test]
fn processes_that_grow_together_stay_inside_the_budget() {
    let turn = turn("together");
    let program = match turn.compile("heaps.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let all = "for number in 1 2 3 4 5 6 7 8; do $0 1 30 4000 1 & done; wait";
    compare_spilling(&turn, &words(["/bin/sh", "-c", all, &program]), &[128, 64], Spill::May);
}

/// The same where each of them asks for all of it before any of it is filled, so that nobody sees it coming.
#[test]
fn processes_that_have_asked_for_large_pieces_stay_inside_the_budget() {
    let turn = turn("pieces");
    let program = match turn.compile("pieces.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // Not in user mode, where what a call is to fill is held until it returns.
    compare_spilling(&turn, &words([&program, "6", "40"]), &[96, 48], Spill::May);
}

/// The same of memory that the program has from the beginning.
#[test]
fn a_declared_array_that_is_filled_at_once_stays_inside_the_budget() {
    let turn = turn("declared");
    let program = match turn.compile("declared.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for mode in MODES {
        compare_in(mode, &turn, &words([&program]), &[96, 48], Spill::May);
    }
}

/// Nothing is taken for gone, nor for what must stay in place, that a call has only named.
#[test]
fn malformed_calls_change_nothing() {
    let turn = turn("malformed");
    match turn.compile("malformed.c", &["-pthread"]) {
        Ok(program) => MODES.iter().for_each(|mode| compare_in(mode, &turn, &words([&program]), &[48, 32], Spill::May)),
        Err(why) => skipped(&why),
    }
}

/// The agent's constructor comes before the library's: what that maps is the program's, and its thread is known.
#[test]
fn memory_and_a_thread_of_a_librarys_constructor() {
    let turn = turn("constructor");
    let built = turn.compile("constructor_library.c", &["-pthread", "-shared", "-fPIC"]);
    match built.and_then(|library| turn.compile("constructor.c", &[&library])) {
        Ok(program) => MODES.iter().for_each(|mode| compare_in(mode, &turn, &words([&program]), &[48, 32], Spill::May)),
        Err(why) => skipped(&why),
    }
}

/// Linux 6.12 tells of an unmapping that it has refused. Older kernels unmap first, pleat or not.
#[test]
fn what_a_refused_mmap_was_to_replace_stays() {
    let turn = turn("refused");
    let program = match turn.compile("refused.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let before = plain(&words([&program]));
    if !before.status.success() {
        return skipped("this kernel unmaps what it then cannot replace");
    }
    let after = folded(&turn.options("24M"), &words([&program]));
    println!("{}", String::from_utf8_lossy(&after.stdout));
    assert_same(&before, &after);
    turn.assert_clean(&after);
}

/// The same where nothing is added, but the limit is lower than what there is already.
#[test]
fn what_a_limit_below_it_keeps_from_being_replaced_stays() {
    let turn = turn("beyond");
    let program = match turn.compile("beyond.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program]);
    let before = plain(&command);
    if !before.status.success() {
        return skipped("this kernel unmaps what it then cannot replace");
    }
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "24M"), &command);
        assert_same(&before, &after);
        turn.assert_clean(&after);
    }
}

/// What the kernel moves it moves to where the same may be done: from memory that is executed, too.
#[test]
fn memory_that_is_executed_is_folded() {
    let turn = turn("code");
    let program = match turn.compile("code.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "80", "2"]);
    let before = plain(&command);
    assert_eq!(before.stdout, b"equal\n");
    let after = folded(&turn.options("64M"), &command);
    assert_same(&before, &after);
    turn.assert_clean(&after);
    let peak = after.peaks.anon_bytes;
    println!("peak {} of {}", mib(peak), mib(before.peaks.anon_bytes));
    assert!(peak < 76 << 20, "{peak} bytes: what is executable does not leave");
}

/// Runs a program that forks plain and under a budget.
fn compare_forks(name: &str, source: &str, arguments: [&str; 2], ram: &str) {
    let turn = turn(name);
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, arguments[0], arguments[1]]);
    let before = plain(&command);
    let after = folded(&turn.options(ram), &command);
    assert_same(&before, &after);
    turn.assert_folded(&after);
    turn.assert_clean(&after);
}

#[test]
fn forks_with_dirty_memory() {
    compare_forks("fork", "fork.c", ["48", "3"], "32M");
}

/// libc's fork waits for a lock of malloc's while the agent's state is frozen for it, and who holds the lock discards and
/// touches thousands of pages meanwhile.
#[test]
fn a_fork_waits_for_malloc_trim() {
    compare_forks("trims", "trims.c", ["48", "20"], "32M");
}

/// A fork handler of another library, registered before ours, changes the layout while the parent's agent serves the child.
#[test]
fn a_child_changes_its_layout_before_its_agent_is_there() {
    let turn = turn("early-changes");
    let program = match turn.compile_lost() {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words(["sh", "-c", &format!("echo | {program} 60 change")]);
    let before = plain(&command);
    assert_eq!(before.stdout, b"ready\nthe child has seen all\n");
    let after = folded(&turn.options("32M"), &command);
    assert_same(&before, &after);
    turn.assert_clean(&after);
}

/// Where a child does not have what its parent has there is room for other memory, which holds zeros.
#[test]
fn what_a_child_does_not_have() {
    let turn = turn("left-out");
    let program = match turn.compile("leftout.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let before = plain(&words([&program]));
    let after = folded(&turn.options("24M"), &words([&program]));
    assert_same(&before, &after);
    turn.assert_folded(&after);
    turn.assert_clean(&after);
}

/// Four processes of 19 MiB in 64 MiB, for as long as the second argument says: by hand for hours.
#[test]
fn parent_and_children_run_on() {
    const BUDGET: u64 = 64 << 20;
    let turn = turn("longfork");
    let program = match turn.compile("longfork.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let before = plain(&words([&program, "19", "0.5"]));
    assert!(before.status.success(), "{}", String::from_utf8_lossy(&before.stdout));
    assert!(before.peaks.anon_bytes > BUDGET, "it fits by itself: the test proves nothing");
    let run = |mode: &str, seconds: &str| {
        let after = folded(&turn.options_in(mode, "64M"), &words([&program, "19", seconds]));
        let stats = pleat_e2e::stats(&turn);
        println!(
            "{mode}: peak {} of {}, {:.1?}",
            mib(after.peaks.anon_bytes),
            mib(before.peaks.anon_bytes),
            after.wall
        );
        assert_same(&before, &after);
        assert!(stats["pages_encoded"].as_u64() > Some(10_000), "hardly anything was folded: {stats}");
        turn.assert_clean(&after);
        after.peaks.anon_bytes
    };
    // Where a fork comes it may be some more: see below. The machine is shared: a peak counts if it comes again.
    let allowed = BUDGET / 100 * 115;
    for (mode, seconds) in MODES.iter().zip(["5", "3"]) {
        let run = || run(mode, seconds);
        let peak = Some(run()).filter(|peak| *peak <= allowed).unwrap_or_else(run);
        assert!(peak <= allowed, "{mode}: {peak} bytes, {allowed} allowed");
    }
}

/// Runs forks.c, whose memory is twice the budget, with this fault, in each mode.
fn assert_forks(name: &str, arguments: [&str; 3], fault: Option<&str>) {
    let turn = turn(name);
    let program = match turn.compile("forks.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let [kind, mib, rounds] = arguments;
    let command = words([&program, kind, mib, rounds]);
    let before = plain(&command);
    for mode in MODES {
        let mut pleat = pleat_command(&turn.options_in(mode, "32M"), &command);
        pleat.envs(fault.map(|fault| ("PLEAT_FAULT", fault)));
        let after = folded_by(pleat);
        println!("{kind} {mode}: {:.1?}", after.wall);
        assert_same(&before, &after);
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    }
}

/// A thread that is late to come back from its fork must not take the next thread's fork for its own.
#[test]
fn threads_fork_at_once() {
    assert_forks("fork-threads", ["threads", "64", "12"], None);
    assert_forks("fork-late", ["threads", "64", "6"], Some("forks-return-late"));
}

/// The signal may come while the thread waits for the state to be still.
#[test]
fn a_signal_handler_forks_while_its_thread_forks() {
    assert_forks("fork-signal", ["signals", "64", "50"], None);
}

#[test]
fn a_fork_with_all_of_the_memory_in_use() {
    const BUDGET: u64 = 96 << 20;
    // Not the 2 % of quiet programs. Measured in 19 runs on two cores, by the kernel's count for a cgroup: 5 to 12 % above
    // for 90 to 210 ms behind the fork. One reason is that pages cease to be shared between two looks at Pss_Anon, and
    // nobody sees it: ten times as many looks brought it to 4 to 8 %, and took half as much time again. The sampler shows
    // less, because its own looks are 100 ms apart, or up to 14 %, because a page that moves meanwhile counts twice.
    const ALLOWED: u64 = BUDGET / 100 * 115;
    let turn = turn("fork-peak");
    // Half as much again as the budget; what parent and child do not share any more comes on top.
    let command = words([python(), &program("fork.py"), "144"]);
    let before = plain(&command);
    assert_eq!(before.shell_status(), 3, "the child's status, through the parent: {}", before.stderr);
    assert!(before.peaks.anon_bytes > BUDGET, "it fits by itself: the test proves nothing");
    let run = || {
        let after = folded(&turn.options("96M"), &command);
        println!("peak {} of {}, {:.2?}", mib(after.peaks.anon_bytes), mib(before.peaks.anon_bytes), after.wall);
        assert_same(&before, &after);
        turn.assert_clean(&after);
        after.peaks
    };
    let mut peaks = run();
    if peaks.anon_bytes + peaks.shmem_bytes > ALLOWED {
        // The machine is shared: a peak counts if it comes again.
        peaks = run();
    }
    assert!(peaks.anon_bytes + peaks.shmem_bytes <= ALLOWED, "{} bytes, {ALLOWED} allowed", peaks.anon_bytes);
    // While there are two processes only a look each 100 ms counts.
    assert!(peaks.processes >= 2 && peaks.samples >= 100, "{peaks:?}");
}

/// Runs a program that checks itself by a seeded plan: `source SEED ARGUMENTS`. `None`: it cannot be built.
fn all_is_well(turn: &Turn, source: &str, ram: &str, arguments: &[&str]) -> Option<Run> {
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let seed = std::env::var("PLEAT_SEED").unwrap_or_else(|_| std::process::id().to_string());
    println!("seed {seed} (PLEAT_SEED={seed} repeats it)");
    let command = [program, seed.clone()].into_iter().chain(arguments.iter().map(|word| (*word).to_owned()));
    let after = folded(&turn.options(ram), &command.collect::<Vec<_>>());
    print!("{}", after.stderr);
    assert_eq!(String::from_utf8_lossy(&after.stdout), "all well\n", "seed {seed}: {}", after.stderr);
    assert!(after.status.success(), "seed {seed}: {}", after.stderr);
    turn.assert_clean(&after);
    Some(after)
}

#[test]
fn threads_map_unmap_move_discard_and_grow() {
    let turn = turn("churn");
    let Some(after) = all_is_well(&turn, "churn.c", "64M", &["160", "7"]) else { return };
    // Not the 2 % of quiet programs: while the layout changes all the time a scan for new memory is often put off.
    // Measured: 3 % above; issue 3 is to bring it down.
    assert!(after.peaks.anon_bytes <= 64 * 1024 * 1024 * 125 / 100, "{} bytes", after.peaks.anon_bytes);
}

/// `MADV_FREE`, and advice that answers ENOMEM though it has been followed.
#[test]
fn what_is_freed_lazily_stays_managed_and_what_is_guarded_is_gone() {
    let turn = turn("freed");
    let program = match turn.compile("freed.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "24M"), &words([&program]));
        print!("{mode}: {:.2?}, {} bytes; {}", after.wall, after.peaks.anon_bytes, after.stderr);
        assert!(after.status.success() && after.stdout.ends_with(b"equal\n"), "{}", after.stderr);
        assert!(after.peaks.anon_bytes <= (24 << 20) * 102 / 100 + (1 << 20), "{} bytes", after.peaks.anon_bytes);
        turn.assert_clean(&after);
    }
}

/// Runs a program plain and where most of its memory is out, in each mode; all answers are the same.
fn is_same(name: &str, source: &str, arguments: &[&str], modes: &[&str]) {
    let turn = turn(name);
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = [&[program.as_str()][..], arguments].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let before = plain(&command);
    assert!(before.stdout.ends_with(b"equal\n"), "it fails without pleat: {}", String::from_utf8_lossy(&before.stdout));
    for mode in modes {
        let after = folded(&turn.options_in(mode, "24M"), &command);
        print!("{name} {mode}: {:.2?}; {}", after.wall, after.stderr);
        assert_same(&before, &after);
        assert_cold(&after);
        turn.assert_clean(&after);
    }
    for reason in String::from_utf8_lossy(&before.stdout).lines().filter(|line| line.starts_with("no ")) {
        skipped(reason);
    }
}

/// A fault that is the program's own comes to it, with its code and its place, and calls answer as they do without pleat:
/// mprotect, munmap and guard regions over pages that are out.
#[test]
fn what_the_program_denies_itself_stays_denied_when_it_is_out() {
    is_same("denied", "denied.c", &[], MODES);
}

/// mlock2, `MAP_LOCKED`, `MAP_POPULATE`, protection keys, `PROT_EXEC` alone, mutexes with `PTHREAD_PRIO_INHERIT`, popen.
#[test]
fn rare_calls_on_cold_memory() {
    is_same("rare", "rare.c", &[], MODES);
}

#[test]
fn coroutines_on_cold_stacks() {
    for stacks in ["mapped", "heap", "many", "preempted"] {
        is_same(&format!("coroutines-{stacks}"), "coroutines.c", &[stacks], MODES);
    }
}

/// The kernel puts the frames of signals below the stack pointer, or on the signal stack, and waits for no page. In user mode it
/// puts them on stacks of ours, and the program sees none of it.
#[test]
fn signals_find_their_stacks() {
    is_same("sigframes", "sigframes.c", &[], MODES);
}

/// Runs a program that checks itself, with permission and without.
fn is_equal_in_both_modes(name: &str, source: &str, ram: &str) {
    let turn = turn(name);
    let program = match turn.compile(source, &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for mode in MODES {
        let after = folded(&turn.options_in(mode, ram), &words([&program]));
        print!("{mode}: {:.2?}; {}", after.wall, after.stderr);
        let said = String::from_utf8_lossy(&after.stdout);
        assert_eq!((after.shell_status(), &*said), (0, "equal\n"), "{}", after.stderr);
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    }
}

/// What fills them is replaced when the program maps its memory there again.
#[test]
fn pleat_fills_no_holes_that_the_program_has_left() {
    is_equal_in_both_modes("holes", "holes.c", "40M");
}

/// The kernel fills holes of a forked child with zeros where somebody looks from outside before they are registered.
#[test]
fn a_forked_childs_memory_is_read_from_its_first_moment_on() {
    is_equal_in_both_modes("overseen", "overseen.c", "24M");
}

/// The kernel does not tell of what `SHM_REMAP` replaces.
#[test]
fn a_segment_replaces_memory() {
    is_equal_in_both_modes("attached", "attached.c", "24M");
}

/// Guard regions and segments over pages that are out, where the program does without libc's own functions: what was there must not come back.
#[test]
fn calls_by_the_function_syscall_replace_and_discard_memory() {
    for source in ["attached.c", "denied.c"] {
        let turn = turn(&format!("by-syscall-{}", source.trim_end_matches(".c")));
        let program = match turn.compile(source, &["-pthread", "-include", &pleat_e2e::program("by_syscall.h")]) {
            Ok(program) => program,
            Err(why) => return skipped(&why),
        };
        let before = plain(&words([&program]));
        let after = folded(&turn.options("24M"), &words([&program]));
        print!("{source}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
        assert!(before.stdout.ends_with(b"equal\n"), "{}", String::from_utf8_lossy(&before.stdout));
        assert_same(&before, &after);
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    }
}

/// Linux 6.12 tells of an unmapping that it refuses because something is sealed.
#[test]
fn what_lies_beside_something_sealed_stays() {
    is_equal_in_both_modes("sealed", "sealed.c", "24M");
}

/// Not each thread its own memory: faults, reclaim and calls meet in the same pages.
#[test]
fn threads_use_and_change_the_same_memory() {
    let turn = turn("contended");
    if all_is_well(&turn, "contended.c", "24M", &["5"]).is_some() {
        let stats = stats(&turn);
        assert!(stats["pages_encoded"].as_u64() > Some(1000), "nothing was folded: {stats}");
    }
}

/// What /proc says of such a process by its number says nothing of its memory.
#[test]
fn a_program_whose_main_thread_has_ended_stays_inside_the_budget() {
    let turn = turn("leaderless");
    let program = match turn.compile("leaderless.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // Two percent, as for others, by the program's own looks.
    let after = folded(&turn.options("64M"), &words([&program, "120", "65"]));
    println!("{}", after.stderr);
    assert_eq!((after.shell_status(), &after.stdout[..]), (0, &b"inside the budget\n"[..]), "{}", after.stderr);
    let stats = pleat_e2e::stats(&turn);
    assert!(stats["pages_reclaimed"].as_u64().is_some_and(|pages| pages > 10_000), "{stats}");
    turn.assert_clean(&after);
}
