//! One run of a program: its script under `sh` in a folder of its own, with its memory looked at from outside.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::tree::{Root, Tree, Watcher};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::table::Program;
use crate::sh;

/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(3);
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// What the script runs under.
#[derive(Clone, Copy)]
pub(super) enum Under<'a> {
    Nothing,
    /// `with`: further options of `pleat run`.
    Pleat {
        budget: u64,
        with: &'a [String],
    },
}

/// A run that has ended.
pub(super) struct Ran {
    /// As a shell shows it.
    pub(super) status: i32,
    pub(super) timed_out: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Lines of pleat's among the complaints.
    pub(super) messages: Vec<String>,
    pub(super) wall_s: f64,
    /// Most anonymous memory of the whole tree, and the shared memory that pleat adds.
    pub(super) peak_bytes: u64,
    pub(super) processes: usize,
    pub(super) pages_reclaimed: u64,
    pub(super) written_back_bytes: u64,
}

/// Makes the folder of a program, and in it what all its runs read.
pub(super) fn prepare(program: &Program, dir: &Path) -> Result<()> {
    let input = dir.join("input");
    fs::create_dir_all(&input)?;
    let mut command = Command::new("sh");
    command.args(["-euc", program.prepare]).current_dir(&input).env("HERE", sh::root()).stdin(Stdio::null());
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    ensure!(output.status.success(), "cannot be prepared: {}", String::from_utf8_lossy(&output.stderr).trim());
    own(program, dir)
}

/// Runs the script to its end, or to `timeout`.
pub(super) fn run(program: &Program, dir: &Path, under: Under<'_>, timeout: Duration) -> Result<Ran> {
    let work = dir.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    own(program, &work)?;
    let (stdout, stderr, stats) = (dir.join("stdout"), dir.join("stderr"), work.join("stats.json"));
    let words = words(program, under, &stats);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(&work).process_group(0).stdin(Stdio::null());
    command.stdout(File::create(&stdout)?).stderr(File::options().append(true).create(true).open(&stderr)?);
    File::options().write(true).truncate(true).open(&stderr)?;
    command.env("INPUT", dir.join("input")).env("HERE", sh::root()).env("LC_ALL", "C").env("HOME", &work);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", words[0]))?;
    let role = if matches!(under, Under::Pleat { .. }) { Root::Runner } else { Root::Program };
    let watcher = Watcher::start(child.id(), role, SAMPLE);
    let (status, timed_out) = wait(&mut child, timeout)?;
    let wall_s = start.elapsed().as_secs_f64();
    let peaks = watcher.stop();
    let stderr = read(&stderr)?;
    let stats: serde_json::Value =
        fs::read_to_string(&stats).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Ran {
        status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        timed_out,
        stdout: read(&stdout)?,
        messages: stderr.lines().filter(|line| line.starts_with("pleat: ")).map(str::to_owned).collect(),
        stderr,
        wall_s,
        peak_bytes: peaks.anon_bytes,
        processes: peaks.seen.len(),
        pages_reclaimed: stats["pages_reclaimed"].as_u64().unwrap_or(0),
        written_back_bytes: stats["written_back_bytes"].as_u64().unwrap_or(0),
    })
}

/// The whole command line.
fn words(program: &Program, under: Under<'_>, stats: &Path) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    if let Some(user) = program.user {
        let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
        let privileges = ["--clear-groups", "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"];
        words.extend(["setpriv".to_owned(), user, group]);
        words.extend(privileges.map(str::to_owned));
    }
    if let Under::Pleat { budget, with } = under {
        let (budget, stats) = (format!("--ram={budget}"), format!("--stats={}", stats.display()));
        words.extend([sh::release("pleat").display().to_string(), "run".into(), budget, stats]);
        words.extend(with.iter().cloned());
        words.push("--".into());
    }
    words.extend(["sh", "-euc", program.run].map(str::to_owned));
    words
}

/// Waits for the end; after `timeout` makes one. Says whether it had to.
fn wait(child: &mut Child, timeout: Duration) -> Result<(ExitStatus, bool)> {
    let deadline = Instant::now() + timeout;
    let mut timed_out = false;
    let mut tree = Tree::default();
    loop {
        let members = tree.look(child.id());
        if let Some(status) = child.try_wait()? {
            return Ok((status, timed_out));
        }
        if Instant::now() > deadline && !timed_out {
            timed_out = true;
            // One by one: some programs make groups of their own. The root is the last to go, or the others get lost.
            for pid in members.into_iter().rev() {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Gives a folder to the user that the program runs as.
fn own(program: &Program, dir: &Path) -> Result<()> {
    let Some(user) = program.user else { return Ok(()) };
    sh::run(Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(dir))
}
