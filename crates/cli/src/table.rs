//! The processes of a run as `pleat run` sees them: the ledger's entries, what `/proc` adds, and those that have ended.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use page::ByteCount;
use pager::ledger::tracing::AgentThread;
use pager::ledger::{Counter, Gauge, Ledger, Phase, Process};
use serde::Serialize;
use sys::proc_files::Condition;

use crate::entries;
use crate::numbers::Numbers;
use crate::proc::{self, Stat, has_stopped_thread};
use crate::promises::Promises;
use crate::sharing::Sharing;

/// Ended processes that keep an entry of their own in the statistics.
const DEAD_MAX: usize = 1000;
/// How long a fault handler may be busy with one thing.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// The longest stretch between two looks that counts as observed: over a longer one this process itself may have
/// been stopped or the machine asleep.
pub(crate) const LOOK_COUNTS_MAX: Duration = Duration::from_millis(500);

/// One process in the statistics.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) phase: &'static str,
    pub(crate) alive: bool,
    #[serde(flatten)]
    pub(crate) numbers: Numbers,
}

/// What is remembered of an entry between two looks.
#[derive(Debug)]
struct Tracked {
    pid: u32,
    start_ticks: u64,
    name: String,
    /// As measured from outside, while the agent only watches.
    resident: ByteCount,
    resident_peak: ByteCount,
    sharing: Sharing,
    promises: Promises,
    /// The handler's `busy_since_ns`, and how long it has been seen unchanged.
    busy_since_ns: u64,
    busy_for: Duration,
    /// What the handler was at when half of the time had passed.
    half_way: Option<Condition>,
}

/// What one look found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// What all processes hold.
    pub(crate) footprint: ByteCount,
    /// What of it cannot leave.
    pub(crate) fixed: ByteCount,
    /// Of each second, what all lose over pages that had left, ns.
    pub(crate) lost_ns: u64,
    /// How often nothing more could leave, by all that live.
    pub(crate) exceeded: u64,
    /// Processes whose fault handler hangs.
    pub(crate) stuck: Vec<u32>,
    /// A process said that the run is to stop.
    pub(crate) stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    ledger: &'static Ledger,
    tracked: BTreeMap<usize, Tracked>,
    /// They hold nothing any more, and are shown once a second: their numbers are there once.
    dead: Vec<Rc<Record>>,
    others: Option<Record>,
    /// Peaks of the sums.
    peaks: [u64; Gauge::ALL.len()],
    footprint_peak: ByteCount,
    /// The ratio when the most pages were held, and how many bytes that was.
    best_held: u64,
    best_ratio: Option<f64>,
    /// The last phase seen of each process that ended badly.
    bad_ends: BTreeMap<u32, Phase>,
}

impl Table {
    pub(crate) fn new(ledger: &'static Ledger) -> Self {
        Self {
            ledger,
            tracked: BTreeMap::new(),
            dead: Vec::new(),
            others: None,
            peaks: [0; Gauge::ALL.len()],
            footprint_peak: ByteCount::ZERO,
            best_held: 0,
            best_ratio: None,
            bad_ends: BTreeMap::new(),
        }
    }

    /// Reads all entries, `elapsed` after the last time; frees those of processes that have ended. A `thorough` look
    /// finds zombies and reused process ids, too, which costs a file of `/proc` for each process.
    pub(crate) fn look(&mut self, elapsed: Duration, thorough: bool) -> Look {
        self.follow();
        let mut look = Look::default();
        let mut sum = Numbers::zero();
        let slots: Vec<usize> = self.tracked.keys().copied().collect();
        let processes = slots.len();
        for slot in slots {
            let entry = &self.ledger.processes[slot];
            let Some(tracked) = self.tracked.get_mut(&slot) else { continue };
            let phase = Phase::from_number(entry.phase.load(Acquire));
            let bad = matches!(phase, Phase::Failed | Phase::Stopped);
            if bad {
                self.bad_ends.insert(tracked.pid, phase);
            }
            look.stopped |= phase == Phase::Stopped;
            if phase == Phase::Watching {
                tracked.measure(entry, elapsed, processes);
            }
            let alive = tracked.is_alive(entry, phase, thorough || bad);
            if alive && tracked.is_stuck(entry, elapsed) && tracked.is_itself() {
                look.stuck.push(tracked.pid);
            }
            if alive {
                sum.add(&tracked.numbers(entry, phase));
            } else {
                // What it held is free: others may have taken it since the last look.
                self.bury(slot);
            }
        }
        look.footprint = sum.footprint();
        look.fixed = ByteCount(sum.gauge(Gauge::FixedBytes));
        look.lost_ns = sum.gauge(Gauge::RefaultNsPerSecond);
        look.exceeded = sum.counter(Counter::Exceeded);
        self.observe(&sum);
        look
    }

    /// How a process ended, if its agent ended it.
    pub(crate) fn bad_end(&self, pid: u32) -> Option<Phase> {
        self.bad_ends.get(&pid).copied()
    }

    /// Whether any process said that the run is to stop.
    pub(crate) fn has_stopped(&self) -> bool {
        self.bad_ends.values().any(|phase| *phase == Phase::Stopped)
    }

    /// The processes that have an agent and live, and are known for sure: these may be ended.
    pub(crate) fn living(&self) -> Vec<u32> {
        self.tracked.values().filter(|tracked| tracked.is_itself()).map(|tracked| tracked.pid).collect()
    }

    /// The ratio of effective to taken bytes when the most was held.
    pub(crate) fn best_ratio(&self) -> Option<f64> {
        self.best_ratio
    }

    /// All processes, dead ones last, and the sum of all.
    pub(crate) fn records(&mut self) -> (Numbers, Vec<Rc<Record>>) {
        let mut records = Vec::new();
        for (slot, tracked) in &mut self.tracked {
            let entry = &self.ledger.processes[*slot];
            let phase = Phase::from_number(entry.phase.load(Acquire));
            // An exec changes it.
            tracked.name = proc::name(tracked.pid);
            records.push(Rc::new(Record {
                pid: tracked.pid,
                name: tracked.name.clone(),
                phase: phase_name(phase),
                alive: true,
                numbers: tracked.numbers(entry, phase),
            }));
        }
        records.extend(self.dead.iter().cloned());
        records.extend(self.others.clone().map(Rc::new));
        let mut sum = sum_of(&records);
        self.observe(&sum);
        sum.raise_peaks(&self.peaks, self.footprint_peak.0);
        (sum, records)
    }

    /// Notices entries that have been claimed.
    fn follow(&mut self) {
        for (slot, entry) in self.ledger.claimed().iter().enumerate() {
            // Acquire: what the agent wrote before it claimed the entry, or we before we freed it.
            let pid = entry.pid.load(Acquire);
            if pid == 0 {
                self.tracked.remove(&slot);
                continue;
            }
            let start_ticks = entry.start_ticks.load(Relaxed);
            // An agent claims by its pid and fills in the rest: until then the start is 0.
            let same = |tracked: &Tracked| tracked.pid == pid && [0, start_ticks].contains(&tracked.start_ticks);
            if let Some(tracked) = self.tracked.get_mut(&slot).filter(|tracked| same(tracked)) {
                tracked.start_ticks = start_ticks;
                continue;
            }
            // An exec leaves the entry of the old program behind, and the new one claims another. Of two that are
            // new to us the later one is in the higher slot: only we free entries, and have not since.
            let old: Vec<usize> = self.slots_of(pid).filter(|other| *other != slot).collect();
            for slot in old {
                self.bury(slot);
            }
            self.tracked.insert(slot, Tracked::new(pid, start_ticks));
        }
    }

    fn slots_of(&self, pid: u32) -> impl Iterator<Item = usize> {
        self.tracked.iter().filter(move |(_, tracked)| tracked.pid == pid).map(|(slot, _)| *slot)
    }

    /// Keeps the numbers of a program that has ended, and frees its entry.
    fn bury(&mut self, slot: usize) {
        let Some(tracked) = self.tracked.remove(&slot) else { return };
        let entry = &self.ledger.processes[slot];
        let phase = Phase::from_number(entry.phase.load(Acquire));
        let mut numbers = tracked.numbers(entry, phase);
        numbers.clear_gauges();
        entries::free(entry);
        let (pid, name) = (tracked.pid, tracked.name);
        if self.dead.len() < DEAD_MAX {
            self.dead.push(Rc::new(Record { pid, name, phase: phase_name(phase), alive: false, numbers }));
            return;
        }
        let fresh = || Record {
            pid: 0,
            name: "others".to_owned(),
            phase: phase_name(Phase::Free),
            alive: false,
            numbers: Numbers::zero(),
        };
        self.others.get_or_insert_with(fresh).numbers.add(&numbers);
    }

    fn observe(&mut self, sum: &Numbers) {
        self.peaks.iter_mut().zip(sum.gauges()).for_each(|(peak, now)| *peak = now.max(peak).to_owned());
        self.footprint_peak = self.footprint_peak.max(sum.footprint());
        if sum.held_bytes() >= self.best_held
            && let Some(ratio) = sum.effective_ratio()
        {
            self.best_held = sum.held_bytes();
            self.best_ratio = Some(ratio);
        }
    }
}

impl Tracked {
    fn new(pid: u32, start_ticks: u64) -> Self {
        Self {
            pid,
            start_ticks,
            name: proc::name(pid),
            resident: ByteCount::ZERO,
            resident_peak: ByteCount::ZERO,
            sharing: Sharing::default(),
            promises: Promises::default(),
            busy_since_ns: 0,
            half_way: None,
            busy_for: Duration::ZERO,
        }
    }

    /// Measures what the agent does not count yet.
    fn measure(&mut self, entry: &Process, elapsed: Duration, processes: usize) {
        let (pid, sharing) = (self.pid, &mut self.sharing);
        self.resident = self.promises.look(entry, elapsed, || {
            let held = proc::resident_anonymous(pid).unwrap_or_default();
            held.saturating_sub(if processes == 1 { ByteCount::ZERO } else { sharing.look(pid, held, processes) })
        });
        self.resident_peak = self.resident_peak.max(self.resident);
        // The other agents leave room for what this process holds. If its agent starts to count in this very
        // moment, its next count puts this right.
        entry.set(Gauge::ResidentBytes, self.resident.0);
    }

    fn is_alive(&self, entry: &Process, phase: Phase, thorough: bool) -> bool {
        // A zombie has no memory, but neither has a program in the middle of an exec: its state tells.
        let unsure = thorough || (phase == Phase::Watching && self.resident == ByteCount::ZERO);
        let stat = unsure.then(|| Stat::of(self.pid)).flatten();
        if phase == Phase::Watching && stat.is_some_and(Stat::is_dead) {
            // The agent looks whether anything else is left. By itself it does not: a sandbox may forbid the calls.
            entry.main_has_ended.store(1, Relaxed);
        }
        proc::lives(self.pid, self.start_ticks, stat)
    }

    /// Whether the process of this id is the one that has claimed the entry, and not one that has come since.
    fn is_itself(&self) -> bool {
        proc::is_still(self.pid, self.start_ticks)
    }

    /// Whether the handler has been busy with one thing for too long, by our own looks: time in which we, the process
    /// or the machine stood still does not count.
    fn is_stuck(&mut self, entry: &Process, elapsed: Duration) -> bool {
        let since = entry.busy_since_ns.load(Relaxed);
        if since == 0 || since != self.busy_since_ns || entry.is_reading() {
            self.busy_since_ns = since;
            (self.busy_for, self.half_way) = (Duration::ZERO, None);
            return false;
        }
        let may_run = Stat::of(self.pid).is_some_and(|stat| !stat.is_stopped()) && !proc::is_frozen(self.pid);
        if may_run {
            self.busy_for += elapsed.min(LOOK_COUNTS_MAX);
        }
        let handler = &entry.tracing.threads[AgentThread::Handler as usize];
        let condition = || Condition::of(self.pid, handler.number());
        if self.busy_for > STUCK_AFTER / 2 && self.half_way.is_none() {
            self.half_way = condition();
        }
        if self.busy_for > STUCK_AFTER {
            let is_starved =
                || self.half_way.zip(condition()).is_some_and(|(before, now)| now.is_starved_since(before));
            if has_stopped_thread(self.pid) || handler.is_let_go() || is_starved() {
                // A debugger holds the handler alone, or is there and its stand-in works, at which its own agent looks; or others have
                // the processors. The handler has its time once more.
                (self.busy_for, self.half_way) = (Duration::ZERO, None);
            }
        }
        self.busy_for > STUCK_AFTER
    }

    fn numbers(&self, entry: &Process, phase: Phase) -> Numbers {
        let mut numbers = Numbers::of(entry);
        if phase == Phase::Watching {
            numbers.set_resident(self.resident, self.resident_peak);
        } else {
            numbers.raise_resident_peak(self.resident_peak);
        }
        numbers
    }
}

/// Sums up; the peaks are the largest of any one process.
pub(crate) fn sum_of(records: &[Rc<Record>]) -> Numbers {
    let mut sum = Numbers::zero();
    for record in records {
        sum.add(&record.numbers);
    }
    sum
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Free => "free",
        Phase::Watching => "watching",
        Phase::Managing => "managing",
        Phase::Failed => "failed",
        Phase::Stopped => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use pager::ledger::Counter;
    use sys::host::SharedFile;

    use super::*;

    fn ledger() -> &'static Ledger {
        SharedFile::<Ledger>::create(c"test").unwrap().content()
    }

    fn claim(entry: &Process, pid: u32, phase: Phase) {
        entry.start_ticks.store(Stat::of(pid).map_or(7, |stat| stat.start_ticks), Relaxed);
        entry.phase.store(phase as u32, Relaxed);
        entry.set(Gauge::ResidentBytes, 1 << 20);
        entry.add(Counter::Reclaimed, 5);
        entry.pid.store(pid, Release);
    }

    #[test]
    fn a_handler_that_hangs_is_found_after_the_time_limit() {
        let ledger = ledger();
        ledger.processes_used.store(2, Relaxed);
        let mut table = Table::new(ledger);
        claim(&ledger.processes[0], std::process::id(), Phase::Managing);
        ledger.processes[0].busy_since_ns.store(1, Relaxed);
        let second = Duration::from_secs(1);
        // A look counts for half a second at most, and the first one only starts the count.
        assert!((0..61).all(|_| table.look(second, false).stuck.is_empty()));
        assert_eq!(table.look(second, false).stuck, [std::process::id()]);
        // Work on something else starts it anew.
        ledger.processes[0].busy_since_ns.store(2, Relaxed);
        assert!(table.look(second, false).stuck.is_empty());
        // Who waits for a device is not stuck, and has all of his time behind that.
        ledger.processes[0].reads.store(1, Relaxed);
        assert!((0..200).all(|_| table.look(second, false).stuck.is_empty()));
        ledger.processes[0].reads.store(0, Relaxed);
        assert!((0..60).all(|_| table.look(second, false).stuck.is_empty()));
        assert_eq!(table.look(second, false).stuck, [std::process::id()]);
    }

    #[test]
    fn the_dead_keep_their_counters_and_leave_their_entries() {
        let ledger = ledger();
        ledger.processes_used.store(2, Relaxed);
        let mut table = Table::new(ledger);
        claim(&ledger.processes[0], std::process::id(), Phase::Managing);
        // Above the largest process id that Linux gives.
        let dead = DEAD_MAX as u32 + 7;
        for i in 0..dead {
            claim(&ledger.processes[1], 5_000_000 + i, Phase::Managing);
            table.look(Duration::ZERO, false);
            assert_eq!(ledger.processes[1].pid.load(Relaxed), 0);
        }
        let (sum, records) = table.records();
        assert_eq!(records.len(), DEAD_MAX + 2);
        assert_eq!(records.last().unwrap().name, "others");
        assert_eq!(sum.counter(Counter::Reclaimed), 5 * u64::from(dead + 1));
        assert_eq!(sum.footprint(), ByteCount(1 << 20));
        // What the dead held was free when the living were looked at.
        assert_eq!(sum.footprint_peak(), ByteCount(1 << 20));
    }

    /// The limit is the process's, so that this runs in one of its own.
    #[test]
    fn who_cannot_be_read_for_want_of_descriptors_is_not_dead() {
        const NAME: &str = "table::tests::who_cannot_be_read_for_want_of_descriptors_is_not_dead";
        const WITHIN: &str = "PLEAT_TEST_WITHIN";
        if std::env::var_os(WITHIN).is_none() {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            assert!(test.args(["--exact", NAME, "--quiet"]).env(WITHIN, "1").status().unwrap().success());
            return;
        }
        let ledger = ledger();
        ledger.processes_used.store(2, Relaxed);
        let mut table = Table::new(ledger);
        let pids = [std::os::unix::process::parent_id(), std::process::id()];
        claim(&ledger.processes[0], pids[0], Phase::Watching);
        claim(&ledger.processes[1], pids[1], Phase::Managing);
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        table.look(Duration::ZERO, true);
        let has_read = Stat::of(std::process::id()).is_some();
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert!(!has_read);
        assert_eq!([0, 1].map(|slot| ledger.processes[slot].pid.load(Relaxed)), pids);
    }

    #[test]
    fn an_exec_replaces_the_entry() {
        let ledger = ledger();
        ledger.processes_used.store(3, Relaxed);
        let mut table = Table::new(ledger);
        let pid = std::process::id();
        claim(&ledger.processes[1], pid, Phase::Managing);
        claim(&ledger.processes[2], pid, Phase::Managing);
        assert_eq!(table.look(Duration::ZERO, false).footprint, ByteCount(1 << 20));
        assert_eq!(ledger.processes[1].pid.load(Relaxed), 0);
        claim(&ledger.processes[0], pid, Phase::Managing);
        assert_eq!(table.look(Duration::ZERO, false).footprint, ByteCount(1 << 20));
        assert_eq!(ledger.processes[2].pid.load(Relaxed), 0);
        let (sum, records) = table.records();
        assert_eq!((sum.counter(Counter::Reclaimed), records.len()), (15, 3));
        assert_eq!(sum.footprint_peak(), ByteCount(1 << 20));
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let ledger = ledger();
        ledger.processes_used.store(2, Relaxed);
        let mut table = Table::new(ledger);
        claim(&ledger.processes[0], std::process::id(), Phase::Managing);
        ledger.processes[0].start_ticks.fetch_add(1, Relaxed);
        table.look(Duration::ZERO, false);
        assert_ne!(ledger.processes[0].pid.load(Relaxed), 0);
        table.look(Duration::ZERO, true);
        assert_eq!(ledger.processes[0].pid.load(Relaxed), 0);
    }
}
