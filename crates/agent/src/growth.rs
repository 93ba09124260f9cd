//! Growth of the program, told by its own threads where it asks for memory.
//!
//! While memory is managed the pager looks after it ([`pager::Pager::announce`]). Before, `pleat run` looks now and then,
//! and programs fill their whole budget in that time. So once the run has been given half of what was left at the last look,
//! who asks for more asks for a look first, and if the run is active then, waits until he is managed. So does who asks for
//! more at once than the budget has left, of which a look tells nothing that others have been promised and are about to fill.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use pager::ledger::{Ledger, Process};
use policy::sizing;
use sys::kernel::PageRange;
use sys::process::peak_resident;
use sys::sync::{Sharing, wait_while};
use sys::{clock, thread};

use crate::entry::Membership;
use crate::watcher::Agent;

/// Smaller steps are added up.
const BYTES_MIN: u64 = 128 << 10;
/// Who asks at once for this part of the budget in a run that is active waits until he is managed, however small he is yet.
const PIECE_DIVISOR: u64 = 16;
/// Longest wait for a look, which takes a fraction of a millisecond where a processor is free.
const LOOK_PATIENCE: Duration = Duration::from_millis(20);
/// Longest wait for management to begin: it takes two or three milliseconds where a processor is free. Who cannot be managed
/// does not wait.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

/// Without a lock: those who grow are threads of the program's. The numbers are estimates, read and written Relaxed.
pub(crate) struct Growth {
    ledger: &'static Ledger,
    /// This process's entry; null where it has none.
    entry: AtomicPtr<Process>,
    /// What this process has been given since it last stopped to look.
    given: AtomicU64,
    /// The look of `pleat run` behind which the next one did not come in time; none at first.
    late_behind: AtomicU32,
    /// A thread waits until the process is managed, however small it is yet.
    pub(crate) is_waited_for: AtomicBool,
    /// Management did not begin in time once, or cannot begin.
    has_waited: AtomicBool,
    /// Threads that fork: management does not begin before they are done, and who waits for it may hold a lock of malloc's,
    /// which they take.
    forking: AtomicU32,
    /// All that goes through libc is told ([`crate::detours`]).
    is_told: AtomicBool,
}

impl Growth {
    pub(crate) fn new(Membership { ledger, entry, .. }: Membership) -> Self {
        Self {
            ledger,
            entry: AtomicPtr::new(core::ptr::from_ref(entry).cast_mut()),
            given: AtomicU64::new(0),
            late_behind: AtomicU32::new(u32::MAX),
            is_waited_for: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            forking: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
        }
    }

    /// From now on nobody waits for management to begin.
    pub(crate) fn give_up(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
    }

    /// From now on whatever goes through libc is told.
    pub(crate) fn will_be_told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_fork(&self) {
        self.forking.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_fork(&self) {
        self.forking.fetch_sub(1, Ordering::Relaxed);
    }

    /// In a forked child, whose only thread has forked. Its parent's entry is not its own.
    pub(crate) fn reset_in_child(&self) {
        self.forking.store(0, Ordering::Relaxed);
        self.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// This process has an entry of its own from now on.
    pub(crate) fn join(&self, entry: &'static Process) {
        self.entry.store(core::ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
    }

    fn entry(&self) -> Option<&'static Process> {
        // SAFETY: null, or an entry of the ledger, whose mapping is never undone.
        unsafe { self.entry.load(Ordering::Relaxed).as_ref() }
    }

    fn is_active(&self) -> bool {
        self.ledger.active.load(Ordering::Acquire) != 0
    }

    /// Takes note of a piece that is about to be filled. Returns what all processes are about to fill; small pieces come and go.
    fn promise(&self, bytes: u64) -> u64 {
        match self.entry() {
            Some(entry) if bytes > self.small() => {
                entry.promise(bytes);
                self.ledger.promised()
            }
            _ => bytes,
        }
    }

    /// What a process may hold that is left alone.
    fn small(&self) -> u64 {
        sizing::managed_min(ByteCount(self.ledger.budget_bytes.load(Ordering::Relaxed))).0
    }

    /// The run is active: whether a process that asks for such a piece will be too large to go on unmanaged.
    fn is_piece(&self, bytes: u64) -> bool {
        bytes > self.ledger.budget_bytes.load(Ordering::Relaxed) / PIECE_DIVISOR
    }

    /// Whether so many bytes are more than the budget has left: then nobody is asked again before it is passed.
    fn is_beyond_budget(&self, bytes: u64) -> bool {
        let [budget, threshold, room] =
            [&self.ledger.budget_bytes, &self.ledger.threshold_bytes, &self.ledger.room_bytes]
                .map(|word| word.load(Ordering::Relaxed));
        bytes > budget.saturating_sub(threshold.saturating_sub(room))
    }

    /// The run is not active yet, and has been given so many bytes more. Asks for a look where that is due.
    fn look(&self, bytes: u64) {
        let given = self.ledger.given_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let tick = self.ledger.runner_ticks.load(Ordering::Acquire);
        let is_late = self.late_behind.load(Ordering::Relaxed) == tick;
        if given < BYTES_MIN || given <= self.ledger.room_bytes.load(Ordering::Relaxed) / 2 || is_late {
            return;
        }
        self.ledger.ask_for_look();
        wait_while(&self.ledger.runner_ticks, tick, LOOK_PATIENCE, Sharing::Machine);
        if self.ledger.runner_ticks.load(Ordering::Acquire) == tick {
            self.late_behind.store(tick, Ordering::Relaxed);
        }
    }

    /// The run is active. Whether this process has become too large to go on unmanaged.
    fn is_large(&self, bytes: u64) -> bool {
        let given = self.given.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let small = self.small();
        if given < BYTES_MIN.max(small) {
            return false;
        }
        self.given.store(0, Ordering::Relaxed);
        peak_resident().0 > small
    }
}

/// What a program may write to since it has asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grown {
    /// Where it begins, if that is known.
    start: Option<usize>,
    bytes: usize,
}

impl Grown {
    pub(crate) fn at(start: usize, bytes: usize) -> Self {
        Self { start: Some(start), bytes }
    }

    fn place(self) -> Option<PageRange> {
        let start = self.start? as u64;
        let end = start.checked_add((self.bytes + PAGE_BYTES - 1) as u64)?;
        Some(PageRange { start: PageIndex::containing(start), end: PageIndex::containing(end) })
    }
}

/// What the program is about to do with memory that it has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// To fill it.
    Dense,
    /// To use some of it (`MAP_NORESERVE`).
    Sparse,
}

impl Agent {
    /// The program may write to so many bytes more, and has not touched them.
    pub(crate) fn has_grown(&self, grown: Grown, to_come: Use) {
        let Grown { bytes, .. } = grown;
        if let Some(keeper) = self.keeper() {
            return keeper.pager.announce(ByteCount(bytes as u64), grown.place());
        }
        if self.may_be_confined() {
            // `pleat run` looks without being asked, too.
            return;
        }
        let growth = &self.growth;
        let is_dense = to_come == Use::Dense;
        if !growth.is_active() {
            if is_dense && growth.is_beyond_budget(growth.promise(bytes as u64)) {
                growth.ledger.activate();
            } else {
                growth.look(bytes as u64);
            }
        }
        let is_to_wait =
            growth.is_active() && (is_dense && growth.is_piece(bytes as u64) || growth.is_large(bytes as u64));
        if is_to_wait && !growth.has_waited.load(Ordering::Relaxed) {
            growth.is_waited_for.store(true, Ordering::Relaxed);
            self.wait_until_managed(grown);
        }
    }

    /// The program has given so many bytes back, filled or not.
    pub(crate) fn has_shrunk(&self, bytes: usize) {
        if let Some(entry) = self.growth.entry()
            && bytes as u64 > self.growth.small()
        {
            entry.redeem(bytes as u64);
        }
    }

    fn wait_until_managed(&self, grown: Grown) {
        let end_ns = clock::now_ns() + PATIENCE.as_nanos() as u64;
        while clock::now_ns() < end_ns {
            if let Some(keeper) = self.keeper() {
                return keeper.pager.announce(ByteCount(grown.bytes as u64), grown.place());
            }
            if self.growth.forking.load(Ordering::Relaxed) > 0 || self.growth.has_waited.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(PAUSE);
        }
        // The machine is too busy: it is not held up again.
        self.growth.give_up();
    }

    /// The program has not run yet, and may write to so much: large arrays that its file declares.
    pub(crate) fn begins_with(&self, writable: Option<ByteCount>) {
        if let Some(ByteCount(bytes)) = writable
            && self.growth.is_beyond_budget(bytes)
        {
            self.has_grown(Grown { start: None, bytes: bytes as usize }, Use::Dense);
        }
    }

    /// The program may write to this range, which it perhaps could before. What holds something has been counted.
    pub(crate) fn has_opened(&self, start: usize, bytes: usize) {
        if !self.may_be_confined() && sys::process::is_empty(start, bytes) {
            self.has_grown(Grown::at(start, bytes), Use::Sparse);
        }
    }
}
