//! What a run leaves behind: processes that carry its mark, and what of the kernel's outlives processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// In the environment of a run, for what it starts to be told from what others do.
pub(super) const MARK: &str = "PLEAT_TORTURE";
/// How long a process that has been ended may take to be gone.
const GONE: Duration = Duration::from_secs(10);

/// What is there of all that a run could leave: shared memory of both kinds, semaphores, messages, cgroups in which there is
/// nobody, and processes with this mark.
pub(super) fn leavings(mark: &str) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = entries(Path::new("/dev/shm")).map(|path| path.display().to_string()).collect();
    for kind in ["shm", "sem", "msg"] {
        let table = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        all.extend(
            table.lines().skip(1).filter_map(|line| left_id(kind, line)).map(|id| format!("System V {kind} {id}")),
        );
    }
    add_empty_groups(Path::new("/sys/fs/cgroup"), &mut all);
    all.extend(marked(mark).map(described));
    all
}

/// The id in a line of such a table, unless it is shared memory whose maker lives: that of another run beside this one is not left.
fn left_id<'a>(kind: &str, line: &'a str) -> Option<&'a str> {
    let mut words = line.split_whitespace().skip(1);
    let id = words.next()?;
    let maker = if kind == "shm" { words.nth(2) } else { None };
    let lives = maker.is_some_and(|pid| Path::new("/proc").join(pid).exists());
    (!lives).then_some(id)
}

/// What is new since then, and stays: other programs of the machine make such things for a moment.
pub(super) fn left_since(before: &BTreeSet<String>, mark: &str) -> BTreeSet<String> {
    let late = Instant::now() + Duration::from_secs(2);
    let mut left = &leavings(mark) - before;
    while !left.is_empty() && Instant::now() < late {
        std::thread::sleep(Duration::from_millis(50));
        left = &left & &leavings(mark);
    }
    left
}

/// Ends all processes with this mark, and those that they start meanwhile; who they were.
pub(super) fn end_marked(mark: &str) -> BTreeSet<String> {
    let late = Instant::now() + GONE;
    let mut ended = BTreeSet::new();
    loop {
        let found: Vec<u32> = marked(mark).collect();
        if found.is_empty() || Instant::now() > late {
            return ended;
        }
        ended.extend(end(&found));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends these, one by one; who they were.
pub(super) fn end(pids: &[u32]) -> BTreeSet<String> {
    let end = |pid: &u32| {
        let who = described(*pid);
        let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
        who
    };
    pids.iter().map(end).collect()
}

/// Processes that have this mark, without this one.
pub(super) fn marked(mark: &str) -> impl Iterator<Item = u32> {
    let pids = entries(Path::new("/proc")).filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    pids.filter(move |pid| *pid != std::process::id() && has_mark(*pid, mark))
}

/// Whether this is in the environment that a process was started with. A forked process has that of who has forked it.
fn has_mark(pid: u32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let wanted = format!("{MARK}={mark}");
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

fn described(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim_end())
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Adds the cgroups below `dir` that hold no process.
fn add_empty_groups(dir: &Path, all: &mut BTreeSet<String>) {
    for group in entries(dir).filter(|path| path.is_dir() && !path.is_symlink()) {
        if fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty()) {
            all.insert(group.display().to_string());
        }
        add_empty_groups(&group, all);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn shared_memory_is_left_once_its_maker_has_gone() {
        let by =
            |pid: u32| format!("         0    2261054   600    65536 {pid:>5} {pid:>5}      1     0     0     0     0");
        let ids =
            ["shm", "sem"].map(|kind| [std::process::id(), u32::MAX].map(|pid| left_id(kind, &by(pid)).is_some()));
        assert_eq!(ids, [[false, true], [true, true]]);
    }

    /// Not those that others run of the same program.
    #[test]
    fn a_process_is_known_by_its_mark() {
        let mut command = Command::new("cat");
        command.env(MARK, "1-2").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cat = command.spawn().expect("there is a cat");
        // It has an environment once it runs, a moment after it was started.
        cat.stdin.as_mut().expect("piped above").write_all(b"x").expect("it runs");
        cat.stdout.as_mut().expect("piped above").read_exact(&mut [0]).expect("it runs");
        let found = ["1-2", "1-22"].map(|mark| marked(mark).any(|pid| pid == cat.id()));
        cat.kill().expect("it runs");
        cat.wait().expect("it was started here");
        assert_eq!(found, [true, false]);
    }
}
