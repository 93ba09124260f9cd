//! What a fault is served with: where the page and those that come along are found, and decoded. What is on the medium is read in
//! `below.rs`.

use backing::{READ_PAGES_MAX, ReadJob};
use cache::{Beside, Lookup};
use page::{PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::drop_behind::Run;
use policy::prefetch::WINDOW_MAX;
use policy::replacement::Arrival;
use store::Store;
use sys::Errno;
use sys::kernel::{Kernel, PageRange};
use sys::sync::Held;

use super::{Server, Stuck};
use crate::Pager;
use crate::ledger::{Counter, FaultKind};
use crate::state::State;

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Zeros,
    Word(u64),
    /// So many bytes of the copy buffer.
    Encoding(usize),
    /// That other of the job that is to be run.
    Read(usize),
    /// In the page buffer already.
    Ready,
}

pub(super) enum Gathered {
    /// So many pieces are at hand.
    Pieces(usize, FaultKind),
    /// The same, but the page is on the medium, and some of the others may be, too.
    Backed(ReadJob, usize),
    /// The page is in place.
    Served(FaultKind),
    /// The page was here when it was last seen, and the kernel would not say whether it still is.
    Unknown(Option<Errno>),
    /// There is no room for a page.
    NoRoom,
    /// Not before the fork that is going on is done.
    Deferred,
}

impl Server {
    /// Finds the page, and those behind it that can come along.
    pub(super) fn gather<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        mut state: Held<'_, State<S>>,
        page: PageIndex,
        window: PageCount,
        may_exceed: bool,
    ) -> Gathered {
        if state.is_holding() {
            return if state.can_follow() { Gathered::Unknown(None) } else { Gathered::Deferred };
        }
        let free = state.free();
        if state.accounts.wants_reclaim(free) {
            pager.hurry();
        }
        if !may_exceed && state.is_short_with(free) {
            return Gathered::NoRoom;
        }
        self.stocker.stock(pager, &mut state, free);
        if !state.can_fill() {
            return Gathered::Deferred;
        }
        self.surrenders = state.surrenders;
        let mut job = None;
        let (piece, kind) = match state.look_up(page, &mut self.copies[0]) {
            Lookup::Resident => return self.fill_if_discarded(pager, &mut state, page),
            Lookup::Zeros => (Piece::Zeros, FaultKind::ZeroFill),
            Lookup::Filled(word) => (Piece::Word(word), FaultKind::SameFilled),
            Lookup::Encoded(length) => (Piece::Encoding(length), FaultKind::Compressed),
            Lookup::Backed(read) => {
                job = Some(read);
                (Piece::Read(0), FaultKind::Backed)
            }
            Lookup::Leaving(frame) => {
                if !state.frozen && state.ring.is_waiting(frame) && pager.kernel.move_back(frame, page).is_ok() {
                    state.ring.vacate(frame);
                    state.note_return(page, Arrival::Recalled);
                    state.settle(page, Arrival::Recalled);
                    state.behind.brought(Run { start: page, count: PageCount(1) }, PageCount(1));
                    return Gathered::Served(FaultKind::Staged);
                }
                // SAFETY: the frame holds the page until its encoding is published, which needs the lock that we hold.
                self.pages[0].clone_from(unsafe { &*pager.kernel.frame(frame) });
                state.copied = Some(page);
                (Piece::Ready, FaultKind::Staged)
            }
        };
        if let Some(job) = &job {
            self.look_ahead(&mut state, page, job);
        }
        self.pieces[0] = piece;
        let count = self.gather_more(pager, &mut state, page, window, kind, job.as_mut());
        let Some(mut job) = job else { return Gathered::Pieces(count, kind) };
        if !self.read.has(&job) && state.may_read_ahead() {
            state.cache.read_ahead(&mut job);
        }
        Gathered::Backed(job, count)
    }

    /// The page is here already, unless it was discarded after a fault had brought it once more: zeros, and the kernel
    /// decides. With the lock held, or the page could leave before the zeros come, and they would stand for what is in it.
    fn fill_if_discarded<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        state: &mut State<S>,
        page: PageIndex,
    ) -> Gathered {
        self.pages[0].0.fill(0);
        let filled = pager.kernel.fill(page, &self.pages[..1]);
        if filled.done > PageCount::ZERO {
            state.note_filled(page, FaultKind::Raced, Arrival::Asked);
        } else if filled.error == Some(Errno::EXIST) {
            state.note_present(page, FaultKind::Raced);
            pager.kernel.wake(PageRange::new(page, PageCount(1)));
        } else {
            return Gathered::Unknown(filled.error);
        }
        state.copied = None;
        Gathered::Served(FaultKind::Raced)
    }

    /// Finds pages behind it that can come along: in the pool, in a segment in memory, or read by the same request.
    fn gather_more<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        state: &mut State<S>,
        page: PageIndex,
        window: PageCount,
        kind: FaultKind,
        mut job: Option<&mut ReadJob>,
    ) -> usize {
        const { assert!(WINDOW_MAX.0 as usize <= READ_PAGES_MAX) };
        let is_zero_fill = kind == FaultKind::ZeroFill;
        let is_alone = kind == FaultKind::Staged || is_zero_fill && pager.is_exact();
        if state.frozen || window == PageCount(1) || is_alone {
            return 1;
        }
        let window = pager.kernel.holes(page, state.regions.run(page, window)).0.max(1) as usize;
        let mut others = 0;
        for step in 1..window {
            let next = page + PageCount(step as u64);
            self.pieces[step] = match state.cache.look_beside(next, &mut self.copies[step], job.as_deref_mut()) {
                Beside::Zeros if is_zero_fill => Piece::Zeros,
                Beside::Filled(word) if !is_zero_fill => Piece::Word(word),
                Beside::Encoded(length) if !is_zero_fill => Piece::Encoding(length),
                Beside::Joined => {
                    others += 1;
                    Piece::Read(others)
                }
                _ => return step,
            };
        }
        window
    }

    /// The content of a page of a forked child.
    pub(crate) fn child_page<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
    ) -> Result<&PageBytes, Stuck> {
        let mut state = pager.lock();
        self.pieces[0] = match state.look_up_for_child(page, &mut self.copies[0]) {
            // Resident in the frozen state, but discarded before the fork: as for our own pages.
            Lookup::Resident | Lookup::Zeros => Piece::Zeros,
            Lookup::Filled(word) => Piece::Word(word),
            Lookup::Encoded(length) => Piece::Encoding(length),
            Lookup::Leaving(frame) => {
                // SAFETY: in a frozen state no frame changes.
                self.pages[0].clone_from(unsafe { &*pager.kernel.frame(frame) });
                Piece::Ready
            }
            Lookup::Backed(job) => {
                drop(state);
                self.fetch(pager, job, 1)?;
                self.pieces[0]
            }
        };
        self.decode(pager, page, 1)?;
        Ok(&self.pages[0])
    }

    pub(super) fn decode<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        page: PageIndex,
        count: usize,
    ) -> Result<(), Stuck> {
        let mut decoded = 0;
        let mut begun = 0;
        for step in 0..count {
            let out = &mut self.pages[step];
            match self.pieces[step] {
                Piece::Ready => {}
                Piece::Read(_) => unreachable!("it has been read"),
                Piece::Zeros => out.0.fill(0),
                Piece::Word(word) => codec::fill(out, word),
                Piece::Encoding(PAGE_BYTES) => out.0 = self.copies[step],
                Piece::Encoding(length) => {
                    if decoded == 0 {
                        begun = pager.kernel.now_ns();
                    }
                    decoded += 1;
                    let encoding = &self.copies[step][..length];
                    let page = page + PageCount(step as u64);
                    pager.codec.decode(encoding, out).map_err(|_| Stuck::Corrupt(page))?;
                }
            }
        }
        if decoded > 0 {
            pager.entry.add(Counter::Decoded, decoded);
            pager.entry.add(Counter::DecodeNs, pager.kernel.now_ns() - begun);
        }
        Ok(())
    }
}
