//! The state under the lock: which ranges are managed, where each page is, and what has left but is not encoded.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use backing::{ChildPin, READ_BYTES_MAX};
use cache::{AreaKeeper, Cache, Hand, Lookup, Place};
use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use policy::area::divider::Divider;
use policy::drop_behind::DropBehind;
use policy::prefetch::Room;
use policy::replacement::Arrival;
use policy::sizing::Stride;
use store::Store;
use sys::Area;
use sys::kernel::{ForkedMemory, MESSAGES_MAX, Message, PageRange};

use crate::account::{Accounts, Holdings};
use crate::area::Counted;
use crate::eviction::Batch;
use crate::journal::{FORKS_MAX, Journal, Record, Traced};
use crate::ledger::FaultKind;
use crate::order::{Ask, Before, HELD_MAX, Nobody, Window, Witnesses};
use crate::regions::Regions;
use crate::scan::RANGE_PAGES_MIN;
use crate::stock::Moves;
use cache::ring::Ring;

/// Room kept in the journal for layout messages where faults wait already.
const FILL_RESERVE: usize = 512;
/// The same for one more batch, and for what is held back.
const FOLLOW_RESERVE: usize = MESSAGES_MAX + HELD_MAX;

/// The part of the ring's pages that a walk may use again before they go, as a divisor.
const LAG_DIVISOR: u64 = 2;

/// Everything that faults, reclaim and layout messages change.
#[derive(Debug)]
pub(crate) struct State<S> {
    pub(crate) cache: Cache<S>,
    /// Keeps the cache's store, if that is an area.
    pub(crate) area: Option<AreaKeeper>,
    /// Says how large the pool may become.
    pub(crate) divider: Option<Box<Divider>>,
    /// As of the last look at the numbers.
    pub(crate) area_counted: Counted,
    pub(crate) regions: Regions,
    pub(crate) ring: Ring,
    pub(crate) hand: Hand,
    pub(crate) behind: Box<DropBehind>,
    pub(crate) moves: Moves,
    /// How many pages a fault brings.
    pub(crate) stride: Stride,
    /// What encoding has come to so far, by whomever.
    pub(crate) encoded: Batch,
    pub(crate) accounts: Accounts,
    /// While the program forks nothing above may change; see [`Journal`].
    pub(crate) frozen: bool,
    journal: Journal,
    /// Children whose memory nobody looks after yet. One, unless the program forks past libc's handlers. Does not grow while
    /// the program forks: its heap must not be copied in the middle of an allocation.
    pub(crate) forked: VecDeque<ForkedMemory>,
    /// The message about the fork that the state is frozen for has been read.
    has_forked: bool,
    /// Which layout messages its child shares has been found out.
    is_placed: bool,
    /// The page that the server has copied out of its frame, and which must not go back to the program from there: the
    /// program could change it, and it could leave again, before the server fills it with the copy.
    pub(crate) copied: Option<PageIndex>,
    /// Keeps the segments that it reads.
    pub(crate) pin: Option<ChildPin>,
    /// While the program forks: what the child finds empty, where it was when the state was frozen.
    pub(crate) wiped: Vec<PageRange>,
    /// And what the child does not have at all.
    pub(crate) kept: Vec<PageRange>,
    /// Layout messages on their way, as far as they have been read.
    window: Window,
    /// The reading that goes on; 0 if none does.
    pub(crate) reading: u32,
    /// Ranges discarded where nothing is managed. The kernel tells of it before it does it, and until it has, the pages
    /// look as if they were there to stay: a scan must not adopt them.
    pub(crate) discarded_early: Regions,
    /// Registered by a scan that has given up: no regions, but the kernel tells what happens to them, and it may tell late.
    pub(crate) given_up: Regions,
    /// How often something has been let go of ([`State::forget`]) without a message.
    pub(crate) surrenders: u64,
    /// What is smaller is left alone.
    pub(crate) range_pages_min: PageCount,
    /// After a failed write: when the device is to be tried again.
    pub(crate) retry_at_ns: u64,
    /// Layout messages since the start.
    pub(crate) layout_events: u64,
    /// How often some of them have been held back.
    pub(crate) sortings: u64,
}

impl<S: Store> State<S> {
    pub(crate) fn new(
        cache: Cache<S>,
        area: Option<AreaKeeper>,
        divider: Option<Box<Divider>>,
        ring: Ring,
        accounts: Accounts,
        journal: Area,
    ) -> Self {
        let lag = PageCount(ring.capacity() / LAG_DIVISOR);
        Self {
            cache,
            area,
            divider,
            area_counted: Counted::default(),
            ring,
            accounts,
            behind: Box::new(DropBehind::new(lag)),
            regions: Regions::default(),
            hand: Hand::default(),
            moves: Moves::default(),
            stride: Stride::default(),
            encoded: Batch::default(),
            frozen: false,
            journal: Journal::new(journal),
            forked: VecDeque::with_capacity(FORKS_MAX),
            has_forked: false,
            is_placed: false,
            copied: None,
            pin: None,
            wiped: Vec::new(),
            kept: Vec::new(),
            window: Window::new(),
            reading: 0,
            discarded_early: Regions::default(),
            given_up: Regions::default(),
            surrenders: 0,
            range_pages_min: RANGE_PAGES_MIN,
            retry_at_ns: 0,
            layout_events: 0,
            sortings: 0,
        }
    }

    /// What the process holds because of us.
    pub(crate) fn holdings(&self) -> Holdings {
        Holdings {
            pages: self.cache.census().resident + self.ring.held(),
            pool: self.cache.store_figures().pool,
            metadata: self.cache.metadata_bytes(),
        }
    }

    /// Bytes that may still be taken; negative when the share is exceeded.
    pub(crate) fn free(&self) -> i64 {
        self.accounts.free(self.holdings())
    }

    /// Bytes to reclaim now.
    pub(crate) fn goal(&self) -> ByteCount {
        self.accounts.goal(self.holdings())
    }

    /// Whether what lies behind an encoding on the medium may come with it; see [`Room::is_ample_for`]. In an area it has no place.
    pub(crate) fn may_read_ahead(&self) -> bool {
        let (holdings, share) = (self.holdings(), self.accounts.share);
        let spare = self.accounts.free(holdings) - self.accounts.marks.high.0 as i64;
        let pool = self.pool_bytes_max().saturating_sub(holdings.pool);
        let is_ample = Room { share, spare, pool }.is_ample_for(ByteCount(READ_BYTES_MAX as u64));
        is_ample && self.area.is_none() && !self.frozen
    }

    /// Whether less is free than a fault would find enough.
    pub(crate) fn is_pressed(&self) -> bool {
        self.accounts.is_short(self.free())
    }

    /// Whether reclaim may stop.
    pub(crate) fn is_high(&self) -> bool {
        self.accounts.is_high(self.free())
    }

    /// Whether a fault should wait for reclaim.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short_with(self.free())
    }

    /// The same where so much is free.
    pub(crate) fn is_short_with(&self, free: i64) -> bool {
        self.accounts.is_short(free)
            || self.accounts.exhausted.is_none() && self.area.as_ref().is_some_and(AreaKeeper::stalls)
    }

    /// Where the program's page is, and its bytes; see [`Cache::look_up`].
    pub(crate) fn look_up(&mut self, page: PageIndex, copy: &mut [u8; PAGE_BYTES]) -> Lookup {
        match self.trace(page) {
            Traced::At(origin) => self.cache.look_up(origin, copy),
            Traced::Resident => Lookup::Resident,
            Traced::Untouched => Lookup::Zeros,
        }
    }

    /// Where a page of the forked child is, as [`State::look_up`] says it for our own.
    pub(crate) fn look_up_for_child(&mut self, page: PageIndex, copy: &mut [u8; PAGE_BYTES]) -> Lookup {
        match self.journal.trace_for_child(page) {
            Traced::At(origin) if !self.wiped.iter().any(|range| range.contains(origin)) => {
                self.cache.look_up(origin, copy)
            }
            Traced::At(_) | Traced::Resident | Traced::Untouched => Lookup::Zeros,
        }
    }

    /// Where the page's slot is found: under its own index, unless the state is frozen and the journal knows better.
    fn trace(&self, page: PageIndex) -> Traced {
        if self.frozen { self.journal.trace(page) } else { Traced::At(page) }
    }

    /// Where the program's page is.
    fn place(&self, page: PageIndex) -> Place {
        match self.trace(page) {
            Traced::At(origin) => self.cache.place(origin),
            Traced::Resident => Place::Resident,
            Traced::Untouched => Place::Untouched,
        }
    }

    /// Notes that a page is with the program, where [`State::look_up`] has found it as `kind` says.
    ///
    /// The lock was free in between. A page that was resident may have been moved out again since, with what the program
    /// has written to it: then there is nothing to note, and settling it would lose its content. Where nothing was known
    /// of a page, a scan may have found it resident, and again it may have been moved out since. A page that was stored
    /// stays stored, or goes below, until it is settled.
    pub(crate) fn note_filled(&mut self, page: PageIndex, kind: FaultKind, arrival: Arrival) {
        let is_to_be_settled = match kind {
            FaultKind::ZeroFill | FaultKind::Raced => self.place(page) == Place::Untouched,
            FaultKind::Staged | FaultKind::SameFilled | FaultKind::Compressed | FaultKind::Backed => true,
        };
        if !matches!(kind, FaultKind::ZeroFill | FaultKind::Raced) {
            self.note_return(page, arrival);
        }
        self.note(page, arrival, is_to_be_settled);
    }

    /// The same when the page was there before we came with ours. One that we know nothing of may be about to be discarded: the message has
    /// been read, its thread runs, and the fault was told before. It must not leave with what is in it.
    pub(crate) fn note_present(&mut self, page: PageIndex, kind: FaultKind) {
        if matches!(self.place(page), Place::Untouched | Place::Resident | Place::Leaving(_)) {
            self.note(page, Arrival::Asked, false);
        } else {
            self.note_filled(page, kind, Arrival::Asked);
        }
    }

    /// Whether a page that has been found as `kind` says has been let go of since there had been `before` surrenders. Who has filled it
    /// meanwhile has done so for its new owner. What is out is not let go of.
    pub(crate) fn is_surrendered(&self, page: PageIndex, kind: FaultKind, before: u64) -> bool {
        let was_in = matches!(kind, FaultKind::ZeroFill | FaultKind::Raced);
        was_in && self.surrenders != before && !self.regions.contains(page)
    }

    fn note(&mut self, page: PageIndex, arrival: Arrival, is_to_be_settled: bool) {
        if is_to_be_settled {
            self.settle(page, arrival);
        } else {
            // Settling knows the same: the kernel looked at the page, so no layout message was on its way.
            self.window.end();
        }
    }

    /// Whether a page can be filled now: in a frozen state there must be room to note it.
    pub(crate) fn can_fill(&self) -> bool {
        !self.frozen || self.journal.has_room(FILL_RESERVE)
    }

    /// Whether a layout message can be followed now. Until the fork has happened it must be, or it never would, and then until it is
    /// known which of them the child shares; from there on those who wait for us to read theirs can wait until the state thaws.
    pub(crate) fn can_follow(&self) -> bool {
        if self.frozen && !self.is_placed { self.journal.has_room(FOLLOW_RESERVE) } else { self.can_fill() }
    }

    /// Whether nothing can be done any more before the state thaws, and perhaps it never does: the message about the fork is
    /// not among those that have been read.
    pub(crate) fn is_over_full(&self) -> bool {
        self.frozen && !self.has_forked && !self.journal.has_room(FOLLOW_RESERVE)
    }

    /// Whether the program may have a reason to wait with its fork for a fault that waits for the fork.
    pub(crate) fn may_be_crossed(&self) -> bool {
        !self.has_forked && !self.can_fill()
    }

    /// The page has been filled.
    pub(crate) fn settle(&mut self, page: PageIndex, arrival: Arrival) {
        // A page could be filled or moved: so no layout message was on its way.
        self.window.end();
        if self.frozen {
            self.journal.note(Record::Filled(PageRange::new(page, PageCount(1))));
            return;
        }
        self.settle_now(page, arrival);
    }

    fn settle_now(&mut self, page: PageIndex, arrival: Arrival) {
        // A mapping that grows by mremap is registered in its new part too, and nobody tells us how far.
        if !self.regions.contains(page) {
            self.regions.insert(PageRange::new(page, PageCount(1)));
        }
        self.settle_from_store(page, arrival);
    }

    /// A page of a new region is there: it becomes resident, unless it is known already or about to be discarded. Says whether.
    pub(crate) fn adopt(&mut self, page: PageIndex) -> bool {
        // The end of a mapping that has grown is registered before we know of it, and some of its pages may have been
        // served, or even reclaimed, already.
        let is_new = self.cache.place(page) == Place::Untouched && !self.discarded_early.contains(page);
        if is_new {
            self.cache.settle(page, Arrival::Along);
        }
        is_new
    }

    /// Follows a layout message, or holds it back (`order.rs`). Faults are not for this.
    pub(crate) fn follow(&mut self, message: Message) {
        self.layout_events += 1;
        if let Message::Fork(child) = message {
            self.forked.push_back(child);
            return self.note_fork(child);
        }
        let Some(record) = Record::of(message) else { return };
        if self.window.is_full() {
            // Earlier readings have brought those.
            let reading = core::mem::take(&mut self.reading);
            self.sort_out(&self.witnesses(&Nobody));
            self.reading = reading;
        }
        let Self { window, regions, given_up, journal, frozen, .. } = self;
        let taken = window.take(record, |range| {
            let is_managed = if *frozen { journal.is_managed_now(regions, range) } else { regions.intersects(range) };
            is_managed || given_up.intersects(range)
        });
        if let Some(record) = taken {
            self.note_or_apply(record);
        }
    }

    fn note_or_apply(&mut self, record: Record) {
        if self.frozen {
            self.journal.note_told(record, self.reading);
        } else {
            self.apply(record);
        }
    }

    /// Whether layout messages are held back. Until they have been sorted out nothing may be moved or filled.
    pub(crate) fn is_holding(&self) -> bool {
        self.window.is_holding()
    }

    /// No layout message was on its way while the lock was held.
    pub(crate) fn end_window(&mut self) {
        self.window.end();
    }

    /// To be asked before each reading: whether to wait for a late message first.
    pub(crate) fn is_patient(&mut self) -> bool {
        self.window.is_patient()
    }

    /// What tells the order of the messages that are held back.
    pub(crate) fn witnesses(&self, ask: &impl Ask) -> Witnesses {
        self.window.witnesses(&self.regions, ask)
    }

    /// Follows what is held back, in the order of the deeds.
    pub(crate) fn sort_out(&mut self, witnesses: &Witnesses) {
        self.sortings += 1;
        let mut window = core::mem::take(&mut self.window);
        for step in window.sort(witnesses, |page| self.before(page)).steps() {
            window.note(step);
            self.note_or_apply(step.record);
            self.journal.pass_marks(step.place);
        }
        self.journal.settle_marks();
        self.window = window;
    }

    fn before(&self, page: PageIndex) -> Before {
        let origin = if self.frozen { self.journal.origin(page) } else { Some(page) };
        if !origin.is_some_and(|page| self.regions.contains(page)) {
            return if self.given_up.contains(page) { Before::Managed } else { Before::Unmanaged };
        }
        match self.place(page) {
            Place::Untouched => Before::Managed,
            Place::Resident => Before::Resident,
            _ => Before::Away,
        }
    }

    /// The message about a child has been read: as a rule that of the fork that the state is frozen for.
    fn note_fork(&mut self, child: ForkedMemory) {
        if self.frozen {
            self.journal.mark_fork(child, self.window.count());
            self.has_forked = true;
        }
    }

    /// The same where no message tells of it.
    pub(crate) fn note_untold_fork(&mut self) {
        self.has_forked = self.frozen;
        self.is_placed = true;
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Filled(range) => {
                range.start.until(range.end).for_each(|page| self.settle_now(page, Arrival::Asked));
            }
            Record::Removed(range) => {
                self.discard(range);
                let Self { regions, discarded_early, .. } = self;
                regions.gaps(range, |gap| discarded_early.insert(gap));
            }
            Record::Unmapped(range) => self.forget(range),
            Record::Moved { from, to } => {
                let Self { cache, ring, divider, .. } = self;
                if let Some(divider) = divider {
                    divider.discarded(from.start..from.end);
                    divider.discarded(to..to + from.count());
                }
                cache.remap(from.start, from.end, to, &mut |frame, page| ring.set_page(frame, page));
                // What is registered stays so under its new address. Where the program keeps the old range mapped
                // (MREMAP_DONTUNMAP) it stays registered too, and comes back with its next fault.
                for regions in [&mut self.regions, &mut self.given_up] {
                    let moved: Vec<_> = regions.iter().filter_map(|region| region.intersection(from)).collect();
                    regions.cut(from);
                    for part in moved {
                        let start = to + (part.start - from.start);
                        regions.insert(PageRange::new(start, part.count()));
                    }
                }
            }
        }
    }

    /// Knows nothing of a range any more.
    pub(crate) fn forget(&mut self, range: PageRange) {
        self.discard(range);
        self.regions.cut(range);
        self.given_up.cut(range);
    }

    fn discard(&mut self, range: PageRange) {
        self.cache.discard(range.start, range.end);
        if let Some(divider) = &mut self.divider {
            divider.discarded(range.start..range.end);
        }
    }

    /// From now on nothing changes until [`State::thaw`].
    pub(crate) fn freeze(&mut self) {
        assert!(!self.frozen && self.ring.is_quiet() && !self.is_holding());
        self.frozen = true;
        self.has_forked = false;
        self.is_placed = false;
    }

    /// Once no layout message is on its way: finds out which of them the child shares; see [`Journal::place_fork`].
    pub(crate) fn place_fork(
        &mut self,
        child: ForkedMemory,
        readings: Option<u32>,
        is_registered: impl FnMut(PageIndex) -> Option<bool>,
    ) -> bool {
        if readings.is_none() && self.is_holding() {
            self.sort_out(&self.witnesses(&Nobody));
        }
        self.is_placed = true;
        let Self { journal, regions, kept, .. } = self;
        journal.place_fork(child, readings, regions.clone(), kept, is_registered)
    }

    /// Those; see [`Journal::shared_layout`].
    pub(crate) fn shared_layout(&self, readings: u32) -> Vec<Message> {
        self.journal.shared_layout(readings).collect()
    }

    /// In a forked child: makes the frozen state one that changes, and follows what the parent has told instead of its
    /// notes, which may be copied in part only.
    pub(crate) fn thaw_in_child(&mut self, shared: &[Message]) {
        self.frozen = false;
        self.has_forked = false;
        // That of its parent's, which it counts no more.
        self.reading = 0;
        self.journal.clear();
        // Not dropped: it may have changed while it was copied.
        core::mem::forget(core::mem::replace(&mut self.window, Window::new()));
        for range in core::mem::take(&mut self.wiped) {
            self.cache.discard(range.start, range.end);
        }
        // In the order of the deeds already.
        shared.iter().filter_map(|message| Record::of(*message)).for_each(|record| self.apply(record));
    }

    /// Makes up for what has been noted since [`State::freeze`].
    pub(crate) fn thaw(&mut self) {
        assert!(self.frozen);
        self.frozen = false;
        self.has_forked = false;
        // A page was noted when it had been filled. It may have moved since, so the kernel is not asked where it was.
        for at in 0..self.journal.records().len() {
            self.apply(self.journal.records()[at]);
        }
        self.journal.clear();
    }
}
