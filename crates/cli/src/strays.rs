//! Descendants that run without an agent: static and set-user-ID programs, whose memory nobody counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::say;
use crate::proc::{self, Stat};
use crate::program;

/// Programs that end sooner hold no memory worth a warning.
const SHORT_LIVED: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// The executables met so far, and whether they can be managed.
    met: HashMap<PathBuf, bool>,
}

impl Strays {
    /// Walks the program and its descendants, and warns once about each executable that cannot be managed. Whether
    /// the ledger has the process does not matter: an exec leaves the entry behind when no agent follows it.
    pub(crate) fn look(&mut self, program: u32) {
        let mut processes = vec![program];
        while let Some(pid) = processes.pop() {
            processes.extend(proc::children(pid));
            // Not readable: it runs as another user, and was asked about when it was started.
            let Some(path) = proc::executable(pid) else { continue };
            let long_lived = || Stat::of(pid).is_some_and(|stat| proc::age(stat) > SHORT_LIVED);
            if !self.met.contains_key(&path) && long_lived() {
                let manageable = Self::judge(pid, &path);
                self.met.insert(path, manageable);
            }
        }
    }

    fn judge(pid: u32, path: &Path) -> bool {
        // Read through /proc: the file may have been replaced, or lie in another mount namespace.
        let Some(reason) = program::unmanageable(&PathBuf::from(format!("/proc/{pid}/exe"))) else { return true };
        say(format_args!("{} is {reason}: it runs outside the budget", path.display()));
        false
    }
}
