//! Pages on the medium: what is read for a fault, and at the same time for the others that have been read and wait.
//!
//! Several threads that miss pages on a disk would wait for each other, for there is one server. But a disk answers eight requests in
//! little more time than one; so with the first fault's read go those of the faults behind it. What these bring is kept aside as it
//! lies on the medium, and each fault then looks up its page as if there were none.
//!
//! Where there is room, a read goes on behind what it is for: who has slept, or waited for his turn, has all of it to read.

use backing::{ReadError, ReadJob};
use page::PageIndex;
use store::Store;
use sys::kernel::Kernel;
use sys::sync::Ordering;

use super::pieces::Piece;
use super::{Server, Stuck};
use crate::Pager;
use crate::ledger::Counter;
use crate::state::State;

impl Server {
    /// Looks for what can be read at the same time as `job`, which is for a fault on `page`: pages that waiting faults ask for.
    /// Walks are left out: theirs are read with what comes behind them.
    pub(super) fn look_ahead<S: Store>(&mut self, state: &mut State<S>, page: PageIndex, job: &ReadJob) {
        if state.frozen || self.read.has(job) {
            return;
        }
        let Self { inbox, streams, besides, .. } = self;
        let waiting = inbox.queue[..inbox.queued].iter().map(|fault| fault.page);
        let anywhere = waiting.filter(|waiting| *waiting != page && !streams.continues(*waiting));
        let mut jobs = anywhere.filter_map(|waiting| state.cache.look_below(waiting));
        for beside in besides.iter_mut() {
            *beside = jobs.next();
        }
    }

    /// Reads encodings back from the medium, without the lock. Returns how many of the pieces are at hand.
    pub(super) fn fetch<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        job: ReadJob,
        count: usize,
    ) -> Result<usize, Stuck> {
        let is_aside = self.read.has(&job);
        // Relaxed: who looks whether we are stuck looks again and again.
        pager.entry.reads.store(1, Ordering::Relaxed);
        let result = self.run(&job, count);
        pager.entry.reads.store(0, Ordering::Relaxed);
        let ahead = if result.is_ok() { job.ahead(&mut self.read) } else { 0..0 };
        let mut bytes = if is_aside { 0 } else { job.bytes() };
        let mut state = pager.lock();
        if !ahead.is_empty() && state.may_read_ahead() {
            let ahead = ahead.map(|number| job.one_ahead(number, &self.read));
            let promoted = ahead.filter(|&(key, encoding)| state.cache.promote(key, encoding)).count();
            pager.entry.add(Counter::ReadAhead, promoted as u64);
        }
        for beside in self.besides.iter_mut().filter_map(Option::take) {
            if self.read.has(&beside) {
                bytes += beside.bytes();
                pager.entry.add(Counter::ReadBeside, 1);
                state.cache.finish_read(beside);
            } else {
                state.cache.forgo_read(beside);
            }
        }
        if is_aside {
            state.cache.forgo_read(job);
        } else {
            state.cache.finish_read(job);
        }
        drop(state);
        pager.entry.add(Counter::ReadBackBytes, bytes as u64);
        result.map_err(Stuck::Unreadable)
    }

    /// Turns pieces to be read into encodings, up to the first that cannot be. If that is the page itself, it is an error.
    fn run(&mut self, job: &ReadJob, count: usize) -> Result<usize, ReadError> {
        let Self { read, copies, pieces, besides, .. } = self;
        let mut keep = |step: usize, encoding: &[u8]| {
            copies[step][..encoding.len()].copy_from_slice(encoding);
            Piece::Encoding(encoding.len())
        };
        let has_besides = besides.iter().any(Option::is_some);
        pieces[0] = keep(0, if has_besides { job.run_with(besides, read)? } else { job.run(read)? });
        for (step, piece) in pieces.iter_mut().enumerate().take(count).skip(1) {
            if let Piece::Read(number) = *piece {
                let Some(encoding) = job.other(number, read) else { return Ok(step) };
                *piece = keep(step, encoding);
            }
        }
        Ok(count)
    }
}
