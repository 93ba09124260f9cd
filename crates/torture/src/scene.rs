//! Where processes stand that do not get on, as /proc shows it.

use std::fs;

/// A line for each thread: its state, where it waits in the kernel, and how long it has run and waited for a processor.
pub(crate) fn describe(pid: libc::pid_t) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return format!("process {pid} is gone\n") };
    let thread = |task: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = fields(&stat).next().unwrap_or("?");
        let schedstat = read("schedstat");
        let mut times = schedstat.split_whitespace().map(|ns| ns.parse::<u64>().unwrap_or(0) / 1_000_000);
        let (ran, waited) = (times.next().unwrap_or(0), times.next().unwrap_or(0));
        let (name, place) = (task.file_name(), read("wchan"));
        let name = name.to_string_lossy();
        format!("process {pid} thread {name}: {state} in {place}, ran {ran} ms, waited {waited} ms for a processor\n")
    };
    tasks.flatten().map(thread).collect()
}

/// What a stat file says behind the name, which may hold anything: state, parent, and more.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit(") ").next().unwrap_or_default().split_ascii_whitespace()
}

/// Whether a process is below another.
pub(crate) fn descends(pid: u32, from: u32) -> bool {
    let parent = |pid: &u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        fields(&stat).nth(1)?.parse().ok().filter(|parent| *parent > 1)
    };
    std::iter::successors(parent(&pid), parent).any(|above| above == from)
}

#[cfg(test)]
mod tests {
    use super::{descends, describe};

    #[test]
    fn a_child_is_below_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (one, other) = (std::process::id(), child.id());
        assert_eq!((descends(other, one), descends(one, other), descends(one, one)), (true, false, false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descends(u32::MAX, one));
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_where_it_sleeps() {
        let sleeper = std::thread::spawn(std::thread::park);
        let pid = std::process::id() as libc::pid_t;
        let is_seen =
            || describe(pid).lines().any(|line| line.contains(": S in ") && line.ends_with("ms for a processor"));
        while !is_seen() {
            std::thread::yield_now();
        }
        sleeper.thread().unpark();
        sleeper.join().unwrap();
        assert_eq!(describe(-1), "process -1 is gone\n");
    }
}
