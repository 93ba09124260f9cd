//! The document of `--stats`: its fields are there, and its sums add up.
#![forbid(unsafe_code)]

use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use bench::tree::field_kib;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use pleat_e2e::{
    MODES, Turn, assert_same, folded, plain, pleat_command, pleat_words, python, skipped, stats, turn, words,
};
use serde_json::Value;

/// Held now; each has a `_peak` beside it.
const GAUGES: &[&str] = &[
    "footprint_bytes",
    "resident_bytes",
    "pool_bytes",
    "metadata_bytes",
    "agent_bytes",
    "fixed_bytes",
    "share_bytes",
    "refault_ns_per_second",
    "stored_bytes",
    "backed_bytes",
    "swap_file_bytes",
];

/// Counted since the start; a sum is that of its processes.
const COUNTERS: &[&str] = &[
    "pages_reclaimed",
    "pages_encoded",
    "encode_ns",
    "pages_decoded",
    "decode_ns",
    "written_back_bytes",
    "read_back_bytes",
    "reads_beside",
    "pages_read_ahead",
    "serve_ns",
    "turn_wait_ns",
    "refault_ns",
];

fn number(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {document}"))
}

/// "Shares follow refaults and costs, not greed" (the plan of process trees): of 64 MiB a process holds 40 and does nothing, its child
/// works on 48. By what both hold it would have room for three fifths of that, and four of ten accesses would be faults.
#[test]
fn memory_goes_from_who_holds_it_to_who_works_with_it() {
    const TIMES: u64 = 2_000_000;
    let turn = turn("greedy");
    let job = match turn.compile("greedy.c", &[]) {
        Ok(program) => words([&program, "10240", "12288", &TIMES.to_string()]),
        Err(why) => return skipped(&why),
    };
    let before = plain(&job);
    let after = folded(&turn.options("64M"), &job);
    assert_same(&before, &after);
    let faults = &stats(&turn)["faults"];
    let faults = ["staged", "same_filled", "compressed", "backed"].map(|kind| number(&faults[kind], "count"));
    println!("{faults:?} faults in {TIMES} accesses");
    assert!(faults.iter().sum::<u64>() < TIMES / 10, "{faults:?}");
}

/// One thread that asks for pages anywhere: on a machine of two processors the other one is kept busy meanwhile, and one that
/// may use a single processor has nothing to keep busy. Nor is it where the program would have to share, or `pleat run` be ended.
#[test]
fn an_idle_processor_is_occupied_while_a_program_faults() {
    let turn = turn("occupied");
    if std::thread::available_parallelism().map_or(0, usize::from) != 2 {
        return skipped("this machine has not just two processors");
    }
    let script = "import random\nr = random.Random(1)\nx = bytearray(100 << 20)\n\
                  for i in range(0, len(x), 4096): x[i] = i % 251 + 1\n\
                  print(sum(x[r.randrange(25600) * 4096] for _ in range(150000)))";
    let job = words([python(), "-c", script]);
    let before = plain(&job);
    let occupied = |program: &[String]| {
        let after = plain(program);
        assert_same(&before, &after);
        stats(&turn)["occupied_seconds"].as_f64().expect("a number")
    };
    let run = pleat_words(&turn.options("64M"), &job);
    let under = |prefix: &[&str]| prefix.iter().map(ToString::to_string).chain(run.clone()).collect::<Vec<_>>();
    let with = occupied(&run);
    let without = [&["taskset", "-c", "0"][..], &["nice", "-n", "15"], &["prlimit", "--cpu=1000"]]
        .map(|prefix| (prefix, occupied(&under(prefix))));
    println!("occupied for {with} s, and for {without:?}");
    assert!(with > 0.0 && without.iter().all(|(_, seconds)| *seconds == 0.0), "{with} s, {without:?}");
}

/// Four threads miss pages of noise, which are in the swap file: while one read is on its way the others wait for theirs.
#[test]
fn threads_that_wait_for_the_swap_file_wait_at_the_same_time() {
    let turn = turn("readers");
    if std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|level| level.trim() != "0") {
        return skipped("kernel.io_uring_disabled is set");
    }
    let program = match turn.compile("readers.c", &["-pthread"]) {
        Ok(program) => program,
        Err(why) => return skipped(&why),
    };
    let beside = ["1", "4"].map(|threads| {
        let job = words([&program, threads, "20000", "20000"]);
        let before = plain(&job);
        let after = folded(&turn.options("24M"), &job);
        assert_same(&before, &after);
        let document = stats(&turn);
        let backed = number(&document["faults"]["backed"], "count");
        println!("{threads} threads: {backed} faults on the swap file, {} read beside", document["reads_beside"]);
        assert!(backed > 5000, "{document}");
        number(&document, "reads_beside")
    });
    assert!(beside[0] == 0 && beside[1] > 1000, "{beside:?}");
}

/// A run that goes on until its input ends; killed as a whole when dropped, if it still runs.
struct Going {
    run: Child,
    stdout: BufReader<ChildStdout>,
}

impl Going {
    fn start(options: &[String], program: &[String]) -> Self {
        let mut command = pleat_command(options, program);
        // A group of its own, to be ended as a whole.
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut run = command.spawn().expect("pleat can be started");
        let stdout = BufReader::new(run.stdout.take().expect("piped above"));
        Self { run, stdout }
    }

    /// The number that the program says next.
    fn number(&mut self) -> u64 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a pipe can be read");
        line.trim().parse().unwrap_or_else(|_| panic!("`{line}` is no number"))
    }

    fn end(mut self) {
        drop(self.run.stdin.take());
        assert!(self.run.wait().expect("a child can be waited for").success());
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        if matches!(self.run.try_wait(), Ok(None)) {
            let _ = killpg(Pid::from_raw(self.run.id() as i32), Signal::SIGKILL);
            let _ = self.run.wait();
        }
    }
}

/// For what comes within seconds, on a machine with other work.
const LIMIT: Duration = Duration::from_mins(1);

/// The first document for which this holds.
fn await_document(turn: &Turn, holds: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let document = stats(turn);
        if holds(&document) {
            return document;
        }
        assert!(begun.elapsed() < LIMIT, "not after {LIMIT:?}: {document}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The entry of a process.
fn entry(document: &Value, pid: u64) -> Option<&Value> {
    document["processes"].as_array()?.iter().find(|process| process["pid"].as_u64() == Some(pid))
}

/// Two processes that work on 52 MiB share 64 MiB until one of them is killed. Its agent cannot say goodbye, and nobody waits for
/// it: it stays as a zombie.
#[test]
fn a_killed_process_gives_its_share_back_at_once() {
    let turn = turn("killed");
    for mode in MODES {
        assert_gives_its_share_back(&turn, mode);
    }
}

fn assert_gives_its_share_back(turn: &Turn, mode: &str) {
    let script = "import os, random\nr, w = os.pipe()\nis_child = os.fork() == 0\n\
                  if not is_child: os.close(w); os.read(r, 1)\n\
                  x = bytearray(52 << 20)\n\
                  for at in range(0, len(x), 4096): x[at:at + 2048] = os.urandom(2048)\n\
                  os.write(1, b'%d\\n' % os.getpid())\n\
                  if is_child: os.close(w)\n\
                  while True: x[random.randrange(len(x) >> 12) << 12] ^= 1";
    // Not by turns: each has half of it.
    let command = words(["env", "PLEAT_FAULT=no-turns", python(), "-c", script]);
    let mut going = Going::start(&turn.options_in(mode, "64M"), &command);
    let (child, parent) = (going.number(), going.number());
    let holds = |document: &Value, pid: u64, bytes: Range<u64>| {
        entry(document, pid).is_some_and(|process| bytes.contains(&number(process, "footprint_bytes")))
    };
    await_document(turn, |document| [child, parent].iter().all(|pid| holds(document, *pid, 24 << 20..40 << 20)));
    kill(Pid::from_raw(child as i32), Signal::SIGKILL).expect("it runs");
    // There is a look each 50 ms, and a document each second. One may be on its way.
    let begun = Instant::now();
    let mut document = stats(turn);
    for _ in 0..2 {
        let last = document["elapsed_seconds"].clone();
        document = await_document(turn, |document| document["elapsed_seconds"] != last);
    }
    let seen = begun.elapsed();
    let is_alive = entry(&document, child).map(|process| &process["alive"]);
    assert!(is_alive == Some(&Value::Bool(false)) && holds(&document, child, 0..1), "{document}");
    await_document(turn, |document| holds(document, parent, 50 << 20..64 << 20));
    println!("{mode}: seen after {seen:.1?}, and the other one has grown after {:.1?}", begun.elapsed());
}

/// While they are alive and when they have ended, whether memory is short or never was.
#[test]
fn every_process_has_an_entry() {
    let turn = turn("entries");
    let script = "import os, sys\nr, w = os.pipe()\nchildren = []\nfor i in range(10):\n\
                  \x20 pid = os.fork()\n\
                  \x20 if pid == 0:\n\
                  \x20   os.close(w)\n\
                  \x20   x = [b'%d' % n * 50 for n in range(10000 * (i % 3))]\n\
                  \x20   os.write(1, b'%d\\n' % os.getpid())\n\
                  \x20   os._exit(len(os.read(r, 1)))\n\
                  \x20 children.append(pid)\n\
                  os.write(1, b'%d\\n' % os.getpid())\nsys.stdin.readline()\nos.close(w)\n\
                  sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))";
    for (ram, mode) in ["1G", "32M"].iter().flat_map(|ram| MODES.iter().map(move |mode| (ram, mode))) {
        let mut going = Going::start(&turn.options_in(mode, ram), &words([python(), "-c", script]));
        let pids: Vec<u64> = (0..11).map(|_| going.number()).collect();
        let all = |document: &Value, alive: bool| {
            pids.iter().all(|pid| entry(document, *pid).is_some_and(|process| process["alive"] == alive))
        };
        let document = await_document(&turn, |document| all(document, true));
        println!("{ram} {mode}: {} pages encoded", document["pages_encoded"]);
        assert_adds_up(&document);
        going.end();
        let document = stats(&turn);
        assert!(document["running"] == false && all(&document, false), "{ram}: {pids:?}, {document}");
        assert_adds_up(&document);
    }
}

/// "memory shared after fork is counted once (PSS)": three children go on with the memory of their parent, to which nobody writes.
/// With room for all of it: as `pleat run` counts it, as agents do that were there before, and as those do that begin afterwards.
/// And with a pool that they share, too.
#[test]
fn memory_shared_after_fork_counts_once() {
    let turn = turn("shared");
    for (ram, later_mib, is_folded) in [("1G", 0, false), ("80M", 0, false), ("128M", 24, false), ("24M", 0, true)] {
        let job = words([python(), "-c", FAMILY, &later_mib.to_string()]);
        let mut going = Going::start(&turn.options(ram), &job);
        let pids: Vec<u64> = (0..4).map(|_| going.number()).collect();
        let (document, counted) = at_rest(&turn, &pids);
        let shown: u64 =
            pids.iter().map(|pid| number(entry(&document, *pid).expect("at rest"), "footprint_bytes")).sum();
        let Counted { once, each } = counted;
        println!(
            "{ram}: shown {} KiB, {} once, {} each, pool {}",
            shown >> 10,
            once >> 10,
            each >> 10,
            document["pool_bytes"]
        );
        assert_eq!(number(&document, "pool_bytes") > BY_CHANCE, is_folded, "{document}");
        assert!(shown.abs_diff(once) <= COARSE, "{shown} shown, {once} held: {document}");
        assert!(each - once > 3 * COARSE, "{each} if each counts, {once} once: the test proves nothing");
        assert_adds_up(&document);
        going.end();
    }
}

/// In the moment of a fork its memory counts for the child and for the parent, who was looked at before: that may cost a batch of pages.
const BY_CHANCE: u64 = 256 << 10;

/// Holds 40 MiB of which an eighth is noise, has three children, holds so many MiB more, and waits until its input ends.
const FAMILY: &str = "import os, sys\nx = bytearray(40 << 20)\n\
                      for at in range(0, len(x), 4096): x[at:at + 512] = os.urandom(512)\n\
                      r, w = os.pipe()\nchildren = []\nfor i in range(3):\n\
                      \x20 pid = os.fork()\n\
                      \x20 if pid == 0:\n\
                      \x20   os.close(w)\n\
                      \x20   os.write(1, b'%d\\n' % os.getpid())\n\
                      \x20   os._exit(len(os.read(r, 1)))\n\
                      \x20 children.append(pid)\n\
                      y = b'y' * (int(sys.argv[1]) << 20)\n\
                      os.write(1, b'%d\\n' % os.getpid())\nsys.stdin.readline()\nos.close(w)\n\
                      sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))";

/// What an agent has written between two of its looks counts by faults, and the kernel's own counters that this is added to
/// are in batches of 32 pages a processor: of two, and of four processes.
const COARSE: u64 = 4 * 2 * 32 * 4096;

/// Anonymous memory of several processes by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    /// A page that they share counts once.
    once: u64,
    /// It counts for each.
    each: u64,
}

impl Counted {
    fn of(pids: &[u64]) -> Self {
        let sum = |name: &str| pids.iter().map(|pid| rollup(*pid, name)).sum();
        Self { once: sum("Pss_Anon:"), each: sum("Anonymous:") }
    }
}

fn rollup(pid: u64, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it waits for us");
    field_kib(&text, name).expect("each kernel that has the file has the field")
}

/// A document of processes all of which hold what they held when the one before was written, and what that is.
fn at_rest(turn: &Turn, pids: &[u64]) -> (Value, Counted) {
    let begun = Instant::now();
    let mut last = await_document(turn, |document| pids.iter().all(|pid| entry(document, *pid).is_some()));
    loop {
        let before = Counted::of(pids);
        let document = await_document(turn, |document| document["elapsed_seconds"] != last["elapsed_seconds"]);
        if Counted::of(pids) == before {
            return (document, before);
        }
        assert!(begun.elapsed() < LIMIT, "no rest after {LIMIT:?}: {document}");
        last = document;
    }
}

/// What a process holds, part by part.
const PARTS: [&str; 4] = ["resident_bytes", "pool_bytes", "metadata_bytes", "agent_bytes"];

/// Gauges, counters and parts of the whole run are the sums of those of its processes, at every moment.
fn assert_adds_up(document: &Value) {
    let processes = document["processes"].as_array().expect("one entry per process");
    for name in GAUGES.iter().chain(COUNTERS) {
        let sum: u64 = processes.iter().map(|process| number(process, name)).sum();
        assert_eq!(number(document, name), sum, "{name}: {document}");
    }
    for holder in processes.iter().chain([document]) {
        let sum: u64 = PARTS.iter().map(|part| number(holder, part)).sum();
        assert_eq!(number(holder, "footprint_bytes"), sum, "{holder}");
    }
}

/// "kept current while running (every second, and at exit)": two processes that hold and work on more than their share.
#[test]
fn the_document_is_current_and_adds_up_while_the_program_runs() {
    let turn = turn("current");
    let script = "import os\nif os.fork() == 0:\n  x = [b'%d' % i * 50 for i in range(150000)]\n\
                  else: x = [os.urandom(1024) + bytes(1024) for _ in range(30000)]\n\
                  print('ready', flush=True)\nwhile True: sum(b[0] for b in x)";
    let mut command = pleat_command(&turn.options("48M"), &words([python(), "-c", script]));
    // A group of its own, to be ended as a whole.
    let mut run = command.stdout(Stdio::null()).process_group(0).spawn().expect("pleat can be started");
    let mut seen: Vec<Value> = Vec::new();
    let begun = std::time::Instant::now();
    while seen.len() < 4 && begun.elapsed() < std::time::Duration::from_mins(1) {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let Ok(text) = std::fs::read_to_string(turn.file("stats.json")) else { continue };
        let document: Value = serde_json::from_str(&text).expect("a whole document, whenever it is read");
        let working =
            number(&document, "pool_bytes") > 0 && document["processes"].as_array().is_some_and(|all| all.len() >= 2);
        let is_new = seen.last().is_none_or(|last| last["elapsed_seconds"] != document["elapsed_seconds"]);
        if working && is_new {
            seen.push(document);
        }
    }
    let group = nix::unistd::Pid::from_raw(run.id() as i32);
    nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    run.wait().expect("a child can be waited for");
    assert_eq!(seen.len(), 4, "after {:?}: {:?}", begun.elapsed(), seen.last());
    for document in &seen {
        assert_eq!(document["running"], true);
        assert_adds_up(document);
        let (stored, pool) = (number(document, "stored_bytes"), number(document, "pool_bytes"));
        assert!(number(document, "pages_resident") > 0 && stored <= pool, "{document}");
    }
    let seconds: Vec<f64> =
        seen.iter().map(|document| document["elapsed_seconds"].as_f64().expect("a number")).collect();
    let steps: Vec<f64> = seconds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.iter().all(|step| (0.5..3.0).contains(step)), "not every second: {seconds:?}");
}

#[test]
fn keys_exist_and_sums_add_up() {
    let turn = turn("stats");
    // Two processes that both pass their share.
    let script = "import os, sys\nif os.fork() == 0:\n  x = [bytes(str(i), 'ascii') * 50 for i in range(300000)]\n  os._exit(0)\n\
                  x = [os.urandom(2048) for _ in range(50000)]\nos.wait()\nprint(len(x))";
    let job = words([python(), "-c", script]);
    let before = plain(&job);
    let after = folded(&turn.options("64M"), &job);
    assert_same(&before, &after);
    let document = stats(&turn);

    assert_eq!(number(&document, "budget_bytes"), 64 << 20);
    assert_eq!(document["running"], false, "the last document is written at the end");
    let processes = document["processes"].as_array().expect("one entry per process");
    assert!(processes.len() >= 2, "{processes:?}");
    for gauge in GAUGES {
        number(&document, gauge);
        number(&document, &format!("{gauge}_peak"));
        for process in processes {
            number(process, gauge);
        }
    }
    assert_adds_up(&document);
    assert!(number(&document, "pages_encoded") > 0, "{document}");
    assert!(number(&document, "footprint_bytes_peak") <= (64 << 20) / 100 * 102, "{document}");
    turn.assert_clean(&after);
}
