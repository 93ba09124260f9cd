//! The ledger: budget and counters of one run, in a file of shared memory.
//!
//! `pleat run` makes the file (a memfd, so that nothing is left behind however the run ends), each process of the tree
//! claims one entry and keeps it current, and `pleat run` reads them. Everything in it is an atomic number: whoever
//! dies in the middle of an update leaves a number that is old by one step, never a lock.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use sys::handover::{SECRET_BYTES, Secret};
use sys::sync::{Sharing, wake_all};

use self::occupant::Occupancy;
use self::reference_log::ReferenceLog;
use self::tracing::Tracing;
use self::turns::Turns;

pub mod occupant;
pub mod reference_log;
pub mod tracing;
pub mod turns;

/// The first eight bytes of a ledger: the format and its version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pleat\0\0\x10");
/// Processes that can be under one budget at the same time.
pub const PROCESSES_MAX: usize = 4096;
/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = 160;
/// Longest path of a swap directory or file, with its final zero.
pub const PATH_BYTES: usize = 1024;

/// The environment variable that leads a program's agent to the ledger: a path that can be opened and mapped; the name under which the
/// run's custodian is called; the namespace that process ids in the path are of; and the custodian's secret. With spaces between them.
pub const LEDGER_VARIABLE: &str = "PLEAT_LEDGER";

/// What a process asks the run's custodian that sees no `pleat run` in /proc: its own process id there.
pub const WHO_AM_I: u8 = b'i';
/// The same, if it is let into the run and knows the secret: the ledger.
pub const WHICH_RUN: u8 = b'r';
/// What he says to who is not let in: the run's user has been told so.
pub const REFUSED: u8 = b'x';
/// The same, without the right to a userfaultfd for all faults, which the run has: what one can be made by.
pub const USERFAULTFD: u8 = b'u';
/// And that the one it has made is enabled, by who has the right.
pub const ENABLE: u8 = b'e';
/// The same, and so may a process of the run that has become another user's: a swap file.
pub const SWAP_FILE: u8 = b's';
/// And, where it may not open it itself, its page map.
pub const PAGE_MAP: u8 = b'm';

/// Makes the agent misbehave on purpose, so that the watchdogs can be tested. `docs/userfaultfd.md` lists the values.
pub const FAULT_VARIABLE: &str = "PLEAT_FAULT";

macro_rules! numbers {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum $name { $($(#[$doc])* $variant,)* }
        impl $name {
            /// All of them, in the order of the ledger.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Its name in `--stats`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

numbers! {
    /// What a process holds now; each has a peak beside it.
    Gauge {
        /// Anonymous memory that is resident, without pleat's own: managed pages, staged pages, and what is not managed.
        ResidentBytes = "resident_bytes",
        /// Frames of the compressed pool; after a fork at most the part of them that counts for this process.
        PoolBytes = "pool_bytes",
        /// Page table, store tables and segment tables.
        MetadataBytes = "metadata_bytes",
        /// The agent: stacks, buffers, open segments.
        AgentBytes = "agent_bytes",
        /// Of all that, what does not go: the agent, tables, memory that is not managed, and what reclaim has found not to go.
        FixedBytes = "fixed_bytes",
        /// What the process may hold of the budget; 0 while it is not managed.
        ShareBytes = "share_bytes",
        /// Encodings inside the pool, their headers not counted.
        StoredBytes = "stored_bytes",
        /// Encodings in the swap file.
        BackedBytes = "backed_bytes",
        /// Space the swap file takes.
        SwapFileBytes = "swap_file_bytes",
        /// Time lost over pages that had left, in ns of each second, of late.
        RefaultNsPerSecond = "refault_ns_per_second",
        /// Managed pages that are resident.
        PagesResident = "pages_resident",
        /// Pages moved out and not encoded yet; they still count as resident bytes.
        PagesLeaving = "pages_leaving",
        /// Pages in the pool that a codec made smaller.
        PagesCompressed = "pages_compressed",
        /// Pages in the pool that no codec made smaller.
        PagesIncompressible = "pages_incompressible",
        /// Pages of one repeated word, kept in the page table alone.
        PagesSameFilled = "pages_same_filled",
        /// Pages in a segment that is not on disk yet.
        PagesWritingBack = "pages_writing_back",
        /// Pages in the swap file.
        PagesBacked = "pages_backed",
        /// Sectors that two lines share; `--store sectors` only.
        SectorsShared = "sectors_shared",
        /// The most that the pool may take now.
        PoolBytesMax = "pool_bytes_max",
    }
}

numbers! {
    /// What a process has done since it started.
    Counter {
        /// Pages moved out of the program.
        Reclaimed = "pages_reclaimed",
        /// Of these, pages that the fault handler moved while the reclaimer slept.
        Stocked = "pages_stocked",
        /// Of these, pages that a walk had just passed.
        DroppedBehind = "pages_dropped_behind",
        /// Runs of neighbours that the reclaimer moved.
        RunsReclaimed = "runs_reclaimed",
        /// Pages that could not be moved: pinned, locked, or shared after fork.
        Unmovable = "pages_unmovable",
        /// Pages brought back before anybody asked, beside one that was asked for.
        Prefetched = "pages_prefetched",
        /// Pages encoded.
        Encoded = "pages_encoded",
        /// Time spent encoding.
        EncodeNs = "encode_ns",
        /// Pages decoded.
        Decoded = "pages_decoded",
        /// Time spent decoding.
        DecodeNs = "decode_ns",
        /// Bytes written to the swap file.
        WrittenBackBytes = "written_back_bytes",
        /// Bytes read from the swap file.
        ReadBackBytes = "read_back_bytes",
        /// Reads from the swap file made at the same time as another, for faults that waited behind it.
        ReadBeside = "reads_beside",
        /// Pages that came from the swap file to the pool before anybody asked.
        ReadAhead = "pages_read_ahead",
        /// Encodings copied to give sparse pool frames or segments back.
        Compacted = "encodings_compacted",
        /// mmap, munmap, mremap, madvise and fork, as the kernel reported them.
        LayoutEvents = "layout_events",
        /// Times the mappings were read anew.
        Scans = "scans",
        /// Time the reclaimer worked.
        ReclaimNs = "reclaim_ns",
        /// Time the fault handler worked.
        ServeNs = "serve_ns",
        /// Time for which faults waited for the process's turn.
        TurnWaitNs = "turn_wait_ns",
        /// Of that, over pages that had left: what the process loses for want of memory.
        RefaultNs = "refault_ns",
        /// Times the budget could not be met.
        Exceeded = "budget_exceeded",
        /// Units (zones, cells, chunks, frames) added to the area. From here on: areas only, nothing with slabs.
        UnitsAdded = "units_added",
        /// Units given back by the sizing policy.
        UnitsDeleted = "units_deleted",
        /// Times a page found no room, and the area was not to grow.
        PoolLimitHit = "pool_limit_hit",
        /// Pages that left the area for the swap file because they were the oldest.
        PagesReleased = "pages_released",
        /// Pages that went to the swap file as they are, because the area was full.
        PagesRefused = "pages_refused",
        /// The same, because they do not get short enough for the area.
        PagesRejectedPoor = "pages_rejected_poor",
        /// Pages asked for that would be in memory without compression.
        ExpenseReads = "expense_reads",
        /// Pages asked for that would not.
        ProfitReads = "profit_reads",
        /// Cells compacted to make room.
        CellsCompacted = "cells_compacted",
    }
}

numbers! {
    /// Faults by where the page was. A [`Histogram`] each: from reading the fault to waking the program.
    FaultKind {
        /// Never touched, or discarded: zeros.
        ZeroFill = "zero_fill",
        /// Moved out but not encoded: moved back.
        Staged = "staged",
        /// One repeated word.
        SameFilled = "same_filled",
        /// In the pool.
        Compressed = "compressed",
        /// In the swap file.
        Backed = "backed",
        /// Already there: another thread asked first.
        Raced = "raced",
    }
}

impl FaultKind {
    /// Whether the page had left: with more memory there would have been no fault.
    pub fn is_refault(self) -> bool {
        matches!(self, Self::Staged | Self::SameFilled | Self::Compressed | Self::Backed)
    }
}

/// Where a process is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Entry not in use.
    Free = 0,
    /// The agent waits for memory to get short.
    Watching = 1,
    /// The agent keeps the program inside its share.
    Managing = 2,
    /// The agent ended the program because it could not go on; `failure` says why.
    Failed = 3,
    /// The budget could not be met and the run is to stop (`--when-full stop`).
    Stopped = 4,
}

impl Phase {
    /// The phase that a ledger's number stands for; unknown numbers are `Free`.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Watching,
            2 => Self::Managing,
            3 => Self::Failed,
            4 => Self::Stopped,
            _ => Self::Free,
        }
    }
}

/// Latencies in nanoseconds: four buckets for each power of two, so that a percentile is right within 19 %.
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    /// How many fell into each bucket; see [`Histogram::bucket_of`].
    pub buckets: [AtomicU32; BUCKETS],
}

impl Histogram {
    /// The bucket of a latency: the position of its highest bit and the two bits below it.
    pub const fn bucket_of(ns: u64) -> usize {
        if ns < 4 {
            return ns as usize;
        }
        let exponent = ns.ilog2();
        let bucket = (exponent as usize - 1) * 4 + ((ns >> (exponent - 2)) & 3) as usize;
        if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
    }

    /// The smallest latency above everything in `bucket`.
    pub const fn upper_ns(bucket: usize) -> u64 {
        if bucket < 4 {
            return bucket as u64 + 1;
        }
        let exponent = bucket / 4 + 1;
        (5 + (bucket % 4) as u64) << (exponent - 2)
    }

    /// How many have been counted.
    pub fn count(&self) -> u64 {
        // Relaxed: a statistic.
        self.buckets.iter().map(|bucket| u64::from(bucket.load(Relaxed))).sum()
    }

    /// The sum of all, as if each was in the middle of its bucket.
    pub fn sum_ns(&self) -> u64 {
        let middle = |bucket: usize| bucket.checked_sub(1).map_or(0, Self::upper_ns).midpoint(Self::upper_ns(bucket));
        // Relaxed: a statistic.
        let counts = self.buckets.iter().map(|count| u64::from(count.load(Relaxed)));
        counts.enumerate().map(|(bucket, count)| count * middle(bucket)).sum()
    }

    /// Counts one.
    pub fn record(&self, ns: u64) {
        // Relaxed: a statistic. Nothing is published through it.
        self.buckets[Self::bucket_of(ns)].fetch_add(1, Relaxed);
    }
}

/// One process under the budget.
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// Its process id, or 0 while the entry is free. Claimed by compare-and-swap.
    pub pid: AtomicU32,
    /// A [`Phase`].
    pub phase: AtomicU32,
    /// Clock ticks after boot at which the process started, as `pleat run` sees it (field 22 of /proc/PID/stat): tells a reused pid
    /// apart. 0: its agent could not tell.
    pub start_ticks: AtomicU64,
    /// The thread with which its agent began; 0 in children forked while memory was managed. It ends with the program, also where
    /// that executes another.
    pub watcher: AtomicU64,
    /// What of what it holds counts where the budget is dealt out (`policy::shares::Claim::number`).
    pub claim: AtomicU64,
    /// What it has asked for in large pieces and not filled yet, as far as anybody knows; 0 once its agent counts what it holds.
    pub promised_bytes: AtomicU64,
    /// Which of its agent's threads `pleat run` is to trace.
    pub tracing: Tracing,
    /// 1 once `pleat run` has seen that the main thread has ended, while the process is not managed.
    pub main_has_ended: AtomicU64,
    /// `CLOCK_MONOTONIC` nanoseconds at which the fault handler began what it is doing; 0 while it waits for work.
    pub busy_since_ns: AtomicU64,
    /// 1 while the fault handler waits for the swap device, which may take as long as it likes.
    pub reads: AtomicU64,
    /// By [`Gauge`].
    pub gauges: [AtomicU64; Gauge::ALL.len()],
    /// The largest value of each gauge.
    pub peaks: [AtomicU64; Gauge::ALL.len()],
    /// The largest sum of resident, pool, metadata and agent bytes.
    pub footprint_peak: AtomicU64,
    /// By [`Counter`].
    pub counters: [AtomicU64; Counter::ALL.len()],
    /// Encodings by what has made them, in the order of `codec::MAKERS`.
    pub encodings: [AtomicU64; codec::MAKERS.len()],
    /// And their bytes.
    pub encoded_bytes: [AtomicU64; codec::MAKERS.len()],
    /// By [`FaultKind`].
    pub faults: [Histogram; FaultKind::ALL.len()],
    /// The one-line reason of `Failed` and `Stopped`, UTF-8, zero-padded.
    pub failure: [AtomicU64; 32],
}

impl Process {
    /// Sets a gauge and its peak.
    pub fn set(&self, gauge: Gauge, value: u64) {
        // Relaxed: statistics, each true by itself.
        self.gauges[gauge as usize].store(value, Relaxed);
        self.peaks[gauge as usize].fetch_max(value, Relaxed);
    }

    /// Reads a gauge.
    pub fn get(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Relaxed)
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, value: u64) {
        self.counters[counter as usize].fetch_add(value, Relaxed);
    }

    /// Reads a counter.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    /// Counts an encoding; `maker` is its place in `codec::MAKERS`.
    pub fn note_encoding(&self, maker: usize, bytes: u64) {
        // Relaxed: statistics, each true by itself.
        self.encodings[maker].fetch_add(1, Relaxed);
        self.encoded_bytes[maker].fetch_add(bytes, Relaxed);
    }

    /// What the process holds of the budget: resident, pool, metadata and agent bytes.
    pub fn footprint(&self) -> u64 {
        [Gauge::ResidentBytes, Gauge::PoolBytes, Gauge::MetadataBytes, Gauge::AgentBytes]
            .iter()
            .map(|gauge| self.get(*gauge))
            .sum()
    }

    /// It is about to fill so many bytes.
    pub fn promise(&self, bytes: u64) {
        // SeqCst: see `Ledger::promised`.
        self.promised_bytes.fetch_add(bytes, SeqCst);
    }

    /// So many of the bytes that were promised are there by now, or will not come.
    pub fn redeem(&self, bytes: u64) {
        // Relaxed: an estimate.
        let _ = self.promised_bytes.fetch_update(Relaxed, Relaxed, |promised| Some(promised.saturating_sub(bytes)));
    }

    /// Whether the fault handler waits for the swap device.
    pub fn is_reading(&self) -> bool {
        self.reads.load(Relaxed) != 0
    }

    /// Keeps the reason for the end; longer ones are cut.
    pub fn set_failure(&self, reason: &str) {
        write_text(&self.failure, reason);
    }

    /// The bytes of the reason, zero-padded.
    pub fn failure(&self) -> [u8; 256] {
        read_text(&self.failure)
    }
}

fn write_text(words: &[AtomicU64; 32], text: &str) {
    let mut bytes = [0; 256];
    let cut = text.len().min(bytes.len());
    bytes[..cut].copy_from_slice(&text.as_bytes()[..cut]);
    for (word, chunk) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*chunk), Relaxed);
    }
}

fn read_text(words: &[AtomicU64; 32]) -> [u8; 256] {
    let mut bytes = [0; 256];
    for (word, chunk) in words.iter().zip(bytes.as_chunks_mut::<8>().0) {
        *chunk = word.load(Relaxed).to_le_bytes();
    }
    bytes
}

impl Ledger {
    /// The run is short of memory: the agents are to begin.
    pub fn activate(&self) {
        // Release: an agent that sees it sees the whole ledger.
        self.active.store(1, Release);
        wake_all(&self.active, Sharing::Machine);
    }

    /// `pleat run` is to look now.
    pub fn ask_for_look(&self) {
        self.looks_asked.fetch_add(1, Release);
        wake_all(&self.looks_asked, Sharing::Machine);
    }

    /// `pleat run` is to trace now what is to be traced at once.
    pub fn ask_for_tracing(&self) {
        self.tracings_asked.fetch_add(1, Release);
        wake_all(&self.tracings_asked, Sharing::Machine);
    }

    /// `pleat run` has looked, and `left` bytes are left to the threshold. `given` had been given when it began.
    pub fn have_looked(&self, left: u64, given: u64) {
        self.room_bytes.store(left, Relaxed);
        self.given_bytes.fetch_sub(given, Relaxed);
        // Release: who sees the look sees what is left.
        self.runner_ticks.fetch_add(1, Release);
        wake_all(&self.runner_ticks, Sharing::Machine);
    }

    /// The entries that have been claimed so far. The rest of the file is a hole, which reading would fill.
    pub fn claimed(&self) -> &[Process] {
        // Acquire: they exist.
        let used = self.processes_used.load(Acquire) as usize;
        &self.processes[..used.min(PROCESSES_MAX)]
    }

    /// What all processes have been promised.
    pub fn promised(&self) -> u64 {
        // SeqCst: of two that are promised something at once the later one sees both.
        self.claimed().iter().map(|entry| entry.promised_bytes.load(SeqCst)).sum()
    }

    /// Under which name the custodian is called.
    pub fn set_custodian(&self, name: &[u8; 40], secret: &Secret) {
        // Relaxed: before the program starts.
        store_bytes(&self.custodian, name);
        store_bytes(&self.secret, secret);
    }

    /// See [`Ledger::set_custodian`].
    pub fn custodian(&self) -> [u8; 40] {
        load_bytes(&self.custodian)
    }

    /// See [`Ledger::set_custodian`].
    pub fn secret(&self) -> Secret {
        load_bytes(&self.secret)
    }

    /// Where he is called from another network: this descriptor of this process of his (`sys::handover::Reception::open_in`).
    pub fn set_custodian_file(&self, process: u32, descriptor: u32) {
        self.custodian_descriptor.store(descriptor, Relaxed);
        // Release: who sees the process sees the descriptor.
        self.custodian_pid.store(process, Release);
    }

    /// See [`Ledger::set_custodian_file`]; `None` where there is none.
    pub fn custodian_file(&self) -> Option<(u32, u32)> {
        let process = self.custodian_pid.load(Acquire);
        (process != 0).then(|| (process, self.custodian_descriptor.load(Relaxed)))
    }

    /// Shorter than [`PATH_BYTES`].
    pub fn set_swap_path(&self, path: &[u8]) {
        assert!(path.len() < PATH_BYTES);
        store_bytes(&self.swap_path, path);
    }

    /// With zeros behind it.
    pub fn swap_path(&self) -> [u8; PATH_BYTES] {
        let mut path = load_bytes(&self.swap_path);
        path[PATH_BYTES - 1] = 0;
        path
    }

    /// Whether nobody in the run has printed this line yet; from now on somebody has.
    pub fn is_first(&self, notice: Notice) -> bool {
        let bit = 1 << notice as u32;
        self.printed.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Device and inode of where `pleat run` prints its lines, while it does.
    pub fn standard_error(&self) -> Option<(u64, u64)> {
        Some(self.standard_error.load()).filter(|file| *file != (0, 0))
    }

    /// From now on no line is left for `pleat run`.
    pub fn prints_no_more(&self) {
        self.standard_error.store((0, 0));
    }

    /// Leaves a line for `pleat run` to print. One at a time: a second one, before the first is printed, is refused.
    pub fn leave_message(&self, line: &str) -> bool {
        let is_free = self.message_state.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if is_free {
            write_text(&self.message, line);
            // Release: who sees the state sees the text.
            self.message_state.store(2, Release);
        }
        is_free
    }

    /// Takes the line that an agent has left, zero-padded.
    pub fn take_message(&self) -> Option<[u8; 256]> {
        if self.message_state.load(Acquire) != 2 {
            return None;
        }
        let text = read_text(&self.message);
        self.message_state.store(0, Release);
        Some(text)
    }
}

/// Lines that a run prints once, though there may be thousands of processes with reason to.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// The warning of `--when-full exceed`.
    Exceeds,
    /// A process runs outside the budget.
    Outside,
    /// A process runs outside the budget because of its user.
    OtherUser,
    /// In user mode, a program has asked for a ring.
    IoUring,
    /// In user mode, a program has asked for a userfaultfd.
    Userfaultfd,
}

/// What the run was asked for, and the words its processes share. Zero-filled memory is a valid ledger with no
/// budget; `pleat run` fills in the rest before it starts the program.
#[repr(C)]
#[derive(Debug)]
pub struct Ledger {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// `--ram`.
    pub budget_bytes: AtomicU64,
    /// Compression starts when the run holds this much.
    pub threshold_bytes: AtomicU64,
    /// What was left to that when `pleat run` last looked.
    pub room_bytes: AtomicU64,
    /// What its processes have been given since.
    pub given_bytes: AtomicU64,
    /// `--swap-size`; 0 means no swap.
    pub swap_bytes_max: AtomicU64,
    /// By how much an agent raises limits on addresses: see `sys::addresses`. 0 until the first one has begun.
    pub address_bytes: AtomicU64,
    /// What `pleat run` itself holds of the budget, and its custodian.
    pub runner_bytes: AtomicU64,
    /// The namespace of process ids that `pleat run` lives in, and when it started, in clock ticks after boot: by these an
    /// agent knows whether others mean by a process's id what `pleat run` does.
    pub id_namespace: AtomicU64,
    /// See above.
    pub runner_start_ticks: AtomicU64,
    /// By how much start times look later to `pleat run` than they are: `sys::process::start_ticks_ahead`, signed.
    pub runner_ticks_ahead: AtomicU64,
    /// 1 for `--attachable`.
    pub attachable: AtomicU64,
    /// 1 since who traces the agents' threads has left a question unanswered; 0 once he has looked.
    pub tracer_is_silent: AtomicU64,
    /// 1 for `--when-full stop`, 0 for `exceed`.
    pub stop_when_full: AtomicU32,
    /// A futex: 0 until the threshold is passed, then 1.
    pub active: AtomicU32,
    /// Process id of `pleat run`.
    pub runner_pid: AtomicU32,
    /// Process id of who traces the agents' threads: `pleat run`, and behind it the custodian.
    pub tracer_pid: AtomicU32,
    /// How often he has been asked to trace threads at once; a futex.
    pub tracings_asked: AtomicU32,
    /// Looks of `pleat run`, a sign of life; a futex.
    pub runner_ticks: AtomicU32,
    /// A bit for each [`Notice`] that has been printed.
    pub printed: AtomicU32,
    /// State of `message`: 0 empty, 1 being written, 2 for `pleat run` to print and to set to 0.
    pub message_state: AtomicU32,
    /// A line of an agent that `pleat run` is to print; UTF-8, zero-padded.
    pub message: [AtomicU64; 32],
    /// Where `pleat run` prints; zero if that cannot be told, is nowhere, or it does no more.
    pub standard_error: FileIdentity,
    /// How often `pleat run` has been asked for a look; a futex.
    pub looks_asked: AtomicU32,
    /// Entries from here on have never been used.
    pub processes_used: AtomicU32,
    /// `--codec`: its place in `codec::ALL`.
    pub codec: AtomicU32,
    /// 1 for `--user-mode`.
    pub user_mode: AtomicU32,
    /// `--store`: its place in `cache::system::StoreName`.
    pub store: AtomicU32,
    /// `--sizing`: its place in `cache::system::SizingName`.
    pub sizing: AtomicU32,
    /// `--admission`: its place in `cache::system::Admission`.
    pub admission: AtomicU32,
    /// `--write-back`: its place in `cache::system::WriteBack`.
    pub write_back: AtomicU32,
    /// See [`Ledger::set_custodian_file`].
    pub custodian_pid: AtomicU32,
    /// See above.
    pub custodian_descriptor: AtomicU32,
    /// `--pool-size`.
    pub area_bytes: AtomicU64,
    /// The name under which its custodian takes userfaultfds (`sys::handover::Reception`).
    pub custodian: [AtomicU64; 5],
    /// What he wants to hear from who asks him.
    pub secret: [AtomicU64; SECRET_BYTES / 8],
    /// Whose turn it is, while the processes work by turns.
    pub turns: Turns,
    /// The processor that `pleat run` keeps busy.
    pub occupancy: Occupancy,
    /// Path of the directory or file of `--swap`, zero-terminated.
    pub swap_path: [AtomicU64; PATH_BYTES / 8],
    /// What `pleat run` has open there.
    pub swap_place: SwapPlace,
    /// The processes.
    pub processes: [Process; PROCESSES_MAX],
    /// What one of them references, for `pleat record --light`.
    pub references: ReferenceLog,
}

/// The directory or the file of `--swap` as `pleat run` has it open: in a namespace of mounts, and behind a chroot, its path may lead elsewhere.
#[repr(C)]
#[derive(Debug)]
pub struct SwapPlace {
    /// Which one it is.
    pub identity: FileIdentity,
    /// Its descriptor in `pleat run`; 0: it has none.
    pub descriptor: AtomicU64,
}

/// A file, whatever leads to it.
#[repr(C)]
#[derive(Debug)]
pub struct FileIdentity {
    /// Its device.
    pub device: AtomicU64,
    /// Its number there.
    pub inode: AtomicU64,
}

impl FileIdentity {
    /// Device and inode.
    pub fn load(&self) -> (u64, u64) {
        (self.device.load(Relaxed), self.inode.load(Relaxed))
    }

    /// See [`Self::load`].
    pub fn store(&self, (device, inode): (u64, u64)) {
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
    }
}

// SAFETY: atomic numbers all the way down, `repr(C)` without padding, valid when zero.
unsafe impl sys::host::Shared for Ledger {}

fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(padded), Relaxed);
    }
}

fn load_bytes<const N: usize>(words: &[AtomicU64]) -> [u8; N] {
    let mut bytes = [0; N];
    for (word, chunk) in words.iter().zip(bytes.as_chunks_mut::<8>().0) {
        *chunk = word.load(Relaxed).to_le_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_bound_what_they_hold() {
        for ns in (0..5000).chain([1 << 20, (1 << 30) + 12345, 1 << 39]) {
            let bucket = Histogram::bucket_of(ns);
            assert!(ns < Histogram::upper_ns(bucket), "{ns} in bucket {bucket}");
            assert!(bucket == 0 || ns >= Histogram::upper_ns(bucket - 1), "{ns} in bucket {bucket}");
        }
        assert_eq!(Histogram::bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn one_line_at_a_time_waits_to_be_printed() {
        let ledger = sys::host::SharedFile::<Ledger>::create(c"test").unwrap().content();
        let lines = ["first", "second"].map(|line| ledger.leave_message(line));
        assert_eq!(lines, [true, false]);
        assert!(ledger.take_message().is_some_and(|text| text.starts_with(b"first\0")));
        assert_eq!(ledger.take_message(), None);
        assert!(ledger.leave_message("third"));
    }

    #[test]
    fn lines_go_to_a_run_that_prints() {
        let ledger = sys::host::SharedFile::<Ledger>::create(c"test").unwrap().content();
        assert_eq!(ledger.standard_error(), None);
        ledger.standard_error.store((1, 2));
        assert_eq!(ledger.standard_error(), Some((1, 2)));
        ledger.prints_no_more();
        assert_eq!(ledger.standard_error(), None);
    }

    #[test]
    fn names_are_unique() {
        let names =
            Gauge::ALL.iter().map(|gauge| gauge.name()).chain(Counter::ALL.iter().map(|counter| counter.name()));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
