//! The harness of the end-to-end tests: runs a program plain and under `pleat run`, looks at it from outside, and
//! compares.
//!
//! The tests take the release build, from `PLEAT_BIN` or `target/release/pleat`: what is measured is what users get.
//! They run one at a time, even across test programs, because each measures memory and time. A test that cannot run
//! prints `skipped:` and the reason; `cargo x test` counts those lines.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bench::size::mib;
use bench::tree::{Peaks, Root, Watcher};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

pub mod nobody;

/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(2);
/// A run that takes longer hangs.
const TIMEOUT: Duration = Duration::from_mins(4);
/// The budget may be passed by this share, for the kernel's own counters are as coarse.
const TOLERANCE: f64 = 0.02;

/// The modes that this machine has, as options of `pleat run`: with permission for a userfaultfd, and without.
pub const MODES: &[&str] = if cfg!(target_arch = "x86_64") { &["", "--user-mode"] } else { &[""] };

/// The `pleat` to test.
///
/// # Panics
/// If there is none.
pub fn pleat() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/pleat");
    let path = std::env::var_os("PLEAT_BIN").map_or(built, PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `cargo build --release`, or set PLEAT_BIN", path.display());
    fs::canonicalize(path).expect("a file has a path")
}

/// A test's turn: a place for its files, and the promise that no other end-to-end test runs. Both end with it.
#[derive(Debug)]
pub struct Turn {
    dir: PathBuf,
    shared_memory: BTreeSet<PathBuf>,
    _lock: File,
}

/// Where tests of several programs run at the same time, the name of this one: a turn is one among those of its own then.
const BESIDE_VARIABLE: &str = "PLEAT_TESTS_BESIDE";

/// Waits for the turn of the test `name`.
///
/// # Panics
/// If its folder cannot be made.
pub fn turn(name: &str) -> Turn {
    // target/debug/deps/TEST: in the target directory, wherever that is; a disk, as a rule.
    let this = std::env::current_exe().expect("a running program has a path");
    let base = this.ancestors().nth(3).expect("cargo puts tests three folders deep").join("e2e");
    fs::create_dir_all(&base).expect("the target directory can be written");
    let program = std::env::var(BESIDE_VARIABLE).unwrap_or_default();
    let lock = File::create(base.join(format!("lock{program}"))).expect("the target directory can be written");
    lock.lock().expect("a lock on a file of our own");
    let dir = fs::canonicalize(&base).expect("it was just made").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("swap")).expect("the target directory can be written");
    Turn { dir, shared_memory: list(Path::new("/dev/shm")), _lock: lock }
}

impl Turn {
    /// A file of the test's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same, as an argument.
    pub fn word(&self, name: &str) -> String {
        text(&self.file(name))
    }

    /// The directory of swap files.
    pub fn swap(&self) -> PathBuf {
        self.file("swap")
    }

    /// Options of `pleat run` for a budget.
    pub fn options(&self, ram: &str) -> Vec<String> {
        let (swap, stats) = (format!("--swap={}", text(&self.swap())), format!("--stats={}", self.word("stats.json")));
        vec![format!("--ram={ram}"), swap, stats]
    }

    /// The same, in one of the [`MODES`].
    pub fn options_in(&self, mode: &str, ram: &str) -> Vec<String> {
        with_mode(mode, self.options(ram))
    }

    /// Compiles a C program of `programs/` and returns where it is; `Err` is the reason to skip.
    pub fn compile(&self, source: &str, flags: &[&str]) -> Result<String, String> {
        let out = self.word(source.trim_end_matches(".c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-o", &out, &program(source)]).args(flags);
        match gcc.output() {
            Ok(run) if run.status.success() => Ok(out),
            Ok(run) => Err(format!("gcc cannot build {source}: {}", String::from_utf8_lossy(&run.stderr))),
            Err(error) => Err(format!("gcc: {error}")),
        }
    }

    /// Compiles `lost.c`, of which the fork handler is registered before the agent's.
    ///
    /// # Errors
    /// What the compiler says, or that there is none.
    pub fn compile_lost(&self) -> Result<String, String> {
        let first = self.compile("lost_first.c", &["-shared", "-fPIC", "-Wl,-z,initfirst"])?;
        self.compile("lost.c", &["-rdynamic", "-Wl,--no-as-needed", &first])
    }

    /// Checks that the run's memory went through pleat: a program beside the budget is right whatever pleat does.
    ///
    /// # Panics
    /// If hardly any page was folded.
    pub fn assert_folded(&self, run: &Run) {
        let encoded = stats(self)["pages_encoded"].as_u64().unwrap_or(0);
        assert!(encoded > 500, "only {encoded} pages were folded: the test proves nothing; pleat said: {}", run.stderr);
    }

    /// Checks that a run has left nothing: no swap file, no shared memory, no process.
    ///
    /// # Panics
    /// If it has.
    pub fn assert_clean(&self, run: &Run) {
        assert_eq!(list(&self.swap()), BTreeSet::new(), "files left in the swap directory");
        let new: Vec<_> = list(Path::new("/dev/shm")).difference(&self.shared_memory).cloned().collect();
        assert_eq!(new, Vec::<PathBuf>::new(), "shared memory left");
        let alive = |pid: &&u32| Path::new(&format!("/proc/{pid}")).exists();
        // Who outlives the program he came from is there until init has reaped him, at its own pace.
        let deadline = Instant::now() + Duration::from_secs(10);
        while run.peaks.seen.iter().any(|pid| alive(&pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left: Vec<_> = run.peaks.seen.iter().filter(alive).collect();
        assert!(left.is_empty(), "processes left: {left:?}");
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A machine's setting, changed for a while: as it was when dropped.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    /// Writes `value` to a file of /proc/sys or /sys. One that shows all choices has the present one in brackets.
    pub fn set(path: &str, value: &str) -> io::Result<Self> {
        let shown = fs::read_to_string(path)?;
        let chosen = shown.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let before = chosen.map_or(shown.as_str(), |(chosen, _)| chosen).to_owned();
        fs::write(path, value)?;
        Ok(Self { path: path.into(), before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.before) {
            println!("cannot put {} back: {error}", self.path.display());
        }
    }
}

fn list(dir: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A path as a word of a command line.
///
/// # Panics
/// If the checkout lies at a path that is no UTF-8.
pub fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// A file of `programs/`.
pub fn program(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name))
}

/// The Python that Debian's numpy belongs to.
pub fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// Words of a command line.
pub fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Options, in one of the [`MODES`].
pub fn with_mode(mode: &str, mut options: Vec<String>) -> Vec<String> {
    options.extend(mode.split_whitespace().map(str::to_owned));
    options
}

/// Says why a test does not run.
pub fn skipped(why: &str) {
    println!("skipped: {why}");
}

/// A run that has ended.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// Its complaints, pleat's among them.
    pub stderr: String,
    /// From start to end.
    pub wall: Duration,
    /// What was seen of its memory, that of `pleat run` included.
    pub peaks: Peaks,
}

impl Run {
    /// The status a shell would show.
    pub fn shell_status(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// Whose memory is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Under {
    Nothing,
    Pleat,
}

/// Runs a command as it is.
pub fn plain(words: &[String]) -> Run {
    run(command(words), Under::Nothing)
}

/// Runs `pleat run OPTIONS -- WORDS`.
pub fn folded(options: &[String], words: &[String]) -> Run {
    run(pleat_command(options, words), Under::Pleat)
}

/// Runs a command that becomes `pleat run`.
pub fn folded_by(command: Command) -> Run {
    run(command, Under::Pleat)
}

/// Runs a command that is not pleat.
pub fn plain_by(command: Command) -> Run {
    run(command, Under::Nothing)
}

/// `words` as a command.
pub fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// `pleat run OPTIONS -- WORDS` as a command.
pub fn pleat_command(options: &[String], words: &[String]) -> Command {
    command(&pleat_words(options, words))
}

/// `pleat run OPTIONS -- WORDS`, word by word.
pub fn pleat_words(options: &[String], words: &[String]) -> Vec<String> {
    let front = [text(&pleat()), "run".to_owned()];
    front.iter().chain(options).chain([&"--".to_owned()]).chain(words).cloned().collect()
}

fn run(mut command: Command, under: Under) -> Run {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C").process_group(0);
    let start = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let role = if under == Under::Pleat { Root::Runner } else { Root::Program };
    let watcher = Watcher::start(child.id(), role, SAMPLE);
    let group = Pid::from_raw(child.id() as i32);
    let (ended, end) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = end.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = killpg(group, Signal::SIGKILL);
        }
        late
    });
    let stdout = drain(child.stdout.take().expect("piped above"));
    let stderr = drain(child.stderr.take().expect("piped above"));
    let status = child.wait().expect("a child can be waited for");
    let wall = start.elapsed();
    drop(ended);
    assert!(!guard.join().expect("the guard does not panic"), "{command:?} hangs: no end after {TIMEOUT:?}");
    let peaks = watcher.stop();
    let stdout = stdout.join().expect("a reader does not panic");
    let stderr = String::from_utf8_lossy(&stderr.join().expect("a reader does not panic")).into_owned();
    Run { status, stdout, stderr, wall, peaks }
}

fn drain(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // A broken pipe ends the stream, too; what came before it is compared.
        let _ = stream.read_to_end(&mut all);
        all
    })
}

/// Both runs must have the same output and status.
///
/// # Panics
/// If they have not.
pub fn assert_same(plain: &Run, folded: &Run) {
    let shown = |run: &Run| String::from_utf8_lossy(&run.stdout[..run.stdout.len().min(500)]).into_owned();
    assert_eq!(plain.shell_status(), folded.shell_status(), "status; pleat said: {}", folded.stderr);
    assert!(plain.stdout == folded.stdout, "the outputs differ:\n{}\n{}", shown(plain), shown(folded));
}

/// More than a hundred pages, and of those looked at two thirds, were out when the kernel came for them: a program with
/// `cold.h` says so.
///
/// # Panics
/// If not, or if the program does not say.
pub fn assert_cold(run: &Run) {
    let lines = run.stderr.lines().filter_map(|line| line.strip_suffix(" pages were out")?.split_once(" of "));
    let (out, seen) = lines
        .filter_map(|(out, seen)| Some((out.parse::<u64>().ok()?, seen.parse::<u64>().ok()?)))
        .fold((0, 0), |(out, seen), (more_out, more_seen)| (out + more_out, seen + more_seen));
    assert!(out > 100 && out * 3 >= seen * 2, "{out} of {seen} pages were out: the test proves nothing");
}

/// What a run held at its peak. Shared memory that the program has by itself is no business of pleat's; what pleat adds is.
fn held_bytes(plain: &Run, folded: &Run) -> u64 {
    folded.peaks.anon_bytes + folded.peaks.shmem_bytes.saturating_sub(plain.peaks.shmem_bytes)
}

fn is_within(held_bytes: u64, budget_bytes: u64) -> bool {
    held_bytes as f64 <= budget_bytes as f64 * (1.0 + TOLERANCE)
}

/// The memory of the run must have stayed inside the budget, and the plain run must not have.
///
/// # Panics
/// If not.
pub fn assert_within(plain: &Run, folded: &Run, budget_bytes: u64) {
    assert!(
        plain.peaks.anon_bytes > budget_bytes,
        "the program fits into {} by itself: the test proves nothing",
        mib(budget_bytes)
    );
    let held = held_bytes(plain, folded);
    assert!(
        is_within(held, budget_bytes),
        "{} (shared {}) held at the peak, {} allowed; pleat said: {}",
        mib(held),
        mib(folded.peaks.shmem_bytes),
        mib(budget_bytes),
        folded.stderr
    );
    assert!(folded.peaks.samples >= 10, "{} samples prove nothing", folded.peaks.samples);
}

/// The document of `--stats`.
///
/// # Panics
/// If there is none, or it is no JSON.
pub fn stats(turn: &Turn) -> serde_json::Value {
    let path = turn.file("stats.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", path.display()))
}

/// Whether pages must have gone to the swap file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spill {
    /// They may.
    May,
    /// They must.
    Must,
}

/// Runs `words` plain once and under each budget (in MiB, falling); the last one is below what compresses, so there
/// the swap file must have been used.
///
/// # Panics
/// If anything differs or the budget is passed.
pub fn compare(turn: &Turn, words: &[String], budgets_mib: &[u64]) {
    compare_spilling(turn, words, budgets_mib, Spill::Must);
}

/// Runs a command under pleat and compares. The machine is shared, and the sampler takes processor time too: a peak above
/// `budget_bytes` counts if it comes again, twice.
pub fn folded_again(options: &[String], words: &[String], before: &Run, budget_bytes: u64) -> Run {
    for _ in 0..2 {
        let after = folded(options, words);
        assert_same(before, &after);
        let held = held_bytes(before, &after);
        if is_within(held, budget_bytes) {
            return after;
        }
        println!("{}: {} held at the peak, once more", mib(budget_bytes), mib(held));
    }
    let after = folded(options, words);
    assert_same(before, &after);
    after
}

/// As [`compare`]; `last` says whether the last budget is below what compresses.
///
/// # Panics
/// If anything differs or the budget is passed.
pub fn compare_spilling(turn: &Turn, words: &[String], budgets_mib: &[u64], last: Spill) {
    compare_in("", turn, words, budgets_mib, last);
}

/// The same, in one of the [`MODES`].
///
/// # Panics
/// If anything differs or the budget is passed.
pub fn compare_in(mode: &str, turn: &Turn, words: &[String], budgets_mib: &[u64], last: Spill) {
    let before = plain(words);
    assert!(before.status.success(), "{words:?} fails without pleat: {}", before.stderr);
    for (at, budget) in budgets_mib.iter().enumerate() {
        let after = folded_again(&turn.options_in(mode, &format!("{budget}M")), words, &before, budget << 20);
        let stats = stats(turn);
        let written = stats["written_back_bytes"].as_u64().unwrap_or(0);
        println!(
            "{}: {budget} MiB {mode}: peak {} of {}, {:.2} s against {:.2} s, {} written back",
            Path::new(&words[0]).file_name().unwrap_or_default().display(),
            mib(after.peaks.anon_bytes),
            mib(before.peaks.anon_bytes),
            after.wall.as_secs_f64(),
            before.wall.as_secs_f64(),
            mib(written),
        );
        assert_within(&before, &after, budget << 20);
        let spill = if at + 1 == budgets_mib.len() { last } else { Spill::May };
        assert!(spill == Spill::May || written > 0, "{budget} MiB was to be too small without the swap file: {stats}");
        turn.assert_clean(&after);
    }
}
