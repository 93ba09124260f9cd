//! The server: brings missing pages, and follows the kernel's layout messages. It also moves pages out: for a fault
//! that finds no room, and to stock the ring (`stock.rs`). What it serves a fault with is found in `server/pieces.rs`.
//!
//! One thread, so that messages and the pages they concern are handled in one order. A fault costs one hold of the
//! lock to read the message, find the page and copy its encoding, the decoding without the lock, one call to the kernel
//! that puts the page in place and wakes the program, and one more hold to note it.

use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use backing::{ASIDE_MAX, ReadBuffer, ReadError, ReadJob};
use page::{PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::drop_behind::Run;
use policy::prefetch::{Descents, Streams, WINDOW_MAX};
use policy::replacement::Arrival;
use store::Store;
use sys::Errno;
use sys::kernel::{Kernel, MESSAGES_MAX, PageRange};
use sys::sync::Held;

use crate::Pager;
use crate::eviction::{Batch, Evicted, Worker};
use crate::ledger::{Counter, FaultKind};
use crate::pager::Fault;
use crate::state::State;
use crate::stock::Stocker;

mod below;
mod descent;
mod pieces;

use pieces::{Gathered, Piece};

/// Faults that wait here: what one reading brings, and what is read while a fault waits for a layout message.
const QUEUE: usize = 4 * MESSAGES_MAX;
/// Tries to fill a page before it counts as stuck. All but the first few sleep [`RETRY_PAUSE`]: some ten seconds of
/// running time, however long the process may have been stopped meanwhile.
pub(crate) const TRIES_MAX: u32 = 200_000;
const TRIES_WITHOUT_PAUSE: u32 = 50;
pub(crate) const RETRY_PAUSE: Duration = Duration::from_micros(50);
/// Waits for the reclaimer, of [`ROOM_PAUSE`] each, before a fault is served without room. The reclaimer may itself
/// wait for a fault of ours, so this must end.
const ROOM_WAITS_MAX: u32 = 400;
const ROOM_PAUSE: Duration = Duration::from_micros(500);
/// Looks of the hand that find nobody before the next ones count as such waits: some 50 ms.
const AGED_MAX: u32 = 1000;

/// Why the program cannot go on: its memory is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// The medium gave back other bytes than were written, or none.
    Unreadable(ReadError),
    /// An encoding in RAM is damaged: somebody wrote to our memory.
    Corrupt(PageIndex),
    /// The kernel does not take the page.
    Unfillable(PageIndex, Errno),
    /// A thread that is about to fork does not come to it, and what the others do meanwhile is more than can be noted. Perhaps it
    /// waits for a lock of one whose fault waits for the fork.
    ForkIsLate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Served {
    Done,
    Deferred,
}

/// Why pages are put in place.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// How many were wanted.
    window: PageCount,
    /// The first one by a fault; nobody has asked for the others.
    by_fault: bool,
}

/// Faults that have been read and wait to be served. Reading goes on however many they are: the kernel fills nothing while a
/// layout message is unread, and hands out faults first.
struct Inbox {
    queue: [Fault; QUEUE],
    queued: usize,
    /// From the first to the last page for which there was no room, or which may not be served yet.
    left_out: Option<PageRange>,
    /// The thread of the last fault read.
    last_thread: u32,
}

impl Inbox {
    fn next(&mut self) -> Option<Fault> {
        let fault = (self.queued > 0).then_some(self.queue[0])?;
        self.queue.copy_within(1..self.queued, 0);
        self.queued -= 1;
        Some(fault)
    }

    /// Notes a fault. A thread that has a signal pending and faults inside a system call does not wait, but faults again as fast
    /// as it can, so that the same one may come many times.
    fn push(&mut self, fault: Fault) {
        if let Some(place) = self.queue.get_mut(self.queued) {
            *place = fault;
            self.queued += 1;
        } else {
            self.leave_out(fault);
        }
    }

    /// Of a fault that is not queued its thread is woken later, and faults again if it still wants the page.
    fn leave_out(&mut self, fault: Fault) {
        let page = PageRange::new(fault.page, PageCount(1));
        let left = self.left_out.unwrap_or(page);
        self.left_out = Some(PageRange { start: left.start.min(page.start), end: left.end.max(page.end) });
    }

    /// Wakes those that were left out: their faults come again.
    fn ask_again<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) {
        if let Some(range) = self.left_out.take() {
            pager.kernel.wake(range);
        }
    }

    /// Reads a batch of messages. Says whether there may be more.
    fn read<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, state: &mut State<S>) -> bool {
        pager.read_messages(state, &mut |fault| {
            self.push(fault);
            self.last_thread = fault.thread;
        })
    }
}

const NO_FAULT: Fault = Fault { page: PageIndex(0), thread: 0, is_write: false };

/// The serving thread's own memory.
pub struct Server {
    inbox: Inbox,
    served: usize,
    /// Faults put off in a row that may wait for a fork that waits for them.
    crossed: u32,
    pages: Box<[PageBytes]>,
    copies: Box<[[u8; PAGE_BYTES]]>,
    pieces: [Piece; WINDOW_MAX.0 as usize],
    /// Surrenders before the pieces were found.
    surrenders: u64,
    read: ReadBuffer,
    /// What other faults wait for, to be read at the same time.
    besides: [Option<ReadJob>; ASIDE_MAX],
    streams: Streams,
    descents: Descents,
    worker: Worker,
    stocker: Stocker,
}

/// Pages of zeros, untouched.
fn zeros(count: usize) -> Box<[PageBytes]> {
    // SAFETY: any bytes are a page.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// Allocates all that serving needs.
    pub fn new() -> Self {
        let window = WINDOW_MAX.0 as usize;
        Self {
            inbox: Inbox { queue: [NO_FAULT; QUEUE], queued: 0, left_out: None, last_thread: 0 },
            served: 0,
            crossed: 0,
            pages: zeros(window),
            copies: vec![[0; PAGE_BYTES]; window].into_boxed_slice(),
            pieces: [Piece::Zeros; WINDOW_MAX.0 as usize],
            surrenders: 0,
            read: ReadBuffer::new(),
            besides: [const { None }; ASIDE_MAX],
            streams: Streams::default(),
            descents: Descents::default(),
            worker: Worker::hasty(),
            stocker: Stocker::default(),
        }
    }

    /// Reads a batch of what waits and serves it. Says whether there may be more to read.
    pub fn serve<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) -> Result<bool, Stuck> {
        pager.servings.begin();
        let served = self.serve_batch(pager);
        pager.servings.finish();
        served
    }

    fn serve_batch<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) -> Result<bool, Stuck> {
        let mut state = pager.lock_first();
        if state.is_patient() {
            drop(state);
            sys::thread::sleep(RETRY_PAUSE);
            return Ok(true);
        }
        if self.inbox.left_out.is_some() {
            drop(state);
            self.inbox.ask_again(pager);
            return Ok(true);
        }
        if state.is_over_full() {
            return Err(Stuck::ForkIsLate);
        }
        let may_be_more = self.read(pager, &mut state);
        let may_be_crossed = state.may_be_crossed();
        let mut held = Some(state);
        // The queue grows while a fault waits for layout messages to be read.
        while let Some(fault) = self.inbox.next() {
            self.served += 1;
            let state = held.take().unwrap_or_else(|| pager.lock_first());
            if self.serve_fault(pager, fault.page, state)? == Served::Deferred {
                self.inbox.push(fault);
                self.crossed = if may_be_crossed { self.crossed + 1 } else { 0 };
                if self.crossed == TRIES_MAX {
                    return Err(Stuck::ForkIsLate);
                }
                break;
            }
            self.crossed = 0;
            pager.note_reference(fault);
        }
        self.inbox.ask_again(pager);
        Ok(may_be_more)
    }

    /// Reads a batch of what waits, and serves no fault: those come again when they may be served. Until then one may be out of
    /// date, by a guard region of which no message tells. Says whether there may be more to read.
    pub fn follow<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) -> bool {
        let mut state = pager.lock_first();
        if state.is_patient() {
            drop(state);
            sys::thread::sleep(RETRY_PAUSE);
            return true;
        }
        let inbox = &mut self.inbox;
        while let Some(fault) = inbox.next() {
            inbox.leave_out(fault);
        }
        pager.read_messages(&mut state, &mut |fault| inbox.leave_out(fault))
    }

    /// Gives back the memory of buffers, which hold nothing between two faults: for when nothing waits.
    pub fn relinquish(&mut self) {
        sys::area::relinquish_pages(&mut self.pages);
        sys::area::relinquish(self.copies.as_flattened_mut());
        for buffer in self.read.clear() {
            sys::area::relinquish(buffer);
        }
        self.worker.relinquish();
    }

    /// Whether faults wait that cannot be served before a fork is done, or were not to be. What ends that sends no message, so come
    /// back soon.
    pub fn has_deferred(&self) -> bool {
        self.inbox.queued > 0 || self.inbox.left_out.is_some()
    }

    /// Faults served so far.
    pub fn served(&self) -> usize {
        self.served
    }

    /// The thread of the last fault.
    pub fn last_thread(&self) -> u32 {
        self.inbox.last_thread
    }

    fn read<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, state: &mut State<S>) -> bool {
        self.inbox.read(pager, state)
    }

    /// Encodes a batch, and goes on reading messages where that has to wait.
    fn encode<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) -> Batch {
        let Self { worker, inbox, .. } = self;
        worker.encode_and(pager, &mut || {
            inbox.read(pager, &mut pager.lock_first());
        })
    }

    /// Serves a fault. `state` is held for the first look, and let go.
    fn serve_fault<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
        state: Held<'_, State<S>>,
    ) -> Result<Served, Stuck> {
        let begun = pager.kernel.now_ns();
        // Faults that wait for room may be many, and more come meanwhile: who serves one after the other is not stuck.
        pager.entry.busy_since_ns.store(begun, Ordering::Relaxed);
        let (mut window, below) = if pager.is_recorded() {
            (PageCount(1), PageCount::ZERO)
        } else {
            (self.streams.window(page), self.descents.window(page))
        };
        // Set once room has been waited for: then the fault is served, room or not.
        let mut may_exceed = false;
        let mut held = Some(state);
        for tries in 0..TRIES_MAX {
            let state = held.take().unwrap_or_else(|| pager.lock_first());
            let (count, kind) = match self.gather(pager, state, page, window, may_exceed) {
                Gathered::NoRoom => {
                    self.make_room(pager);
                    may_exceed = true;
                    continue;
                }
                Gathered::Pieces(count, kind) => (count, kind),
                Gathered::Served(kind) => return Ok(record(pager, kind, begun)),
                Gathered::Backed(job, count) => (self.fetch(pager, job, count)?, FaultKind::Backed),
                Gathered::Unknown(errno) => {
                    if self.not_filled(pager, page, errno)?.is_some() {
                        return Ok(record(pager, FaultKind::Raced, begun));
                    }
                    self.pause(pager, tries);
                    continue;
                }
                Gathered::Deferred => return Ok(Served::Deferred),
            };
            self.decode(pager, page, count)?;
            match self.fill(pager, page, count, kind, Asked { window, by_fault: true })? {
                Some(filled) => {
                    self.streams.shortened(page, window, filled.max(PageCount(1)));
                    let was_there = filled == PageCount::ZERO;
                    let served = record(pager, if was_there { FaultKind::Raced } else { kind }, begun);
                    if below > PageCount::ZERO && kind != FaultKind::ZeroFill {
                        self.bring_below(pager, page, below);
                    }
                    return Ok(served);
                }
                None => self.pause(pager, tries),
            }
            window = PageCount(1);
        }
        Err(Stuck::Unfillable(page, Errno::AGAIN))
    }

    /// A layout message stands in the way: read it, and give the thread that it holds up time to run.
    fn pause<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, tries: u32) {
        let mut state = pager.lock_first();
        self.read(pager, &mut state);
        let is_holding = state.is_holding();
        drop(state);
        if tries >= TRIES_WITHOUT_PAUSE || is_holding {
            sys::thread::sleep(RETRY_PAUSE);
        }
    }

    /// Puts the pages in place. `None`: try again; no pages: it was there, or its mapping is gone.
    fn fill<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
        count: usize,
        kind: FaultKind,
        asked: Asked,
    ) -> Result<Option<PageCount>, Stuck> {
        let filled = pager.kernel.fill(page, &self.pages[..count]);
        if filled.done > PageCount::ZERO {
            let mut state = pager.lock_first();
            for step in 0..filled.done.0 {
                let filled = page + PageCount(step);
                if !state.is_surrendered(filled, kind, self.surrenders) {
                    let is_asked = asked.by_fault && step == 0;
                    state.note_filled(filled, kind, if is_asked { Arrival::Asked } else { Arrival::Along });
                }
            }
            state.copied = None;
            state.stride.note(filled.done, asked.by_fault);
            if kind != FaultKind::ZeroFill && !state.frozen {
                state.behind.brought(Run { start: page, count: filled.done }, asked.window);
            }
            drop(state);
            pager.entry.add(Counter::Prefetched, filled.done.0 - u64::from(asked.by_fault));
            return Ok(Some(filled.done));
        }
        if filled.error == Some(Errno::EXIST) {
            let mut state = pager.lock_first();
            if !state.is_surrendered(page, kind, self.surrenders) {
                state.note_present(page, kind);
            }
            state.copied = None;
            drop(state);
            pager.kernel.wake(PageRange::new(page, PageCount(1)));
            return Ok(Some(PageCount::ZERO));
        }
        self.not_filled(pager, page, filled.error)
    }

    /// Why the kernel did not take a page. `None`: try again; no pages: its mapping is gone.
    fn not_filled<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
        errno: Option<Errno>,
    ) -> Result<Option<PageCount>, Stuck> {
        match errno {
            // A layout message is unread or its thread has not run.
            None | Some(Errno::AGAIN) => Ok(None),
            // The mapping has changed under the fault, or its process has gone: who waits shall look again.
            Some(Errno::NOENT | Errno::INVAL | Errno::FAULT | Errno::SRCH) => {
                pager.kernel.wake(PageRange::new(page, PageCount(1)));
                Ok(Some(PageCount::ZERO))
            }
            // A memory cgroup is at its limit: make room and try again.
            Some(Errno::NOMEM) => {
                sys::thread::sleep(RETRY_PAUSE);
                // It is gathered anew, so that it may go back meanwhile.
                pager.lock_first().copied = None;
                self.encode(pager);
                Ok(None)
            }
            Some(errno) => Err(Stuck::Unfillable(page, errno)),
        }
    }

    /// Makes sure that a page can be taken within the budget: helps the reclaimer, then waits for it, then gives up.
    fn make_room<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) {
        let (mut waits, mut aged) = (0, 0);
        while pager.lock().is_short() && waits < ROOM_WAITS_MAX {
            let evicted = Worker::evict(pager);
            if self.encode(pager).gained > 0 {
                continue;
            }
            if evicted == Evicted::Aged && aged < AGED_MAX {
                aged += 1;
                continue;
            }
            // Pages that have been moved count, too: without swap those that no codec makes smaller go straight back, and
            // would be moved for ever.
            waits += 1;
            match evicted {
                Evicted::Moved(count) if count > PageCount::ZERO => continue,
                Evicted::Frozen => return,
                Evicted::Changing => {
                    self.read(pager, &mut pager.lock_first());
                }
                _ => {}
            }
            pager.wait_for_progress(ROOM_PAUSE);
        }
    }
}

fn record<K: Kernel, S: Store>(pager: &Pager<K, S>, kind: FaultKind, begun: u64) -> Served {
    let ns = pager.kernel.now_ns() - begun;
    pager.entry.faults[kind as usize].record(ns);
    pager.entry.add(Counter::ServeNs, ns);
    if kind.is_refault() {
        pager.entry.add(Counter::RefaultNs, ns);
    }
    Served::Done
}
