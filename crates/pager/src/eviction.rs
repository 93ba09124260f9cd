//! Eviction: pages out of the program into frames, out of frames into encodings.
//!
//! Both threads do it: the reclaimer ahead of need, the server when a fault finds no room. Each has a [`Worker`] with
//! buffers of its own, and encodes without the lock.

use core::time::Duration;

use alloc::boxed::Box;
use alloc::vec;

use cache::{Outcome, Place, Published};
use codec::{Scratch, same_filled};
use page::{FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::drop_behind::Victim;
use policy::replacement::{Age, Arrival};
use store::Store;
use sys::Errno;
use sys::kernel::{Kernel, PageRange};
use sys::sync::Held;

use crate::Pager;
use crate::ledger::Counter;
use crate::state::State;
use cache::ring::Window;

/// Pages moved out under one hold of the lock: large enough to share the call, small enough that a fault waits for
/// some microseconds only.
const MOVE_BATCH: PageCount = PageCount(32);
/// Pages encoded between two calls that give frames back: such a call interrupts every processor.
pub(crate) const ENCODE_BATCH: usize = 64;
/// A batch that takes longer is halved the next time: the program grows meanwhile in memory that is not registered yet.
/// With areas only: the codecs of the papers are slow.
const ENCODE_NS_MAX: u64 = 800_000;
const ENCODE_BATCH_MIN: usize = 2;
/// Of these, pages encoded before they are published: their encodings are in a buffer meanwhile, which counts.
const ENCODED_MAX: usize = 16;
/// Encodings published under one hold of the lock.
const PUBLISH_BATCH: usize = 8;
/// Pages that the hand passes under one hold of the lock.
const LOOKS_MAX: u64 = 4096;

/// How an eviction went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evicted {
    /// So many pages are in frames now.
    Moved(PageCount),
    /// The hand found only pages with an age, or spared ones; it is a look less now.
    Aged,
    /// These pages are shared with a forked process, or pinned.
    Shared(PageRange),
    /// A layout message must be read first.
    Changing,
    /// All frames are taken.
    NoFrames,
    /// There is no resident page that is managed.
    Nothing,
    /// The program forks.
    Frozen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoded {
    Nothing,
    SameFilled(u64),
    /// Where in the buffer it is.
    Shorter {
        at: usize,
        bytes: usize,
    },
    Incompressible,
}

impl Encoded {
    /// How long it is: none at all for one repeated word, a page where the codec has made it no shorter.
    fn bytes(self) -> usize {
        match self {
            Self::Nothing | Self::SameFilled(_) => 0,
            Self::Shorter { bytes, .. } => bytes,
            Self::Incompressible => PAGE_BYTES,
        }
    }
}

/// What encoding a batch came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Batch {
    /// Frames that have been given back.
    pub(crate) frames: usize,
    /// Pages that take less memory now. The others went back to the program, or were not wanted any more.
    pub(crate) gained: usize,
}

/// Buffers of one thread that evicts.
pub(crate) struct Worker {
    /// Pages encoded at a time, and the most of them.
    batch: usize,
    batch_max: usize,
    /// Pauses that the batch may still make for the device.
    waits_left: u32,
    scratch: Scratch,
    /// One behind the other, so that the room that most leave is never touched; and room for one page more.
    encodings: Box<[u8]>,
    encoded: [Encoded; ENCODED_MAX],
}

impl Worker {
    /// For the reclaimer: large batches, so that the cost of giving frames back is shared.
    pub(crate) fn patient() -> Self {
        Self::with_batch(ENCODE_BATCH)
    }

    /// For the server: small batches, because a fault waits.
    pub(crate) fn hasty() -> Self {
        Self::with_batch(ENCODE_BATCH / 4)
    }

    fn with_batch(batch: usize) -> Self {
        let encodings = vec![0; (ENCODED_MAX + 1) * PAGE_BYTES].into_boxed_slice();
        let (scratch, encoded) = (Scratch::new(), [Encoded::Nothing; ENCODED_MAX]);
        Self { batch, batch_max: batch, waits_left: 0, scratch, encodings, encoded }
    }

    /// Moves one run of pages out of the program.
    pub(crate) fn evict<K: Kernel, S: Store>(pager: &Pager<K, S>) -> Evicted {
        Self::evict_held(pager, &mut pager.lock())
    }

    /// The same by someone who holds the lock.
    pub(crate) fn evict_held<K: Kernel, S: Store>(pager: &Pager<K, S>, state: &mut State<S>) -> Evicted {
        if state.frozen {
            return Evicted::Frozen;
        }
        if state.is_holding() {
            return Evicted::Changing;
        }
        let room = state.ring.room(MOVE_BATCH);
        if room.count == 0 {
            return Evicted::NoFrames;
        }
        if state.cache.census().resident == PageCount::ZERO {
            return Evicted::Nothing;
        }
        let Some((page, count, victim)) = victims(state, PageCount(room.count as u64)) else {
            return Evicted::Aged;
        };
        let count = count.min(state.regions.run(page, count).max(PageCount(1)));
        let evicted = move_out(pager, state, page, count, room.first);
        if let Evicted::Moved(count) = evicted
            && count > PageCount::ZERO
        {
            state.behind.evicted(page, victim);
            if victim == Victim::Passed {
                pager.entry.add(Counter::DroppedBehind, count.0);
            }
        }
        evicted
    }

    /// Encodes the oldest frames, publishes the encodings and gives the frames back.
    pub(crate) fn encode<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>) -> Batch {
        self.encode_and(pager, &mut || {})
    }

    /// The same with something to do while a page waits for room.
    pub(crate) fn encode_and<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, unblock: &mut dyn FnMut()) -> Batch {
        let window = {
            let mut state = pager.lock();
            if state.frozen {
                return Batch::default();
            }
            state.ring.take(self.batch)
        };
        if window.count == 0 {
            return Batch::default();
        }
        self.waits_left = DEVICE_WAITS_MAX;
        let (mut ns, mut gained) = (0, 0);
        for piece in window.pieces(ENCODED_MAX) {
            ns += self.encode_frames(pager, piece);
            gained += self.publish(pager, piece, unblock);
        }
        if pager.has_area {
            self.batch = next_batch(self.batch, ns, self.batch_max);
        }
        pager.kernel.release(window.first, PageCount(window.count as u64));
        let mut state = pager.lock();
        state.ring.freed(window);
        state.encoded.frames += window.count;
        state.encoded.gained += gained;
        Batch { frames: window.count, gained }
    }

    /// Encodes what waits in these frames; returns what that took, ns.
    fn encode_frames<K: Kernel, S: Store>(&mut self, pager: &Pager<K, S>, window: Window) -> u64 {
        let mut pages = [None; ENCODED_MAX];
        {
            let state = pager.lock();
            for (page, frame) in pages.iter_mut().zip(window.frames()) {
                *page = state.ring.page(frame);
            }
        }
        let begun = pager.kernel.now_ns();
        let (mut encoded, mut used) = (0, 0);
        for (slot, frame) in window.frames().enumerate() {
            self.encoded[slot] = Encoded::Nothing;
            if let Some(page) = pages[slot] {
                // SAFETY: the frame holds a page and is marked as being encoded: nobody moves it, and the only other
                // reader copies it. The frame is ours, so no one writes to it.
                let bytes = unsafe { &*pager.kernel.frame(frame) };
                self.encoded[slot] = self.encode_page(pager, bytes, used);
                pager.note_length(page, self.encoded[slot].bytes());
                if let Encoded::Shorter { bytes, .. } = self.encoded[slot] {
                    used += bytes;
                }
                encoded += 1;
            }
        }
        let ns = pager.kernel.now_ns() - begun;
        pager.entry.add(Counter::Encoded, encoded);
        pager.entry.add(Counter::EncodeNs, ns);
        ns
    }

    /// Encodes a page to a place in the buffer behind which there is room for one.
    fn encode_page<K, S>(&mut self, pager: &Pager<K, S>, bytes: &PageBytes, at: usize) -> Encoded {
        if let Some(word) = same_filled(bytes) {
            return Encoded::SameFilled(word);
        }
        let length = self.encode_bytes(pager, bytes, at);
        length.map_or(Encoded::Incompressible, |bytes| Encoded::Shorter { at, bytes })
    }

    fn encode_bytes<K, S>(&mut self, pager: &Pager<K, S>, bytes: &PageBytes, at: usize) -> Option<usize> {
        let out: &mut [u8; PAGE_BYTES] = self.encodings[at..].first_chunk_mut().expect("room for a page");
        let length = pager.codec.encode(bytes, &mut self.scratch, out)?;
        pager.entry.note_encoding(pager.codec.maker(&out[..length]), length as u64);
        Some(length)
    }

    /// Gives back the memory of buffers, which hold nothing between two batches.
    pub(crate) fn relinquish(&mut self) {
        sys::area::relinquish(&mut self.encodings);
    }

    fn publish<K: Kernel, S: Store>(
        &mut self,
        pager: &Pager<K, S>,
        window: Window,
        unblock: &mut dyn FnMut(),
    ) -> usize {
        let mut gained = 0;
        let mut state = pager.lock();
        for (slot, frame) in window.frames().enumerate() {
            if slot % PUBLISH_BATCH == PUBLISH_BATCH - 1 {
                drop(state);
                state = pager.lock();
            }
            // Asked again: the program may have moved the page while it was encoded.
            let Some(page) = state.ring.page(frame) else { continue };
            // SAFETY: as in `encode`; the frame is released only after this.
            let bytes = unsafe { &*pager.kernel.frame(frame) };
            let outcome = match self.encoded[slot] {
                Encoded::Nothing => continue,
                Encoded::SameFilled(word) => Outcome::SameFilled(word),
                Encoded::Shorter { at, bytes } => Outcome::Encoded(&self.encodings[at..at + bytes]),
                Encoded::Incompressible => Outcome::Incompressible(bytes),
            };
            if !state.cache.gains(outcome) && put_back(pager, &mut state, page, frame, Arrival::Refused) {
                continue;
            }
            let gains = state.cache.gains(outcome);
            let mut published = state.publish(page, frame, bytes, outcome);
            if published == Published::NoRoom && matches!(outcome, Outcome::SameFilled(_)) {
                // Too many distinct words: an encoding of one word repeated is some twenty bytes.
                let at = self.encodings.len() - PAGE_BYTES;
                let length = self.encode_bytes(pager, bytes, at).expect("a page of one word gets shorter");
                self.encoded[slot] = Encoded::Shorter { at, bytes: length };
                published = state.publish(page, frame, bytes, Outcome::Encoded(&self.encodings[at..at + length]));
            }
            // The store has addresses for more than the machine holds, where no limit keeps it from opening them. A page that goes
            // back at once need not wait.
            if published == Published::NoRoom
                && (pager.has_area || !put_back(pager, &mut state, page, frame, Arrival::Recalled))
            {
                drop(state);
                (state, published) = self.wait_for_room(pager, slot, frame, unblock);
            }
            gained += usize::from(published == Published::Done && gains);
        }
        gained
    }
}

/// Pages to encode at a time, after `batch` has taken `ns`.
fn next_batch(batch: usize, ns: u64, batch_max: usize) -> usize {
    if ns > ENCODE_NS_MAX {
        (batch / 2).max(ENCODE_BATCH_MIN)
    } else if 2 * ns <= ENCODE_NS_MAX {
        (batch * 2).min(batch_max)
    } else {
        batch
    }
}

/// The next run to go, and who has chosen it.
fn victims<S: Store>(state: &mut State<S>, run_max: PageCount) -> Option<(PageIndex, PageCount, Victim)> {
    let State { cache, hand, behind, .. } = state;
    while let Some(passed) = behind.next_run() {
        if let Some((page, count)) = cache.resident_run(passed.start, passed.count, Age::TOUCHED) {
            return Some((page, count.min(run_max), Victim::Passed));
        }
    }
    let (page, count) = cache.victims(hand, run_max, LOOKS_MAX)?;
    Some((page, count, Victim::Hand))
}

/// Longest wait for the device, for all pages of a batch together, before they go back to the program.
const DEVICE_WAITS_MAX: u32 = 10;
const DEVICE_PAUSE: Duration = Duration::from_micros(100);

impl Worker {
    /// A page has found no room in the area, and none in the segments on their way below: the device is behind. Waits for
    /// it, or until the page can go back to the program; then it is settled, and its publication is stale.
    ///
    /// Messages that are unread stand in the way of going back. Where the reclaimer waits, the server goes on reading them;
    /// where the server does, `unblock` is that. So this ends.
    fn wait_for_room<'a, K: Kernel, S: Store>(
        &mut self,
        pager: &'a Pager<K, S>,
        slot: usize,
        frame: FrameIndex,
        unblock: &mut dyn FnMut(),
    ) -> (Held<'a, State<S>>, Published) {
        loop {
            pager.retry_writes();
            pager.push_segment(pager.lock());
            let mut state = pager.lock();
            let Some(page) = state.ring.page(frame) else { return (state, Published::Stale) };
            // SAFETY: as in `encode`; the frame is released only after this.
            let bytes = unsafe { &*pager.kernel.frame(frame) };
            let outcome = match self.encoded[slot] {
                Encoded::Shorter { at, bytes } => Outcome::Encoded(&self.encodings[at..at + bytes]),
                Encoded::Incompressible => Outcome::Incompressible(bytes),
                Encoded::Nothing | Encoded::SameFilled(_) => unreachable!("only what takes room waits for it"),
            };
            let published = state.publish(page, frame, bytes, outcome);
            if published != Published::NoRoom {
                return (state, published);
            }
            let is_waited_enough = self.waits_left == 0 || state.cache.log().is_none();
            if is_waited_enough && put_back(pager, &mut state, page, frame, Arrival::Recalled) {
                return (state, Published::Stale);
            }
            drop(state);
            self.waits_left = self.waits_left.saturating_sub(1);
            unblock();
            #[cfg(test)]
            crate::tests::between();
            sys::thread::sleep(DEVICE_PAUSE);
        }
    }
}

/// Brings a frame's page back by moving it. After a fork parent and child share what waited in frames, for good where the other one
/// does not write to it, and to a mapping of other access than the frame's the kernel moves nothing: what cannot be moved for
/// that is copied, and the frame is released with its window. Not over a guard.
fn returns<K: Kernel, S>(pager: &Pager<K, S>, page: PageIndex, frame: FrameIndex) -> bool {
    match pager.kernel.move_back(frame, page) {
        Err(Errno::BUSY | Errno::INVAL) if pager.kernel.holes(page, PageCount(1)) == PageCount(1) => {
            // SAFETY: the frame is of a window that this thread encodes: it holds a page, and nobody writes to it.
            let bytes = unsafe { &*pager.kernel.frame(frame) };
            pager.kernel.fill(page, core::slice::from_ref(bytes)).done == PageCount(1)
        }
        moved => moved.is_ok(),
    }
}

/// Brings a page of the window that is being encoded back to the program, if that can be done now.
fn put_back<K: Kernel, S: Store>(
    pager: &Pager<K, S>,
    state: &mut State<S>,
    page: PageIndex,
    frame: FrameIndex,
    arrival: Arrival,
) -> bool {
    let may_go = !state.is_holding() && state.cache.place(page) == Place::Leaving(frame) && state.copied != Some(page);
    if !may_go || !returns(pager, page, frame) {
        return false;
    }
    state.note_return(page, Arrival::Along);
    state.settle(page, arrival);
    state.ring.vacate(frame);
    true
}

/// Moves pages out and notes where they are. The lock is held: see `Pager::read_messages` for why that is enough.
fn move_out<K: Kernel, S: Store>(
    pager: &Pager<K, S>,
    state: &mut State<S>,
    page: PageIndex,
    count: PageCount,
    first: FrameIndex,
) -> Evicted {
    let moved = pager.kernel.move_out(page, count, first);
    for step in 0..moved.done.0 {
        let (page, frame) = (page + PageCount(step), FrameIndex(first.0 + step as u32));
        state.cache.leave(page, frame);
        state.note_leave(page);
    }
    if moved.done > PageCount::ZERO {
        state.end_window();
    }
    state.ring.filled(first, page, moved.done);
    state.moves.note_run(moved.done);
    pager.entry.add(Counter::Reclaimed, moved.done.0);
    let stopped = PageRange::new(page + moved.done, PageCount(1));
    match moved.error {
        None => Evicted::Moved(moved.done),
        Some(Errno::AGAIN) => Evicted::Changing,
        // Discarded after its message was read and a fault of another thread had brought it once more.
        Some(Errno::NOENT) => {
            state.cache.discard(stopped.start, stopped.end);
            Evicted::Moved(moved.done)
        }
        Some(Errno::BUSY) => Evicted::Shared(stopped),
        // Two mappings side by side are one run for us but not for the kernel: try the first page alone.
        Some(Errno::INVAL) if count > PageCount(1) => move_out(pager, state, page, PageCount(1), first),
        // Locked, or its protection has changed: later perhaps.
        Some(Errno::INVAL | Errno::FAULT | Errno::NOMEM) => {
            state.cache.refuse(stopped.start);
            pager.entry.add(Counter::Unmovable, 1);
            Evicted::Moved(moved.done)
        }
        Some(errno) => panic!("a page cannot be moved out: {errno:?}"),
    }
}

/// Gives the process a copy of its own of pages that it shares with a forked one, then moves them out. Waits in the
/// kernel for faults, so it is for the reclaimer alone, and never under the lock.
pub(crate) fn evict_shared<K: Kernel, S: Store>(pager: &Pager<K, S>, range: PageRange) -> Evicted {
    let unshared = pager.kernel.unshare(range);
    let mut state = pager.lock();
    if state.frozen {
        return Evicted::Frozen;
    }
    if state.is_holding() {
        return Evicted::Changing;
    }
    let room = state.ring.room(range.count());
    if room.count == 0 {
        return Evicted::NoFrames;
    }
    let is_resident = state.cache.place(range.start) == Place::Resident;
    let evicted = match unshared {
        Ok(()) if is_resident => move_out(pager, &mut state, range.start, PageCount(1), room.first),
        _ => Evicted::Moved(PageCount::ZERO),
    };
    if matches!(evicted, Evicted::Shared(_)) || unshared.is_err() {
        // Pinned for a device, or not ours to touch: it keeps its place for some rounds.
        state.cache.refuse(range.start);
        pager.entry.add(Counter::Unmovable, 1);
        return Evicted::Moved(PageCount::ZERO);
    }
    evicted
}
