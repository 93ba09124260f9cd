//! Places: where the program's threads have mapped something since the reclaimer has last looked.
//!
//! So that it need not look everywhere. A thread puts down its place before it announces it ([`crate::announce`]): who knows of the
//! announcement finds the place, or that places are missing.

use alloc::vec::Vec;

use page::{PageCount, PageIndex};
use sys::kernel::PageRange;
use sys::sync::{AtomicBool, AtomicU64, Ordering};

/// A place in one word: its first page, and below that how many pages it has, which is never 0.
const COUNT_BITS: u32 = 29;
const START_BITS: u32 = 64 - COUNT_BITS;
/// Of more it is as cheap to look everywhere.
const KNOWN_MAX: usize = 256;

/// Without a lock, as the announcements.
#[derive(Debug)]
pub(crate) struct Places<const COUNT: usize> {
    /// 0 is an empty one.
    slots: [AtomicU64; COUNT],
    /// A place has found no room, or is not known.
    has_lost: AtomicBool,
}

/// What the reclaimer has taken from there and not looked at yet.
#[derive(Debug, Default)]
pub(crate) struct Told {
    places: Vec<PageRange>,
    has_lost: bool,
}

impl<const COUNT: usize> Default for Places<COUNT> {
    fn default() -> Self {
        Self { slots: core::array::from_fn(|_| AtomicU64::default()), has_lost: AtomicBool::default() }
    }
}

impl<const COUNT: usize> Places<COUNT> {
    /// One more.
    pub(crate) fn put(&self, place: Option<PageRange>) {
        // Relaxed: the announcement that follows publishes it. Each slot is tried, whatever `has_lost` says: that may just have been
        // taken, by a look that knows nothing of the announcement.
        let is_put = place.and_then(packed).is_some_and(|word| {
            self.slots.iter().any(|slot| {
                slot.load(Ordering::Relaxed) == 0
                    && slot.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            })
        });
        if !is_put {
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Hands all to the reclaimer: those of all announcements that it has seen before.
    pub(crate) fn take(&self, told: &mut Told) {
        told.has_lost |= self.has_lost.swap(false, Ordering::Relaxed);
        for slot in self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0) {
            told.add(unpacked(slot.swap(0, Ordering::Relaxed)));
        }
    }

    /// Whether places are missing.
    pub(crate) fn have_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }
}

impl Told {
    fn add(&mut self, place: PageRange) {
        if self.places.len() < KNOWN_MAX {
            self.places.push(place);
        } else {
            self.lose();
        }
    }

    /// From now on only a look everywhere finds them all.
    pub(crate) fn lose(&mut self) {
        self.has_lost = true;
    }

    /// Everything has been looked at.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.has_lost = false;
    }

    /// By address; `None` if some are missing.
    pub(crate) fn known(&mut self) -> Option<&[PageRange]> {
        self.places.sort_unstable_by_key(|place| place.start);
        (!self.has_lost).then_some(&self.places)
    }

    /// Whether some are missing.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }
}

fn packed(place: PageRange) -> Option<u64> {
    let (start, count) = (place.start.0, place.end.0.checked_sub(place.start.0)?);
    let fits = count > 0 && count < 1 << COUNT_BITS && start < 1 << START_BITS;
    fits.then_some(start << COUNT_BITS | count)
}

fn unpacked(word: u64) -> PageRange {
    let (start, count) = (word >> COUNT_BITS, word & ((1 << COUNT_BITS) - 1));
    PageRange { start: PageIndex(start), end: PageIndex(start) + PageCount(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(count))
    }

    #[test]
    fn what_is_put_is_taken_once() {
        let (places, mut told) = (Places::<3>::default(), Told::default());
        let all = [range(7, 1), range((1 << START_BITS) - 1, (1 << COUNT_BITS) - 1), range(0, 1 << 28)];
        for place in all {
            places.put(Some(place));
        }
        places.take(&mut told);
        assert_eq!(told.known(), Some(&[all[2], all[0], all[1]][..]));
        places.take(&mut told);
        assert_eq!(told.known().map(<[_]>::len), Some(3));
        told.clear();
        assert_eq!(told.known(), Some(&[][..]));
    }

    #[test]
    fn what_finds_no_room_is_missed() {
        let odd = [None, Some(range(1 << START_BITS, 1)), Some(range(1, 1 << COUNT_BITS)), Some(range(5, 0))];
        for lost in odd {
            let (places, mut told) = (Places::<3>::default(), Told::default());
            places.put(lost);
            assert!(places.have_lost(), "{lost:?}");
            places.take(&mut told);
            assert!(told.known().is_none() && told.has_lost() && !places.have_lost());
        }
        let (places, mut told) = (Places::<3>::default(), Told::default());
        for start in 0..3 {
            places.put(Some(range(start, 1)));
            assert!(!places.have_lost());
        }
        places.put(Some(range(3, 1)));
        places.take(&mut told);
        assert!(told.known().is_none());
        told.clear();
        // The reclaimer does not keep any number of them.
        for start in 0..=KNOWN_MAX as u64 {
            assert_eq!(told.known().map(<[_]>::len), Some(start as usize));
            places.put(Some(range(start, 1)));
            places.take(&mut told);
        }
        assert!(told.known().is_none());
    }
}
