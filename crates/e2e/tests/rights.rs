//! Programs that give up a right or lower a limit while some of their memory is folded, and then fork.
#![forbid(unsafe_code)]

use std::fs;

use pleat_e2e::{MODES, Run, Turn, assert_same, folded, plain, skipped, text, turn, words};

/// What the program says when it, and the processes that it forks, have found all as it was.
const WELL: &[u8] = b"0, equal, child 0\n";

/// Runs the program plain and under pleat and compares. What pleat said, unless the machine does not allow it.
fn goes_on(what: &str, number: &str) -> Option<Run> {
    goes_on_and(what, number, Turn::assert_folded)
}

/// The same in every mode. `check`: what must be true of each run besides.
fn goes_on_everywhere(what: &str, number: &str, check: impl Fn(&Run)) {
    goes_on_in(MODES, what, number, |turn, run| {
        turn.assert_folded(run);
        check(run);
    });
}

/// The same with permission. `check`: what must be true of the run besides.
fn goes_on_and(what: &str, number: &str, check: impl Fn(&Turn, &Run)) -> Option<Run> {
    goes_on_in(&[""], what, number, check)
}

/// The same in these modes; what pleat said in the last of them.
fn goes_on_in(modes: &[&str], what: &str, number: &str, check: impl Fn(&Turn, &Run)) -> Option<Run> {
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
    if before.stdout != WELL {
        skipped(&format!("{what} cannot be given up here: {}", String::from_utf8_lossy(&before.stdout)));
        return None;
    }
    let mut last = None;
    for mode in modes {
        let after = folded(&turn.options_in(mode, "48M"), &command);
        println!("{what} {number} {mode}: {:.2?} against {:.2?}; {}", after.wall, before.wall, after.stderr);
        assert_same(&before, &after);
        check(&turn, &after);
        turn.assert_clean(&after);
        last = Some(after);
    }
    last
}

/// The agent's threads keep theirs, and the child's agent is let in because it is a child. The run's custodian gives it its page map, which it
/// may not open, and a swap file. By glibc's signal to each thread that it knows threads change their user together: the agent's are
/// none of them.
#[test]
fn another_user_forks() {
    for what in ["user", "threads"] {
        goes_on_everywhere(what, "", |run| assert!(run.stderr.is_empty(), "{what}: {}", run.stderr));
    }
}

/// As docs/user-mode.md has it: without the custodian nobody can bring what such a child misses in user mode. It is ended with a line, and
/// reads no zeros before. With permission its parent brings all of it.
#[test]
fn without_the_custodian_another_users_child_is_filled_or_ended() {
    let turn = turn("rights-alone");
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // He is made when the program has been started.
    let alone = "until [ $killed ]; do for child in $(cat /proc/$PPID/task/$PPID/children); do \
                 if [ \"$(cat /proc/$child/comm)\" = pleat-custodian ]; then kill -9 $child; killed=1; fi; done; done; \
                 exec \"$0\" user";
    if plain(&words([&program, "user"])).stdout != WELL {
        return skipped("there is no other user to become");
    }
    for mode in MODES {
        let (out, line) = match *mode {
            "" => (WELL, "/proc or userfaultfd is out of reach: os error 13"),
            _ => (&b"0, equal, child 109\n"[..], "a forked process cannot take its memory over: os error 13"),
        };
        let run = folded(&turn.options_in(mode, "48M"), &words(["sh", "-c", alone, &program]));
        assert!(run.stderr.contains("custodian"), "{mode}: he has not been killed: {}", run.stderr);
        assert_eq!(run.stderr.matches(line).count(), 1, "{mode}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 2, "{mode}: {}", run.stderr);
        assert_eq!(run.stdout, out, "{mode}: {}", run.stderr);
        turn.assert_clean(&run);
    }
}

#[test]
fn without_capabilities_it_forks() {
    goes_on_everywhere("capabilities", "", |_| {});
}

/// Flags that take rights to /proc away, or huge pages.
#[test]
fn with_other_flags_it_forks() {
    for what in ["flags", "pages"] {
        goes_on_everywhere(what, "", |_| {});
    }
}

#[test]
fn with_limits_on_data_locks_and_stack_it_forks() {
    for what in ["data", "locked", "stack"] {
        goes_on_everywhere(what, "", |_| {});
    }
}

/// Other mounts over /proc and /dev/shm.
#[test]
fn with_mounts_of_its_own_it_forks() {
    goes_on_everywhere("mounts", "", |_| {});
}

/// The kernel gives one to a single thread only, and lets only such enter one: the agent's, which only watches, goes for the time. Behind that there is no
/// right to a userfaultfd any more, but the custodian has it.
#[test]
fn a_small_program_gets_a_user_namespace() {
    for what in ["early", "entered"] {
        goes_on_and(what, "", |turn, run| {
            let count = run.stderr.matches("runs outside the budget: userfaultfd is not permitted").count();
            if fs::exists("/dev/userfaultfd").expect("/dev can be read") {
                assert_eq!(count, 0, "{what}: {}", run.stderr);
                turn.assert_folded(run);
            } else {
                assert_eq!(count, 1, "{what}: {}", run.stderr);
            }
        });
    }
}

/// The watcher is asked to go when it has just looked whether it is.
#[test]
fn a_dozing_watcher_goes_for_a_user_namespace() {
    let turn = turn("rights-dozes");
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let before = plain(&words([&program, "later"]));
    if before.stdout != WELL {
        return skipped("there are no user namespaces here");
    }
    let after = folded(&turn.options("48M"), &words(["env", "PLEAT_FAULT=watcher-dozes", &program, "later"]));
    assert_same(&before, &after);
}

/// As docs/programs.md has it: once memory is managed the agent's threads stand in the way. The program goes on.
#[test]
fn a_user_namespace_is_refused() {
    let turn = turn("rights-people");
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "people"]);
    if plain(&command).stdout != WELL {
        return skipped("no user namespaces here");
    }
    let after = folded(&turn.options("48M"), &command);
    assert_eq!(after.stdout, b"-1, equal, child 0\n", "mend docs/programs.md: {}", after.stderr);
    turn.assert_clean(&after);
}

/// There is no /proc inside, and no swap directory: the child's agent reaches its own /proc through its parent's, and the custodian opens a swap
/// file for it.
#[test]
fn inside_another_root_it_forks() {
    goes_on_everywhere("root", "", |run| assert!(!run.stderr.contains("outside the budget"), "{}", run.stderr));
}

/// A new root for a program: itself as `/program`, and the libraries that `ldd` names.
fn root_for(turn: &Turn, program: &str) -> Result<String, String> {
    let root = turn.file("root");
    let listed = plain(&words(["ldd", program]));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let copy = |from: &str, to: &str| {
        let to = root.join(to.trim_start_matches('/'));
        let made = fs::create_dir_all(to.parent().expect("below the root")).and_then(|()| fs::copy(from, &to));
        made.map_err(|error| format!("{}: {error}", to.display()))
    };
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(library, library)?;
    }
    copy(program, "program")?;
    Ok(text(&root))
}

/// What is executed there finds neither pleat nor its run, and no trace of them: it runs beside the budget.
#[test]
fn inside_another_root_it_executes() {
    let turn = turn("rights-inside");
    let program = turn.compile("rights.c", &["-pthread"]);
    let prepared = program.and_then(|program| root_for(&turn, &program).map(|root| words([&program, "inside", &root])));
    let command = match prepared {
        Ok(command) => command,
        Err(why) => return skipped(&why),
    };
    let before = plain(&command);
    if !before.stdout.ends_with(WELL) {
        return skipped(&format!("no chroot here: {}", String::from_utf8_lossy(&before.stdout)));
    }
    let after = folded(&turn.options("48M"), &command);
    assert_same(&before, &after);
    assert!(!after.stderr.contains("preload"), "{}", after.stderr);
    turn.assert_clean(&after);
}

/// The child's agent may open nothing: the parent brings all that the child misses, and the child runs unmanaged.
#[test]
fn with_calls_forbidden_it_forks() {
    let Some(run) = goes_on("calls", "") else { return };
    assert!(run.stderr.contains("runs outside the budget"), "{}", run.stderr);
}

/// A filter of the program's that its child's agent, or its own, meets: how the run ends. `None`: not here.
fn with_filter(what: &str) -> Option<Run> {
    let turn = turn(&format!("rights-{what}"));
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let command = words([&program, what]);
    if plain(&command).stdout != WELL {
        skipped("no seccomp filters here");
        return None;
    }
    let after = folded(&turn.options("48M"), &command);
    println!("{what}: {:.2?}; {}", after.wall, after.stderr);
    turn.assert_clean(&after);
    Some(after)
}

/// On all threads at once, of which the program has one: the agent's go on.
#[test]
fn with_calls_forbidden_to_all_of_one_thread_it_goes_on() {
    let Some(run) = with_filter("together") else { return };
    assert_eq!((run.shell_status(), &run.stdout[..]), (0, WELL), "{}", run.stderr);
}

/// Each of its threads takes the filter by itself, those too that are made meanwhile; the agent's do not.
#[test]
fn with_calls_forbidden_to_all_of_many_threads_it_goes_on() {
    let Some(run) = with_filter("crowd") else { return };
    assert_eq!((run.shell_status(), &run.stdout[..]), (0, WELL), "{}", run.stderr);
}

/// As docs/programs.md has it: the program is told of a thread that no signal reaches.
#[test]
fn a_thread_that_blocks_all_signals_cannot_be_confined_by_another() {
    let Some(run) = with_filter("deaf") else { return };
    assert_eq!((run.shell_status(), &run.stdout[..]), (0, &b"1, equal, child 0\n"[..]), "{}", run.stderr);
}

/// The same: the agent's threads go on, and the child's agent is killed with the child. Its parent does not wait for it.
#[test]
fn with_calls_that_kill_the_child_is_killed() {
    let Some(run) = with_filter("deadly") else { return };
    // SIGSYS, and perhaps a core file.
    let said = String::from_utf8_lossy(&run.stdout);
    let is_killed = said == "0, equal, child 131\n" || said == "0, equal, child 259\n";
    assert!(run.shell_status() == 0 && is_killed, "{said}{}", run.stderr);
}

/// What the agent does for a program with one thread needs no system call of that thread.
#[test]
fn a_worker_in_a_sandbox_of_three_calls_ends_as_it_will() {
    let turn = turn("sandbox");
    let program = match turn.compile("sandbox.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let before = plain(&words([&program]));
    if !before.stdout.ends_with(b"status 700\n") {
        return skipped("there are no filters of system calls here");
    }
    let after = folded(&turn.options("40M"), &words([&program]));
    assert_same(&before, &after);
    assert!(after.stderr.is_empty(), "{}", after.stderr);
    turn.assert_clean(&after);
}

/// The program is killed for a call that it would not have made without us: of ours on its threads there are none, whatever it does
/// with its memory.
#[test]
fn under_a_filter_that_kills_threads_and_memory_go_on() {
    let turn = turn("strict");
    let program = match turn.compile("strict.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for way in ["one", "all"] {
        let command = words([&program, way]);
        let before = plain(&command);
        if before.stdout.is_empty() {
            return skipped("there are no filters of system calls here, or libc needs others");
        }
        assert_eq!(before.stdout, b"equal\n", "{way}");
        let after = folded(&turn.options("24M"), &command);
        assert_same(&before, &after);
        assert!(after.stderr.is_empty(), "{way}: {}", after.stderr);
        turn.assert_clean(&after);
    }
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

/// By the custodian they find the run, and have their userfaultfds and swap files.
#[test]
fn with_other_users_it_is_managed() {
    let turn = turn("other-users");
    let program = match turn.compile("fork.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let script = format!("{program} 64 1");
    let command = words(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]);
    let before = plain(&command);
    if !before.status.success() {
        return skipped("no setpriv, no right to it, or the test's program lies where another user cannot read it");
    }
    for mode in MODES {
        let mut options = turn.options_in(mode, "48M");
        options.push("--other-users".to_owned());
        let after = folded(&options, &command);
        if after.stderr.contains("cannot be preloaded") {
            return skipped("the agent lies where another user cannot read it");
        }
        assert!(after.stderr.is_empty(), "{mode}: {}", after.stderr);
        assert_same(&before, &after);
        turn.assert_folded(&after);
        turn.assert_clean(&after);
    }
}

#[test]
fn with_few_descriptors_it_goes_on_and_forks() {
    for number in ["3", "16"] {
        goes_on_everywhere("descriptors", number, |_| {});
    }
}

/// It has as many as it may, and forks and spawns.
#[test]
fn with_no_descriptor_to_spare_it_forks_and_spawns() {
    goes_on_everywhere("brink", "", |run| assert!(run.stderr.is_empty(), "{}", run.stderr));
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
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "48M"), &command);
        assert_same(&before, &after);
        assert!(after.stderr.is_empty(), "{mode}: {}", after.stderr);
        assert!(after.peaks.anon_bytes < before.peaks.anon_bytes, "{mode}: nothing was reclaimed");
        turn.assert_clean(&after);
    }
}

/// A command for a shell, by root without the right to raise hard limits; `None` if that cannot be had.
fn without_raising(script: &str) -> Option<Vec<String>> {
    let command = words(["setpriv", "--bounding-set=-sys_resource", "sh", "-c", script]);
    let may =
        plain(&words(["setpriv", "--bounding-set=-sys_resource", "sh", "-c", "ulimit -n 6; ! ulimit -n 256 2>&-"]));
    if may.status.success() {
        return Some(command);
    }
    skipped("no setpriv, or no hard limit that holds");
    None
}

/// Under a hard limit nobody can raise the program runs beside the budget, and says so.
#[test]
fn with_a_hard_limit_on_descriptors_it_is_not_managed() {
    let turn = turn("rights-hard");
    let program = match turn.compile("fork.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let Some(command) = without_raising(&format!("ulimit -n 6; exec {program} 64 2")) else { return };
    let before = plain(&command);
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "48M"), &command);
        assert_same(&before, &after);
        assert_eq!(after.stderr.matches("runs outside the budget").count(), 1, "{mode}: {}", after.stderr);
        turn.assert_clean(&after);
    }
}

/// Lowered behind that: the fork cannot be followed, and the program is ended with a line instead of a child that reads zeros.
#[test]
fn a_hard_limit_on_descriptors_that_comes_late_ends_who_forks() {
    let turn = turn("rights-late");
    let program = match turn.compile("rights.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let Some(command) = without_raising(&format!("exec {program} hard")) else { return };
    assert_eq!(plain(&command).stdout, WELL);
    for mode in MODES {
        let after = folded(&turn.options_in(mode, "48M"), &command);
        assert_eq!(after.shell_status(), 125, "{mode}: {}", after.stderr);
        assert!(after.stderr.contains("hard limit on descriptors"), "{mode}: {}", after.stderr);
        turn.assert_clean(&after);
    }
}
