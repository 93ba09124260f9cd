//! fork: two processes from one state.
//!
//! 1. Before the fork the reclaimer is at rest (its thread sees to that) and the state is frozen ([`Pager::try_freeze`]).
//! 2. The kernel copies the memory, the agent's included, and sends a message with the child's userfaultfd. The forking
//!    thread waits until the server has read it.
//!    What other threads have changed of the layout meanwhile the child shares or not ([`Pager::place_fork`]).
//! 3. The child's faults come to that descriptor. Until the child has a server of its own the parent's brings its
//!    pages too, from the frozen state, which is the child's state ([`Server::serve_child`]).
//! 4. The child's agent takes over: it compares its copy of the state with what the kernel says is there
//!    ([`Pager::resume_in_child`]), and the parent thaws ([`Pager::thaw`]).

use alloc::boxed::Box;
use alloc::vec::Vec;

use backing::{BackingStore, ChildPin, SegmentLog};
use page::{PageBytes, PageCount, PageIndex};
use policy::replacement::Arrival;
use store::Store;
use sys::Errno;
use sys::kernel::{ForkedMemory, Kernel, Message, PageRange, Uncopied};

use crate::account::Immovable;
use crate::ledger::{Gauge, Process};
use crate::server::{Server, Stuck};
use crate::state::State;
use crate::{Pager, journal};

/// Pages that [`Server::fill_child`] brings at once.
const CHILD_PAGES_MAX: usize = 64;

/// How often a child looks whether somebody from outside has filled what it misses.
const STRAYS_LOOKS_MAX: usize = 1000;

/// What the child writes back to: a store of its own, and a key that has never been used.
pub struct FreshBacking {
    /// The store.
    pub store: Box<dyn BackingStore>,
    /// The key.
    pub key: [u8; 32],
}

/// What a child's userfaultfd says of the memory that the child has inherited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// It came with the fork: what was registered in the parent is, and nothing else.
    Registered,
    /// It is new, and nothing is registered.
    Unregistered,
}

impl<K: Kernel, S: Store> Pager<K, S> {
    /// Freezes the state if nobody is in the middle of moving pages, nor of a read whose end would change the log. The caller keeps the reclaimer at rest. The writer
    /// may be at work: see [`Pager::finish_write`]. `looks_for_uncopied`: there may be ranges of which the child has something
    /// else than its parent; `is_patient`: then nobody may be changing the layout either.
    pub fn try_freeze(&self, looks_for_uncopied: bool, is_patient: bool) -> bool {
        let mut state = self.lock();
        let waits_for_readers = state.cache.log().is_some_and(|log| log.waits_for_readers());
        if !state.ring.is_quiet() || state.is_holding() || waits_for_readers {
            return false;
        }
        self.kernel.finish_moves();
        state.wiped.clear();
        state.kept.clear();
        if looks_for_uncopied {
            let State { wiped, kept, .. } = &mut *state;
            // Without an answer the child finds there what its parent has, as if it had not asked for that.
            let _ = self.kernel.uncopied(&mut |range, kind| match kind {
                Uncopied::Empty => wiped.push(range),
                Uncopied::Absent => kept.push(range),
            });
            // What has just moved the state knows by another address, until the message has been read: not before we let go of it.
            if is_patient && self.kernel.layout_is_changing() {
                return false;
            }
        }
        state.pin = state.cache.log().map(SegmentLog::pin_for_child);
        state.freeze();
        true
    }

    /// Whether the state is frozen.
    pub fn is_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// Whether faults wait for the end of a fork: what happens until then is noted, and there is no more room for that.
    pub fn waits_for_fork(&self) -> bool {
        !self.lock().can_fill()
    }

    /// The child's memory, once the message about the fork has been read. Taken once.
    pub fn take_forked(&self) -> Option<ForkedMemory> {
        let mut state = self.lock();
        let forked = state.forked.pop_front();
        self.set_has_forked(!state.forked.is_empty());
        forked
    }

    /// Once no layout message is on its way, and before the child is served: finds out which of those that have been read since the
    /// state was frozen the child's memory has seen. `is_registered` says whether a page of the child is, if that can be
    /// told. False if no order of them explains what is registered: then the child cannot be served. Once its agent has said
    /// how many `readings` ([`Pager::readings`]) there had been in its memory, the place is looked for again: that tells more.
    pub fn place_fork(
        &self,
        child: ForkedMemory,
        readings: Option<u32>,
        is_registered: &mut dyn FnMut(PageIndex) -> Option<bool>,
    ) -> bool {
        self.lock().place_fork(child, readings, is_registered)
    }

    /// What the child's memory has seen, in the order of the deeds.
    pub fn shared_layout(&self, readings: u32) -> Vec<Message> {
        self.lock().shared_layout(readings)
    }

    /// Half of what was resident is the child's from now on, by the ledger: the next look at what counts says it exactly
    /// ([`crate::Reclaimer::shares_memory`]). Counted twice until then it would take memory from both.
    pub fn count_half(&self) {
        self.entry.set(Gauge::ResidentBytes, self.entry.get(Gauge::ResidentBytes) / 2);
    }

    /// Makes up for what has happened since the state was frozen. Returns the pin under which the child reads our
    /// segments; without a child it must be given back at once.
    pub fn thaw(&self) -> Option<ChildPin> {
        let mut state = self.lock();
        state.thaw();
        state.pin.take()
    }

    /// The child does not read our segments any more.
    pub fn unpin(&self, pin: ChildPin) {
        if let Some(log) = self.lock().cache.log() {
            log.unpin_child(pin);
        }
    }

    /// In a forked child, before any other use: makes the copied state the child's own. The child's other threads do
    /// not exist, its only thread waits, and its parent serves it no more: so what the kernel says now is the truth.
    ///
    /// # Safety
    /// No other thread of this process uses the pager. `shared` are the layout messages that the child's memory has seen
    /// since the state was frozen: those of [`Pager::place_fork`], and those of the child that its parent has read.
    /// `replace` makes the child's kernel of the parent's, whose descriptors are not open here; `inherited` says what that
    /// knows of.
    pub unsafe fn resume_in_child(
        &mut self,
        entry: &'static Process,
        fresh: Option<FreshBacking>,
        shared: &[Message],
        inherited: Inherited,
        replace: impl FnOnce(K) -> Result<K, Errno>,
    ) -> Result<(), Errno> {
        // SAFETY: no thread of this process holds it (see above); the parent's did not come along.
        unsafe { self.reset_lock() };
        // SAFETY: as above; this process has no writer yet.
        unsafe { self.desk.clear() };
        self.replace_kernel(replace);
        self.entry = entry;
        self.references = None;
        let mut state = self.lock();
        self.set_has_forked(false);
        state.forked.clear();
        state.pin = None;
        state.accounts.exhausted = None;
        state.accounts.immovable = Immovable::default();
        state.forget_counted();
        // The child's clock may be another one (a namespace of times).
        state.retry_at_ns = 0;
        state.thaw_in_child(shared);
        if let (Some(log), Some(fresh)) = (state.cache.log(), fresh) {
            log.fork_child(fresh.store, fresh.key);
        }
        self.adopt_present(&mut state, inherited)
    }

    /// The program has forked, and no message tells of it: the fork is made while nobody changes the layout.
    pub fn note_fork(&self) {
        self.lock().note_untold_fork();
    }

    /// Compares the state with the memory that is really there. Where the program has its parent keep a range
    /// (`MADV_DONTFORK`) something else may be by now: an area of our own, or what another library's fork handler has mapped.
    fn adopt_present(&self, state: &mut State<S>, inherited: Inherited) -> Result<(), Errno> {
        let mut mapped = Vec::new();
        self.kernel.mappings(&mut |mapping| {
            if mapping.anonymous {
                sys::area::outside_own(mapping.range, &mut |part| mapped.push(part));
            }
        })?;
        let old: Vec<PageRange> = state.regions.iter().collect();
        state.regions.clear();
        state.discarded_early.clear();
        if inherited == Inherited::Unregistered {
            state.given_up.clear();
        }
        for region in &old {
            let mut gone = *region;
            let first = mapped.partition_point(|range| range.end <= region.start);
            let parts = mapped[first..].iter().map_while(|range| range.intersection(*region));
            for part in parts {
                if inherited == Inherited::Registered && self.kernel.registration(part.start) == Some(false) {
                    continue;
                }
                state.cache.discard(gone.start, part.start);
                gone.start = part.end;
                state.regions.insert(part);
                if inherited == Inherited::Unregistered {
                    // First: from now on nobody fills a hole but us.
                    self.kernel.register(part)?;
                    self.forget_strays(state, part)?;
                }
                self.adopt_region(state, part)?;
            }
            // MADV_DONTFORK, or unmapped by another thread just before the fork.
            state.cache.discard(gone.start, gone.end);
        }
        Ok(())
    }

    /// Whoever has looked at a hole of the child's from outside (`process_vm_readv`, ptrace) before it was registered has filled it
    /// with zeros.
    fn forget_strays(&self, state: &State<S>, region: PageRange) -> Result<(), Errno> {
        for _ in 0..STRAYS_LOOKS_MAX {
            let mut strays = Vec::new();
            self.kernel.zeros(region, &mut |run| {
                let is_stray = |page: &PageIndex| state.cache.place(*page) != cache::Place::Resident;
                strays.extend(run.start.until(run.end).filter(is_stray));
            })?;
            if strays.is_empty() {
                return Ok(());
            }
            for page in strays {
                self.kernel.forget(PageRange::new(page, PageCount(1)))?;
            }
        }
        // For a moment nothing is registered where a page is forgotten, and somebody looks there each time.
        Err(Errno::AGAIN)
    }

    fn adopt_region(&self, state: &mut State<S>, region: PageRange) -> Result<(), Errno> {
        let mut next = region.start;
        let mut holes = Vec::new();
        self.kernel.resident(region, &mut |run| {
            holes.push(PageRange { start: next, end: run.start });
            next = run.end;
            for page in run.start.until(run.end) {
                if state.cache.place(page) != cache::Place::Resident {
                    // Served by the parent before we took over, or never managed.
                    state.cache.settle(page, Arrival::Asked);
                }
            }
        })?;
        holes.push(PageRange { start: next, end: region.end });
        for hole in holes {
            // Resident for the parent, discarded on the way here.
            state.cache.forget_resident(hole.start, hole.end);
        }
        Ok(())
    }
}

impl Server {
    /// Brings a page of a forked child from the frozen state. `own`: what the child has changed of its layout since it was forked.
    /// `fill` puts the page into the child's memory.
    pub fn serve_child<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        own: &[Message],
        page: PageIndex,
        fill: &mut dyn FnMut(PageIndex, &PageBytes) -> Result<(), Errno>,
    ) -> Result<(), Stuck> {
        for _ in 0..crate::server::TRIES_MAX {
            let bytes = match journal::before(own, page) {
                Some(before) => self.child_page(pager, before)?,
                None => &PageBytes::ZERO,
            };
            match fill(page, bytes) {
                // Another thread of the child cannot be; EXIST is a fault read twice.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::SRCH | Errno::INVAL) => return Ok(()),
                Err(Errno::AGAIN | Errno::NOMEM) => sys::thread::sleep(crate::server::RETRY_PAUSE),
                Err(errno) => return Err(Stuck::Unfillable(page, errno)),
            }
        }
        Err(Stuck::Unfillable(page, Errno::AGAIN))
    }

    /// For a child that will have no agent: brings all its pages that are with us, from the frozen state, at most
    /// [`CHILD_PAGES_MAX`] of those from `from` on; none left: false. What the child has discarded itself is in `removed`.
    /// No range may have moved since the state was frozen.
    pub fn fill_child<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        from: &mut PageIndex,
        removed: &[PageRange],
        fill: &mut dyn FnMut(PageIndex, &PageBytes) -> Result<(), Errno>,
    ) -> Result<bool, Stuck> {
        for _ in 0..CHILD_PAGES_MAX {
            let Some(page) = pager.lock().cache.next_away(*from) else { return Ok(false) };
            *from = page + PageCount(1);
            if !removed.iter().any(|range| range.contains(page)) {
                self.serve_child(pager, &[], page, fill)?;
            }
        }
        Ok(true)
    }
}
