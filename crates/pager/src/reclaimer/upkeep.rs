//! What the reclaimer does to the pool and to what lies below it: writes encodings back, cleans segments, compacts frames.

use backing::LogFull;
use page::{ByteCount, PageCount};
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::Counter;
use crate::state::State;

/// Encodings that go below at a time: two segments' worth.
const WRITE_BACK_STEP: ByteCount = ByteCount(2 << 20);
/// With no more than this part of the share in pages room is made of the pool, as a divisor.
const HARDLY_ANY_DIVISOR: u64 = 64;
/// Pages that the write-back hand passes under one hold of the lock.
const WRITE_BACK_LOOKS: u64 = 2048;
const COMPACT_STEP: usize = 64;
const CLEAN_STEP: usize = 64;

/// Moves encodings below while the pool is larger than it may be, or while nothing else makes room.
pub(super) fn write_back<K: Kernel, S: Store>(pager: &Pager<K, S>, until_ns: u64) -> ByteCount {
    let mut written = ByteCount::ZERO;
    pager.retry_writes();
    loop {
        let mut state = pager.lock();
        if state.frozen || state.cache.log().is_none() {
            return written;
        }
        let step = write_back_goal(&state).min(WRITE_BACK_STEP);
        let done = state.write_back(step, WRITE_BACK_LOOKS);
        written += done.bytes;
        let is_empty = stores_nothing(&state);
        let is_pushed = pager.push_segment(state);
        if done.bytes > ByteCount::ZERO {
            pager.has_progressed();
        }
        let is_content = done.bytes == ByteCount::ZERO && (step == ByteCount::ZERO || is_empty);
        let is_idle = !is_pushed && (is_content || done.refused.is_some());
        let may_go_on = done.refused.is_none_or(|full| full == LogFull::WritesBehind);
        let is_late = pager.kernel.now_ns() > until_ns;
        if is_idle || !may_go_on || is_late {
            return written;
        }
    }
}

/// Cleans one segment if that is due, and gives space back to the file system.
pub(super) fn clean<K: Kernel, S: Store>(pager: &Pager<K, S>) {
    let mut state = pager.lock();
    if state.frozen {
        return;
    }
    let Some(log) = state.cache.log() else { return };
    let punch = log.punch_job();
    let clean = log.clean();
    drop(state);
    if let Some(mut job) = punch {
        job.run();
        let mut state = pager.lock();
        state.cache.log().expect("it gave the job").finish_punch(job);
    }
    if let Some(mut job) = clean {
        pager.entry.add(Counter::ReadBackBytes, job.bytes() as u64);
        // An unreadable segment is left as it is: who asks for a page in it hears of it.
        let _ = job.run();
        while pager.lock().cache.clean_some(&mut job, CLEAN_STEP) {
            pager.entry.add(Counter::Compacted, CLEAN_STEP as u64);
        }
        pager.lock().cache.finish_clean(job);
    }
}

/// Gives back frames of the pool that lie idle.
pub(super) fn compact<K: Kernel, S: Store>(pager: &Pager<K, S>, until_ns: u64) {
    while pager.kernel.now_ns() < until_ns {
        let mut state = pager.lock();
        let figures = state.cache.store_figures();
        if state.frozen || state.area.is_some() || !figures.is_sparse() {
            return;
        }
        let given_back = state.cache.compact(COMPACT_STEP);
        pager.entry.add(Counter::Compacted, COMPACT_STEP as u64);
        let after = state.cache.store_figures();
        if given_back == ByteCount::ZERO && after.free == figures.free {
            return;
        }
    }
}

/// Whether hardly any pages are left to make room of.
pub(super) fn has_hardly_any_pages<S: Store>(state: &State<S>) -> bool {
    state.holdings().pages.bytes() <= ByteCount(state.accounts.share.0 / HARDLY_ANY_DIVISOR)
}

pub(super) fn stores_nothing<S: Store>(state: &State<S>) -> bool {
    let census = state.cache.census();
    census.compressed + census.incompressible == PageCount::ZERO
}

/// Bytes of encodings that should go below now.
fn write_back_goal<S: Store>(state: &State<S>) -> ByteCount {
    let holdings = state.holdings();
    // An empty store may keep a few frames.
    let over_pool =
        if stores_nothing(state) { ByteCount::ZERO } else { holdings.pool.saturating_sub(state.pool_bytes_max()) };
    let short = if has_hardly_any_pages(state) { state.goal() } else { ByteCount::ZERO };
    over_pool.max(short)
}
