//! Policies with a hand that goes round the frames: first in, first out, and clock.

use std::hint::black_box;

use page::PageCount;

use super::{AHEAD, Contender, Touch};

const NOWHERE: u32 = u32::MAX;

/// What the hand does when it meets a page that was used since it passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hand {
    /// Takes it, used or not.
    Fifo,
    /// Passes over it once.
    Clock,
}

/// One policy with one size of memory.
pub(super) struct Frames {
    hand: Hand,
    size: usize,
    /// The page of each frame.
    held: Vec<u32>,
    /// A bit for each frame: used since the hand passed. Apart from the pages, so that all of them fit into a processor's cache.
    used: Vec<u64>,
    /// The frame of each page.
    places: Vec<u32>,
    next: usize,
    misses: u64,
}

impl Frames {
    pub(super) fn new(size: PageCount, hand: Hand) -> Self {
        // A trace has fewer than 2^32 pages: more memory than that is never filled.
        let size = size.0.min(u64::from(u32::MAX)) as usize;
        Self { hand, size, held: Vec::new(), used: Vec::new(), places: Vec::new(), next: 0, misses: 0 }
    }

    fn bring(&mut self, page: u32) {
        let frame = if self.held.len() < self.size {
            if self.held.len().is_multiple_of(64) {
                self.used.push(0);
            }
            self.held.push(page);
            self.held.len() - 1
        } else {
            self.vacate(page)
        };
        self.places[page as usize] = frame as u32;
        self.touch(frame);
    }

    /// The next frame that the hand takes, which is for `page` now.
    fn vacate(&mut self, page: u32) -> usize {
        while self.hand == Hand::Clock && self.used[self.next / 64] >> (self.next % 64) & 1 == 1 {
            self.used[self.next / 64] &= !(1 << (self.next % 64));
            self.step();
        }
        let frame = self.next;
        let going = std::mem::replace(&mut self.held[frame], page);
        self.places[going as usize] = NOWHERE;
        self.step();
        frame
    }

    fn step(&mut self) {
        self.next = if self.next + 1 == self.size { 0 } else { self.next + 1 };
    }

    fn touch(&mut self, frame: usize) {
        if self.hand == Hand::Clock {
            self.used[frame / 64] |= 1 << (frame % 64);
        }
    }

    /// Reads what these touches will need.
    fn read_ahead(&self, touches: &[Touch]) {
        let place = |touch: &Touch| self.places.get(touch.number as usize).copied().unwrap_or(NOWHERE);
        black_box(touches.iter().fold(0, |all, touch| all ^ place(touch)));
    }

    fn play_some(&mut self, touches: &[Touch]) {
        for touch in touches {
            if touch.is_first {
                self.places.push(NOWHERE);
            }
            let place = self.places[touch.number as usize];
            if place == NOWHERE {
                self.misses += u64::from(!touch.is_first);
                self.bring(touch.number);
            } else {
                self.touch(place as usize);
            }
        }
    }
}

impl Contender for Frames {
    fn play(&mut self, touches: &[Touch]) {
        for touches in touches.chunks(AHEAD) {
            self.read_ahead(touches);
            self.play_some(touches);
        }
    }

    fn misses(&self) -> Vec<u64> {
        vec![self.misses]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::tests::{against_the_plain_twin, plain};

    #[test]
    fn fifo_misses_as_a_queue_does() {
        against_the_plain_twin(|sizes| Box::new(Frames::new(sizes[0], Hand::Fifo)), plain::fifo);
    }

    #[test]
    fn clock_misses_as_a_queue_with_second_chances_does() {
        against_the_plain_twin(|sizes| Box::new(Frames::new(sizes[0], Hand::Clock)), plain::clock);
    }
}
