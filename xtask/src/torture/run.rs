//! One run: a marked program in a folder of its own, of which nothing stays, whatever becomes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::left::{self, MARK};
use crate::sh;

pub(super) struct Run {
    mark: String,
    /// All that it writes.
    dir: PathBuf,
    /// What was there before it.
    before: BTreeSet<String>,
}

/// What a run has said.
pub(super) struct Said {
    pub(super) output: String,
    pub(super) complaints: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it said:\n{}\nand complained:\n{}", self.output.trim_end(), self.complaints.trim_end())
    }
}

impl Run {
    /// Makes the folder. `name` is told from all others of this process.
    pub(super) fn new(name: &str) -> Result<Self> {
        let mark = format!("{}-{name}", std::process::id());
        let dir = sh::target_dir().join("torture").join(&mark);
        fs::create_dir_all(dir.join("swap"))?;
        let before = left::leavings(&mark);
        Ok(Self { mark, dir, before })
    }

    /// Where its swap files are while it runs. There is to be none in the end.
    pub(super) fn swap(&self) -> PathBuf {
        self.dir.join("swap")
    }

    pub(super) fn stats(&self) -> PathBuf {
        self.dir.join("stats.json")
    }

    /// Whether a process of it still runs this program.
    pub(super) fn is_at_work(&self, program: &Path) -> bool {
        left::marked(&self.mark).any(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program))
    }

    /// Runs the command to its end, or to that of its time, and has it judged by its status and by what it said. If that is
    /// bad all its processes are ended. Bad is also what stays of it. In the end there is nothing of it.
    pub(super) fn judged<T>(
        self,
        command: &mut Command,
        time: Duration,
        judge: impl FnOnce(&Self, ExitStatus, &Said) -> Result<T>,
    ) -> Result<T> {
        let ended = self.end_of(command, time);
        let judged = ended.and_then(|status| judge(&self, status, &self.said()));
        let ended = if judged.is_err() { left::end_marked(&self.mark) } else { BTreeSet::new() };
        let mut left = left::left_since(&self.before, &self.mark);
        left.extend(
            fs::read_dir(self.swap()).into_iter().flatten().flatten().map(|entry| entry.path().display().to_string()),
        );
        left::end_marked(&self.mark);
        let said = self.said();
        fs::remove_dir_all(&self.dir)?;
        let wrong = match judged {
            Ok(good) if left.is_empty() => return Ok(good),
            Ok(_) => anyhow!("something is left behind"),
            Err(wrong) => wrong,
        };
        Err(anyhow!("{wrong:#}\n{said}\nended: {ended:?}\nleft behind: {left:?}"))
    }

    fn end_of(&self, command: &mut Command, time: Duration) -> Result<ExitStatus> {
        // Files: nobody has to read them meanwhile, and who lives on holds nobody up.
        let open = |name| File::options().append(true).create(true).open(self.dir.join(name));
        command.env(MARK, &self.mark).stdin(Stdio::null()).stdout(open("output")?).stderr(open("complaints")?);
        let late = Instant::now() + time;
        let mut child = command.spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > late {
                // The first is the last to go: what it has started is found through it, mark or not.
                let tree: Vec<u32> = bench::tree::pids(child.id()).into_iter().rev().collect();
                let ended = left::end(&tree);
                child.wait()?;
                bail!("it does not end; these were ended: {ended:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn said(&self) -> Said {
        let read = |name| String::from_utf8_lossy(&fs::read(self.dir.join(name)).unwrap_or_default()).into_owned();
        Said { output: read("output"), complaints: read("complaints") }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    /// Runs a script that leaves a process and a swap file behind; its error, its mark and its folder.
    fn failed(name: &str, script: &str, time: Duration) -> (String, String, PathBuf) {
        let run = Run::new(name).expect("a folder");
        let (mark, dir) = (run.mark.clone(), run.dir.clone());
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("SWAP", run.swap());
        let judged = run.judged(&mut command, time, |_, status, _| {
            ensure!(status.success(), "{status}");
            Ok(())
        });
        (judged.expect_err("something is wrong with it").to_string(), mark, dir)
    }

    /// Neither its processes nor its files, and nothing that was said is lost.
    #[test]
    fn nothing_stays_of_a_run_that_failed() {
        let fails = "echo one; echo two >&2; touch $SWAP/file; (trap '' TERM HUP; exec sleep 1000) & until grep -q sleep /proc/$!/comm; do :; done; exit 3";
        let hangs = "echo one; echo two >&2; touch $SWAP/file; setsid sleep 1000 & sleep 1000";
        let leaves = "echo one; echo two >&2; touch $SWAP/file";
        for (name, script, time, wrong) in [
            ("fails", fails, 60_000, "exit status: 3"),
            ("hangs", hangs, 3000, "it does not end"),
            ("leaves", leaves, 60_000, "left behind"),
        ] {
            let (error, mark, dir) = failed(name, script, Duration::from_millis(time));
            for part in [wrong, "it said:\none\nand complained:\ntwo", "swap/file\"}"] {
                assert!(error.contains(part), "{name}: {part} is not in {error}");
            }
            assert_eq!(error.contains("(sleep)"), name != "leaves", "{name}: {error}");
            assert_eq!(left::marked(&mark).count(), 0, "{name}: {error}");
            assert!(!dir.exists(), "{name}");
        }
    }
}
