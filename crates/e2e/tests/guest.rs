//! The agent as a guest in somebody else's program: it needs nothing of libc that locks, and no signal is delivered to it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use pleat_e2e::{pleat, pleat_command, python, skipped, turn, words};

/// What the agent may take from whoever has it loaded. Of libc: its errno, its environment and its break, and `syscall`, none of
/// which takes a lock, nor does `getauxval`; `__register_atfork` and `dlsym` are called by the loader's thread, before the program begins. The rest
/// are marks of sanitizers, profilers and the compiler, looked at and never called. memcpy and its kin are not among them: a
/// sanitizer's look at managed memory, and a debugger's breakpoint there would end the program.
const TAKEN: &[&str] = &[
    "__register_atfork",
    "dlsym",
    "syscall",
    "__errno_location",
    "getauxval",
    "pthread_self",
    "environ",
    "__curbrk",
    "__lsan_do_leak_check",
    "__hwasan_init",
    "__msan_init",
    "__tsan_init",
    "__libc_single_threaded",
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
];

/// "Never takes a libc lock": nothing else is asked of the loader.
#[test]
fn the_agent_asks_for_nothing_that_locks() {
    let agent = pleat().with_file_name("libpleat_agent.so");
    let listed = match Command::new("nm").args(["-D", "--undefined-only", "--format=just-symbols"]).arg(&agent).output()
    {
        Ok(run) if run.status.success() => String::from_utf8(run.stdout).expect("names"),
        other => return skipped(&format!("nm: {other:?}")),
    };
    let asked: BTreeSet<&str> = listed.lines().filter_map(|line| line.split('@').next()).collect();
    assert!(asked.contains("syscall"), "nm has listed something else: {listed}");
    let unknown: Vec<_> = asked.iter().filter(|name| !TAKEN.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: does none of these take a lock?");
}

/// "Blocks all signals": each thread that the program has under pleat and not without.
#[test]
fn no_signal_is_delivered_to_the_agents_threads() {
    let turn = turn("guest");
    // 90 MiB that fold, and a sum over it for as long as it lives; one thread of its own.
    let script = "x = [b'%d' % i * 300 for i in range(60000)]\nwhile True: sum(b[0] for b in x)";
    let mut command = pleat_command(&turn.options("40M"), &words([python(), "-c", script]));
    let mut run = command.stdout(Stdio::null()).process_group(0).spawn().expect("pleat can be started");
    let begun = Instant::now();
    let threads = loop {
        let threads = program_of(run.id()).map(threads_of).unwrap_or_default();
        if threads.len() > 2 || begun.elapsed() > Duration::from_secs(30) {
            break threads;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    killpg(Pid::from_raw(run.id() as i32), Signal::SIGKILL).expect("it runs");
    run.wait().expect("a child can be waited for");
    assert!(threads.len() > 2, "handler and keeper: {threads:?}");
    // All 64, but for SIGKILL and SIGSTOP, which nobody can block.
    let all = !(1_u64 << (9 - 1) | 1 << (19 - 1));
    let open: Vec<_> = threads.iter().filter(|(_, blocked)| *blocked != all).collect();
    assert_eq!(open.len(), 1, "the program's own thread, and no other: {threads:x?}");
}

/// The child of a runner.
fn program_of(runner: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{runner}/task/{runner}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Name and blocked signals of each thread.
fn threads_of(process: u32) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let told = |task: PathBuf| {
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
        Some((field("Name:")?, u64::from_str_radix(&field("SigBlk:")?, 16).ok()?))
    };
    tasks.filter_map(|task| told(task.path())).collect()
}
