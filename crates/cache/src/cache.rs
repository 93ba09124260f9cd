//! The cache itself: one function for each step that a page can take.
//!
//! ```text
//!              leave             publish                write_back
//!  Resident ─────────► Leaving ─────────► SameFilled
//!     ▲ ▲ ▲               │     ─────────► Compressed, Incompressible ─────────► Below
//!     │ │ └────settle─────┘                        │                               │
//!     │ └──────────────────────settle──────────────┘                               │
//!     └────────────────────────settle──────────────────────────────────────────────┘
//!                          Compressed, Incompressible ◄──────────promote───────── Below
//!  discard: any place ─► Untouched ─settle─► Resident        remap: any place, to another page
//! ```

use backing::{BackingKey, CleanJob, Located, LogFigures, ReadJob, SegmentLog};
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::replacement::{Age, Arrival, arrive};
use store::{Store, StoreFigures, StoreKey};

use crate::slot::{Departures, Place, Slot};
use crate::table::{Looking, PageTable};
use crate::words::Words;

/// Where a page was found, and its bytes where they are at hand.
#[derive(Debug)]
pub enum Lookup {
    /// With the program.
    Resident,
    /// Nowhere: zeros.
    Zeros,
    /// Nowhere: one repeated word.
    Filled(u64),
    /// In a frame.
    Leaving(FrameIndex),
    /// Its encoding of so many bytes has been copied out. A whole page of bytes is the page itself.
    Encoded(usize),
    /// On the medium: run the job without the lock, then hand it to [`Cache::finish_read`].
    Backed(ReadJob),
}

/// Where a page was found that would come along with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Nowhere: zeros.
    Zeros,
    /// Nowhere: one repeated word.
    Filled(u64),
    /// Its encoding of so many bytes has been copied out.
    Encoded(usize),
    /// On the medium: the job reads it, too.
    Joined,
    /// Where it cannot come along from: with the program, on its way, or elsewhere on the medium.
    Apart,
}

/// What became of a page that has left.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It is one repeated word.
    SameFilled(u64),
    /// It got smaller.
    Encoded(&'a [u8]),
    /// It did not.
    Incompressible(&'a PageBytes),
}

/// How a publication went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Published {
    /// The page is where the outcome says; its frame is free.
    Done,
    /// The page has been asked for, discarded or moved meanwhile; its frame is free, the outcome is of no use.
    Stale,
    /// No room for it. The page is still leaving.
    NoRoom,
}

/// Pages by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// With the program.
    pub resident: PageCount,
    /// In frames.
    pub leaving: PageCount,
    /// One repeated word.
    pub same_filled: PageCount,
    /// In the store, smaller.
    pub compressed: PageCount,
    /// In the store as they are.
    pub incompressible: PageCount,
    /// In the segment log.
    pub below: PageCount,
}

/// The compressed cache over a store and, where there is a swap file, a segment log.
#[derive(Debug)]
pub struct Cache<S> {
    pub(crate) table: PageTable,
    words: Words,
    pub(crate) store: S,
    pub(crate) log: Option<SegmentLog>,
    pub(crate) write_back_hand: PageIndex,
    departures: Departures,
}

impl<S: Store> Cache<S> {
    /// An empty cache.
    pub fn new(store: S, log: Option<SegmentLog>) -> Self {
        let (table, words) = (PageTable::default(), Words::default());
        Self { table, words, store, log, write_back_hand: PageIndex(0), departures: Departures::default() }
    }

    /// Where a page is.
    pub fn place(&self, page: PageIndex) -> Place {
        self.table.get(page).place()
    }

    /// Where a page is, with its bytes: an encoding is copied to `copy`, so that the lock need not be held while it is
    /// decoded. Changes nothing: the page stays where it is until [`Cache::settle`].
    pub fn look_up(&mut self, page: PageIndex, copy: &mut [u8; PAGE_BYTES]) -> Lookup {
        match self.place(page) {
            Place::Untouched => Lookup::Zeros,
            Place::Resident => Lookup::Resident,
            Place::Leaving(frame) => Lookup::Leaving(frame),
            Place::SameFilled(word) => Lookup::Filled(self.words.get(word)),
            Place::Compressed(key) | Place::Incompressible(key) => Lookup::Encoded(self.store.read(key, copy)),
            Place::Below(key) => match self.log_mut().locate(key) {
                Located::Memory(encoding) => Lookup::Encoded(copy_out(encoding, copy)),
                Located::Disk(job) => Lookup::Backed(job),
            },
        }
    }

    /// The same for a page that nobody asks for, if that costs no request of its own: from the medium it comes with `job`,
    /// as one of its others.
    pub fn look_beside(&self, page: PageIndex, copy: &mut [u8; PAGE_BYTES], job: Option<&mut ReadJob>) -> Beside {
        match self.place(page) {
            Place::Untouched => Beside::Zeros,
            Place::SameFilled(word) => Beside::Filled(self.words.get(word)),
            Place::Compressed(key) | Place::Incompressible(key) => Beside::Encoded(self.store.read(key, copy)),
            Place::Below(key) => match self.log.as_ref().expect("a page is below").locate_beside(key, job) {
                backing::Beside::Memory(encoding) => Beside::Encoded(copy_out(encoding, copy)),
                backing::Beside::Joined => Beside::Joined,
                backing::Beside::Apart => Beside::Apart,
            },
            Place::Resident | Place::Leaving(_) => Beside::Apart,
        }
    }

    /// A job for a page that nobody asks for yet, if it is on the medium.
    pub fn look_below(&mut self, page: PageIndex) -> Option<ReadJob> {
        let Place::Below(key) = self.place(page) else { return None };
        match self.log_mut().locate(key) {
            Located::Disk(job) => Some(job),
            Located::Memory(_) => None,
        }
    }

    /// Has a job of [`Lookup::Backed`] read ahead; for [`Cache::promote`].
    pub fn read_ahead(&self, job: &mut ReadJob) {
        self.log.as_ref().expect("a job comes from a log").read_ahead(job);
    }

    /// An encoding that has been read ahead goes back to the store, unless its page has been asked for or discarded meanwhile, or there
    /// is no room. Says whether it does. What nobody asks for then is the first to go below again.
    pub fn promote(&mut self, key: BackingKey, encoding: &[u8]) -> bool {
        let Some(page) = self.log_mut().live_owner(key) else { return false };
        let slot = self.table.get(page);
        assert!(slot.place() == Place::Below(key), "{key:?} is not of {page:?}");
        let Ok(stored) = self.store.put(page, encoding) else { return false };
        let is_shorter = encoding.len() < PAGE_BYTES;
        let place = if is_shorter { Place::Compressed(stored) } else { Place::Incompressible(stored) };
        self.log_mut().discard(key);
        self.table.set(page, slot.moved(place, Age::NONE));
        true
    }

    /// Returns a job of [`Lookup::Backed`].
    pub fn finish_read(&mut self, job: ReadJob) {
        self.log_mut().finish_read(job);
    }

    /// The same for one that has not read anything.
    pub fn forgo_read(&mut self, job: ReadJob) {
        self.log_mut().forgo_read(job);
    }

    /// The page is with the program now, wherever it was; what was kept of it is dropped.
    pub fn settle(&mut self, page: PageIndex, arrival: Arrival) {
        let before = self.table.get(page);
        let (age, level) = arrive(arrival, before.level(), self.refault_distance(page), self.pages_in_memory());
        self.drop_bytes(page);
        let refusals = before.refusals().after(arrival);
        let spared = if arrival == Arrival::Refused { refusals.rounds(page) } else { 0 };
        let slot = Slot::new(Place::Resident, age).with_level(level);
        self.table.set(page, slot.with_refusals(refusals).with_spared(spared));
    }

    /// A resident page could not be moved out: it is no better than one that has come back refused.
    pub fn refuse(&mut self, page: PageIndex) {
        if self.place(page) == Place::Resident {
            self.settle(page, Arrival::Refused);
        }
    }

    /// A resident page has been moved to `frame`.
    pub fn leave(&mut self, page: PageIndex, frame: FrameIndex) {
        assert!(self.place(page) == Place::Resident, "only a resident page can leave");
        self.departures = self.departures.next();
        let slot = self.table.get(page).moved(Place::Leaving(frame), Age::NONE);
        self.table.set(page, slot.with_left(self.departures));
    }

    /// A page that waits lies in another frame now.
    pub fn reframe(&mut self, page: PageIndex, frame: FrameIndex) {
        let slot = self.table.get(page);
        assert!(matches!(slot.place(), Place::Leaving(_)), "{page:?} waits in no frame");
        self.table.set(page, slot.moved(Place::Leaving(frame), slot.age()));
    }

    fn pages_in_memory(&self) -> PageCount {
        let census = self.census();
        census.resident + census.leaving
    }

    /// Pages that have left since this one did; `None` if it has never left, or is back.
    pub fn refault_distance(&self, page: PageIndex) -> Option<PageCount> {
        let slot = self.table.get(page);
        (!matches!(slot.place(), Place::Untouched | Place::Resident)).then(|| self.departures.since(slot.left()))
    }

    /// What `page` became while it lay in `frame`. Encodings are copied.
    pub fn publish(&mut self, page: PageIndex, frame: FrameIndex, outcome: Outcome<'_>) -> Published {
        if self.place(page) != Place::Leaving(frame) {
            return Published::Stale;
        }
        let place = match outcome {
            Outcome::SameFilled(word) => self.words.take(word).map(Place::SameFilled),
            Outcome::Encoded(encoding) => {
                assert!(encoding.len() < PAGE_BYTES);
                self.store.put(page, encoding).ok().map(Place::Compressed)
            }
            Outcome::Incompressible(bytes) => self.store.put(page, &bytes.0).ok().map(Place::Incompressible),
        };
        let Some(place) = place else { return Published::NoRoom };
        self.table.set(page, self.table.get(page).moved(place, Age::TOUCHED));
        Published::Done
    }

    /// The pages from `start` to `end` are zeros from now on, or not managed any more.
    pub fn discard(&mut self, start: PageIndex, end: PageIndex) {
        let mut from = start;
        while let Some(page) = self.table.next(&mut from, end, Looking::Used) {
            self.drop_bytes(page);
            self.table.set(page, Slot::default());
            from = page + PageCount(1);
        }
    }

    /// The resident pages from `start` to `end` turn out not to be there: they have been discarded.
    pub fn forget_resident(&mut self, start: PageIndex, end: PageIndex) {
        let mut from = start;
        while let Some(page) = self.table.next(&mut from, end, Looking::Resident) {
            self.table.set(page, Slot::default());
            from = page + PageCount(1);
        }
    }

    /// The first page from `from` on whose bytes are not with the program.
    pub fn next_away(&self, mut from: PageIndex) -> Option<PageIndex> {
        loop {
            let page = self.table.next(&mut from, PageIndex::END, Looking::Used)?;
            if self.place(page) != Place::Resident {
                return Some(page);
            }
            from = page + PageCount(1);
        }
    }

    /// The program has moved the pages from `start` to `end` so that they begin at `to`. `frame_moved` hears of each
    /// leaving page's new index.
    pub fn remap(
        &mut self,
        start: PageIndex,
        end: PageIndex,
        to: PageIndex,
        frame_moved: &mut dyn FnMut(FrameIndex, PageIndex),
    ) {
        self.discard(to, to + (end - start));
        let mut from = start;
        while let Some(page) = self.table.next(&mut from, end, Looking::Used) {
            let slot = self.table.get(page);
            let new = to + (page - start);
            match slot.place() {
                Place::Compressed(key) | Place::Incompressible(key) => self.store.set_owner(key, new),
                Place::Below(key) => self.log_mut().set_owner(key, new),
                Place::Leaving(frame) => frame_moved(frame, new),
                Place::Untouched | Place::Resident | Place::SameFilled(_) => {}
            }
            self.table.set(page, Slot::default());
            self.table.set(new, slot);
            from = page + PageCount(1);
        }
    }

    /// Moves at most `encodings_max` encodings inside the store so that frames can be given back; returns the bytes.
    pub fn compact(&mut self, encodings_max: usize) -> ByteCount {
        let Self { table, store, .. } = self;
        store.compact(encodings_max, &mut |owner, from, to| follow_store(table, owner, from, to))
    }

    /// Moves at most `entries_max` of the encodings that a cleaning found still wanted to the open segment. Says whether
    /// there are more.
    pub fn clean_some(&mut self, job: &mut CleanJob, entries_max: usize) -> bool {
        let Self { table, log, .. } = self;
        let log = log.as_mut().expect("a job comes from a log");
        log.clean_some(job, entries_max, &mut |owner, from, to| follow_log(table, owner, from, to))
    }

    /// Ends a cleaning.
    pub fn finish_clean(&mut self, job: CleanJob) {
        let Self { table, log, .. } = self;
        let log = log.as_mut().expect("a job comes from a log");
        let _ = log.finish_clean(job, &mut |owner, from, to| follow_log(table, owner, from, to));
    }

    /// The segment log, for its jobs.
    pub fn log(&mut self) -> Option<&mut SegmentLog> {
        self.log.as_mut()
    }

    /// Pages by place.
    pub fn census(&self) -> Census {
        Census {
            resident: self.table.count(1),
            leaving: self.table.count(2),
            same_filled: self.table.count(3),
            compressed: self.table.count(4),
            incompressible: self.table.count(5),
            below: self.table.count(6),
        }
    }

    /// The store's numbers.
    pub fn store_figures(&self) -> StoreFigures {
        self.store.figures()
    }

    /// The log's numbers; none without a swap file.
    pub fn log_figures(&self) -> Option<LogFigures> {
        self.log.as_ref().map(SegmentLog::figures)
    }

    /// Memory of all tables, store and log included.
    pub fn metadata_bytes(&self) -> ByteCount {
        let log = self.log_figures().map_or(0, |figures| figures.metadata_bytes);
        ByteCount(self.table.metadata_bytes() + self.words.metadata_bytes() + log) + self.store.figures().metadata
    }

    /// Asserts that table, store and log agree. For tests: it takes its time.
    pub fn check(&self) {
        self.store.check();
        let census = self.census();
        assert_eq!(self.store.figures().encodings, census.compressed.0 + census.incompressible.0);
        if let Some(log) = &self.log {
            log.check();
            assert_eq!(log.figures().entries, census.below.0);
        }
        let mut from = PageIndex(0);
        while let Some(page) = self.table.next(&mut from, PageIndex::END, Looking::Used) {
            match self.place(page) {
                Place::Compressed(key) | Place::Incompressible(key) => assert_eq!(self.store.owner(key), page),
                Place::Below(key) => assert_eq!(self.log.as_ref().map(|log| log.owner(key)), Some(page)),
                _ => {}
            }
            from = page + PageCount(1);
        }
    }

    pub(crate) fn log_mut(&mut self) -> &mut SegmentLog {
        self.log.as_mut().expect("a page is below only if there is a log")
    }

    /// Gives back whatever holds the page's bytes. The caller sets the slot.
    fn drop_bytes(&mut self, page: PageIndex) {
        match self.place(page) {
            // A frame belongs to the front end, which finds its page gone when it publishes.
            Place::Untouched | Place::Resident | Place::Leaving(_) => {}
            Place::SameFilled(word) => self.words.release(word),
            Place::Compressed(key) | Place::Incompressible(key) => self.store.remove(key),
            Place::Below(key) => self.log_mut().discard(key),
        }
    }
}

fn copy_out(encoding: &[u8], copy: &mut [u8; PAGE_BYTES]) -> usize {
    copy[..encoding.len()].copy_from_slice(encoding);
    encoding.len()
}

pub(crate) fn follow_store(table: &mut PageTable, owner: PageIndex, from: StoreKey, to: StoreKey) {
    let slot = table.get(owner);
    let place = match slot.place() {
        Place::Compressed(key) if key == from => Place::Compressed(to),
        Place::Incompressible(key) if key == from => Place::Incompressible(to),
        other => panic!("the store moved {from:?} of {owner:?}, which is {other:?}"),
    };
    table.set(owner, slot.moved(place, slot.age()));
}

fn follow_log(table: &mut PageTable, owner: PageIndex, from: BackingKey, to: BackingKey) {
    let slot = table.get(owner);
    assert!(slot.place() == Place::Below(from), "the log moved {from:?}, which is not of {owner:?}");
    table.set(owner, slot.moved(Place::Below(to), Age::NONE));
}
