//! What the agent knows of each page, and keeps for it: what a fork copies.

use crate::{FRAMES, PAGES, Page, SEGMENTS, Value};

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Nowhere: zeros, or not managed.
    Untouched,
    /// With the program.
    Resident,
    /// In a frame.
    Leaving(usize),
    /// Encoded.
    Stored(Value),
    /// In a segment.
    Below(usize),
}

/// A place in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// To be filled.
    Free,
    /// Holds a page.
    Full(Value),
    /// Its page has gone elsewhere; who encodes passes it.
    Hollow,
}

/// A part of the swap file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// To be written.
    Free,
    /// In memory, until it is noted that it has been written.
    Gathered(Value),
    /// On the medium.
    Written,
}

/// A deed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// A page has been filled.
    Filled(Page),
    /// Discarded.
    Removed(Page),
    /// Unmapped.
    Unmapped(Page),
    /// Moved.
    Moved {
        /// From here.
        from: Page,
        /// To there.
        to: Page,
    },
}

/// The state under the lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Table {
    /// Of each page.
    pub places: [Place; PAGES],
    /// What is managed.
    pub regions: [bool; PAGES],
    /// The ring.
    pub frames: [Frame; FRAMES],
    /// The segment log.
    pub segments: [Segment; SEGMENTS],
    /// Registered by a scan that has not made regions of it.
    pub given_up: [bool; PAGES],
    /// What has been told to be discarded while it was not managed.
    pub discarded_early: [bool; PAGES],
}

impl Table {
    /// Does what the record says.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Filled(page) => self.settle(page),
            Record::Removed(page) => {
                self.drop_kept(page);
                self.places[page] = Place::Untouched;
                self.discarded_early[page] |= !self.regions[page];
            }
            Record::Unmapped(page) => self.forget(page),
            Record::Moved { from, to } => {
                self.drop_kept(to);
                self.places[to] = core::mem::replace(&mut self.places[from], Place::Untouched);
                self.regions[to] = core::mem::take(&mut self.regions[from]);
                self.given_up[to] = core::mem::take(&mut self.given_up[from]);
            }
        }
    }

    /// The page is with the program.
    pub fn settle(&mut self, page: Page) {
        self.drop_kept(page);
        self.regions[page] = true;
        self.places[page] = Place::Resident;
    }

    /// Knows nothing of a page any more.
    pub fn forget(&mut self, page: Page) {
        self.drop_kept(page);
        self.places[page] = Place::Untouched;
        self.regions[page] = false;
        self.given_up[page] = false;
    }

    /// What is kept for a page is not needed any more. A segment in memory is freed once the writer has noted it.
    fn drop_kept(&mut self, page: Page) {
        match self.places[page] {
            Place::Leaving(frame) => self.frames[frame] = Frame::Hollow,
            Place::Below(segment) if self.segments[segment] == Segment::Written => {
                self.segments[segment] = Segment::Free;
            }
            _ => {}
        }
    }

    /// The writer notes that a segment is on the medium.
    pub fn note_written(&mut self, segment: usize) {
        let is_wanted = self.places.contains(&Place::Below(segment));
        self.segments[segment] = if is_wanted { Segment::Written } else { Segment::Free };
    }

    /// What is kept for a page, where `medium` holds what has been written.
    pub fn kept(&self, page: Page, medium: &[Value; SEGMENTS]) -> Option<Value> {
        match self.places[page] {
            Place::Untouched | Place::Resident => None,
            Place::Leaving(frame) => match self.frames[frame] {
                Frame::Full(value) => Some(value),
                Frame::Free | Frame::Hollow => None,
            },
            Place::Stored(value) => Some(value),
            Place::Below(segment) => match self.segments[segment] {
                Segment::Gathered(value) => Some(value),
                Segment::Written | Segment::Free => Some(medium[segment]),
            },
        }
    }
}
