//! What the kernel says of a tree of processes: who is in it, what it holds, what it has computed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::thread::memories_differ;

/// How often the proportional shares of a tree are read at most: walking page tables takes the kernel a millisecond for each
/// few hundred MiB, and holds up the program's own mmap calls meanwhile.
const SHARES_EVERY: Duration = Duration::from_millis(20);

/// Resident memory of one process, from /proc/PID/status. The kernel counts in batches: it may be wrong by
/// 64 pages per CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Anonymous pages.
    pub anon_bytes: u64,
    /// Shared memory, memfds among it.
    pub shmem_bytes: u64,
}

impl core::ops::Add for Resident {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { anon_bytes: self.anon_bytes + other.anon_bytes, shmem_bytes: self.shmem_bytes + other.shmem_bytes }
    }
}

/// `root` and everything it started that is alive, parents first.
pub fn pids(root: u32) -> Vec<u32> {
    below(vec![root])
}

/// These and everything they started that is alive, each once.
fn below(mut found: Vec<u32>) -> Vec<u32> {
    let mut at = 0;
    while at < found.len() {
        for child in children(found[at]) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        at += 1;
    }
    found
}

/// When a process began, in clock ticks since the machine did; tells a number that is used again apart.
fn begun(pid: u32) -> Option<u64> {
    stat_fields(pid)?.get(22 - 3)?.parse().ok()
}

/// The fields of /proc/PID/stat from field 3 on.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets; the fields start behind the last bracket.
    Some(stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect())
}

/// A tree that is looked at again and again. Who was seen in it stays in it, and all that he starts: a daemon leaves its parent.
#[derive(Debug, Default)]
pub struct Tree {
    /// When each began.
    seen: BTreeMap<u32, Option<u64>>,
}

impl Tree {
    /// Everybody who is alive, `root` first.
    pub fn look(&mut self, root: u32) -> Vec<u32> {
        self.seen.retain(|pid, when| *pid != root && begun(*pid) == *when);
        let found = below(core::iter::once(root).chain(self.seen.keys().copied()).collect());
        self.seen.extend(found.iter().skip(1).map(|pid| (*pid, begun(*pid))));
        found
    }
}

/// Those of a tree that have memory of their own. The others have their parent's: children of vfork, and of clone with `CLONE_VM`.
fn holders(tree: &[u32]) -> Vec<u32> {
    let parent = |pid: u32| stat_fields(pid)?.get(4 - 3)?.parse().ok();
    let has_its_own = |pid: u32| parent(pid).is_none_or(|parent| memories_differ(pid, parent) != Some(false));
    tree.iter().copied().filter(|pid| has_its_own(*pid)).collect()
}

/// Living children of a process. Each thread lists those it started itself.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

/// Resident memory of `pid`; `None` once it has gone.
pub fn resident(pid: u32) -> Option<Resident> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Resident { anon_bytes: field_kib(&status, "RssAnon:")?, shmem_bytes: field_kib(&status, "RssShmem:")? })
}

/// The share of `pid` in anonymous and shared memory, each page divided by the number of its users.
fn proportional(pid: u32) -> Option<Resident> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(Resident { anon_bytes: field_kib(&rollup, "Pss_Anon:")?, shmem_bytes: field_kib(&rollup, "Pss_Shmem:")? })
}

/// Bytes of a `Name:  123 kB` line.
pub fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

/// Clock ticks (10 ms) that the living processes of a tree have computed, and their children that were waited for.
pub fn cpu_ticks(root: u32) -> u64 {
    let ticks = |pid: u32| {
        let fields = stat_fields(pid).unwrap_or_default();
        fields.iter().skip(14 - 3).take(4).flat_map(|field| field.parse::<u64>()).sum::<u64>()
    };
    pids(root).into_iter().map(ticks).sum()
}

/// How pages count that several processes hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shared {
    /// For each.
    Each,
    /// Once.
    Once,
}

/// What the tree holds, where each page that is shared after fork counts once.
///
/// `RssAnon` of all is too much by those pages. `Pss_Anon` is right of memory that rests, but the kernel collects it in
/// a walk of many milliseconds, and a page that moves meanwhile, as all do that a pager folds, may be met twice. So it is the
/// smaller of the two.
fn total(tree: &[u32], shared: Shared) -> Resident {
    let sum = |read: fn(u32) -> Option<Resident>| {
        tree.iter().filter_map(|pid| read(*pid)).fold(Resident::default(), |sum, one| sum + one)
    };
    let whole = sum(resident);
    if shared == Shared::Each {
        return whole;
    }
    let shares = sum(proportional);
    Resident {
        anon_bytes: whole.anon_bytes.min(shares.anon_bytes),
        shmem_bytes: whole.shmem_bytes.min(shares.shmem_bytes),
    }
}

/// What a watcher saw.
#[derive(Clone, Debug, Default)]
pub struct Peaks {
    /// Most anonymous memory of the tree at any moment; pages shared after fork count once.
    pub anon_bytes: u64,
    /// Most shared memory, by the same rule.
    pub shmem_bytes: u64,
    /// Most processes at one moment.
    pub processes: usize,
    /// Looks that have told what the tree held.
    pub samples: u64,
    /// Every process that was seen.
    pub seen: BTreeSet<u32>,
}

/// A thread that samples a tree of processes until it is asked to stop.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Peaks>,
}

/// What the root of a watched tree is. It counts, whatever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// The program.
    Program,
    /// The runner of the program, which has no page in common with it, but with processes that it makes of itself.
    Runner,
}

impl Watcher {
    /// Samples the tree below `root` every `interval`.
    pub fn start(root: u32, role: Root, interval: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut tree, mut peaks) = (Tree::default(), Peaks::default());
            let mut shares_next = Instant::now();
            // Relaxed: a flag that nothing else hangs on.
            while !seen.load(Ordering::Relaxed) {
                sample(&tree.look(root), role, &mut peaks, &mut shares_next);
                std::thread::sleep(interval);
            }
            peaks
        });
        Self { stop, thread }
    }

    /// Stops and tells what was seen.
    pub fn stop(self) -> Peaks {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher does not panic")
    }
}

/// The runner with those that execute what it does, and all others.
fn divide(tree: &[u32], role: Root) -> (Vec<u32>, Vec<u32>) {
    let executable = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let runner = tree.first().filter(|_| role == Root::Runner).and_then(executable);
    tree.iter().copied().partition(|pid| runner.is_some() && executable(pid) == runner)
}

fn sample(tree: &[u32], role: Root, peaks: &mut Peaks, shares_next: &mut Instant) {
    peaks.processes = peaks.processes.max(tree.len());
    peaks.seen.extend(tree);
    let whole = total(tree, Shared::Each);
    // Without any page counted twice it was no peak: most looks need no walk.
    let may_be_peak = whole.anon_bytes > peaks.anon_bytes || whole.shmem_bytes > peaks.shmem_bytes;
    let held = if may_be_peak {
        match divide(tree, role) {
            (runners, programs) if programs.len() <= 1 => {
                total(&runners, Shared::Once) + total(&programs, Shared::Each)
            }
            _ if Instant::now() < *shares_next => return,
            _ => {
                *shares_next = Instant::now() + SHARES_EVERY;
                total(&holders(tree), Shared::Once)
            }
        }
    } else {
        whole
    };
    peaks.samples += 1;
    peaks.anon_bytes = peaks.anon_bytes.max(held.anon_bytes.min(whole.anon_bytes));
    peaks.shmem_bytes = peaks.shmem_bytes.max(held.shmem_bytes.min(whole.shmem_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = "Name:\tx\nRssAnon:\t   12 kB\nPss_Anon:             7 kB\n";
        assert_eq!(field_kib(text, "RssAnon:"), Some(12 << 10));
        assert_eq!(field_kib(text, "Pss_Anon:"), Some(7 << 10));
        assert_eq!(field_kib(text, "RssShmem:"), None);
    }

    #[test]
    fn a_child_belongs_to_its_tree() {
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let tree = pids(std::process::id());
        assert!(tree.contains(&child.id()));
        assert!(resident(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!pids(std::process::id()).contains(&child.id()));
    }

    #[test]
    fn a_daemon_stays_in_the_tree_that_started_it() {
        let script = "sh -c 'sleep 2 & sleep 0.3'; sleep 0.3";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut tree = Tree::default();
        while child.try_wait().unwrap().is_none() {
            tree.look(child.id());
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<u32> = tree.look(child.id()).into_iter().filter(|pid| *pid != child.id()).collect();
        let names: Vec<_> =
            left.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok()).collect();
        assert_eq!(names, ["sleep\n"]);
    }

    /// Clones itself with `CLONE_VM`: the copy calls libc's `pause`, on a stack of its own.
    const SHARER: &str = "\
import ctypes, os, time
libc, held = ctypes.CDLL(None), b'x' * 40000000
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p((ctypes.addressof(stack) + (1 << 16)) & ~15)
child = libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, 0x100 | 17, None)
time.sleep(0.3)
os.kill(child, 9)
os.waitpid(child, 0)
";

    #[test]
    fn memory_that_two_processes_share_counts_once() {
        let mut child = std::process::Command::new("python3").args(["-c", SHARER]).spawn().unwrap();
        let watcher = Watcher::start(child.id(), Root::Program, Duration::from_millis(2));
        assert!(child.wait().unwrap().success());
        let peaks = watcher.stop();
        assert!(peaks.processes >= 2 && (40_000_000..70_000_000).contains(&peaks.anon_bytes), "{peaks:?}");
    }

    /// It makes a process of itself that has all that it has.
    #[test]
    fn what_a_runner_shares_with_itself_counts_once() {
        let script = "import os, time; x = b'x' * 40000000; child = os.fork(); time.sleep(0.5); child and os.wait()";
        let mut child = std::process::Command::new("python3").args(["-c", script]).spawn().unwrap();
        let watcher = Watcher::start(child.id(), Root::Runner, Duration::from_millis(2));
        assert!(child.wait().unwrap().success());
        let peaks = watcher.stop();
        assert!(peaks.processes >= 2 && (40_000_000..70_000_000).contains(&peaks.anon_bytes), "{peaks:?}");
    }

    #[test]
    fn the_watcher_sees_a_peak() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "x=$(head -c 40000000 /dev/zero | tr '\\0' a); sleep 0.3"])
            .spawn()
            .unwrap();
        let watcher = Watcher::start(child.id(), Root::Program, Duration::from_millis(2));
        child.wait().unwrap();
        let peaks = watcher.stop();
        assert!(peaks.anon_bytes > 30_000_000, "{peaks:?}");
        assert!(peaks.samples > 10);
    }
}
