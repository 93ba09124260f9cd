//! The ring of frames: pages that have left the program and wait to be encoded, oldest first.
//!
//! Waiting is their second chance: a page that is wanted meanwhile is moved back for the price of the fault alone, and
//! the clock learns that it was too early. Frames are filled at the tail, encoded from the head, and freed at the base,
//! each time in runs of neighbours, so that one call to the kernel serves many.

use alloc::vec::Vec;

use page::{FrameIndex, PageCount, PageIndex};

use crate::Census;

/// The parts of the pages in RAM, encoded, and of those on the medium, of which as many wait, as divisors (decision 7).
const STORED_DIVISOR: u64 = 32;
const BELOW_DIVISOR: u64 = 2;
/// Two batches: behind the one that is encoded there is still one, so that the server need not be helped with moving.
const STOCK_MIN: u64 = 128;
/// The fewest and the most frames of a live ring. What notes so many is allocated at once, so that no fault allocates; a simulation's
/// ring may have many more, and fill few of them.
const LIVE_MIN: u64 = 256;
const LIVE_MAX: u64 = 1 << 20;

/// Frames for a budget of so many pages: a 32nd of it, 256 to 2^20.
pub fn frames_for(budget: PageCount) -> PageCount {
    PageCount((budget.0 / 32).clamp(LIVE_MIN, LIVE_MAX))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    /// Nothing in it.
    Empty,
    /// A page that may be moved back.
    Waiting(PageIndex),
    /// A page that a worker reads: it may be copied, not moved.
    Encoding(PageIndex),
    /// Its page has been moved back; nothing in it, but the ring has not passed it yet.
    Vacant,
}

/// Neighbouring frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first of them.
    pub first: FrameIndex,
    /// How many.
    pub count: usize,
}

impl Window {
    /// Each of them.
    pub fn frames(self) -> impl Iterator<Item = FrameIndex> {
        (self.first.0..self.first.0 + self.count as u32).map(FrameIndex)
    }

    /// The same frames, at most `count_max` at a time.
    pub fn pieces(self, count_max: usize) -> impl Iterator<Item = Self> {
        (0..self.count)
            .step_by(count_max)
            .map(move |at| Self { first: FrameIndex(self.first.0 + at as u32), count: count_max.min(self.count - at) })
    }
}

/// The ring. The three positions count frames since the beginning; `base <= head <= tail <= base + frames`.
#[derive(Debug)]
pub struct Ring {
    /// Those that have ever been filled.
    frames: Vec<Frame>,
    capacity: u64,
    base: u64,
    head: u64,
    tail: u64,
    /// Frames that hold a page's memory.
    held: u64,
}

impl Ring {
    /// A ring of so many frames, at least one, all empty.
    pub fn new(frames: PageCount) -> Self {
        assert!(frames > PageCount::ZERO);
        // A frame has a number of 32 bits.
        let capacity = frames.0.min(u64::from(u32::MAX));
        let frames = Vec::with_capacity(capacity.min(LIVE_MAX) as usize);
        Self { frames, capacity, base: 0, head: 0, tail: 0, held: 0 }
    }

    fn index(&self, position: u64) -> usize {
        (position % self.capacity) as usize
    }

    fn run_from(&self, position: u64, count: u64) -> Window {
        let first = self.index(position);
        let count = count.min(self.capacity - first as u64) as usize;
        Window { first: FrameIndex(first as u32), count }
    }

    /// Neighbouring frames that can be filled now, at most `count_max`.
    pub fn room(&self, count_max: PageCount) -> Window {
        let free = self.capacity - (self.tail - self.base);
        self.run_from(self.tail, free.min(count_max.0))
    }

    /// Pages from `page` on have been moved into the first `count` frames of [`Ring::room`], which begin with `first`.
    pub fn filled(&mut self, first: FrameIndex, page: PageIndex, count: PageCount) {
        assert!(first.0 as usize == self.index(self.tail), "filled elsewhere than where there was room");
        for step in 0..count.0 {
            let index = self.index(self.tail + step);
            if index == self.frames.len() {
                self.frames.push(Frame::Empty);
            }
            assert!(self.frames[index] == Frame::Empty, "a frame filled twice");
            self.frames[index] = Frame::Waiting(page + PageCount(step));
        }
        self.tail += count.0;
        self.held += count.0;
    }

    /// Frames filled since the beginning.
    pub fn filled_ever(&self) -> u64 {
        self.tail
    }

    /// Frames that wait, vacant ones included.
    pub fn waiting(&self) -> u64 {
        self.tail - self.head
    }

    /// Frames that should wait while pages are as `census` says. To wait costs those who ask for a page about what it would cost if
    /// it were encoded, and tells which pages are in use: that pays where many pages are away, and where what is missing is read from a
    /// medium.
    fn wanted(&self, census: &Census) -> u64 {
        let in_ram = census.compressed + census.incompressible + census.same_filled;
        in_ram.0 / STORED_DIVISOR + census.below.0 / BELOW_DIVISOR
    }

    /// Three quarters of the ring: the rest is room for what the server moves out when it finds none.
    fn stock_max(&self) -> u64 {
        (self.capacity() * 3).div_ceil(4)
    }

    fn stock(&self, census: &Census) -> u64 {
        self.wanted(census).max(STOCK_MIN).min(self.stock_max())
    }

    /// Whether as many wait as should.
    pub fn is_stocked(&self, census: &Census) -> bool {
        self.waiting() >= self.stock(census)
    }

    /// Whether hardly any wait.
    pub fn is_bare(&self, census: &Census) -> bool {
        self.waiting() * 6 < self.stock(census)
    }

    /// Frames there are now.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Frames whose memory counts as resident.
    pub fn held(&self) -> PageCount {
        PageCount(self.held)
    }

    /// Takes the oldest waiting frames, at most `count_max`, for encoding. Vacant ones among them hold nothing.
    pub fn take(&mut self, count_max: usize) -> Window {
        let window = self.run_from(self.head, self.waiting().min(count_max as u64));
        for frame in window.frames() {
            let state = &mut self.frames[frame.0 as usize];
            if let Frame::Waiting(page) = *state {
                *state = Frame::Encoding(page);
            }
        }
        self.head += window.count as u64;
        window
    }

    /// The page in a frame that is being encoded; `None` if the frame is vacant.
    pub fn page(&self, frame: FrameIndex) -> Option<PageIndex> {
        match self.frames[frame.0 as usize] {
            Frame::Encoding(page) | Frame::Waiting(page) => Some(page),
            Frame::Vacant | Frame::Empty => None,
        }
    }

    /// Whether the frame's page may be moved back.
    pub fn is_waiting(&self, frame: FrameIndex) -> bool {
        matches!(self.frames[frame.0 as usize], Frame::Waiting(_))
    }

    /// The frame's page has been moved back.
    pub fn vacate(&mut self, frame: FrameIndex) {
        assert!(self.page(frame).is_some(), "an empty frame vacated");
        self.frames[frame.0 as usize] = Frame::Vacant;
        self.held -= 1;
    }

    /// The program has moved the frame's page.
    pub fn set_page(&mut self, frame: FrameIndex, page: PageIndex) {
        match &mut self.frames[frame.0 as usize] {
            Frame::Waiting(old) | Frame::Encoding(old) => *old = page,
            Frame::Vacant | Frame::Empty => panic!("an empty frame has no page"),
        }
    }

    /// The frames of a window taken before have been given back to the system.
    pub fn freed(&mut self, window: Window) {
        for frame in window.frames() {
            let state = &mut self.frames[frame.0 as usize];
            assert!(matches!(state, Frame::Encoding(_) | Frame::Vacant), "{frame:?} freed while {state:?}");
            if matches!(state, Frame::Encoding(_)) {
                self.held -= 1;
            }
            *state = Frame::Empty;
        }
        while self.base < self.head && self.frames[self.index(self.base)] == Frame::Empty {
            self.base += 1;
        }
    }

    /// Moves what waits over vacant frames, in the same order; `moved` is told where each page lies now. For a simulation, where a frame is a
    /// number: no worker may be encoding.
    pub fn close_gaps(&mut self, mut moved: impl FnMut(PageIndex, FrameIndex)) {
        assert!(self.is_quiet(), "frames that a worker reads stay where they are");
        let mut end = self.head;
        for position in self.head..self.tail {
            let from = self.index(position);
            if let Frame::Waiting(page) = core::mem::replace(&mut self.frames[from], Frame::Empty) {
                let to = self.index(end);
                self.frames[to] = Frame::Waiting(page);
                moved(page, FrameIndex(to as u32));
                end += 1;
            }
        }
        self.tail = end;
    }

    /// Whether no worker is encoding.
    pub fn is_quiet(&self) -> bool {
        self.base == self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring_of(frames: u64) -> Ring {
        Ring::new(PageCount(frames))
    }

    #[test]
    fn frames_go_round() {
        let mut ring = ring_of(8);
        for round in 0..10 {
            let room = ring.room(PageCount(3));
            ring.filled(room.first, PageIndex(round * 10), PageCount(room.count as u64));
            let window = ring.take(3);
            assert_eq!(window, room);
            assert_eq!(ring.page(window.first), Some(PageIndex(round * 10)));
            assert!(!ring.is_quiet());
            ring.freed(window);
            assert!(ring.is_quiet());
            assert_eq!((ring.held(), ring.waiting()), (PageCount::ZERO, 0));
        }
    }

    #[test]
    fn a_window_goes_in_pieces() {
        let window = Window { first: FrameIndex(7), count: 10 };
        let pieces: Vec<_> = window.pieces(4).map(|piece| (piece.first.0, piece.count)).collect();
        assert_eq!(pieces, [(7, 4), (11, 4), (15, 2)]);
        assert!(window.frames().eq(window.pieces(4).flat_map(Window::frames)));
        assert_eq!(Window { count: 0, ..window }.pieces(4).count(), 0);
    }

    /// A full ring, of which five frames are vacant: two at its end and three at its start, across which it lies.
    #[test]
    fn gaps_close_in_order() {
        let mut ring = ring_of(8);
        let fill = |ring: &mut Ring, pages: core::ops::Range<u64>| {
            pages.for_each(|page| ring.filled(ring.room(PageCount(1)).first, PageIndex(page), PageCount(1)));
        };
        fill(&mut ring, 0..5);
        let window = ring.take(5);
        ring.freed(window);
        fill(&mut ring, 10..18);
        assert_eq!(ring.room(PageCount(1)).count, 0);
        for frame in [5, 6, 0, 1, 2] {
            ring.vacate(FrameIndex(frame));
        }
        let mut told = vec![];
        ring.close_gaps(|page, frame| told.push((page.0, frame.0)));
        assert_eq!(told, [(12, 5), (16, 6), (17, 7)]);
        assert!(told.iter().all(|&(page, frame)| ring.page(FrameIndex(frame)) == Some(PageIndex(page))));
        assert_eq!((ring.held(), ring.waiting(), ring.is_quiet()), (PageCount(3), 3, true));
        fill(&mut ring, 20..25);
        let window = ring.take(8);
        assert_eq!((window.first, window.count, ring.room(PageCount(1)).count), (FrameIndex(5), 3, 0));
    }

    /// Two batches; one for each 32 pages in RAM, or for two on the medium; three quarters of the ring.
    #[test]
    fn as_many_wait_as_pays() {
        let mut ring = ring_of(4000);
        let in_ram = |pages| Census { compressed: PageCount(pages), ..Census::default() };
        let on_medium = |pages| Census { below: PageCount(pages), ..Census::default() };
        let both = Census { same_filled: PageCount(32_000), ..on_medium(1000) };
        for (census, wait) in [
            (Census::default(), 128),
            (in_ram(32 * 100), 128),
            (in_ram(32 * 1000), 1000),
            (on_medium(2000), 1000),
            (both, 1500),
            (in_ram(1 << 20), 3000),
            (Census { resident: PageCount(1000), leaving: PageCount(4000), ..on_medium(20_000) }, 3000),
        ] {
            assert_eq!(ring.stock(&census), wait, "{census:?}");
        }
        // Of the smallest ring all of it: who waits for a ring that is stocked with nothing waits for ever.
        assert_eq!(ring_of(1).stock(&in_ram(0)), 1);
        ring.filled(FrameIndex(0), PageIndex(0), PageCount(1000));
        assert!(ring.is_stocked(&in_ram(32_000)) && !ring.is_stocked(&in_ram(32_032)));
        assert!(!ring.is_bare(&in_ram(96_000)) && ring_of(4000).is_bare(&in_ram(0)));
    }

    #[test]
    fn a_live_ring_allocates_nothing_while_pages_move() {
        for (budget, frames) in [(0, LIVE_MIN), (1 << 20, 1 << 15), (u64::MAX, LIVE_MAX)] {
            let mut ring = Ring::new(frames_for(PageCount(budget)));
            let (notes, capacity) = (ring.frames.as_ptr(), ring.frames.capacity());
            assert!(ring.capacity() == frames && capacity as u64 >= frames);
            ring.filled(FrameIndex(0), PageIndex(0), PageCount(frames));
            assert_eq!((ring.room(PageCount(1)).count, ring.held()), (0, PageCount(frames)));
            let window = ring.take(frames as usize);
            ring.freed(window);
            ring.filled(FrameIndex(0), PageIndex(1), PageCount(1));
            assert!(ring.frames.as_ptr() == notes && ring.frames.capacity() == capacity, "{frames}");
        }
    }

    #[test]
    fn a_page_that_went_back_is_passed_over() {
        let mut ring = ring_of(4);
        ring.filled(FrameIndex(0), PageIndex(5), PageCount(3));
        assert!(ring.is_waiting(FrameIndex(1)));
        ring.vacate(FrameIndex(1));
        let window = ring.take(4);
        assert_eq!(window.count, 3);
        assert_eq!(ring.page(FrameIndex(1)), None);
        ring.set_page(FrameIndex(2), PageIndex(99));
        assert_eq!(ring.page(FrameIndex(2)), Some(PageIndex(99)));
        ring.freed(window);
        assert_eq!(ring.held(), PageCount::ZERO);
    }

    #[test]
    fn windows_freed_out_of_order_come_back_together() {
        let mut ring = ring_of(4);
        ring.filled(FrameIndex(0), PageIndex(0), PageCount(4));
        let (first, second) = (ring.take(2), ring.take(2));
        assert_eq!(ring.room(PageCount(4)).count, 0);
        ring.freed(second);
        assert_eq!(ring.room(PageCount(4)).count, 0);
        ring.freed(first);
        assert_eq!(ring.room(PageCount(4)).count, 4);
    }
}
