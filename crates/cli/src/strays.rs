//! Descendants that run without an agent: static and set-user-ID programs, whose memory nobody counts.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::table::Table;
use crate::{proc, program};

/// Programs that end sooner hold no memory worth a warning.
const SHORT_LIVED: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// When each process without an agent was first seen.
    seen: HashMap<u32, Instant>,
    warned: HashSet<PathBuf>,
}

impl Strays {
    /// Walks the descendants of the program and warns once about each executable that cannot be managed.
    pub(crate) fn look(&mut self, program: u32, table: &Table) {
        let now = Instant::now();
        let mut found = HashMap::new();
        let mut parents = vec![program];
        while let Some(parent) = parents.pop() {
            for pid in proc::children(parent) {
                parents.push(pid);
                if table.knows(pid) {
                    continue;
                }
                let since = *self.seen.get(&pid).unwrap_or(&now);
                found.insert(pid, since);
                if now - since > SHORT_LIVED {
                    self.warn(pid);
                }
            }
        }
        self.seen = found;
    }

    fn warn(&mut self, pid: u32) {
        // Not readable: it runs as another user. What it is cannot be told then, but that it is not ours can.
        let Some(path) = proc::executable(pid) else { return };
        if self.warned.contains(&path) {
            return;
        }
        // Read through /proc: the file may have been replaced or lie in another mount namespace.
        if let Some(reason) = program::unmanageable(&PathBuf::from(format!("/proc/{pid}/exe"))) {
            eprintln!("pleat: {} is {reason}: it runs outside the budget", path.display());
            self.warned.insert(path);
        }
    }
}
