//! The reclaimer: keeps free room ahead of need.
//!
//! Each round it compares the kernel's count with ours, looks for new memory when they drift apart, moves pages out
//! until the high mark is reached, writes back what the pool has no room for, cleans segments, compacts the pool, and
//! says how long it may rest.

use core::time::Duration;

use cache::{Hand, Outcome};
use page::{ByteCount, PageBytes, PageCount};
use policy::sizing::{self, Stride, Surge, Watermarks};
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::division::Looks;
use crate::eviction::{Batch, ENCODE_BATCH, Evicted, Worker, evict_shared};
use crate::exhaustion::{Effort, Exhaustion, Room};
use crate::idleness::{Grounds, Idle};
use crate::ledger::Counter;
use crate::places::Told;
use crate::scan::{Extent, Scanned, scan};
use crate::sharing::Sharing;
use crate::state::State;
use crate::stock::{Mover, timed_evict};

mod figures;
mod upkeep;

/// The fastest that a program takes new memory: two cores filling zeroed pages, as measured (2 GB/s each).
const GROWTH_BYTES_PER_MS: u64 = 4 << 20;
/// Shortest and longest rest.
const REST_MIN: Duration = Duration::from_micros(300);
const REST_MAX: Duration = Duration::from_millis(50);
/// Shortest rest while a thread waits for a scan.
const REST_WAITED_FOR: Duration = Duration::from_micros(100);
/// Rest while room is short and neither memory nor pool has anything to make it of.
const REST_EMPTY: Duration = Duration::from_millis(1);
/// Rest while nothing changes and little is free.
const REST_CALM: Duration = Duration::from_millis(4);
/// So much of a share that has shrunk counts as growth.
const LOST_DIVISOR: u64 = sizing::SURGES;
/// Of what is shared with forked processes so much counts as lately copied: there is room for copies of a quarter of it at once.
const SHARED_DIVISOR: u64 = 16;
/// Rounds without change before the reclaimer calms down.
const CALM_ROUNDS: u32 = 250;
/// Unmanaged growth that makes it look for new mappings: this part of the free room at the high mark.
const SCAN_DIVISOR: u64 = 8;
/// The same once room is short. What grows in memory that is not registered waits for nobody, so new memory is registered
/// while most of it has not been touched: then a fault waits until there is room.
const SCAN_BYTES_SHORT: i64 = 64 << 10;
/// A scan takes longer the more mappings there are. The next one waits for so many times as long, but not if it takes
/// no longer than this and a thread of the program's waits for it.
const SCAN_PAUSES: u64 = 3;
const SCAN_NS_SHORT: u64 = 500_000;
/// So many pages that wait are encoded although the hand may yet come to more.
const SMALL_BATCH: u64 = ENCODE_BATCH as u64 / 4;
/// Turns of the hand in which nobody is spared once the medium takes again what does not get smaller: the first is none.
const TURNS_ANEW: u64 = 2;
/// Time between two looks at the numbers of the ledger.
const FIGURES_NS: u64 = 5_000_000;
/// When nothing has had to go for so long, buffers are given back.
const IDLE_NS: u64 = 100_000_000;
/// Longest time in one round: the program grows meanwhile in memory that is not registered yet.
const ROUND_NS_MAX: u64 = 1_000_000;

/// What a round came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// How long to rest.
    pub time: Duration,
    /// The budget cannot be met: nothing more can be moved out or written back.
    pub exhausted: bool,
}

/// The reclaiming thread's own memory.
pub struct Reclaimer {
    worker: Worker,
    /// Unmanaged bytes after the last scan: what cannot be managed.
    unmanageable: i64,
    /// Unmanaged bytes at the last look.
    last_unmanaged: i64,
    surge: Surge,
    last_share: ByteCount,
    scanned_once: bool,
    /// Where there is something new that has not been looked at.
    told: Told,
    scan_again_ns: u64,
    /// The last scan was a short one.
    scans_shortly: bool,
    exhaustion: Exhaustion,
    /// As of the last round: where the hand was, what encoding had come to, and whether the medium took what does not get smaller.
    last: Option<(Hand, Batch)>,
    took_all: bool,
    /// Until its turns are as many it spares nobody: the medium takes again what it did not.
    unsparing_until: u64,
    calm_rounds: u32,
    /// The last round, if it left nothing to do.
    idle: Option<Idle>,
    /// Resident memory, and faults that may have been copies of shared pages, as of the last round and of now: what only this process
    /// changes. What counts of shared memory changes by what others do.
    last_own: (ByteCount, u64),
    own: (ByteCount, u64),
    sharing: Sharing,
    division: Looks,
    figures_at_ns: u64,
    /// When it last made room; nothing once its buffers have been given back.
    worked_at_ns: Option<u64>,
}

impl Default for Reclaimer {
    fn default() -> Self {
        Self::new()
    }
}

impl Reclaimer {
    /// Allocates all that reclaiming needs.
    pub fn new() -> Self {
        Self {
            worker: Worker::patient(),
            unmanageable: 0,
            last_unmanaged: 0,
            surge: Surge::UNKNOWN,
            last_share: ByteCount::ZERO,
            scanned_once: false,
            told: Told::default(),
            scan_again_ns: 0,
            scans_shortly: false,
            exhaustion: Exhaustion::default(),
            last: None,
            took_all: true,
            unsparing_until: 0,
            calm_rounds: 0,
            idle: None,
            last_own: (ByteCount::ZERO, 0),
            own: (ByteCount::ZERO, 0),
            sharing: Sharing::default(),
            division: Looks::default(),
            figures_at_ns: 0,
            worked_at_ns: None,
        }
    }

    /// One round with the share that holds now, unless it would find nothing to do.
    pub fn round<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, share: ByteCount) -> Rest {
        if self.calm_rounds <= CALM_ROUNDS {
            return self.whole_round(pager, share);
        }
        let grounds = Grounds::of(pager, share, self.sharing.processes());
        if let Some(rest) = self.idle.and_then(|idle| idle.goes_on(grounds)) {
            return rest;
        }
        let rest = self.whole_round(pager, share);
        let has_nothing_to_do = rest.time >= REST_CALM && !rest.exhausted && self.worked_at_ns.is_none();
        self.idle = has_nothing_to_do.then_some(Idle { grounds, rest });
        rest
    }

    fn whole_round<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, share: ByteCount) -> Rest {
        let begun = pager.kernel.now_ns();
        let resident = self.resident(pager, begun);
        let unmanaged = self.reconcile(pager, resident, share, begun);
        let unmanaged = self.look_where_told(pager, share, begun).unwrap_or(unmanaged);
        self.look_everywhere(pager, unmanaged, share);
        let until_ns = begun + ROUND_NS_MAX;
        pager.answer_surrender();
        self.division.look(pager, begun);
        pager.look_at_area();
        let mut effort = self.reclaim(pager, until_ns);
        let written = upkeep::write_back(pager, until_ns);
        effort.note_written(written);
        effort.device = pager.desk.is_busy().then(|| pager.entry.count(Counter::WrittenBackBytes));
        upkeep::clean(pager);
        upkeep::compact(pager, until_ns);
        let now = pager.kernel.now_ns();
        if now >= self.figures_at_ns {
            self.figures_at_ns = now + FIGURES_NS;
            figures::publish(pager, resident);
        }
        if effort.has_gained {
            pager.entry.add(Counter::ReclaimNs, now - begun);
            self.worked_at_ns = Some(now);
        } else if self.worked_at_ns.is_some_and(|worked_at| now - worked_at > IDLE_NS) {
            self.relinquish(pager);
        }
        self.rest(pager, effort)
    }

    /// A thread waits until what it has mapped is managed. Where it is known what is new, that alone is looked at: it takes some
    /// microseconds, however many mappings there are, so there is no pause between two such looks. Returns what nobody manages then.
    fn look_where_told<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, share: ByteCount, now: u64) -> Option<i64> {
        // Before the places, of which none of what it has seen is missing then.
        let sight = pager.announcements.sight();
        pager.announcements.places.take(&mut self.told);
        if !self.scanned_once || !pager.announcements.is_one_new() {
            return None;
        }
        match scan(pager, Extent::At(self.told.known()?)) {
            Scanned::Registered(_) => {}
            Scanned::Unread => {
                self.told.lose();
                return None;
            }
            Scanned::Changing | Scanned::Frozen => return None,
        }
        self.told.clear();
        pager.announcements.have_been_scanned(sight);
        let resident = self.resident(pager, now);
        let unmanaged = self.reconcile(pager, resident, share, pager.kernel.now_ns());
        // What has grown beside cannot be told from what cannot be managed.
        self.unmanageable = self.unmanageable.min(unmanaged);
        Some(unmanaged)
    }

    /// Scans all mappings where that is due.
    fn look_everywhere<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, unmanaged: i64, share: ByteCount) {
        let begun = pager.kernel.now_ns();
        let sight = pager.announcements.sight();
        pager.announcements.places.take(&mut self.told);
        if !self.wants_scan(pager, unmanaged, begun)
            || !matches!(scan(pager, Extent::Everywhere), Scanned::Registered(_))
        {
            return;
        }
        self.told.clear();
        pager.announcements.have_been_scanned(sight);
        self.scanned_once = true;
        let scanned = pager.kernel.now_ns();
        self.scan_again_ns = scanned + SCAN_PAUSES * (scanned - begun);
        self.scans_shortly = scanned - begun <= SCAN_NS_SHORT;
        let resident = self.resident(pager, begun);
        self.unmanageable = self.reconcile(pager, resident, share, scanned);
    }

    /// Gives back the memory of buffers, for a time in which nobody needs them.
    fn relinquish<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) {
        self.worked_at_ns = None;
        self.worker.relinquish();
        let mut state = pager.lock();
        if !state.frozen
            && let Some(log) = state.cache.log()
        {
            log.release_spares();
        }
    }

    /// The program has forked, or was forked: memory that two processes share counts in proportion.
    pub fn shares_memory(&mut self) {
        self.idle = None;
        self.sharing.begin();
    }

    /// How many processes the run has, of which the memory of some may be this one's, too.
    pub fn set_processes(&mut self, count: u64) {
        self.sharing.set_processes(count);
    }

    /// What is resident and counts for this process.
    fn resident<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, now: u64) -> ByteCount {
        let whole = pager.kernel.resident_anonymous();
        let counted = self.sharing.counted(pager, whole, now);
        self.own = (whole, self.sharing.faults());
        counted
    }

    /// Writes the current numbers to the ledger, whatever time it is.
    pub fn publish<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) {
        let resident = self.resident(pager, pager.kernel.now_ns());
        figures::publish(pager, resident);
    }

    /// Takes note of the kernel's count and of the share; returns what nobody manages.
    fn reconcile<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        resident: ByteCount,
        share: ByteCount,
        now: u64,
    ) -> i64 {
        let mut state = pager.lock();
        let holdings = state.holdings();
        let buffers = state.cache.log_figures().map_or(0, |figures| figures.buffer_bytes);
        let unfilled = if pager.has_area { state.cache.store_figures().external_waste() } else { ByteCount::ZERO };
        let accounts = &mut state.accounts;
        accounts.share = share;
        accounts.log_buffers = ByteCount(buffers);
        accounts.reconcile(resident, holdings, unfilled);
        // Before the first scan all of it is unmanaged.
        let grown = if self.scanned_once { accounts.unmanaged - self.last_unmanaged } else { 0 };
        self.last_unmanaged = accounts.unmanaged;
        let unmanaged = accounts.unmanaged;
        state.accounts.marks = self.marks(pager, share, state.stride, grown, now);
        unmanaged
    }

    /// How much room is to be kept free: little where the program tells of its growth before it happens. What comes unasked even
    /// then: what it `grown` without telling, a share that shrinks because other processes grow, and copies of pages that a fork
    /// has left to two.
    fn marks<K, S>(
        &mut self,
        pager: &Pager<K, S>,
        share: ByteCount,
        stride: Stride,
        grown: i64,
        now: u64,
    ) -> Watermarks {
        // Shares swing a little all the time: there is room for one such step, not for several.
        let lost = self.last_share.saturating_sub(share).0 / LOST_DIVISOR;
        self.last_share = share;
        let surge = self.surge.note(grown.max(0).saturating_add_unsigned(lost), now);
        match self.sharing.shared() {
            Some(shared) if pager.is_told_of_growth => {
                Watermarks::narrow(share, pager.budget, surge + ByteCount(shared.0 / SHARED_DIVISOR), stride)
            }
            _ => Watermarks::wide(share),
        }
    }

    fn wants_scan<K: Kernel, S: Store>(&self, pager: &Pager<K, S>, unmanaged: i64, now: u64) -> bool {
        let state = pager.lock();
        let step = (state.accounts.marks.high.0 / SCAN_DIVISOR) as i64;
        let is_short = state.goal() > ByteCount::ZERO;
        let step = if is_short { SCAN_BYTES_SHORT.min(step / 4) } else { step };
        let is_waited_for = self.told.has_lost() && pager.announcements.is_one_new();
        let may_scan = now >= self.scan_again_ns || is_waited_for && self.scans_shortly;
        !self.scanned_once || may_scan && (is_waited_for || unmanaged > self.unmanageable + step)
    }

    /// Moves pages out and encodes them until the high mark is reached.
    fn reclaim<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, until_ns: u64) -> Effort {
        let mut effort = Effort::default();
        let (filled_before, explores) = {
            let state = pager.lock();
            if state.goal() == ByteCount::ZERO {
                self.last = Some((state.hand, state.encoded));
                return effort;
            }
            effort.resident = state.cache.census().resident;
            effort.is_unsparing = state.hand.tries_refused;
            let has_room = state.accounts.exhausted.is_some() && !state.accounts.wants_reclaim(state.free());
            let explores = self.exhaustion.is_out_of_reach() && has_room;
            (state.ring.filled_ever(), explores)
        };
        let mut has_encoded = false;
        while pager.kernel.now_ns() < until_ns {
            let mut state = pager.lock();
            if state.is_high() && !explores {
                break;
            }
            let evicted = if ring_wants_pages(&state) {
                timed_evict(pager, &mut state, Mover::Reclaimer)
            } else {
                Evicted::NoFrames
            };
            let is_due = is_encoding_due(&state, evicted);
            drop(state);
            let stalled = match evicted {
                Evicted::Moved(count) => {
                    pager.entry.add(Counter::RunsReclaimed, u64::from(count > PageCount::ZERO));
                    false
                }
                Evicted::Aged => false,
                Evicted::Shared(range) => {
                    evict_shared(pager, range);
                    false
                }
                Evicted::NoFrames | Evicted::Nothing | Evicted::Changing => true,
                Evicted::Frozen => break,
            };
            if !stalled && !is_due {
                continue;
            }
            let encoded = self.encode(pager, &mut effort);
            has_encoded |= encoded.frames > 0;
            if stalled && encoded.frames == 0 {
                break;
            }
        }
        if !has_encoded && pager.lock().is_pressed() {
            has_encoded = self.encode(pager, &mut effort).frames > 0;
        }
        let state = pager.lock();
        effort.fills_ring = !has_encoded && state.ring.filled_ever() > filled_before;
        // The server's turns and batches are among them.
        let (last_hand, last) = self.last.replace((state.hand, state.encoded)).unwrap_or((state.hand, state.encoded));
        effort.turns = (state.hand != last_hand).then(|| state.hand.turns() - last_hand.turns());
        effort.tried = (state.encoded.frames - last.frames) as u64;
        effort.gained = (state.encoded.gained - last.gained) as u64;
        effort
    }

    /// Encodes a batch of what waits.
    fn encode<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, effort: &mut Effort) -> Batch {
        let encoded = self.worker.encode(pager);
        pager.look_at_area();
        if encoded.gained > 0 {
            effort.has_gained = true;
            pager.has_progressed();
        }
        encoded
    }

    /// Whether the hand is to spare nobody until the next round.
    fn spares_nobody<S: Store>(&mut self, state: &State<S>) -> bool {
        let takes_all = state.cache.gains(Outcome::Incompressible(&PageBytes::ZERO));
        if takes_all && !self.took_all {
            self.unsparing_until = state.hand.turns() + TURNS_ANEW;
        }
        self.took_all = takes_all;
        self.exhaustion.is_doubtful() || state.hand.turns() < self.unsparing_until
    }

    fn rest<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, effort: Effort) -> Rest {
        let now = pager.kernel.now_ns();
        let mut state = pager.lock();
        let holdings = state.holdings();
        let free = state.accounts.free(holdings);
        pager.announcements.set_room(free - state.accounts.marks.low.0 as i64, state.accounts.share);
        let is_short = state.goal() > ByteCount::ZERO;
        let is_still = self.own == self.last_own && !effort.has_gained;
        self.calm_rounds = if is_still { self.calm_rounds.saturating_add(1) } else { 0 };
        self.last_own = self.own;
        let has_grown = state.accounts.wants_reclaim(free);
        let accounts = &state.accounts;
        let room = Room { free, is_short, is_bare: accounts.is_bare(holdings), has_grown, step: accounts.allowance() };
        let reached = if state.frozen { None } else { self.exhaustion.judge(effort, room, now) };
        let exhausted = reached.is_some();
        state.accounts.set_exhausted(reached, holdings, now);
        state.hand.tries_refused = self.spares_nobody(&state);
        let grown_to_low = (free - state.accounts.marks.low.0 as i64).max(0) as u64 / GROWTH_BYTES_PER_MS;
        let is_empty = is_short && upkeep::has_hardly_any_pages(&state) && upkeep::stores_nothing(&state);
        let floor = match self.calm_rounds {
            0..=CALM_ROUNDS if is_empty => REST_EMPTY,
            0..=CALM_ROUNDS => REST_MIN,
            _ => REST_CALM,
        };
        // What cannot be helped is tried again now and then, not all the time.
        let accounts = &state.accounts;
        let is_of_use = accounts.is_short(free) || accounts.wants_reclaim(free) && effort.gained > 0;
        let floor = if exhausted && !is_of_use { REST_MAX } else { floor };
        let mut time = Duration::from_millis(grown_to_low).clamp(floor, REST_MAX);
        if pager.announcements.is_one_new() {
            // A thread of the program's waits; perhaps for a scan of all, for which it was too soon.
            let is_of_all = self.told.has_lost() || pager.announcements.places.have_lost();
            let pause_ns = if is_of_all { self.scan_again_ns.saturating_sub(now) } else { 0 };
            time = time.min(Duration::from_nanos(pause_ns)).max(REST_WAITED_FOR);
        }
        Rest { time, exhausted }
    }
}

/// Whether the reclaimer should move pages out.
fn ring_wants_pages<S: Store>(state: &State<S>) -> bool {
    let census = state.cache.census();
    if state.moves.are_the_servers() { state.ring.is_bare(&census) } else { !state.ring.is_stocked(&census) }
}

/// Whether what waits should be encoded now, although more can be moved. A ring that is not stocked is left alone: what
/// waits may be wanted back. But a program that grows faster than we look must not wait for a ring to fill, only for a
/// batch, and not even for that while nothing moves.
fn is_encoding_due<S: Store>(state: &State<S>, evicted: Evicted) -> bool {
    let has_moved = match evicted {
        Evicted::Moved(count) => count > PageCount::ZERO,
        Evicted::Shared(_) => true,
        Evicted::Aged => state.ring.waiting() < SMALL_BATCH,
        Evicted::NoFrames | Evicted::Nothing | Evicted::Changing | Evicted::Frozen => false,
    };
    let has_batch = state.ring.waiting() >= ENCODE_BATCH as u64;
    !ring_wants_pages(state) || state.is_pressed() && (has_batch || !has_moved)
}
