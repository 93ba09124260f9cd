//! Descendants that run without an agent, whose memory nobody counts: static and set-user-ID programs, and those to which a sandbox does
//! not show it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::say;
use crate::proc::{self, Stat};
use crate::program;

/// Programs that end sooner hold no memory worth a warning.
const SHORT_LIVED: Duration = Duration::from_millis(200);

/// A process, as long as it executes one program.
type Execution = (u32, PathBuf);

/// See the module.
#[derive(Debug)]
pub(crate) struct Strays {
    /// The agent's file.
    agent: OsString,
    /// The executables met so far, and whether they can be managed.
    met: HashMap<PathBuf, bool>,
    /// Of the last look, and whether the agent was there.
    executions: HashMap<Execution, bool>,
    /// The executables that were seen without it though they can be managed.
    missed: HashSet<PathBuf>,
}

impl Strays {
    /// For a run with this agent.
    pub(crate) fn of(agent: &Path) -> Self {
        // As the kernel names it.
        let agent = agent.canonicalize().unwrap_or_else(|_| agent.to_owned());
        let agent = agent.file_name().unwrap_or_default().to_owned();
        Self { agent, met: HashMap::new(), executions: HashMap::new(), missed: HashSet::new() }
    }

    /// Walks the program and its descendants, and warns once about each executable that cannot be managed. Whether
    /// the ledger has the process does not matter: an exec leaves the entry behind when no agent follows it.
    pub(crate) fn look(&mut self, program: u32) {
        let mut processes = vec![program];
        let mut executions = HashMap::new();
        while let Some(pid) = processes.pop() {
            processes.extend(proc::children(pid));
            // Not readable: it runs as another user, and was asked about when it was started.
            let Some(path) = proc::executable(pid) else { continue };
            let long_lived = || Stat::of(pid).is_some_and(|stat| proc::age(stat) > SHORT_LIVED);
            if !self.met.contains_key(&path) && long_lived() {
                let manageable = Self::judge(pid, &path);
                self.met.insert(path.clone(), manageable);
            }
            if self.met.get(&path) == Some(&true) {
                let execution = (pid, path);
                let has_agent = self.has_agent(&execution);
                executions.insert(execution, has_agent);
            }
        }
        self.executions = executions;
    }

    /// Warns where it is missing for the second time: who has just begun to execute has not loaded it yet.
    fn has_agent(&mut self, execution: &Execution) -> bool {
        let before = self.executions.get(execution).copied();
        let (pid, path) = execution;
        // Who is stopped may not have come to it.
        let is_stopped = || Stat::of(*pid).is_some_and(Stat::is_stopped);
        let is_known = before == Some(true) || self.missed.contains(path) || is_stopped();
        let has_agent = is_known || proc::has_mapped(*pid, &self.agent);
        if !has_agent && before.is_some() && self.missed.insert(path.clone()) {
            say(format_args!(
                "{} runs outside the budget: the agent has not been loaded; a sandbox must show it {}, and pass LD_PRELOAD on",
                path.display(),
                Path::new(&self.agent).display()
            ));
        }
        has_agent
    }

    fn judge(pid: u32, path: &Path) -> bool {
        // Read through /proc: the file may have been replaced, or lie in another mount namespace.
        let Some(reason) = program::unmanageable(&PathBuf::from(format!("/proc/{pid}/exe"))) else { return true };
        say(format_args!("{} is {reason}: it runs outside the budget", path.display()));
        false
    }
}
