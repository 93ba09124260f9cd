//! The compressed area of a named system: a store in units, a sizing policy, and the oldest pages going below.
//!
//! All systems of the papers are this loop with other parts in it. A page that finds no room asks the sizing policy, which
//! lets the area grow, lets the oldest page go, or sends the page itself to the backing store; looks and reads let the
//! area shrink. The default system does without: its store sizes itself.

use alloc::boxed::Box;

use backing::LogFull;
use codec::Codec;
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::area::{Area, AreaSizing, Relief, Resizing, Source};
use policy::replacement::{Age, Arrival};
use policy::write_back::FreeEntries;
use store::{Resize, Store};

use crate::cache::{Cache, Outcome, Published, follow_store};
use crate::slot::Place;
use crate::sweep::WrittenBack;
use crate::system::{Admission, WriteBack};

/// Memory as the sizing policy must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Used by nobody at this moment.
    pub available: ByteCount,
    /// All that area and resident pages share.
    pub total: ByteCount,
    /// The most that the area may take of it, whatever the policy says.
    pub area_max: ByteCount,
}

/// What has been done to an area so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AreaCounters {
    /// Units added.
    pub grown: u64,
    /// Units given back.
    pub shrunk: u64,
    /// Pages that went below because they were the oldest.
    pub released: u64,
    /// Times a page found no room, and the area was not to grow.
    pub limit_hits: u64,
    /// Pages that went below instead of into the area, because it was full.
    pub refused: u64,
    /// The same, because they do not get short enough for the area.
    pub rejected_poor: u64,
    /// Pages asked for that would have been in memory without compression.
    pub expense_reads: u64,
    /// Pages asked for that would not.
    pub profit_reads: u64,
}

/// How an area is kept.
pub struct AreaKeeper<P = Box<dyn AreaSizing + Send>> {
    sizing: P,
    rules: Rules,
    counters: AreaCounters,
}

/// What an area keeps to, beside its size.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Which pages it takes.
    pub admission: Admission,
    /// In what form they go from it to the backing store.
    pub write_back: WriteBack,
    /// What they are encoded with.
    pub codec: &'static dyn Codec,
    /// Room that is made before it is asked for; none if pages leave only when there is no room for another one.
    pub daemon: Option<FreeEntries>,
}

impl<P> core::fmt::Debug for AreaKeeper<P> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("AreaKeeper").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl<P: AreaSizing> AreaKeeper<P> {
    /// By this policy and these rules.
    pub fn new(sizing: P, rules: Rules) -> Self {
        Self { sizing, rules, counters: AreaCounters::default() }
    }

    /// Whether those who need memory are to wait until the area has got emptier.
    pub fn stalls(&self) -> bool {
        self.sizing.stalls()
    }

    /// What has been done so far.
    pub const fn counters(&self) -> AreaCounters {
        self.counters
    }
}

impl<S: Store> Cache<S> {
    /// What `page`, which is `raw`, became while it lay in `frame`: as [`Cache::publish`], but making room as the keeper's
    /// policy says. `NoRoom` only if the backing store takes no more.
    pub fn publish_in_area<P: AreaSizing>(
        &mut self,
        page: PageIndex,
        frame: FrameIndex,
        raw: &PageBytes,
        outcome: Outcome<'_>,
        keeper: &mut AreaKeeper<P>,
        mut memory: Memory,
    ) -> Published {
        let bytes_max = self.resizable().encoding_bytes_max();
        let is_poor = match outcome {
            Outcome::SameFilled(_) => false,
            Outcome::Encoded(encoding) => encoding.len() > bytes_max,
            Outcome::Incompressible(_) => PAGE_BYTES > bytes_max || keeper.rules.admission == Admission::RejectPoor,
        };
        if is_poor {
            return self.publish_below(page, frame, raw, &mut keeper.counters.rejected_poor);
        }
        loop {
            match self.publish(page, frame, outcome) {
                Published::NoRoom => {}
                done => return done,
            }
            if matches!(outcome, Outcome::SameFilled(_)) {
                return Published::NoRoom; // For its word, which the area has nothing to do with.
            }
            let relief = keeper.sizing.full(&self.area(memory));
            keeper.counters.limit_hits += u64::from(relief != Relief::Grow);
            let refuse = match relief {
                Relief::Refuse => true,
                // Where nothing can be had any more, the page goes the way of the refused.
                Relief::Grow => !self.grow_area(keeper, &mut memory),
                Relief::ReleaseOldest => self.release_oldest(keeper).is_err(),
            };
            if refuse {
                return self.publish_below(page, frame, raw, &mut keeper.counters.refused);
            }
        }
    }

    /// A look at the area, now and then. Says whether anything has changed; look again then.
    pub fn look_at_area<P: AreaSizing>(&mut self, keeper: &mut AreaKeeper<P>, mut memory: Memory) -> bool {
        match keeper.sizing.look(&self.area(memory)) {
            Resizing::Keep => false,
            Resizing::Grow => self.grow_area(keeper, &mut memory),
            Resizing::Shrink => self.shrink_area(keeper),
            Resizing::ShrinkOrRelease => self.shrink_or_release(keeper),
            Resizing::ReleaseOldest => self.release_oldest(keeper).is_ok(),
        }
    }

    /// The page is with the program now, as [`Cache::settle`]; if it was in the area, the policy learns from where.
    pub fn settle_from_area<P: AreaSizing>(
        &mut self,
        page: PageIndex,
        arrival: Arrival,
        keeper: &mut AreaKeeper<P>,
        mut memory: Memory,
    ) {
        let source = match self.place(page) {
            Place::Compressed(key) | Place::Incompressible(key) => {
                Some(if self.resizable().would_be_resident(key) { Source::Expense } else { Source::Profit })
            }
            _ => None,
        };
        self.settle(page, arrival);
        let Some(source) = source else { return };
        match source {
            Source::Expense => keeper.counters.expense_reads += 1,
            Source::Profit => keeper.counters.profit_reads += 1,
        }
        let _ = match keeper.sizing.read(source) {
            Resizing::Keep => false,
            Resizing::Grow => self.grow_area(keeper, &mut memory),
            Resizing::Shrink => self.shrink_area(keeper),
            Resizing::ShrinkOrRelease => self.shrink_or_release(keeper),
            Resizing::ReleaseOldest => self.release_oldest(keeper).is_ok(),
        };
    }

    /// Makes room before it is asked for: as much as the daemon keeps, and `goal` of the area if it is to be smaller. At
    /// most so many pages are let go. `bytes` are what the area has got smaller by, or emptier.
    pub fn relieve_area<P: AreaSizing>(
        &mut self,
        keeper: &mut AreaKeeper<P>,
        goal: ByteCount,
        pages_max: u64,
    ) -> WrittenBack {
        let mut done = WrittenBack { bytes: ByteCount::ZERO, refused: None };
        for _ in 0..pages_max {
            let before = self.store.figures();
            let is_large = done.bytes < goal;
            let entries = PageCount(before.free.0 / PAGE_BYTES as u64);
            let wants_entries =
                keeper.rules.daemon.is_some_and(|daemon| daemon.pages_to_release(entries) > PageCount::ZERO);
            if before.encodings == 0 && before.pool == ByteCount::ZERO || !is_large && !wants_entries {
                break;
            }
            let shrunk = is_large && self.shrink_once();
            keeper.counters.shrunk += u64::from(shrunk);
            if !shrunk && let Err(full) = self.release_oldest(keeper) {
                done.refused = Some(full);
                break;
            }
            let after = self.store.figures();
            done.bytes += before.pool.saturating_sub(after.pool).max(before.stored.saturating_sub(after.stored));
        }
        done
    }

    /// The area as policies see it.
    fn area(&mut self, memory: Memory) -> Area {
        let figures = self.store.figures();
        let unit = self.resizable().unit();
        let Memory { available, total, area_max } = memory;
        Area { size: figures.pool, free: figures.free, unit, available, memory: total, size_max: area_max }
    }

    /// Only a store in units has a keeper.
    fn resizable(&mut self) -> &mut dyn Resize {
        self.store.as_area().expect("a store that sizes itself has no keeper")
    }

    fn grow_area<P>(&mut self, keeper: &mut AreaKeeper<P>, memory: &mut Memory) -> bool {
        let size = self.store.figures().pool;
        let store = self.resizable();
        let unit = store.unit();
        let grown = size + unit <= memory.area_max && store.grow().is_ok();
        if grown {
            keeper.counters.grown += 1;
            memory.available = memory.available.saturating_sub(unit);
        }
        grown
    }

    fn shrink_once(&mut self) -> bool {
        let Self { table, store, .. } = self;
        let store = store.as_area().expect("a store that sizes itself has no keeper");
        store.shrink(&mut |owner, from, to| follow_store(table, owner, from, to)).is_ok()
    }

    /// Gives a unit back, and lets as many of the oldest go as that takes.
    fn shrink_area<P>(&mut self, keeper: &mut AreaKeeper<P>) -> bool {
        while !self.shrink_once() {
            if self.release_oldest(keeper).is_err() {
                return false;
            }
        }
        keeper.counters.shrunk += 1;
        true
    }

    fn shrink_or_release<P>(&mut self, keeper: &mut AreaKeeper<P>) -> bool {
        let shrunk = self.shrink_once();
        keeper.counters.shrunk += u64::from(shrunk);
        shrunk || self.release_oldest(keeper).is_ok()
    }

    /// Moves the oldest page of the area below.
    fn release_oldest<P>(&mut self, keeper: &mut AreaKeeper<P>) -> Result<(), LogFull> {
        let key = self.resizable().oldest().ok_or(LogFull::NoSegment)?;
        let page = self.store.owner(key);
        let compressed = matches!(self.place(page), Place::Compressed(_));
        let Self { store, log, table, .. } = self;
        let mut room = [0; PAGE_BYTES];
        let mut decoded = PageBytes::ZERO;
        let mut bytes = store.view(key, &mut room);
        if compressed && keeper.rules.write_back == WriteBack::Pages {
            // An encoding that somebody has damaged goes below as it is, and whoever asks for the page hears of it.
            if keeper.rules.codec.decode(bytes, &mut decoded).is_ok() {
                bytes = &decoded.0;
            }
        }
        let below = log.as_mut().ok_or(LogFull::NoSegment)?.append(page, bytes)?;
        table.set(page, table.get(page).moved(Place::Below(below), Age::NONE));
        store.remove(key);
        keeper.counters.released += 1;
        Ok(())
    }

    /// Sends a page that is leaving to the backing store as it is.
    fn publish_below(&mut self, page: PageIndex, frame: FrameIndex, raw: &PageBytes, count: &mut u64) -> Published {
        if self.place(page) != Place::Leaving(frame) {
            return Published::Stale;
        }
        let Some(log) = &mut self.log else { return Published::NoRoom };
        let Ok(key) = log.append(page, &raw.0) else { return Published::NoRoom };
        self.table.set(page, self.table.get(page).moved(Place::Below(key), Age::NONE));
        *count += 1;
        Published::Done
    }
}
