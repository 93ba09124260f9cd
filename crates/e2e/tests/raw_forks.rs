//! Forks past libc, by raw system calls: their children cannot be followed, and must neither read zeros nor hold up
//! anybody else. Those by libc's functions `syscall` and `clone` are followed.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pleat_e2e::{Run, assert_same, folded, plain, skipped, turn, words};

/// On a machine under load. What hung did so for ever, or for the five seconds that a parent waits, at each fork.
const PATIENCE: Duration = Duration::from_secs(25);

/// Runs rawforks.c, whose memory is twice the budget; `None` if that cannot be.
fn run(name: &str, arguments: &[&str]) -> Option<(Run, Run)> {
    run_in("", name, arguments)
}

/// The same in a mode.
fn run_in(mode: &str, name: &str, arguments: &[&str]) -> Option<(Run, Run)> {
    let turn = turn(name);
    let program = match turn.compile("rawforks.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let command = [words([&program]), arguments.iter().map(|word| (*word).to_owned()).collect()].concat();
    let options = [turn.options("32M"), mode.split_whitespace().map(str::to_owned).collect()].concat();
    let (before, after) = (plain(&command), folded(&options, &command));
    println!("{arguments:?} {mode}: {:.2?} against {:.2?}\n{}", after.wall, before.wall, after.stderr);
    assert_same(&before, &after);
    assert_eq!(after.stdout, b"all well\n");
    turn.assert_folded(&after);
    turn.assert_clean(&after);
    Some((before, after))
}

/// Each child of a raw call that has looked at its memory has ended with a line.
fn assert_told(run: &Run, children: usize) {
    let told = run.stderr.lines().filter(|line| line.contains("forked by a raw system call")).count();
    assert_eq!(told, children, "{}", run.stderr);
}

#[test]
fn a_child_of_a_raw_fork_that_sleeps_holds_nobody_up() {
    let Some((_, after)) = run("raw-beside", &["beside", "64", "5"]) else { return };
    assert_told(&after, 2);
    assert!(after.wall < PATIENCE, "{:?}", after.wall);
}

/// By libc's `syscall` and `clone`: no child is ended, whatever it does then, and whoever else forks.
#[test]
fn forks_by_libcs_functions_syscall_and_clone_are_followed() {
    let kinds = [
        ["twice", "64", "5", "known"],
        ["beside", "64", "3", "known"],
        ["again", "64", "3", "known"],
        ["both", "64", "12", "known"],
    ];
    for kind in &kinds {
        for mode in ["", "--user-mode"] {
            let Some((_, after)) = run_in(mode, "raw-known", kind) else { return };
            assert_told(&after, 0);
        }
    }
}

/// Their children's agents reach the parent's from there, and no user but root of the namespace outside is asked for anything.
#[test]
fn such_forks_into_namespaces_are_followed() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("no permission for namespaces");
    }
    for kind in ["namespaces", "networks"] {
        for mode in ["", "--user-mode"] {
            let Some((_, after)) = run_in(mode, "raw-namespaces", &[kind, "64", "1", "known"]) else { return };
            assert_told(&after, 0);
        }
    }
}

/// Nobody would ever freeze its state: it has no agent.
#[test]
fn a_child_of_a_raw_fork_that_forks_by_libc_is_ended() {
    let Some((_, after)) = run("raw-again", &["again", "64", "1"]) else { return };
    assert_told(&after, 1);
    assert!(after.wall < PATIENCE, "{:?}", after.wall);
}

/// The gate of its memory is closed, by a thread that it does not have. libc's own locks would be in its way, too, if that
/// thread held them: only the agent's handlers take long (`forks-return-late`).
#[test]
fn a_child_of_a_raw_fork_amid_one_of_libc_forks_by_libc() {
    let turn = turn("raw-amid");
    let program = match turn.compile("rawforks.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    // All has room: nothing is managed.
    let run =
        folded(&turn.options("256M"), &words(["env", "PLEAT_FAULT=forks-return-late", &program, "amid", "4", "20"]));
    assert_eq!((run.shell_status(), run.stdout.as_slice()), (0, &b"all well\n"[..]), "{}", run.stderr);
}

/// The kernel names its thread by a number that is another process's here, which must live on.
#[test]
fn a_child_of_a_raw_fork_in_a_pid_namespace_is_ended_without_its_number() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("no permission for namespaces");
    }
    let Some((_, after)) = run("raw-apart", &["apart", "64", "1"]) else { return };
    assert_told(&after, 1);
}

/// The messages about both kinds come in any order, and each child's memory is to be told from the other's.
#[test]
fn raw_forks_and_forks_of_libc_at_once() {
    // It does not hang: that would take the harness's limit, or the ten seconds of the handler's for each of many forks.
    let Some((_, after)) = run("raw-both", &["both", "64", "50"]) else { return };
    assert!(after.wall < Duration::from_mins(2), "{:?}", after.wall);
}

/// The first message about a fork is that of the raw call, and nobody can tell it from the one that is waited for.
#[test]
fn a_raw_fork_does_not_make_a_late_fork_of_libc_wait_for_ever() {
    let turn = turn("raw-behind");
    let program = match turn.compile("rawforks.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command = words([&program, "behind", "64", "1"]);
    assert_eq!(plain(&command).stdout, b"all well\n");
    let run = folded(&turn.options("32M"), &command);
    assert_eq!(run.shell_status(), 125, "{}", run.stderr);
    let told = run.stderr.lines().filter(|line| line.contains("a thread is about to fork and does not")).count();
    assert_eq!(told, 1, "{}", run.stderr);
    assert!(run.wall < PATIENCE, "{:?}", run.wall);
}

/// Runs sharedvm.c, whose memory is twice the budget, as `kind` says.
fn outlive(name: &str, kind: &str, modes: &[&str]) {
    outlive_in(&[], name, kind, modes);
}

/// The same by a command that executes it.
fn outlive_in(place: &[&str], name: &str, kind: &str, modes: &[&str]) {
    let turn = turn(name);
    let program = match turn.compile("sharedvm.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let command: Vec<_> = [place, &[&program, "64", kind]].concat().iter().map(|word| (*word).to_owned()).collect();
    let before = plain(&command);
    if before.shell_status() != 0 {
        return skipped(&before.stderr);
    }
    for mode in modes {
        let mut options = turn.options("32M");
        options.extend(mode.split_whitespace().map(str::to_owned));
        let after = folded(&options, &command);
        assert_same(&before, &after);
        turn.assert_clean(&after);
    }
}

const MODES: &[&str] = if cfg!(target_arch = "x86_64") { &["", "--user-mode"] } else { &[""] };

/// The agent's threads have ended with their process; the custodian holds the userfaultfd.
#[test]
fn who_shares_memory_and_outlives_its_agent_reads_no_zeros() {
    outlive("shared-vm", "clone", MODES);
}

/// The custodian's name is not known there, and his file is.
#[test]
fn who_outlives_its_agent_in_another_network_reads_no_zeros() {
    outlive_in(&["unshare", "--net"], "shared-elsewhere", "clone", MODES);
    outlive_in(&["unshare", "--net"], "orphan-elsewhere", "fork", MODES);
}

/// There is nobody whom the fork could wait for.
#[test]
fn who_shares_memory_and_outlives_its_agent_does_not_hang_in_fork() {
    outlive("shared-refork", "refork", &[""]);
}

/// No agent follows the child, and its parent's has ended.
#[test]
fn a_child_of_a_raw_system_call_that_outlives_its_parent_reads_no_zeros() {
    outlive("raw-orphan", "fork", MODES);
}

/// `pleat run` has ended, too. Its custodian goes on, and ends when nobody is left.
#[test]
fn who_outlives_the_run_reads_no_zeros() {
    outlive_the_run("shared-left", "leave", 0);
}

/// The custodian is a process of his own.
#[test]
fn who_outlives_a_run_that_was_killed_reads_no_zeros() {
    outlive_the_run("shared-lost", "lose", 128 + 9);
}

/// `status` is how `pleat run` ends.
fn outlive_the_run(name: &str, how: &str, status: i32) {
    let turn = turn(name);
    let program = match turn.compile("sharedvm.c", &[]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let found = turn.file("found");
    let found_now = || std::fs::read_to_string(&found).unwrap();
    let wait_for = |what: &dyn Fn() -> bool| {
        let late = Instant::now() + PATIENCE;
        while !what() {
            assert!(Instant::now() < late, "nothing comes: {:?}", found_now());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let command = words([&program, "64", how, found.to_str().unwrap()]);
    plain(&command);
    wait_for(&|| found_now().starts_with("same"));
    for mode in MODES {
        let mut options = turn.options("32M");
        options.extend(mode.split_whitespace().map(str::to_owned));
        let after = folded(&options, &command);
        assert_eq!(after.shell_status(), status, "{}", after.stderr);
        wait_for(&|| processes_of(&program).is_empty());
        turn.assert_clean(&after);
        assert_ne!(found_now().trim_end_matches('\0'), "other", "it read other content than was written");
    }
}

/// Processes that run this program, zombies not among them.
fn processes_of(program: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|path| std::fs::read_link(path.join("exe")).is_ok_and(|exe| exe == Path::new(program))).collect()
}
