//! Stocking the ring: the server moves scattered pages out by itself while the reclaimer rests.
//!
//! A page that moves is flushed from the translation caches of all processors that run the program. From the reclaimer's
//! processor that interrupts the program for each run of pages, and the lock is held until it has answered. The server is
//! on the program's processor and the program waits for it; while the reclaimer sleeps there is nobody to interrupt, and
//! a move costs a third (docs/userfaultfd.md). So where pages go one by one the server keeps the ring stocked, a few at
//! each fault, and the reclaimer does what takes time: encoding.

use page::PageCount;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::eviction::{Evicted, Worker};
use crate::ledger::Counter;
use crate::state::State;

/// So many pages are enough for one fault, which waits longer for them: some fifteen microseconds. The last run may bring more.
const BURST: PageCount = PageCount(8);
/// Looks for victims at one fault.
const TRIES_MAX: usize = 4;
/// Faults passed over after a burst that found nothing.
const PAUSE: u32 = 64;
/// Faults passed over where the reclaimer moves pages as cheaply: the program runs on several processors.
const LONG_PAUSE: u32 = 1024;
/// Runs shorter than this many pages, on average, are scattered. Longer ones share what a move costs well enough.
const SCATTERED: u64 = 24;
/// What a page may count for: more means that the thread has lost its processor.
const NS_MAX: u64 = 10_000;
/// One run in so many is timed.
const TIMED: u64 = 8;
/// How much one run weighs against those before, as a divisor.
const MEMORY: u64 = 16;

/// Who moves pages out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mover {
    Reclaimer,
    Server,
}

/// What moving pages out has come to lately. Means are kept times [`MEMORY`], so that they can move by less than one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moves {
    run_pages: u64,
    /// Time a page when the reclaimer moves.
    reclaimer_ns: u64,
    /// Time a page when the server does.
    server_ns: u64,
    /// Runs until one is timed.
    until_timed: u64,
    /// The server's last burst was cheap enough to go on.
    is_cheap: bool,
}

impl Moves {
    /// A run has been moved, by whomever.
    pub(crate) fn note_run(&mut self, pages: PageCount) {
        self.run_pages = self.run_pages - self.run_pages / MEMORY + pages.0.max(1);
    }

    /// `mover` has moved a run in `ns` a page.
    fn note_ns(&mut self, mover: Mover, ns: u64) {
        let mean = match mover {
            Mover::Reclaimer => &mut self.reclaimer_ns,
            Mover::Server => &mut self.server_ns,
        };
        let ns = ns.clamp(1, NS_MAX);
        *mean = if *mean == 0 { ns * MEMORY } else { *mean - *mean / MEMORY + ns };
    }

    /// As if the reclaimer had been very slow, so that a test sees the server stock.
    #[cfg(test)]
    pub(crate) fn favour_server(&mut self) {
        self.reclaimer_ns = u64::MAX / 4;
    }

    /// Whether the ring is the server's to fill.
    pub(crate) fn are_the_servers(&self) -> bool {
        self.is_cheap && self.are_scattered()
    }

    fn are_scattered(&self) -> bool {
        self.run_pages < SCATTERED * MEMORY
    }

    /// Whether the server moves a page in less than three quarters of the reclaimer's time, as far as anybody knows yet.
    fn are_cheaper(&self) -> bool {
        self.reclaimer_ns == 0 || self.server_ns * 4 < self.reclaimer_ns * 3
    }
}

/// Moves one run of pages out, and now and then notes what that costs from here.
pub(crate) fn timed_evict<K: Kernel, S: Store>(pager: &Pager<K, S>, state: &mut State<S>, mover: Mover) -> Evicted {
    state.moves.until_timed = state.moves.until_timed.checked_sub(1).unwrap_or(TIMED - 1);
    if state.moves.until_timed > 0 {
        return Worker::evict_held(pager, state);
    }
    let begun = pager.kernel.now_ns();
    let evicted = Worker::evict_held(pager, state);
    if let Evicted::Moved(count) = evicted
        && count > PageCount::ZERO
    {
        state.moves.note_ns(mover, (pager.kernel.now_ns() - begun) / count.0);
    }
    evicted
}

/// When the server stocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stocker {
    /// Faults to pass over.
    pause: u32,
}

impl Stocker {
    /// Moves some pages out if that is the server's to do now. A fault is being served, and the lock is held.
    pub(crate) fn stock<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, state: &mut State<S>, free: i64) {
        self.pause = self.pause.saturating_sub(1);
        // What the reclaimer keeps stocked has no room for more: then a burst is only to see what that costs.
        let has_room = !state.moves.is_cheap || !state.ring.is_stocked(&state.cache.census());
        let is_wanted = !state.accounts.is_high(free) && has_room;
        if self.pause > 0 || !is_wanted || !state.moves.are_scattered() || !pager.is_resting() {
            return;
        }
        let moved = burst(pager, state);
        if moved == PageCount::ZERO {
            self.pause = PAUSE;
            return;
        }
        pager.entry.add(Counter::Stocked, moved.0);
        state.moves.is_cheap = state.moves.are_cheaper();
        if !state.moves.is_cheap {
            self.pause = LONG_PAUSE;
        }
    }
}

/// Pages moved.
fn burst<K: Kernel, S: Store>(pager: &Pager<K, S>, state: &mut State<S>) -> PageCount {
    let mut moved = PageCount::ZERO;
    let mut tries = 0;
    while moved < BURST && tries < TRIES_MAX {
        match timed_evict(pager, state, Mover::Server) {
            Evicted::Moved(count) if count > PageCount::ZERO => moved += count,
            Evicted::Moved(_) | Evicted::Aged => tries += 1,
            // For the reclaimer, or not for now.
            Evicted::Shared(_) | Evicted::Changing | Evicted::NoFrames | Evicted::Nothing | Evicted::Frozen => break,
        }
    }
    moved
}
