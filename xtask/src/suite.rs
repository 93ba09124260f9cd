//! The test programs of the workspace: built at once, so that no crate is built twice for what others ask of it, and run as
//! cargo runs them. Several at a time where that changes nothing: cargo would wait for the last test of each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::sh;

/// In Cargo.toml.
pub(crate) const PROFILE: &str = "suite";

/// Run first, for they take longest, and the others fit in beside the last of them: crates, and end-to-end tests.
const LONGEST: &[&str] =
    &["pager", "model", "sim", "layout", "rights", "kernel_io", "raw_forks", "user_mode", "limits", "exits"];

/// A program with tests.
pub(crate) struct TestProgram {
    /// The directory of its crate, where it runs.
    dir: PathBuf,
    name: String,
    path: PathBuf,
}

/// What cargo says of a thing that it has built.
#[derive(Deserialize)]
struct Built {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all of them.
pub(crate) fn build() -> Result<Vec<TestProgram>> {
    let mut command = sh::cargo(&["test", "--quiet", "--workspace", "--no-run"]);
    command.args(["--profile", PROFILE, "--message-format=json-render-diagnostics"]);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut programs = Vec::new();
    for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
        // Other messages are of other shapes.
        let Ok(built) = serde_json::from_str::<Built>(&line?) else { continue };
        if let (true, Some(path)) = (built.profile.test, built.executable) {
            let dir = built.manifest_path.parent().context("a manifest lies in a directory")?.to_owned();
            programs.push(TestProgram { dir, name: built.target.name, path });
        }
    }
    ensure!(child.wait()?.success(), "the tests cannot be built");
    // Cargo tells of them in the order in which they were done.
    programs.sort_by(|one, other| (&one.dir, &one.name).cmp(&(&other.dir, &other.name)));
    Ok(programs)
}

impl TestProgram {
    /// The directory's name of its crate.
    pub(crate) fn of(&self) -> &str {
        self.dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Its own.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("--quiet").current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command
    }

    fn place(&self) -> usize {
        let is_it = |name: &&str| [self.of(), self.name()].contains(name);
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    }

    /// Of tests of programs under pleat: one after the other, with what they print.
    fn command_under_pleat(&self) -> Command {
        let mut command = self.command();
        command.args(["--nocapture", "--test-threads=1"]).env("PLEAT_BIN", sh::release("pleat"));
        command
    }

    /// Runs tests of programs under pleat; shows what they print, and adds the reasons why some were skipped. Whether all have passed.
    pub(crate) fn run_alone(&self, skipped: &Mutex<Vec<String>>) -> Result<bool> {
        let begun = Instant::now();
        let mut command = self.command_under_pleat();
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| self.label())?;
        for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
            let line = line?;
            println!("{line}");
            std::io::stdout().flush()?;
            note(skipped, &line);
        }
        let passed = child.wait()?.success();
        println!("{}: {:.1} s", self.label(), begun.elapsed().as_secs_f64());
        Ok(passed)
    }

    /// The same beside another; what they print is shown once they have ended.
    pub(crate) fn run_under_pleat_beside(&self, skipped: &Mutex<Vec<String>>) -> Result<bool> {
        let mut command = self.command_under_pleat();
        // They take turns for all others.
        command.env("PLEAT_TESTS_BESIDE", format!("-{}", self.name));
        let out = self.run_quietly(command)?;
        String::from_utf8_lossy(&out.stdout).lines().for_each(|line| note(skipped, line));
        Ok(out.status.success())
    }

    /// Runs it, and shows what it prints once it has ended. Whether all of its tests have passed. One test at a time: another program
    /// runs beside it, and threads that map and unmap all the time, as the model checker's do, wait for each other in one process.
    pub(crate) fn run_beside(&self) -> Result<bool> {
        let mut command = self.command();
        command.arg("--test-threads=1");
        Ok(self.run_quietly(command)?.status.success())
    }

    fn run_quietly(&self, mut command: Command) -> Result<Output> {
        let begun = Instant::now();
        let run = command.stdin(Stdio::null()).output().with_context(|| self.label())?;
        let mut out = std::io::stdout().lock();
        out.write_all(&run.stdout)?;
        out.write_all(&run.stderr)?;
        writeln!(out, "{}: {:.1} s", self.label(), begun.elapsed().as_secs_f64())?;
        Ok(run)
    }

    fn label(&self) -> String {
        format!("{} {}", self.of(), self.name)
    }
}

/// Keeps the reason why a test was skipped, if the line has one.
fn note(skipped: &Mutex<Vec<String>>, line: &str) {
    let reason = line.find("skipped: ").map(|at| line[at..].to_owned());
    skipped.lock().expect("nobody panics with it").extend(reason);
}

/// Runs programs, two at a time: each has a test that takes longer than its others, and leaves a processor idle meanwhile.
pub(crate) fn run_side_by_side(
    mut programs: Vec<&TestProgram>,
    run: impl Fn(&TestProgram) -> Result<bool> + Sync,
) -> Result<()> {
    programs.sort_by_key(|program| program.place());
    let (next, failed) = (Mutex::new(programs.into_iter()), Mutex::new(Vec::new()));
    let lane = || -> Result<()> {
        loop {
            let Some(program) = next.lock().expect("nobody panics with it").next() else { return Ok(()) };
            if !run(program)? {
                failed.lock().expect("nobody panics with it").push(program.label());
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(lane);
        lane().and(other.join().expect("a lane does not panic"))
    })?;
    let failed = failed.into_inner().expect("nobody panics with it");
    ensure!(failed.is_empty(), "tests failed: {}", failed.join(", "));
    Ok(())
}
