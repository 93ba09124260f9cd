//! Sweeps: which resident pages go to the store, and which encodings go below.
//!
//! Both are clocks over the page table. They run by address, so that neighbours leave together: one call moves a run
//! of pages, and a segment holds pages that will be wanted together.

use backing::LogFull;
use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use policy::replacement::{Age, Verdict, look};
use store::Store;

use crate::cache::{Cache, Outcome};
use crate::slot::{Place, Slot};
use crate::table::Looking;

/// A clock hand over the resident pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hand {
    next: PageIndex,
    /// How often it has gone round.
    turns: u64,
    /// It spares nobody for having been refused before.
    pub tries_refused: bool,
}

impl Hand {
    /// How often it has gone round.
    pub fn turns(&self) -> u64 {
        self.turns
    }
}

/// How a write-back went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenBack {
    /// Bytes of encodings that left the store.
    pub bytes: ByteCount,
    /// Why the log takes no more for now.
    pub refused: Option<LogFull>,
}

impl<S: Store> Cache<S> {
    /// The next run of at most `run_max` neighbouring pages to reclaim, or none after `looks_max` pages. Pages that are
    /// passed over lose some of their age, or of the rounds for which they are spared.
    pub fn victims(&mut self, hand: &mut Hand, run_max: PageCount, looks_max: u64) -> Option<(PageIndex, PageCount)> {
        let mut wrapped = false;
        for _ in 0..looks_max {
            let Some(page) = self.table.next(&mut hand.next, PageIndex::END, Looking::Resident) else {
                if wrapped {
                    return None;
                }
                wrapped = true;
                hand.next = PageIndex(0);
                hand.turns += 1;
                continue;
            };
            hand.next = page + PageCount(1);
            let slot = self.table.get(page);
            if slot.spared() > 0 && !hand.tries_refused {
                self.table.set(page, slot.with_spared(slot.spared() - 1));
                continue;
            }
            match look(slot.age()) {
                Verdict::Keep(age) => self.table.set(page, slot.with_age(age)),
                Verdict::Reclaim => {
                    let count = self.run_length(page, run_max, hand.tries_refused);
                    hand.next = page + count;
                    return Some((page, count));
                }
            }
        }
        None
    }

    /// How many pages from `page` on go with it: it, and those behind it that are resident, no older than [`Age::BESIDE`], and not
    /// spared, unless nobody is.
    fn run_length(&self, page: PageIndex, run_max: PageCount, spares_nobody: bool) -> PageCount {
        let goes_along = |slot: Slot| may_go(slot, Age::BESIDE) && (spares_nobody || slot.spared() == 0);
        let mut count = PageCount(1);
        while count < run_max && goes_along(self.table.get(page + count)) {
            count += PageCount(1);
        }
        count
    }

    /// The first pages of a run that are side by side, resident, no older than `oldest`, and not spared.
    pub fn resident_run(&self, start: PageIndex, count: PageCount, oldest: Age) -> Option<(PageIndex, PageCount)> {
        let is_one = |step: &u64| {
            let slot = self.table.get(start + PageCount(*step));
            may_go(slot, oldest) && slot.spared() == 0
        };
        let first = (0..count.0).find(is_one)?;
        let end = (first..count.0).find(|step| !is_one(step)).unwrap_or(count.0);
        Some((start + PageCount(first), PageCount(end - first)))
    }

    /// Moves encodings of at least `goal` bytes from the store to the log, those first that have been there for a
    /// whole round of the hand.
    pub fn write_back(&mut self, goal: ByteCount, looks_max: u64) -> WrittenBack {
        let mut done = WrittenBack { bytes: ByteCount::ZERO, refused: None };
        if self.log.is_none() {
            return WrittenBack { refused: Some(LogFull::NoSegment), ..done };
        }
        let mut hand = self.write_back_hand;
        let mut wrapped = false;
        for _ in 0..looks_max {
            if done.bytes >= goal {
                break;
            }
            let Some(page) = self.table.next(&mut hand, PageIndex::END, Looking::Stored) else {
                if wrapped {
                    break;
                }
                wrapped = true;
                hand = PageIndex(0);
                continue;
            };
            let slot = self.table.get(page);
            match look(slot.age()) {
                Verdict::Keep(age) => self.table.set(page, slot.with_age(age)),
                Verdict::Reclaim => match self.write_back_page(page) {
                    Ok(bytes) => done.bytes += bytes,
                    Err(full) => {
                        done.refused = Some(full);
                        break;
                    }
                },
            }
            hand = page + PageCount(1);
        }
        self.write_back_hand = hand;
        done
    }

    /// Moves one encoding from the store to the log.
    fn write_back_page(&mut self, page: PageIndex) -> Result<ByteCount, LogFull> {
        let (Place::Compressed(key) | Place::Incompressible(key)) = self.place(page) else {
            panic!("only a stored page is written back")
        };
        let Self { store, log, table, .. } = self;
        let mut room = [0; PAGE_BYTES];
        let encoding = store.view(key, &mut room);
        let bytes = ByteCount(encoding.len() as u64);
        let below = log.as_mut().ok_or(LogFull::NoSegment)?.append(page, encoding)?;
        table.set(page, table.get(page).moved(Place::Below(below), Age::NONE));
        store.remove(key);
        Ok(bytes)
    }

    /// Whether an outcome would make the process smaller at all. What no codec makes smaller must go below, and the log
    /// is asked each time: when it was full last, room may have come since without anybody offering it something.
    pub fn gains(&self, outcome: Outcome<'_>) -> bool {
        let goes_below = || self.log.as_ref().is_some_and(|log| log.is_worth_waiting_for(PAGE_BYTES));
        !matches!(outcome, Outcome::Incompressible(_)) || goes_below()
    }
}

fn may_go(slot: Slot, oldest: Age) -> bool {
    slot.place() == Place::Resident && slot.age() <= oldest
}
