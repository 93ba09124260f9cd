//! What `/proc` says about processes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};
use page::ByteCount;
use sys::proc_files::{anonymous_of_statm, bytes_of_line};

/// Some fields of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    /// Field 3: R, S, D, T, t, Z, …
    pub(crate) state: u8,
    /// Field 4: the process that it is a child of.
    pub(crate) parent: u32,
    /// Field 10.
    pub(crate) minor_faults: u64,
    /// Field 22: clock ticks after boot.
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Reads it; `None` if there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in field 2 may hold anything, spaces and parentheses included: the last `)` ends it.
    fn parse(stat: &[u8]) -> Option<Self> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        // `rest` starts with field 3; field 10 is 5 after field 5, which comes next, and field 22 is 11 after field 11.
        let parent = fields.next()?.parse().ok()?;
        let minor_faults = fields.nth(5)?.parse().ok()?;
        let start_ticks = fields.nth(11)?.parse().ok()?;
        Some(Self { state, parent, minor_faults, start_ticks })
    }

    /// Stopped by a signal or a debugger: it does nothing, and is not to blame.
    pub(crate) fn is_stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Ended, and not yet waited for. A process whose main thread has may live: see [`is_dead`].
    pub(crate) fn is_dead(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Whether there is no process of this id, not even one that has ended and has not been waited for.
pub(crate) fn is_gone(pid: u32) -> bool {
    // EPERM: it exists, as another user.
    signal::kill(Pid::from_raw(pid as i32), None) == Err(Errno::ESRCH)
}

/// Whether a process that has this stat has ended with all its threads. What cannot be read may live.
pub(crate) fn is_dead(pid: u32, stat: Stat) -> bool {
    stat.is_dead()
        && match fs::read_dir(format!("/proc/{pid}/task")) {
            Ok(_) => living_thread(pid).is_none(),
            Err(error) => is_absent(&error),
        }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ESRCH))
}

/// The directory of a thread that lives, or may.
fn living_thread(pid: u32) -> Option<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lives = |task: &PathBuf| match fs::read(task.join("stat")) {
        Ok(stat) => Stat::parse(&stat).is_some_and(|stat| !stat.is_dead()),
        Err(error) => !is_absent(&error),
    };
    tasks.map(|task| task.path()).find(lives)
}

/// Whether the group of a process is frozen (`docker pause`, `systemctl freeze`): it does nothing, and is not to blame. Its state
/// does not tell: it is S or D. Groups are looked for where they usually are.
pub(crate) fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let says = |mount: &str, path: &str, file: &str, is_it: &dyn Fn(&str) -> bool| {
        fs::read_to_string(format!("/sys/fs/cgroup{mount}{path}/{file}")).is_ok_and(|text| is_it(&text))
    };
    groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next(), parts.next()) {
            (Some(""), Some(path)) => ["", "/unified"]
                .iter()
                .any(|mount| says(mount, path, "cgroup.events", &|text| text.lines().any(|line| line == "frozen 1"))),
            (Some("freezer"), Some(path)) => {
                says("/freezer", path, "freezer.state", &|text| text.trim_end() != "THAWED")
            }
            _ => false,
        }
    })
}

/// Whether a thread has SIGKILL on its way, or is ending; `None` if there is no thread of this number to us.
pub(crate) fn is_being_killed(thread: u32) -> Option<bool> {
    const KILL: u64 = 1 << (9 - 1);
    /// The kernel's `PF_EXITING`.
    const EXITING: u64 = 4;
    // The signal first: it is taken off before the flag is set.
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // Behind the name: state, parent, process group, session, terminal, the terminal's group, and flags.
    let flags = stat.rsplit(')').next()?.split_ascii_whitespace().nth(6)?.parse().unwrap_or(0_u64);
    Some(pending & KILL != 0 || flags & EXITING != 0)
}

/// What the process's file `name` says of its memory. That of its main thread is empty, or full of zeros, once that has ended
/// by `pthread_exit`.
fn memory_file(pid: u32, name: &str) -> Option<String> {
    let is_dead = || Stat::of(pid).is_some_and(Stat::is_dead);
    match fs::read_to_string(format!("/proc/{pid}/{name}")).ok() {
        Some(text) if !text.is_empty() && !text.starts_with("0 ") => Some(text),
        other if is_dead() => living_thread(pid).map_or(other, |task| fs::read_to_string(task.join(name)).ok()),
        other => other,
    }
}

/// Whether any thread of a process is stopped, by a signal or a debugger.
pub(crate) fn has_stopped_thread(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.filter_map(|task| Stat::parse(&fs::read(task.path().join("stat")).ok()?));
    stats.any(Stat::is_stopped)
}

/// Who traces a process's main thread, if anybody does: his thread's number, or 0 for one outside of our namespace, who is seen only while he
/// holds it.
pub(crate) fn tracer_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let tracer = field("TracerPid:")?.parse().ok()?;
    (tracer != 0 || field("State:")?.starts_with('t')).then_some(tracer)
}

/// Whether the process of this id is the one that has told when it started, and not one that has come since. 0: it could not tell.
pub(crate) fn is_still(pid: u32, start_ticks: u64) -> bool {
    Stat::of(pid).is_some_and(|stat| [0, stat.start_ticks].contains(&start_ticks))
}

/// Whether the process that began then lives, of which this is the stat, if that is known. Nothing that cannot be read, for want of
/// descriptors, makes it one that has ended.
pub(crate) fn lives(pid: u32, start_ticks: u64, stat: Option<Stat>) -> bool {
    stat.map_or_else(|| !is_gone(pid), |stat| [0, stat.start_ticks].contains(&start_ticks) && !is_dead(pid, stat))
}

/// Whether a process lives in our namespace of process ids, as far as can be told.
pub(crate) fn is_in_our_namespace(pid: u32) -> bool {
    numbers_of("NSpid:", &format!("/proc/{pid}/status")).len() <= 1
}

/// The number by which we know a thread of a process that has this one in its own namespace.
pub(crate) fn thread_as_seen_here(pid: u32, own: u32) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    numbers.find(|thread| numbers_of("NSpid:", &format!("/proc/{pid}/task/{thread}/status")).last() == Some(&own))
}

/// A process's users: the real one, the effective one, the one that is saved, and that of its files.
pub(crate) fn users(pid: u32) -> Option<[u32; 4]> {
    numbers_of("Uid:", &format!("/proc/{pid}/status")).try_into().ok()
}

/// The numbers in a line of a status: a thread's, from our namespace to its own; none where there are no namespaces, or it has ended.
fn numbers_of(field: &str, status: &str) -> Vec<u32> {
    let status = fs::read_to_string(status).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Whether the thread of this directory has memory still: not one that is about to be gone. Waits for no lock of that memory's.
pub(crate) fn has_memory(thread: &Path) -> bool {
    fs::read_to_string(thread.join("statm")).is_ok_and(|pages| !pages.starts_with("0 "))
}

/// How long the threads of a process have run, ns, but for these, if a tracer has stopped every one of them. 0 where the kernel does not
/// count it.
pub(crate) fn running_time_while_held(pid: u32, but_for: &[u32]) -> Option<u64> {
    let mut running_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let number: u32 = task.file_name().to_str()?.parse().ok()?;
        if but_for.contains(&number) {
            continue;
        }
        let stat = match fs::read(task.path().join("stat")) {
            Ok(stat) => Stat::parse(&stat)?,
            Err(error) if is_absent(&error) => continue,
            Err(_) => return None,
        };
        if stat.state != b't' && !stat.is_dead() {
            return None;
        }
        let times = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        running_ns += times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
    }
    Some(running_ns)
}

/// Whether this process belongs to the foreground job of its terminal.
pub(crate) fn is_foreground() -> bool {
    let stat = fs::read("/proc/self/stat").unwrap_or_default();
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    // Behind the name: state, parent, process group, session, terminal, and the terminal's foreground group.
    let fields: Vec<_> = stat[end + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
    fields.len() > 5 && fields[2] == fields[5]
}

/// Resident memory that is not shared with files: anonymous memory, shared mappings left out.
pub(crate) fn resident_anonymous(pid: u32) -> Option<ByteCount> {
    anonymous_of_statm(&memory_file(pid, "statm")?)
}

/// The same, where what it shares with forked processes counts in proportion. The kernel walks over all its memory.
pub(crate) fn proportional_anonymous(pid: u32) -> Option<ByteCount> {
    bytes_of_line(&memory_file(pid, "smaps_rollup")?, "Pss_Anon")
}

/// How long ago a process started.
pub(crate) fn age(stat: Stat) -> Duration {
    // Not /proc/uptime, which may be a container's own. A clock of ours cannot fail.
    let up = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    // POSIX has 100 as the usual value; Linux has used it on every architecture for decades.
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    up.saturating_sub(Duration::from_secs_f64(stat.start_ticks as f64 / per_second as f64))
}

/// The command's name, up to 15 bytes.
pub(crate) fn name(pid: u32) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}

/// Its children, whichever thread made them; empty where the kernel does not tell (no `CONFIG_PROC_CHILDREN`).
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The file it executes.
pub(crate) fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether a thread is about to execute another program, as far as can be told.
pub(crate) fn is_executing(thread: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| [sys::process::EXECVE, sys::process::EXECVEAT].contains(&number))
}

/// Whether a process has mapped a file of that name. One that has ended, or of which that cannot be told, counts as one that has.
pub(crate) fn has_mapped(pid: u32, name: &OsStr) -> bool {
    let Ok(maps) = fs::File::open(format!("/proc/{pid}/maps")) else { return true };
    is_named(BufReader::new(maps), name.as_encoded_bytes())
}

/// Whether a line has that name, or there is none, or not all can be read. Line by line: of a hundred thousand mappings all would be megabytes, which count.
fn is_named(mut maps: impl BufRead, name: &[u8]) -> bool {
    let (mut line, mut has_lines) = (Vec::new(), false);
    loop {
        match maps.read_until(b'\n', &mut line) {
            Ok(0) => return !has_lines,
            Ok(_) if line.windows(name.len()).all(|part| part != name) => has_lines = true,
            Ok(_) | Err(_) => return true,
        }
        line.clear();
    }
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(key: &str) -> Option<ByteCount> {
    bytes_of_line(&fs::read_to_string("/proc/meminfo").ok()?, key)
}

#[cfg(test)]
mod tests {
    use nix::sys::ptrace;
    use nix::sys::wait::waitpid;

    use super::*;

    #[test]
    fn a_name_is_found_on_any_line() {
        let line = |name: &str| format!("7f00-7f01 r--p 0000 fe:00 12 {name}\n");
        let (other, own) = (line("/usr/lib/libc.so.6").repeat(1000), line("/usr/lib/libagent.so"));
        let has_agent = |maps: &str| is_named(maps.as_bytes(), b"libagent.so");
        assert!([format!("{own}{other}"), format!("{other}{own}"), String::new()].iter().all(|maps| has_agent(maps)));
        assert!(!has_agent(&other));
    }

    #[test]
    fn who_has_ended_has_no_memory() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let thread = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(has_memory(&thread));
        drop(child.stdin.take());
        while !Stat::of(child.id()).unwrap().is_dead() {}
        assert!(!has_memory(&thread));
        child.wait().unwrap();
    }

    #[test]
    fn names_do_not_confuse() {
        let line = b"12 (a) b (c)) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 11 12";
        assert_eq!(Stat::parse(line), Some(Stat { state: b'S', parent: 1, minor_faults: 1, start_ticks: 98765 }));
        assert_eq!(Stat::parse(b"12 (a"), None);
    }

    #[test]
    fn who_is_killed_is_known_until_he_is_gone() {
        assert_eq!(is_being_killed(std::process::id()), Some(false));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(is_being_killed(child.id()), Some(true), "its signal is on its way, or it has ended");
        child.wait().unwrap();
        assert_eq!(is_being_killed(child.id()), None);
    }

    #[test]
    fn who_is_held_is_traced_and_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (number, pid) = (child.id(), Pid::from_raw(child.id() as i32));
        assert_eq!((tracer_of(number), running_time_while_held(number, &[])), (None, None));
        ptrace::seize(pid, ptrace::Options::empty()).unwrap();
        assert_eq!(running_time_while_held(number, &[]), None, "it is traced, and runs");
        ptrace::interrupt(pid).unwrap();
        waitpid(pid, None).unwrap();
        assert_eq!(tracer_of(number), Some(nix::unistd::gettid().as_raw() as u32));
        let held = running_time_while_held(number, &[]);
        assert!(held.is_some() && held == running_time_while_held(number, &[]), "{held:?}");
        assert_eq!(running_time_while_held(number, &[number]), Some(0), "it is left out");
        ptrace::detach(pid, None).unwrap();
        assert_eq!(tracer_of(number), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_process() {
        let pid = std::process::id();
        assert!(Stat::of(pid).unwrap().start_ticks > 0);
        assert!(resident_anonymous(pid).unwrap() > ByteCount(100_000));
        assert!(meminfo("MemTotal").unwrap() > ByteCount(1 << 20));
        assert!(executable(pid).is_some());
    }
}
