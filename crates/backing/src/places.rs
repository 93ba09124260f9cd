//! Places: which parts of our own file are free, and which must wait for forked children that still read them.
//!
//! A pin covers the segments that were on the medium when it was made. So the pins are counted: a segment remembers
//! how many there had been when it was written (`born`), a freed place how many when it was freed (`died`), and pin `t`
//! covers the place if `born <= t < died`. A place is reused when no living pin covers it.

use alloc::vec::Vec;

/// A forked child reads segments of this process. Given back with `SegmentLog::unpin_child`.
#[derive(PartialEq, Eq, Debug)]
pub struct ChildPin(u64);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Limbo {
    place: u32,
    born: u64,
    died: u64,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Places {
    capacity: u32,
    /// Places from here on have never been used.
    fresh: u32,
    /// Free, but the file system may still hold blocks for them. The last is taken first.
    stored: Vec<u32>,
    /// Free and punched out.
    bare: Vec<u32>,
    /// Freed, but covered by a pin.
    limbo: Vec<Limbo>,
    /// Ascending.
    pins: Vec<u64>,
    pins_made: u64,
}

impl Places {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn free(&self) -> u32 {
        (self.stored.len() + self.bare.len()) as u32 + self.capacity - self.fresh
    }

    /// Places for which the file system holds blocks and that are neither free nor in use.
    pub(crate) fn in_limbo(&self) -> usize {
        self.limbo.len()
    }

    /// Free places that still cost blocks.
    pub(crate) fn stored(&self) -> usize {
        self.stored.len()
    }

    /// A free place; one that has blocks before one that needs them.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(place) = self.stored.pop().or_else(|| self.bare.pop()) {
            return Some(place);
        }
        (self.fresh < self.capacity).then(|| {
            self.fresh += 1;
            // Room for all that may be freed, so that `release` does not allocate.
            self.stored.reserve(self.fresh as usize - self.stored.len());
            self.fresh - 1
        })
    }

    /// Gives back a place that no child has ever seen.
    pub(crate) fn put_back(&mut self, place: u32) {
        self.stored.push(place);
    }

    /// Gives back the place of a segment that had reached the medium.
    pub(crate) fn release(&mut self, place: u32, born: u64) {
        if self.is_covered(born) {
            self.limbo.push(Limbo { place, born, died: self.pins_made });
        } else {
            self.stored.push(place);
        }
    }

    /// Whether a living pin keeps a segment of that birth from being reused.
    pub(crate) fn is_covered(&self, born: u64) -> bool {
        self.pins.last().is_some_and(|&pin| born <= pin)
    }

    /// What a segment that reaches the medium now has to remember.
    pub(crate) fn now(&self) -> u64 {
        self.pins_made
    }

    pub(crate) fn pin(&mut self) -> ChildPin {
        let pin = self.pins_made;
        self.pins_made += 1;
        self.pins.push(pin);
        ChildPin(pin)
    }

    pub(crate) fn unpin(&mut self, pin: &ChildPin) {
        let at = self.pins.binary_search(&pin.0).expect("a child pin is given back once, to the log that made it");
        self.pins.remove(at);
        let Self { limbo, pins, stored, .. } = self;
        limbo.retain(|waiting| {
            let oldest_that_may_cover = pins.partition_point(|&pin| pin < waiting.born);
            let covered = pins.get(oldest_that_may_cover).is_some_and(|&pin| pin < waiting.died);
            if !covered {
                stored.push(waiting.place);
            }
            covered
        });
    }

    /// Takes a free place with blocks, to punch it out, if there are more than `keep`: the oldest in the list, since
    /// the newest is the next to be written.
    pub(crate) fn take_surplus(&mut self, keep: usize) -> Option<u32> {
        (self.stored.len() > keep).then(|| self.stored.remove(0))
    }

    pub(crate) fn punched(&mut self, place: u32) {
        self.bare.push(place);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.stored.capacity() + self.bare.capacity()) * size_of::<u32>()
            + self.limbo.capacity() * size_of::<Limbo>()
            + self.pins.capacity() * size_of::<u64>()
    }

    /// Visits each place that is not in use and not in the hands of a punch job.
    pub(crate) fn for_each_idle(&self, mut visit: impl FnMut(u32)) {
        assert!(self.fresh <= self.capacity);
        self.stored.iter().chain(&self.bare).for_each(|&place| visit(place));
        self.limbo.iter().for_each(|waiting| visit(waiting.place));
        (self.fresh..self.capacity).for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pins_that_saw_the_segment_hold_its_place() {
        let mut places = Places::new(2);
        let old = places.pin();
        let born = places.now();
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        assert_eq!(places.free(), 0);
        // Written after the pin: free at once.
        places.release(first, born);
        assert_eq!(places.take(), Some(first));
        let seen = places.pin();
        places.release(second, born);
        let late = places.pin();
        assert_eq!((places.free(), places.in_limbo()), (0, 1));
        places.unpin(&old);
        assert_eq!(places.free(), 0);
        places.unpin(&seen);
        assert_eq!((places.free(), places.in_limbo()), (1, 0));
        places.unpin(&late);
        assert_eq!(places.take(), Some(second));
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_pin_given_back_twice_is_a_bug() {
        let mut places = Places::new(1);
        let ChildPin(pin) = places.pin();
        places.unpin(&ChildPin(pin));
        places.unpin(&ChildPin(pin));
    }
}
