//! What stands still because somebody has stopped it is neither dead nor stuck.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleat_e2e::{Turn, command, pleat_command, python, skipped, turn, words};

/// 100 MiB that it goes over until a line comes; then it says whether they are what they were.
const WALK: &str = "import hashlib, random, select, sys\nr = random.Random(5)\n\
                    x = [r.randbytes(2000) + bytes(2000) for _ in range(26000)]\n\
                    def total():\n  h = hashlib.sha256()\n  for b in x: h.update(b)\n  return h.digest()\n\
                    first = total()\nprint('ready', flush=True)\n\
                    while not select.select([sys.stdin], [], [], 0)[0]: total()\n\
                    print('equal' if total() == first else 'differs')";

/// Runs the program under pleat, does something to it (its process, and the threads of it in the order of their making)
/// once it is at work, and expects it to go on and end well.
fn assert_goes_on(turn: &Turn, disturb: impl FnOnce(Pid, &[i32])) {
    let mut run = pleat_command(&turn.options("48M"), &words([python(), "-c", WALK]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pleat starts");
    let mut stdout = BufReader::new(run.stdout.take().expect("piped above"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a pipe can be read");
    assert_eq!(line, "ready\n");
    let Some(program) = child_of(&run) else {
        let _ = run.kill();
        let _ = run.wait();
        return skipped("this kernel does not list children");
    };
    let tasks = fs::read_dir(format!("/proc/{program}/task")).expect("the program runs");
    let mut threads: Vec<i32> = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    disturb(Pid::from_raw(program), &threads);
    // Its end tells, if it has ended.
    let _ = run.stdin.take().expect("piped above").write_all(b"go on\n");
    let (mut rest, mut complaints) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).expect("a pipe can be read");
    run.stderr.take().expect("piped above").read_to_string(&mut complaints).expect("a pipe can be read");
    let status = run.wait().expect("a child can be waited for");
    assert_eq!((rest.as_str(), status.code()), ("equal\n", Some(0)), "{complaints}");
}

fn child_of(run: &Child) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// The watchdog's patience is 10 s.
#[test]
fn a_handler_that_a_debugger_holds_is_not_stuck() {
    let turn = turn("held");
    let hold = match turn.compile("hold.c", &[]) {
        Ok(hold) => hold,
        Err(why) => return skipped(&why),
    };
    assert_goes_on(&turn, |_, threads| {
        // The program has one thread, and the agent's come in this order: keeper, handler, writer.
        let held = command(&words([&hold, &threads[2].to_string(), "13"])).status().expect("it was just compiled");
        assert!(held.success(), "{held}");
    });
}

/// The runner's patience is 30 s.
#[test]
#[ignore = "takes 40 s: cargo test --release -p pleat-e2e --test stopped -- --ignored"]
fn a_stopped_program_is_not_dead() {
    let turn = turn("stopped");
    assert_goes_on(&turn, |program, _| {
        let begun = Instant::now();
        for pause in [50, 50, 35_000] {
            kill(program, Signal::SIGSTOP).expect("it runs");
            std::thread::sleep(Duration::from_millis(pause));
            kill(program, Signal::SIGCONT).expect("it is there");
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("stopped and continued in {:.1?}", begun.elapsed());
    });
}
