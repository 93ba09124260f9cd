//! The compressed area of a named system: a store in units, a sizing policy, and the oldest pages going below.
//!
//! All systems of the papers are this loop with other parts in it. A page that finds no room asks the sizing policy, which
//! lets the area grow, lets the oldest page go, or sends the page itself to the backing store; looks and reads let the
//! area shrink. The live pager does without: its store sizes itself.

use backing::LogFull;
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageIndex};
use policy::area::{Area, AreaSizing, Relief, Resizing, Source};
use policy::replacement::Age;
use store::Resize;

use crate::cache::{Cache, Outcome, Published, follow_store};
use crate::slot::{Place, Slot};

/// Decodes an encoding into a page.
pub type Decode = fn(&[u8], &mut PageBytes);

/// In what form pages go from the area to the backing store.
#[derive(Clone, Copy, Debug)]
pub enum WriteBackForm {
    /// As they are stored.
    Encodings,
    /// As pages, so that they need no decoding when they come back.
    Pages(Decode),
}

/// Memory as the sizing policy must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Used by nobody at this moment.
    pub available: ByteCount,
    /// All that area and resident pages share.
    pub total: ByteCount,
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
    /// Pages that went below instead of into the area, because it was full.
    pub refused: u64,
    /// The same, because their encodings are too long for the store.
    pub rejected_poor: u64,
    /// Pages asked for that would have been in memory without compression.
    pub expense_reads: u64,
    /// Pages asked for that would not.
    pub profit_reads: u64,
}

/// How an area is kept.
#[derive(Debug)]
pub struct AreaKeeper<P> {
    sizing: P,
    form: WriteBackForm,
    counters: AreaCounters,
}

impl<P: AreaSizing> AreaKeeper<P> {
    /// By this policy.
    pub const fn new(sizing: P, form: WriteBackForm) -> Self {
        let counters = AreaCounters {
            grown: 0,
            shrunk: 0,
            released: 0,
            refused: 0,
            rejected_poor: 0,
            expense_reads: 0,
            profit_reads: 0,
        };
        Self { sizing, form, counters }
    }

    /// The policy, for its own counters.
    pub const fn sizing(&self) -> &P {
        &self.sizing
    }

    /// What has been done so far.
    pub const fn counters(&self) -> AreaCounters {
        self.counters
    }
}

impl<S: Resize> Cache<S> {
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
        let too_long = match outcome {
            Outcome::SameFilled(_) => false,
            Outcome::Encoded(encoding) => encoding.len() > self.store.encoding_bytes_max(),
            Outcome::Incompressible(_) => PAGE_BYTES > self.store.encoding_bytes_max(),
        };
        if too_long {
            return self.publish_below(page, frame, raw, &mut keeper.counters.rejected_poor);
        }
        loop {
            match self.publish(page, frame, outcome) {
                Published::NoRoom => {}
                done => return done,
            }
            let refuse = match keeper.sizing.full(&self.area(memory)) {
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
        age: Age,
        keeper: &mut AreaKeeper<P>,
        mut memory: Memory,
    ) {
        let source = match self.place(page) {
            Place::Compressed(key) | Place::Incompressible(key) => {
                Some(if self.store.would_be_resident(key) { Source::Expense } else { Source::Profit })
            }
            _ => None,
        };
        self.settle(page, age);
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

    /// The area as policies see it.
    pub fn area(&self, memory: Memory) -> Area {
        let figures = self.store.figures();
        let unit = self.store.unit();
        Area { size: figures.pool, free: figures.free, unit, available: memory.available, memory: memory.total }
    }

    fn grow_area<P>(&mut self, keeper: &mut AreaKeeper<P>, memory: &mut Memory) -> bool {
        let grown = self.store.grow().is_ok();
        if grown {
            keeper.counters.grown += 1;
            memory.available = memory.available.saturating_sub(self.store.unit());
        }
        grown
    }

    fn shrink_once(&mut self) -> bool {
        let Self { table, store, .. } = self;
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
        let key = self.store.oldest().ok_or(LogFull::NoSegment)?;
        let page = self.store.owner(key);
        let compressed = matches!(self.place(page), Place::Compressed(_));
        let Self { store, log, table, .. } = self;
        let mut room = [0; PAGE_BYTES];
        let mut decoded = PageBytes::ZERO;
        let mut bytes = store.view(key, &mut room);
        if let (true, WriteBackForm::Pages(decode)) = (compressed, keeper.form) {
            decode(bytes, &mut decoded);
            bytes = &decoded.0;
        }
        let below = log.as_mut().ok_or(LogFull::NoSegment)?.append(page, bytes)?;
        table.set(page, Slot::new(Place::Below(below), Age::NONE));
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
        self.table.set(page, Slot::new(Place::Below(key), Age::NONE));
        *count += 1;
        Published::Done
    }
}
