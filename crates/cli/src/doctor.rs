//! `pleat doctor`: what this machine allows, and how to allow more.

use std::fs;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use sys::host::{self, Way};
use sys::uffd::feature::MOVE;

use crate::args::DoctorArgs;
use crate::size::Human;
use crate::userfaultfd::{Access, PAST_FILTER, access, remedy, words};
use crate::{agent, budget, proc, swap, userfaultfd};

/// `UFFD_FEATURE_WP_ASYNC` of include/uapi/linux/userfaultfd.h (Linux 6.7).
const WP_ASYNC: u64 = 1 << 15;

/// How well something works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// `pleat run` works, less well.
    Limited,
    No,
}

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    verdict: Verdict,
    /// Without it `pleat run` does not work.
    needed: bool,
    found: String,
    /// The command that would allow more.
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Document {
    version: &'static str,
    works: bool,
    findings: Vec<Finding>,
}

/// Prints the findings.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let findings = vec![
        kernel(),
        full_userfaultfd(),
        page_moves(),
        events(),
        user_mode(),
        write_tracking(),
        swap_directory(),
        direct_io(),
        memory_limit(),
        io_uring(),
        aes(),
        huge_pages(),
        agent_library(),
    ];
    let works = findings.iter().all(|finding| !finding.needed || finding.verdict != Verdict::No);
    let status = if works { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if args.json {
        let document = Document { version: env!("CARGO_PKG_VERSION"), works, findings };
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(status);
    }
    for finding in &findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Limited => "limited",
            Verdict::No => "no",
        };
        let remedy = finding.remedy.as_ref().map(|remedy| format!("; to change it: {remedy}")).unwrap_or_default();
        println!("{verdict:<8} {:<16} {}{remedy}", finding.name, finding.found);
    }
    let way = match (works, userfaultfd::user_mode()) {
        (true, _) => "works",
        (false, Ok(())) => "works with --user-mode only",
        (false, Err(_)) => "does not work",
    };
    println!("pleat run {way} here");
    Ok(status)
}

impl Finding {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { name, verdict, needed: false, found: found.into(), remedy: None }
    }

    fn needed(self) -> Self {
        Self { needed: true, ..self }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease");
    let found = |note: &str| format!("Linux {release}{note}");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let finding = |verdict, note| Finding::new("kernel", verdict, found(note)).needed();
    match version {
        (6, 8..14) => finding(Verdict::Limited, ": before 6.14 moving a page that is in the kernel's swap can panic")
            .remedy("sudo swapoff -a"),
        version if version >= (6, 8) => finding(Verdict::Ok, ""),
        _ => finding(Verdict::No, ": pleat needs 6.8 or newer"),
    }
}

fn full_userfaultfd() -> Finding {
    let finding = |verdict, found: String| Finding::new("userfaultfd", verdict, found).needed();
    match host::try_userfaultfd() {
        Ok((Way::Device, _)) => finding(Verdict::Ok, "by permission on /dev/userfaultfd".to_owned()),
        Ok((Way::SystemCall, _)) => {
            let by_sysctl = read("/proc/sys/vm/unprivileged_userfaultfd") == "1";
            let how = if by_sysctl { "by vm.unprivileged_userfaultfd=1" } else { "by CAP_SYS_PTRACE" };
            finding(Verdict::Ok, how.to_owned())
        }
        Err(sys::Errno::NOSYS) => {
            let found = "this kernel has none, or a seccomp filter (such as docker's) hides it".to_owned();
            finding(Verdict::No, found).remedy(PAST_FILTER)
        }
        Err(_) if access() == Access::Filtered => {
            finding(Verdict::No, "a seccomp filter (such as docker's) refuses it".to_owned()).remedy(PAST_FILTER)
        }
        Err(errno) => finding(Verdict::No, format!("not permitted ({})", words(errno))).remedy(remedy()),
    }
}

fn page_moves() -> Finding {
    let features = features();
    let finding = |verdict, found| Finding::new("page moves", verdict, found).needed();
    match features {
        Some(features) if features & MOVE != 0 => finding(Verdict::Ok, "UFFDIO_MOVE"),
        Some(_) => finding(Verdict::No, "no UFFDIO_MOVE: pleat needs Linux 6.8 or newer"),
        None => finding(Verdict::No, "cannot be told without a userfaultfd"),
    }
}

fn events() -> Finding {
    let finding = |verdict, found| Finding::new("layout events", verdict, found).needed();
    match access() {
        Access::Full => finding(Verdict::Ok, "fork, mremap, madvise and munmap are reported"),
        Access::NoForkEvents => finding(Verdict::No, "forks are reported to CAP_SYS_PTRACE only").remedy(remedy()),
        _ => finding(Verdict::No, "not without a userfaultfd of Linux 6.8"),
    }
}

fn user_mode() -> Finding {
    match userfaultfd::user_mode() {
        Ok(()) => Finding::new("user mode", Verdict::Ok, "pleat run --user-mode works without any permission"),
        Err(why) => Finding::new("user mode", Verdict::Limited, format!("pleat run --user-mode does not work: {why}")),
    }
}

fn write_tracking() -> Finding {
    match features() {
        Some(features) if features & WP_ASYNC != 0 => Finding::new("write tracking", Verdict::Ok, "WP_ASYNC"),
        _ => Finding::new("write tracking", Verdict::Limited, "no WP_ASYNC (Linux 6.7)"),
    }
}

fn swap_directory() -> Finding {
    let name = "swap directory";
    let Some(directory) = swap::default_directory() else {
        return Finding::new(name, Verdict::Limited, "neither $TMPDIR nor /var/tmp is a directory that can be written")
            .remedy("pleat run --swap DIR ...");
    };
    let free = swap::free_bytes(&directory).unwrap_or_default();
    let kind = swap::file_system(&directory).unwrap_or_else(|| "unknown file system".to_owned());
    let found = format!("{} ({kind}), {} free", directory.display(), Human(free.0));
    if swap::is_in_ram(&directory) {
        let found = format!("{found}: it is in RAM, outside the budget");
        return Finding::new(name, Verdict::Limited, found).remedy("pleat run --swap DIR ...");
    }
    if free.0 < 1 << 30 {
        return Finding::new(name, Verdict::Limited, found).remedy("pleat run --swap DIR ...");
    }
    Finding::new(name, Verdict::Ok, found)
}

fn direct_io() -> Finding {
    let name = "direct I/O";
    match swap::default_directory() {
        Some(directory) if swap::takes_direct_io(&directory) => {
            Finding::new(name, Verdict::Ok, format!("in {}", directory.display()))
        }
        Some(directory) => {
            let found = format!("not in {}: the swap file goes through the page cache", directory.display());
            Finding::new(name, Verdict::Limited, found).remedy("pleat run --swap DIR ...")
        }
        None => Finding::new(name, Verdict::Limited, "no swap directory"),
    }
}

fn memory_limit() -> Finding {
    let name = "memory limit";
    let limits = budget::limits();
    let Some(limit) = limits.iter().min_by_key(|limit| limit.bytes_max) else {
        let available = proc::meminfo("MemAvailable").unwrap_or_default();
        let found = format!("no cgroup limit, {} available", Human(available.0));
        return Finding::new(name, Verdict::Ok, found);
    };
    let version = match limit.version {
        budget::Version::V1 => "v1",
        budget::Version::V2 => "v2",
    };
    let (bytes, used) = (Human(limit.bytes_max.0), Human(limit.used.0));
    let found = format!("{bytes} by cgroup {version} {}, {used} used", limit.directory.display());
    Finding::new(name, Verdict::Ok, found)
}

fn io_uring() -> Finding {
    let name = "io_uring";
    // 0: everybody, 1: a group and CAP_SYS_ADMIN, 2: nobody. Without the file (before Linux 6.6): everybody.
    let disabled = read("/proc/sys/kernel/io_uring_disabled");
    let filtered = read("/proc/self/status").lines().any(|line| line == "Seccomp:\t2");
    match disabled.as_str() {
        "0" | "" if filtered => Finding::new(name, Verdict::Limited, "a seccomp filter is active and may refuse it"),
        "0" | "" => Finding::new(name, Verdict::Ok, "threads that wait for the swap file are read for together"),
        level => Finding::new(
            name,
            Verdict::Limited,
            format!("kernel.io_uring_disabled={level}: the swap file is read for one thread at a time"),
        )
        .remedy("sudo sysctl kernel.io_uring_disabled=0"),
    }
}

#[cfg(target_arch = "x86_64")]
fn aes() -> Finding {
    if std::arch::is_x86_feature_detected!("aes") {
        Finding::new("AES", Verdict::Ok, "in hardware")
    } else {
        Finding::new("AES", Verdict::Limited, "no AES instructions: the swap file is encrypted slowly")
    }
}

#[cfg(target_arch = "aarch64")]
fn aes() -> Finding {
    if std::arch::is_aarch64_feature_detected!("aes") {
        Finding::new("AES", Verdict::Ok, "in hardware")
    } else {
        Finding::new("AES", Verdict::Limited, "no AES instructions: the swap file is encrypted slowly")
    }
}

fn huge_pages() -> Finding {
    let name = "huge pages";
    let setting = read("/sys/kernel/mm/transparent_hugepage/enabled");
    // "always [madvise] never": the brackets mark the one that holds.
    let chosen = setting.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("always") => Finding::new(name, Verdict::Limited, "always: moving 4 KiB out of one splits it first")
            .remedy("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(chosen) => Finding::new(name, Verdict::Ok, chosen),
        None => Finding::new(name, Verdict::Ok, "none"),
    }
}

fn agent_library() -> Finding {
    match agent::find() {
        Ok(path) => Finding::new("agent", Verdict::Ok, path.display().to_string()).needed(),
        Err(error) => Finding::new("agent", Verdict::No, format!("{error:#}"))
            .needed()
            .remedy("PLEAT_AGENT=/path/to/libpleat_agent.so pleat run ..."),
    }
}

fn features() -> Option<u64> {
    host::try_userfaultfd().map(|(_, features)| features).or_else(|_| host::try_user_mode_only()).ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
