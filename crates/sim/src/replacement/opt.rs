//! MIN at all sizes in one pass, without looking ahead.
//!
//! As in `min.rs`, a memory of *c* + 1 pages has *c* frames that keep pages, and of each is known until when it is taken; a page
//! last used at *l* stays if one of them is free since then, and takes the one among these that is taken longest. Let T(c) be
//! these *c* times (−∞ for a frame that was never taken). Each T(c) is a part of T(c + 1): call the time that is added x(c).
//! So one row x tells all memories. A page stays in those with more frames than the first place *i* with x(i) ≤ l.
//!
//! What happens there: T(i + 1) loses x(i) and gets the present. A larger memory would have taken, of the times up to *l*, the
//! largest of its own. So from *i* on, a time *a* is carried along, at first the old x(i): wherever x(j) is above *a* and not
//! above *l*, the two change places. What is carried in the end leaves all memories.
//!
//! Seen by times instead of places, with the place that each has: those that change are met from *l* downwards, each the next
//! one with a lower place than all before. The place of each goes to the next earlier one, the last, which is *i*, to the present.
//!
//! O(log pages) for each of those that change: one or two where a trace is regular, more where it is random. Mattson et al.
//! (1970) have shown that such distances exist; Bilardi, Ekanadham and Pattnaik (2017) find them without looking ahead, too, in O(log pages) whatever the trace.

use super::Touch;
use super::axis::{Staying, axis_end};
use super::curve::Distances;
use crate::lowest::{ABSENT, Lowest};

const SLOTS_MIN: u32 = 1 << 16;

/// MIN.
pub(super) struct Opt {
    /// The slot of each page's last reference.
    last: Vec<u32>,
    now: u32,
    end: u32,
    /// By the slot until which a frame is taken, its place in the row.
    places: Lowest,
    /// The length of the row, without the endless rest of frames that were never taken.
    count: u32,
}

impl Opt {
    pub(super) fn new() -> Self {
        Self::with_axis(SLOTS_MIN)
    }

    fn with_axis(end: u32) -> Self {
        Self { last: Vec::new(), now: 0, end, places: Lowest::new(end), count: 0 }
    }

    /// The pages that a memory must have to keep one last used at `last` until now.
    fn distance(&mut self, last: u32) -> u64 {
        let mut carried = self.places.carry(last + 1);
        if carried == ABSENT {
            carried = self.count;
            self.count += 1;
        }
        self.places.set(self.now - 1, carried);
        // Places count from 0, and the page that is referenced has a frame besides those that keep pages.
        u64::from(carried) + 2
    }

    /// Draws the axis anew.
    fn compact(&mut self) {
        let mut staying = Staying::new(self.end);
        let taken = self.places.numbers().map(|(slot, _)| slot);
        self.last.iter().copied().chain(taken).for_each(|slot| staying.insert(slot));
        let redrawn = staying.redraw();
        self.now = redrawn.members;
        self.end = axis_end(redrawn.members, self.end);
        for slot in &mut self.last {
            *slot = redrawn.moved(*slot);
        }
        let old = std::mem::replace(&mut self.places, Lowest::new(self.end));
        for (slot, place) in old.numbers() {
            self.places.set(redrawn.moved(slot), place);
        }
    }
}

impl Distances for Opt {
    fn play(&mut self, touches: &[Touch], each: &mut dyn FnMut(u64)) {
        for touch in touches {
            if self.now == self.end {
                self.compact();
            }
            if touch.is_first {
                debug_assert_eq!(touch.number as usize, self.last.len());
                self.last.push(self.now);
            } else {
                let last = std::mem::replace(&mut self.last[touch.number as usize], self.now);
                each(self.distance(last));
            }
            self.now += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::curve::tests::against_the_plain_twin;
    use crate::replacement::tests::plain;

    #[test]
    fn misses_at_each_size_as_often_as_looking_ahead_does() {
        // A short axis: it is drawn anew many times.
        against_the_plain_twin(|| Box::new(Opt::with_axis(16)), plain::min);
    }
}
