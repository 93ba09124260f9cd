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

#[derive(Clone, Copy)]
struct Frame {
    page: u32,
    is_used: bool,
}

/// One policy with one size of memory.
pub(super) struct Frames {
    hand: Hand,
    size: usize,
    held: Vec<Frame>,
    /// The frame of each page.
    places: Vec<u32>,
    next: usize,
    misses: u64,
}

impl Frames {
    pub(super) fn new(size: PageCount, hand: Hand) -> Self {
        // A trace has fewer than 2^32 pages: more memory than that is never filled.
        let size = size.0.min(u64::from(u32::MAX)) as usize;
        Self { hand, size, held: Vec::new(), places: Vec::new(), next: 0, misses: 0 }
    }

    fn bring(&mut self, page: u32) {
        let coming = Frame { page, is_used: true };
        if self.held.len() < self.size {
            self.places[page as usize] = self.held.len() as u32;
            self.held.push(coming);
            return;
        }
        while self.hand == Hand::Clock && self.held[self.next].is_used {
            self.held[self.next].is_used = false;
            self.step();
        }
        let going = std::mem::replace(&mut self.held[self.next], coming);
        self.places[going.page as usize] = NOWHERE;
        self.places[page as usize] = self.next as u32;
        self.step();
    }

    fn step(&mut self) {
        self.next = if self.next + 1 == self.size { 0 } else { self.next + 1 };
    }
}

impl Frames {
    /// Reads what these touches will need.
    fn read_ahead(&self, touches: &[Touch]) {
        let mut places = [NOWHERE; AHEAD];
        for (place, touch) in places.iter_mut().zip(touches) {
            *place = self.places.get(touch.number as usize).copied().unwrap_or(NOWHERE);
        }
        let Some(last) = self.held.len().checked_sub(1) else { return };
        // No branch: nobody can foretell which pages are in memory.
        let page = |&place: &u32| self.held[(place as usize).min(last)].page;
        black_box(places.iter().fold(0, |all, place| all ^ page(place)));
    }

    fn play_some(&mut self, touches: &[Touch]) {
        for touch in touches {
            if touch.is_first {
                self.places.push(NOWHERE);
            }
            let place = self.places[touch.number as usize];
            if place != NOWHERE {
                self.held[place as usize].is_used = true;
                continue;
            }
            self.misses += u64::from(!touch.is_first);
            self.bring(touch.number);
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
