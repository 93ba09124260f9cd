//! What stands still because somebody has stopped it is neither dead nor stuck.
//!
//! All of them stand still at the same time: an agent waits for its handler for 10 s, and `pleat run` for 30.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::Scope;
use std::time::{Duration, Instant};

use bench::cgroup;
use nix::libc::{SYS_ppoll, SYS_restart_syscall};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleat_e2e::{MODES, Turn, command, pleat_words, python, skipped, text, turn, with_mode, words};

/// Longer than agents wait, and than `pleat run` does.
const BEYOND_AGENTS: Duration = Duration::from_secs(13);
const BEYOND_RUNNERS: Duration = Duration::from_secs(33);

/// 40 MiB that it goes over until a line comes; then it says whether they are what they were.
const WALK: &str = "import hashlib, random, select, sys\nr = random.Random(5)\n\
                    x = [r.randbytes(2000) + bytes(2000) for _ in range(10000)]\n\
                    def total():\n  h = hashlib.sha256()\n  for b in x: h.update(b)\n  return h.digest()\n\
                    first = total()\nprint('ready', flush=True)\n\
                    while not select.select([sys.stdin], [], [], 0)[0]: total()\n\
                    print('equal' if total() == first else 'differs')";

/// A run at work.
struct Scene {
    runner: Pid,
    program: Pid,
    /// Of the program, in the order of their making: its own, and the agent's keeper, handler, and writer.
    threads: Vec<i32>,
}

/// How a scene is made.
#[derive(Clone, Copy)]
struct Setup<'a> {
    turn: &'a Turn,
    mode: &'a str,
    /// The group to start in.
    place: Option<&'a Path>,
}

/// Runs the program under pleat, does something to it once it is at work, and expects it to go on and end well.
fn assert_goes_on(what: &str, setup: Setup<'_>, disturb: impl FnOnce(&Scene)) {
    let Setup { turn, mode, place } = setup;
    let what = format!("{what} {mode}");
    let options = with_mode(mode, words(["--ram=24M", &format!("--swap={}", text(&turn.swap()))]));
    let line = pleat_words(&options, &words([python(), "-c", WALK]));
    let mut run = place.map_or_else(|| command(&line), |group| cgroup::enter(group, &line));
    // In a group that is not orphaned, which no SIGTSTP stops.
    run.process_group(0);
    let mut run =
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pleat starts");
    let mut stdout = BufReader::new(run.stdout.take().expect("piped above"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a pipe can be read");
    assert_eq!(line, "ready\n", "{what}");
    let Some(program) = child_of(&run) else {
        let _ = run.kill();
        let _ = run.wait();
        return skipped("this kernel does not list children");
    };
    let tasks = fs::read_dir(format!("/proc/{program}/task")).expect("the program runs");
    let mut threads: Vec<i32> = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    let begun = Instant::now();
    disturb(&Scene { runner: Pid::from_raw(run.id() as i32), program: Pid::from_raw(program), threads });
    let took = begun.elapsed();
    // Its end tells, if it has ended.
    let _ = run.stdin.take().expect("piped above").write_all(b"go on\n");
    let (mut rest, mut complaints) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).expect("a pipe can be read");
    run.stderr.take().expect("piped above").read_to_string(&mut complaints).expect("a pipe can be read");
    let status = run.wait().expect("a child can be waited for");
    println!("{what}: {took:.1?}");
    assert_eq!((rest.as_str(), status.code(), &complaints[..]), ("equal\n", Some(0), ""), "{what}");
}

fn child_of(run: &Child) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Makes it stand still while its handler is at something: one that waits for work cannot be taken for stuck.
fn while_busy(scene: &Scene, stop: &dyn Fn(), go_on: &dyn Fn()) {
    for _ in 0..500 {
        stop();
        std::thread::sleep(Duration::from_millis(20));
        let at = fs::read_to_string(format!("/proc/{}/task/{}/syscall", scene.program, scene.threads[2]));
        let call = at.as_deref().unwrap_or_default().split(' ').next().and_then(|number| number.parse::<i64>().ok());
        if call.is_some_and(|call| ![SYS_ppoll, SYS_restart_syscall].contains(&call)) {
            return;
        }
        go_on();
        std::thread::sleep(Duration::from_millis(7));
    }
    println!("the handler has always been waiting: the test proves little");
}

fn signal(pids: &[Pid], signal: Signal) {
    // The runner first: it passes on what happens to its child.
    for pid in pids {
        kill(*pid, signal).expect("it runs");
    }
}

fn stop(scene: &Scene, whom: &[Pid], time: Duration) {
    while_busy(scene, &|| signal(whom, Signal::SIGSTOP), &|| signal(whom, Signal::SIGCONT));
    std::thread::sleep(time);
    signal(whom, Signal::SIGCONT);
}

/// Stops the program as a terminal does, `pleat run` with it, and continues the program alone: it must go on, and miss pages.
fn continue_alone(scene: &Scene) {
    // Until its agent's threads are traced.
    std::thread::sleep(Duration::from_secs(2));
    signal(&[scene.program], Signal::SIGTSTP);
    wait_until("pleat run stops", || stat_field(scene.runner, 0) == "T");
    signal(&[scene.program], Signal::SIGCONT);
    let ran = || stat_field(scene.program, 11).parse::<u64>().expect("ticks");
    let before = ran();
    wait_until("the program goes on", || ran() > before + 30);
    signal(&[scene.runner], Signal::SIGCONT);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < BEYOND_AGENTS, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A field of /proc/PID/stat, counted from the one behind the name.
fn stat_field(pid: Pid, number: usize) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let rest = stat.rsplit(") ").next().expect("there is a name");
    rest.split(' ').nth(number).expect("there are more").to_owned()
}

/// A debugger that holds these threads.
fn hold(debugger: &str, threads: &[i32]) {
    let seconds = BEYOND_AGENTS.as_secs().to_string();
    let start = |thread: &i32| command(&words([debugger, &thread.to_string(), &seconds])).spawn();
    let holders: Vec<_> = threads.iter().map(start).collect();
    for holder in holders {
        let held = holder.and_then(|mut holder| holder.wait()).expect("it was just compiled");
        assert!(held.success(), "{held}");
    }
}

/// A group whose processes can be frozen, as a suspended machine's are. Gone, and all of it thawed, when dropped.
struct Freezer {
    dir: PathBuf,
    file: PathBuf,
    words: [&'static str; 2],
}

impl Freezer {
    /// Below this process's own group.
    fn create(name: &str) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = |key: &str| {
            let line = groups.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(key));
            line.map(|path| path.trim_start_matches('/').to_owned())
        };
        let mut why = "no freezer is mounted".to_owned();
        for (key, mount, file, words) in [
            ("freezer:", "/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"]),
            (":", "/sys/fs/cgroup", "cgroup.freeze", ["1", "0"]),
            (":", "/sys/fs/cgroup/unified", "cgroup.freeze", ["1", "0"]),
        ] {
            let Some(own) = own(key) else { continue };
            let dir = Path::new(mount).join(own).join(format!("{name}-{}", std::process::id()));
            if let Err(error) = fs::create_dir(&dir) {
                why = format!("{}: {error}", dir.display());
                continue;
            }
            let freezer = Self { file: dir.join(file), dir, words };
            match fs::metadata(&freezer.file) {
                Ok(_) => return Ok(freezer),
                Err(error) => why = format!("{}: {error}", freezer.file.display()),
            }
        }
        Err(why)
    }

    fn admit(&self, process: Pid) {
        fs::write(self.dir.join("cgroup.procs"), process.to_string()).expect("a group of our own");
    }

    fn set(&self, word: &str) {
        fs::write(&self.file, word).expect("a group of our own");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, self.words[1]);
        cgroup::remove(&self.dir);
    }
}

fn freeze(scene: &Scene, freezer: &Freezer, time: Duration) {
    let [frozen, thawed] = freezer.words;
    while_busy(scene, &|| freezer.set(frozen), &|| freezer.set(thawed));
    std::thread::sleep(time);
    freezer.set(thawed);
}

/// All that can happen to a run, at the same time.
fn assert_all_go_on<'scope>(
    scope: &'scope Scope<'scope, '_>,
    setup: Setup<'scope>,
    freezers: &'scope [Result<Freezer, String>; 2],
    debugger: &'scope Result<String, String>,
) {
    scope.spawn(move || {
        // Its agent runs on, and soon has nothing to do.
        assert_goes_on("a stopped program", setup, |scene| {
            signal(&[scene.program], Signal::SIGSTOP);
            std::thread::sleep(BEYOND_RUNNERS);
            signal(&[scene.program], Signal::SIGCONT);
        });
    });
    scope.spawn(move || assert_goes_on("continued alone", setup, continue_alone));
    // As a machine that is suspended.
    scope.spawn(move || {
        assert_goes_on("a stopped run", setup, |scene| stop(scene, &[scene.runner, scene.program], BEYOND_AGENTS));
    });
    scope.spawn(move || match &freezers[0] {
        Ok(freezer) => {
            let setup = Setup { place: Some(&freezer.dir), ..setup };
            assert_goes_on("a frozen run", setup, |scene| freeze(scene, freezer, BEYOND_AGENTS));
        }
        Err(why) => skipped(why),
    });
    // By itself: `pleat run` sees that it does nothing.
    scope.spawn(move || match &freezers[1] {
        Ok(freezer) => assert_goes_on("a frozen program", setup, |scene| {
            freezer.admit(scene.program);
            freeze(scene, freezer, BEYOND_RUNNERS);
        }),
        Err(why) => skipped(why),
    });
    let debugger = match debugger {
        Ok(debugger) => debugger,
        Err(why) => return skipped(why),
    };
    // The agent's, too, once the program's own are held.
    scope.spawn(move || {
        assert_goes_on("held threads", setup, |scene| hold(debugger, &scene.threads));
    });
}

#[test]
fn who_stands_still_goes_on() {
    let turn = turn("stopped");
    let debugger = turn.compile("hold.c", &[]);
    let freezers = |mode: &&str| ["stopped", "frozen"].map(|name| Freezer::create(&format!("pleat-{name}{mode}")));
    let freezers: Vec<_> = MODES.iter().map(freezers).collect();
    std::thread::scope(|scope| {
        for (mode, freezers) in MODES.iter().zip(&freezers) {
            assert_all_go_on(scope, Setup { turn: &turn, mode, place: None }, freezers, &debugger);
        }
    });
}
