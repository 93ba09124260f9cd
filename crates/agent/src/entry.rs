//! This process's place in the ledger.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use pager::ledger::{Ledger, MAGIC, Notice, PROCESSES_MAX, Phase, Process};
use sys::Errno;

use crate::custodian::Custodian;

/// The ledger of the run and our entry in it.
#[derive(Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) ledger: &'static Ledger,
    pub(crate) entry: &'static Process,
    /// Process ids mean something else here than they do to `pleat run`.
    pub(crate) is_elsewhere: bool,
}

/// What `pleat run` knows this process by. Entries are found, freed and ended by it: an id of another namespace (`CLONE_NEWPID`)
/// would be a stranger's.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    pid: u32,
    is_elsewhere: bool,
}

impl Identity {
    /// That of a program that begins; `None` if nobody tells.
    pub(crate) fn of_program(ledger: &Ledger) -> Option<Self> {
        let runners = ledger.id_namespace.load(Ordering::Relaxed);
        // Where /proc cannot be read the agent stays idle anyhow.
        Self::of(ledger, sys::process::id_namespace().is_some_and(|own| own != runners))
    }

    /// That of a forked child.
    pub(crate) fn of_child(parent: &Membership) -> Option<Self> {
        Self::of(parent.ledger, parent.is_elsewhere || sys::process::is_strange_to_its_parent())
    }

    fn of(ledger: &Ledger, is_elsewhere: bool) -> Option<Self> {
        if !is_elsewhere {
            return Some(Self { pid: sys::thread::process_id(), is_elsewhere });
        }
        let runner = ledger.runner_pid.load(Ordering::Relaxed);
        let start_ticks = as_runner_sees(ledger, sys::process::start_ticks_of(runner));
        let is_runners = start_ticks == Some(ledger.runner_start_ticks.load(Ordering::Relaxed));
        // Where /proc has the number that this process has for itself it is of our own namespace: its runner is another with that number.
        let in_proc = sys::process::id_in_proc().filter(|pid| is_runners && *pid != sys::thread::process_id());
        let pid = in_proc.or_else(|| Custodian::of(ledger).who_am_i());
        Some(Self { pid: pid?, is_elsewhere })
    }
}

/// What leads to a run ([`pager::ledger::LEDGER_VARIABLE`]).
pub(crate) struct Address {
    path: [u8; 48],
    custodian: Option<Custodian>,
    id_namespace: Option<u64>,
}

impl Address {
    /// As the environment tells it; `None` if it is nothing that `pleat run` has written.
    pub(crate) fn of(value: &CStr) -> Option<Self> {
        let mut words = value.to_bytes().split(|byte| *byte == b' ');
        let mut path = [0; 48];
        let named = words.next()?;
        path[..47].get_mut(..named.len())?.copy_from_slice(named);
        let name = words.next().and_then(|name| name.try_into().ok());
        let id_namespace = words.next().and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok());
        let secret = words.next().and_then(|secret| secret.try_into().ok());
        let custodian = name.zip(secret).map(|(name, secret)| Custodian { name, secret });
        Some(Self { path, custodian, id_namespace })
    }

    /// Opens the ledger. `PERM`: this process may not join the run, and the run says so; `ACCESS`: it may not; `SRCH`: it is in a namespace
    /// from which nothing leads there; anything else: the run is over, or it is not a ledger of ours.
    pub(crate) fn open(&self) -> Result<&'static Ledger, Errno> {
        // In a namespace of users nobody may open it, and where process ids are others the path leads nowhere, or to what another process
        // has open.
        let ask = |errno| match self.custodian.map(|custodian| custodian.which_run()) {
            Some(Err(Errno::PERM)) => Err(Errno::PERM),
            Some(Ok(ledger)) => Ok(ledger),
            _ => Err(errno),
        };
        let ledger = sys::process::open_shared(self.path()).or_else(ask).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => errno,
            _ if self.is_elsewhere() => Errno::SRCH,
            other => other,
        })?;
        if is_ours(ledger) { Ok(ledger) } else { Err(Errno::INVAL) }
    }

    /// Opens it for a visit, if it can be opened.
    pub(crate) fn visit(&self, visit: impl FnOnce(&Ledger)) {
        let _ = sys::process::visit_shared(self.path(), |ledger| {
            if is_ours(ledger) {
                visit(ledger);
            }
        });
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).expect("its last byte is zero")
    }

    /// Whether process ids mean something else here than they do in the path.
    fn is_elsewhere(&self) -> bool {
        sys::process::id_namespace().is_some_and(|own| self.id_namespace.is_some_and(|runners| runners != own))
    }
}

fn is_ours(ledger: &Ledger) -> bool {
    // Acquire: what `pleat run` wrote before the magic number is there.
    ledger.magic.load(Ordering::Acquire) == MAGIC
}

/// Whether a run does without permission for faults inside system calls.
pub(crate) fn is_in_user_mode(ledger: &Ledger) -> bool {
    ledger.user_mode.load(Ordering::Relaxed) != 0
}

/// Of those for whom there is no entry the first says so.
pub(crate) fn say_full(ledger: &Ledger) {
    if ledger.is_first(Notice::Outside) {
        let text = format_args!("a process runs outside the budget: the run has {PROCESSES_MAX} already");
        crate::failure::say_let_alone(ledger, text);
    }
}

/// Claims an entry for this process; `None` if all are taken.
pub(crate) fn claim(ledger: &'static Ledger, Identity { pid, is_elsewhere }: Identity) -> Option<Membership> {
    let free = ledger.claimed().iter().find(|entry| take(entry, pid));
    let entry = match free {
        Some(entry) => entry,
        None => loop {
            let next = ledger.processes_used.fetch_add(1, Ordering::AcqRel) as usize;
            let entry = ledger.processes.get(next)?;
            if take(entry, pid) {
                break entry;
            }
        },
    };
    entry.claim.store(0, Ordering::Relaxed);
    entry.watcher.store(0, Ordering::Relaxed);
    entry.promised_bytes.store(0, Ordering::Relaxed);
    let start_ticks = as_runner_sees(ledger, sys::process::start_ticks());
    entry.start_ticks.store(start_ticks.unwrap_or(0), Ordering::Relaxed);
    // Release: the supervisor, seeing the phase, sees the rest.
    entry.phase.store(Phase::Watching as u32, Ordering::Release);
    Some(Membership { ledger, entry, is_elsewhere })
}

/// A start time that this process has read, as `pleat run` reads it: another namespace of times has other ones, and who starts at
/// another time than his entry says is taken for another process.
fn as_runner_sees(ledger: &Ledger, start_ticks: Option<u64>) -> Option<u64> {
    let ahead = sys::process::start_ticks_ahead()? - ledger.runner_ticks_ahead.load(Ordering::Relaxed).cast_signed();
    start_ticks?.checked_add_signed(-ahead)
}

/// Whether this process has an agent already: an emulator's, which has passed the environment on to the program that it plays,
/// or another copy of the library. What a program has left that has executed this one has no thread any more.
pub(crate) fn has_agent(ledger: &Ledger, Identity { pid, .. }: Identity) -> bool {
    let own = ledger.claimed().iter().filter(|entry| entry.pid.load(Ordering::Acquire) == pid);
    own.map(|entry| entry.watcher.load(Ordering::Relaxed) as u32)
        .any(|watcher| watcher != 0 && sys::thread::processor_of(watcher).is_some())
}

fn take(entry: &Process, pid: u32) -> bool {
    entry.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

impl Membership {
    /// Everybody in the ledger, and where he is in his life.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&'static Process, Phase)> + Clone {
        self.ledger.claimed().iter().map(|entry| (entry, Phase::from_number(entry.phase.load(Ordering::Relaxed))))
    }

    /// Processes whose memory is managed.
    pub(crate) fn managed(&self) -> impl Iterator<Item = &'static Process> + Clone {
        self.processes().filter(|(_, phase)| *phase == Phase::Managing).map(|(entry, _)| entry)
    }

    /// See [`is_in_user_mode`].
    pub(crate) fn is_in_user_mode(&self) -> bool {
        is_in_user_mode(self.ledger)
    }

    /// Whether compression has begun in this run.
    pub(crate) fn is_active(&self) -> bool {
        self.ledger.active.load(Ordering::Acquire) != 0
    }
}
