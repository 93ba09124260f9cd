//! What breaks on pleat's side ends the program with a line that names it: never a hang, never wrong bytes.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleat_e2e::{
    MODES, Run, Turn, assert_same, folded_by, plain, pleat_command, python, skipped, stats, text, turn, with_mode,
    words,
};

/// 100 MiB of noise; once a line comes, a sum over it.
const NOISE: &str = "import hashlib, random, sys\nr = random.Random(5)\nx = [r.randbytes(4000) for _ in range(26000)]\n\
                     print('ready', flush=True)\nsys.stdin.readline()\nh = hashlib.sha256()\nfor b in x: h.update(b)\n\
                     print(h.hexdigest())";

/// The same noise; the swap file loses its name before it is read.
const DELETES: &str = "import hashlib, os, random, sys\nr = random.Random(5)\nx = [r.randbytes(4000) for _ in range(20000)]\n\
                       if os.path.exists(sys.argv[1]): os.unlink(sys.argv[1]); print('deleted', file=sys.stderr)\n\
                       x += [r.randbytes(4000) for _ in range(3000)]\nh = hashlib.sha256()\nfor b in x: h.update(b)\n\
                       print(h.hexdigest())";

/// The swap file of a process, which has no name any more: a descriptor of one of the agent's threads.
fn swap_files(pid: u32, dir: &Path) -> Vec<PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(PathBuf::from(format!("/proc/{pid}/task")))
        .flat_map(|task| entries(task.join("fd")))
        .filter(|fd| fs::read_link(fd).is_ok_and(|target| target.starts_with(dir)))
        .collect()
}

/// What becomes of a swap file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Other bytes.
    Garbage,
    /// The device reads less than it is asked for.
    Short,
}

/// What one of the runs came to.
struct Damaged {
    /// What the program wrote once it had got a line.
    rest: String,
    complaints: String,
    status: ExitStatus,
    fate: Fate,
    /// A file that was cut has been written to since: in front of what was written it holds zeros, and no longer ends early.
    is_longer: bool,
}

impl Damaged {
    fn names_what_happened(&self) -> bool {
        let is_short = self.fate == Fate::Short && self.complaints.contains("swap file ends early");
        let is_garbage = (self.fate == Fate::Garbage || self.is_longer) && self.complaints.contains("segment");
        is_short || is_garbage
    }
}

/// Damages the swap file at `path`, and returns it and the bytes that it had.
fn damage(path: &Path, fate: Fate) -> std::io::Result<(File, u64)> {
    let file = File::options().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    if fate == Fate::Short {
        file.set_len(0)?;
        return Ok((file, bytes));
    }
    let garbage = vec![0x5a; 1 << 20];
    for at in (0..bytes).step_by(garbage.len()) {
        let left = (bytes - at).min(garbage.len() as u64) as usize;
        file.write_all_at(&garbage[..left], at)?;
    }
    file.sync_all()?;
    Ok((file, bytes))
}

/// Runs a program that says `ready`, with its swap file damaged by then. `None`: it cannot be run.
fn run_damaged(turn: &Turn, mode: &str, fate: Fate, command: &[String]) -> Option<Damaged> {
    let mut command = pleat_command(&turn.options_in(mode, "48M"), command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("pleat starts");
    let mut stdout = BufReader::new(run.stdout.take().expect("piped above"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a pipe can be read");
    assert_eq!(line, "ready\n");
    // Segments on their way are written within a moment.
    std::thread::sleep(Duration::from_millis(500));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap_or_default();
    let Some(program) = children.split_whitespace().next().and_then(|pid| pid.parse().ok()) else {
        let _ = run.kill();
        let _ = run.wait();
        skipped("this kernel does not list children");
        return None;
    };
    let files = swap_files(program, &turn.swap());
    let (file, bytes) = damage(files.first().expect("a swap file"), fate).expect("root can write to it");
    assert!(bytes > 32 << 20, "{bytes} bytes in {files:?}: the test proves nothing");
    run.stdin.take().expect("piped above").write_all(b"go on\n").expect("the program waits for it");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("a pipe can be read");
    let mut complaints = String::new();
    run.stderr.take().expect("piped above").read_to_string(&mut complaints).expect("a pipe can be read");
    let status = run.wait().expect("a child can be waited for");
    assert!(fs::read_dir(turn.swap()).expect("the test's own").next().is_none(), "left in {}", text(&turn.swap()));
    let is_longer = file.metadata().expect("an open file").len() > 0;
    Some(Damaged { rest, complaints, status, fate, is_longer })
}

/// Who says what has happened to a forked child: its parent's agent, which serves it, or in user mode its own.
fn by_whom(mode: &str) -> &'static str {
    if mode == "--user-mode" { "pleat: swap file" } else { "pleat: process " }
}

fn modes_and_fates() -> impl Iterator<Item = (&'static str, Fate)> {
    MODES.iter().flat_map(|mode| [Fate::Garbage, Fate::Short].map(|fate| (*mode, fate)))
}

#[test]
fn a_damaged_segment_ends_the_program_with_its_name() {
    let turn = turn("damage");
    for (mode, fate) in modes_and_fates() {
        let run = run_damaged(&turn, mode, fate, &words([python(), "-c", NOISE]));
        let Some(run) = run else { return };
        let complaints = &run.complaints;
        assert_eq!(run.rest, "", "the program went on with damaged memory: {fate:?}");
        assert_eq!(run.status.code(), Some(125), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
        assert!(complaints.starts_with("pleat: ") && run.names_what_happened(), "{complaints}");
    }
}

/// While its parent's agent serves it: the parent does not touch the page.
#[test]
fn a_damaged_segment_that_a_forked_child_touches_ends_the_child_alone() {
    let turn = turn("damage-child");
    let program = match turn.compile_lost() {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    for (mode, fate) in modes_and_fates() {
        let run = run_damaged(&turn, mode, fate, &words([&program, "100"]));
        let Some(run) = run else { return };
        let complaints = &run.complaints;
        let came_to = (&run.rest[..], run.status.code());
        assert_eq!(came_to, ("the child was killed\n", Some(0)), "{fate:?}: {complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
        let says = complaints.starts_with(by_whom(mode)) && run.names_what_happened();
        assert!(says, "{mode}: {complaints}");
    }
}

/// A device that answers each read with an error, with and without permission for a userfaultfd.
#[test]
fn a_swap_file_that_cannot_be_read_ends_the_program() {
    let turn = turn("unreadable");
    for mode in MODES {
        let mut command = pleat_command(&turn.options_in(mode, "48M"), &words([python(), "-c", NOISE]));
        command.env("PLEAT_FAULT", "swap-eio");
        let run = folded_by(command);
        println!("{mode}: {:.1?}", run.wall);
        // It may come to its sum, but never to its end.
        assert!([&b""[..], b"ready\n"].contains(&&run.stdout[..]), "{mode}: it went on without its memory");
        assert_eq!(run.shell_status(), 125, "{mode}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{mode}: {}", run.stderr);
        assert!(run.stderr.starts_with("pleat: swap file: error 5 at byte "), "{mode}: {}", run.stderr);
        turn.assert_clean(&run);
    }
}

/// A disk that has failed for good before anything was written loses nothing.
#[test]
fn a_swap_file_that_cannot_be_written_costs_the_budget_alone() {
    let turn = turn("unwritable");
    let job = words([python(), "-c", DELETES, "/nonexistent"]);
    let before = plain(&job);
    for mode in MODES {
        let mut command = pleat_command(&turn.options_in(mode, "80M"), &job);
        command.env("PLEAT_FAULT", "swap-unwritable");
        let after = folded_by(command);
        println!("{mode}: {:.1?} against {:.1?}", after.wall, before.wall);
        assert_same(&before, &after);
        assert_eq!(after.stderr.lines().count(), 1, "{mode}: {}", after.stderr);
        assert!(after.stderr.contains("cannot be met, the program goes on above it: the swap file cannot be written"));
        turn.assert_clean(&after);
    }
}

/// While its parent's agent serves it: the parent does not touch the page.
#[test]
fn a_swap_file_that_cannot_be_read_for_a_forked_child_ends_the_child_alone() {
    let turn = turn("unreadable-child");
    let program = match turn.compile_lost() {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let job = words(["sh", "-c", &format!("echo | {program} 100")]);
    for mode in MODES {
        let mut command = pleat_command(&turn.options_in(mode, "48M"), &job);
        command.env("PLEAT_FAULT", "swap-eio");
        let run = folded_by(command);
        let said = String::from_utf8_lossy(&run.stdout);
        assert_eq!((&said[..], run.shell_status()), ("ready\nthe child was killed\n", 0), "{mode}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{mode}: {}", run.stderr);
        let says = run.stderr.starts_with(by_whom(mode)) && run.stderr.contains("swap file: error 5 at byte ");
        assert!(says, "{mode}: {}", run.stderr);
        turn.assert_clean(&run);
    }
}

/// One block of the swap file cannot be read any more: `spoiled.c` with this, and what it says.
fn spoiled(turn: &Turn, mode: &str, who: &str) -> Option<(Run, String)> {
    let program = match turn.compile("spoiled.c", &[]) {
        Ok(program) => program,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    let mut command = pleat_command(&turn.options_in(mode, "48M"), &words([&program, who]));
    command.env("PLEAT_FAULT", "swap-eio-once");
    let run = folded_by(command);
    println!("{who} {mode}: {:.1?}", run.wall);
    turn.assert_clean(&run);
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    Some((run, said))
}

/// What cannot be read ends who touches it, and nobody else: a forked child has the same file as its parent, and its sibling too.
#[test]
fn a_page_that_cannot_be_read_ends_who_touches_it_alone() {
    let turn = turn("spoiled");
    for mode in MODES {
        let Some((run, said)) = spoiled(&turn, mode, "child") else { return };
        assert_eq!((&said[..], run.shell_status()), ("equal, killed, equal\n", 0), "{mode}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{mode}: {}", run.stderr);
        assert!(run.stderr.starts_with("pleat: swap file: error 5 at byte "), "{mode}: {}", run.stderr);
    }
}

#[test]
fn a_page_that_cannot_be_read_and_is_not_touched_ends_nobody() {
    let turn = turn("untouched");
    for mode in MODES {
        let Some((run, said)) = spoiled(&turn, mode, "nobody") else { return };
        let seen = (&said[..], run.shell_status(), &run.stderr[..]);
        assert_eq!(seen, ("equal, equal, equal\n", 0, ""), "{mode}");
    }
}

/// Of what nobody then looks after a line tells; the program goes on, with all that it has.
#[test]
fn a_custodian_that_is_killed_is_missed() {
    let turn = turn("custodian-killed");
    let job = words([python(), "-c", NOISE]);
    for mode in MODES {
        let mut command = pleat_command(&turn.options_in(mode, "48M"), &job);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = command.spawn().expect("pleat starts");
        let mut stdout = BufReader::new(run.stdout.take().expect("piped above"));
        stdout.read_line(&mut String::new()).expect("a pipe can be read");
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap_or_default();
        let Some(custodian) = children.split_whitespace().nth(1) else {
            let _ = run.kill().and_then(|()| run.wait());
            return skipped("this kernel does not list children");
        };
        assert_eq!(fs::read_to_string(format!("/proc/{custodian}/comm")).expect("it lives"), "pleat-custodian\n");
        kill(Pid::from_raw(custodian.parse().expect("a number")), Signal::SIGKILL).expect("it is a child of a child");
        let mut stderr = BufReader::new(run.stderr.take().expect("piped above"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a pipe can be read");
        let said = format!("pleat: the custodian of this run (process {custodian}) has been ended: ");
        assert!(line.starts_with(&said), "{mode}: {line}");
        run.stdin.take().expect("piped above").write_all(b"go on\n").expect("the program waits for it");
        let (mut sum, mut rest) = (String::new(), String::new());
        stdout.read_to_string(&mut sum).expect("a pipe can be read");
        stderr.read_to_string(&mut rest).expect("a pipe can be read");
        assert_eq!((sum.len(), &rest[..], run.wait().expect("a child").code()), (65, "", Some(0)), "{mode}");
    }
}

#[test]
fn a_swap_file_that_is_deleted_meanwhile_loses_nothing() {
    let turn = turn("deleted");
    let swap = turn.word("swap-file");
    let job = words([python(), "-c", DELETES, &swap]);
    let before = plain(&job);
    for mode in MODES {
        File::create(&swap).expect("the test's own");
        let options = ["--ram=48M", &format!("--swap={swap}"), &format!("--stats={}", turn.word("stats.json"))];
        let after = folded_by(pleat_command(&with_mode(mode, words(options)), &job));
        println!("{mode}: {:.1?}", after.wall);
        assert_same(&before, &after);
        assert_eq!(after.stderr, "deleted\n");
        assert!(!Path::new(&swap).exists(), "it was made again");
        assert!(stats(&turn)["written_back_bytes"].as_u64() > Some(32 << 20), "the test proves nothing");
        turn.assert_clean(&after);
    }
}
