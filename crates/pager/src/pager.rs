//! The pager: what the server and the reclaimer share.

use core::time::Duration;

use alloc::boxed::Box;
use alloc::vec::Vec;

use backing::WriteJob;
use cache::ring::Ring;
use cache::{AreaKeeper, Cache};
use codec::Codec;
use page::{ByteCount, PageCount, PageIndex};
use policy::area::divider::Divider;
use store::Store;
use sys::Area;
use sys::kernel::{Kernel, Message, PageRange};
use sys::sync::{AtomicBool, AtomicU32, Held, Lock, Ordering, Sharing, wait_while, wake_all};

use crate::account::Accounts;
use crate::announce::Announcements;
use crate::bell::Bell;
use crate::desk::Desk;
use crate::ledger::Process;
use crate::ledger::reference_log::ReferenceLog;
use crate::order::Asked;
use crate::readings::Readings;
use crate::records;
use crate::regions::Regions;
use crate::state::State;
use crate::surrender::Surrender;

/// What a pager needs to know at its birth.
pub struct Config {
    /// Turns pages into encodings.
    pub codec: &'static dyn Codec,
    /// Keeps the cache's store, if that is an area.
    pub area: Option<AreaKeeper>,
    /// Says how large the pool may become. Without one it may take the most.
    pub divider: Option<Box<Divider>>,
    /// Where its numbers go.
    pub entry: &'static Process,
    /// What the process may hold at first.
    pub share: ByteCount,
    /// What the agent itself takes, whatever it does.
    pub agent: ByteCount,
    /// Whether the program's threads tell of memory that they map ([`Pager::announce`]), all that goes through libc.
    pub is_told_of_growth: bool,
    /// Where to tell what the program references.
    pub references: Option<&'static ReferenceLog>,
    /// Frames that the kernel has for pages on their way out.
    pub frames: PageCount,
    /// For what is noted while the program forks: [`crate::JOURNAL_BYTES`].
    pub journal: Area,
    /// Pages that must stay as they are: what libraries held before the agent came.
    pub untouchable: Vec<PageRange>,
}

/// A thread waits for a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) page: PageIndex,
    pub(crate) thread: u32,
    pub(crate) is_write: bool,
}

/// One process's memory under management.
pub struct Pager<K, S> {
    /// The kernel.
    pub kernel: K,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) entry: &'static Process,
    pub(crate) untouchable: Regions,
    pub(crate) references: Option<&'static ReferenceLog>,
    /// The whole budget.
    pub(crate) budget: ByteCount,
    pub(crate) is_told_of_growth: bool,
    /// Whether the store is an area, which `State::area` keeps.
    pub(crate) has_area: bool,
    state: Lock<State<S>>,
    pub(crate) desk: Desk<WriteJob>,
    bell: Bell,
    /// The message about a fork has been read, and nobody has taken the child's memory yet.
    has_forked: AtomicBool,
    readings: Readings,
    /// The server serving.
    pub(crate) servings: Readings,
    pub(crate) announcements: Announcements,
    pub(crate) surrender: Surrender,
    /// Nobody fills what was not touched: the program has a userfaultfd of its own, and is to hear of each page that is missing.
    is_exact: AtomicBool,
    /// Goes up with each batch that the reclaimer has freed; a futex.
    progress: AtomicU32,
}

impl<K: Kernel, S: Store> Pager<K, S> {
    /// A pager that manages nothing yet: [`crate::Reclaimer::round`] finds what there is.
    pub fn new(kernel: K, cache: Cache<S>, config: Config) -> Self {
        let (accounts, ring) = (Accounts::new(config.share, config.agent), Ring::new(config.frames));
        Self {
            kernel,
            codec: config.codec,
            entry: config.entry,
            untouchable: config.untouchable.into_iter().collect(),
            references: config.references,
            budget: config.share,
            is_told_of_growth: config.is_told_of_growth,
            has_area: config.area.is_some(),
            desk: Desk::new(),
            state: Lock::new(State::new(cache, config.area, config.divider, ring, accounts, config.journal)),
            bell: Bell::default(),
            has_forked: AtomicBool::new(false),
            readings: Readings::default(),
            servings: Readings::default(),
            announcements: Announcements::default(),
            surrender: Surrender::default(),
            is_exact: AtomicBool::new(false),
            progress: AtomicU32::new(0),
        }
    }

    pub(crate) fn lock(&self) -> Held<'_, State<S>> {
        self.sorted_out(self.state.lock())
    }

    /// For the server: a fault waits.
    pub(crate) fn lock_first(&self) -> Held<'_, State<S>> {
        self.sorted_out(self.state.lock_first())
    }

    /// Follows the layout messages that are held back, if none is on its way any more.
    fn sorted_out<'a>(&'a self, mut state: Held<'a, State<S>>) -> Held<'a, State<S>> {
        if state.is_holding() && !self.kernel.layout_is_changing() {
            let witnesses = state.witnesses(&Asked(&self.kernel));
            // Who has changed the layout since then waits for us to read about it.
            if !self.kernel.layout_is_changing() {
                state.sort_out(&witnesses);
            }
        }
        state
    }

    /// Reads the layout messages that wait now and follows them; faults go to `fault`. Says whether there may be more: a
    /// batch is read, not all there is, for what follows is a fault to be served or another call.
    ///
    /// The state is locked from before the reading until after the following: so whoever holds the lock knows that
    /// every message that has been read has been followed, or that some are held back ([`State::is_holding`]); and the
    /// kernel refuses to move anything while one is unread.
    pub(crate) fn read_messages(&self, state: &mut State<S>, fault: &mut dyn FnMut(Fault)) -> bool {
        if !state.can_follow() || state.is_patient() {
            return false;
        }
        state.reading = self.readings.begin();
        let may_be_more = self.kernel.messages(&mut |message| {
            if let Message::Fault { page, thread, is_write } = message {
                fault(Fault { page, thread, is_write });
            } else if !self.is_refused(message, state) {
                state.follow(message);
            }
        });
        // Release: the server's thread looks at it without the lock.
        self.has_forked.store(!state.forked.is_empty(), Ordering::Release);
        state.reading = 0;
        self.readings.finish();
        may_be_more
    }

    /// Whether what a message tells of has been refused.
    fn is_refused(&self, message: Message, state: &State<S>) -> bool {
        let Message::Unmap(range) = message else { return false };
        // What has not been followed yet may have changed what is managed.
        let is_known = !state.frozen && !state.is_holding();
        self.kernel.is_refused(range, if is_known { state.regions.first_in(range) } else { None })
    }

    /// What the agent takes now: its whole heap and its stacks. The journal is added; the tables and buffers among it that are
    /// counted elsewhere are taken off.
    pub fn set_agent_bytes(&self, whole: ByteCount) {
        let mut state = self.lock();
        let buffers = state.cache.log_figures().map_or(0, |figures| figures.buffer_bytes);
        let counted = state.cache.metadata_bytes() + ByteCount(buffers);
        state.accounts.agent = (whole + records::KEPT).saturating_sub(counted);
    }

    /// Asks the reclaimer to look at once.
    pub(crate) fn hurry(&self) {
        self.bell.ring();
    }

    /// From now on no page is filled that nobody has touched.
    pub fn be_exact(&self) {
        self.is_exact.store(true, Ordering::Relaxed);
        self.wait_for_fill();
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact.load(Ordering::Relaxed)
    }

    /// Ends the reclaimer's rest.
    pub fn wake_reclaimer(&self) {
        self.hurry();
    }

    /// Whether the message about a fork has been read and nobody has taken the child's memory yet.
    pub fn has_forked(&self) -> bool {
        self.has_forked.load(Ordering::Acquire)
    }

    /// The same for the forking thread. The kernel lets it go on as soon as the message has been read, which is before
    /// it has been followed; so it waits for the end of that reading.
    pub fn has_forked_for_sure(&self) -> bool {
        self.readings.wait_for_end();
        self.has_forked()
    }

    pub(crate) fn set_has_forked(&self, has_forked: bool) {
        self.has_forked.store(has_forked, Ordering::Release);
    }

    /// Lets the reclaimer rest for `limit` at most, unless it is needed since `seen` was read.
    pub fn rest(&self, seen: u32, limit: Duration) {
        self.bell.wait(seen, limit);
    }

    /// Whether the reclaimer sleeps.
    pub(crate) fn is_resting(&self) -> bool {
        self.bell.is_awaited()
    }

    /// On a thread of the program's, which has just mapped so many bytes and not touched them; `place` is where, if it is known.
    pub fn announce(&self, bytes: ByteCount, place: Option<PageRange>) {
        self.announcements.places.put(place);
        if self.announcements.concern(bytes) {
            let number = self.announcements.make();
            self.hurry();
            self.announcements.wait_for(number, || self.kernel.now_ns());
        }
    }

    /// On the reclaimer's thread while the program forks, for nobody scans then: who waits for that goes on. It may hold
    /// a lock of malloc's, which the forking thread takes.
    pub fn dismiss_announcers(&self) {
        self.announcements.dismiss();
    }

    /// Whether the lock is held: then nobody else can act on the state.
    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_held()
    }

    /// As if the reclaimer slept, or not.
    #[cfg(test)]
    pub(crate) fn pretend_rest(&self, rests: bool) {
        self.bell.pretend_wait(rests);
    }

    /// For [`Pager::rest`]: to be read before looking whether there is work.
    pub fn calls(&self) -> u32 {
        self.bell.rings()
    }

    /// How many readings of messages there have been; in a forked child, before [`Self::resume_in_child`], when its memory was copied.
    pub fn readings(&self) -> u32 {
        self.readings.count()
    }

    /// Frees the lock of the state.
    ///
    /// # Safety
    /// No thread of this process holds it: this is a forked child, and whoever held it is the parent's.
    pub(crate) unsafe fn reset_lock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.state.reset() };
        self.bell.reset();
        self.readings.reset();
        self.servings.reset();
        self.surrender.reset();
    }

    /// The caller ends the process if it cannot be done: without a kernel there is no pager.
    pub(crate) fn replace_kernel(&mut self, replace: impl FnOnce(K) -> Result<K, sys::Errno>) {
        let place = &raw mut self.kernel;
        // SAFETY: `place` is valid, and is written below before anybody can see it moved out: in between only `replace`
        // runs, and a panic in it ends the process.
        let old = unsafe { place.read() };
        let new = replace(old);
        let new = new.unwrap_or_else(|errno| panic!("the forked process has no userfaultfd: {errno:?}"));
        // SAFETY: as above; the old value has been moved out.
        unsafe { place.write(new) };
    }

    pub(crate) fn has_progressed(&self) {
        self.progress.fetch_add(1, Ordering::Release);
        wake_all(&self.progress, Sharing::Process);
    }

    pub(crate) fn wait_for_progress(&self, limit: Duration) {
        let seen = self.progress.load(Ordering::Acquire);
        self.hurry();
        wait_while(&self.progress, seen, limit, Sharing::Process);
    }
}
