//! The agent of one process: the server, the reclaimer with its scan, and the writer.

use crate::journal::{Journal, Traced};
use crate::kernel::{Memory, Message, Refusal};
use crate::rules::Rule;
use crate::table::{Frame, Place, Record, Segment, Table};
use crate::window::{Before, Window};
use crate::{FRAMES, PAGES, Page, SEGMENTS, Value};

/// What the server has found of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Found {
    /// Nothing.
    Zeros,
    /// What is stored, below, or copied out of a frame.
    Kept(Value),
}

/// How far the server is with a page. The lock is free between these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Served {
    /// Looked up.
    Found,
    /// Put in place.
    Filled,
    /// It was there.
    WasThere,
}

/// What happens beside the serving of faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reclaim {
    /// Moves a page out.
    Evict(Page),
    /// Reads a frame to encode it.
    Encode(Page),
    /// Sets the slot of what has been encoded.
    Publish,
    /// Gathers a page into a segment.
    Gather(Page),
    /// Writes it.
    Write,
    /// Notes that it has been written.
    NoteWritten,
    /// Registers a mapping.
    Register(Page),
    /// Makes a region of it.
    Adopt,
}

/// What is being encoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Encoding {
    page: Page,
    frame: usize,
    value: Value,
}

/// An agent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Agent {
    /// The state under the lock.
    pub table: Table,
    /// There while the program forks.
    pub journal: Option<Journal>,
    window: Window,
    serving: Option<(Page, Found, Served)>,
    encoding: Option<Encoding>,
    writing: Option<usize>,
    scanned: Option<Page>,
    /// Segments that a child reads.
    pub pinned: [bool; SEGMENTS],
}

/// What an agent works on.
#[derive(Debug)]
pub struct Reach<'a> {
    /// The program's memory.
    pub memory: &'a mut Memory,
    /// The swap file.
    pub medium: &'a mut [Value; SEGMENTS],
    /// The rule that is left out.
    pub broken: Option<Rule>,
}

impl Reach<'_> {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}

impl Agent {
    /// One that does nothing yet.
    pub fn new(table: Table) -> Self {
        Self {
            table,
            journal: None,
            window: Window::default(),
            serving: None,
            encoding: None,
            writing: None,
            scanned: None,
            pinned: [false; SEGMENTS],
        }
    }

    fn trace(&self, page: Page) -> Traced {
        self.journal.as_ref().map_or(Traced::At(page), |journal| journal.trace(page))
    }

    fn place(&self, page: Page) -> Place {
        match self.trace(page) {
            Traced::At(origin) => self.table.places[origin],
            Traced::Resident => Place::Resident,
            Traced::Untouched => Place::Untouched,
        }
    }

    fn regions(&self) -> [bool; PAGES] {
        self.journal.as_ref().map_or(self.table.regions, |journal| journal.regions(self.table.regions))
    }

    fn note(&mut self, record: Record, reading: u8, reach: &Reach<'_>) {
        match &mut self.journal {
            Some(journal) if reach.keeps(Rule::AFrozenStateStays) => journal.note(record, reading),
            _ => self.table.apply(record),
        }
    }

    /// A scan holds the lock from its first look to its last.
    fn scans(&self) -> bool {
        self.scanned.is_some()
    }

    /// Whether a message can be read now. `is_late`: one has not been posted whose deed is done, which takes less than the
    /// server's patience.
    pub fn may_read(&self, is_late: bool, reach: &Reach<'_>) -> bool {
        let is_free = self.serving.is_none() || !reach.keeps(Rule::TheServerReads);
        !self.scans() && is_free && !(is_late && self.window.is_holding() && reach.keeps(Rule::TheServerIsPatient))
    }

    /// Follows a message that has been read.
    pub fn follow(&mut self, message: Message, reach: &Reach<'_>) {
        let record = match message {
            Message::Remove(page) => Record::Removed(page),
            Message::Unmap(page) => Record::Unmapped(page),
            Message::Remap { from, to } => Record::Moved { from, to },
            Message::Fork => {
                let held = self.window.count();
                self.journal.iter_mut().for_each(|journal| journal.mark_fork(held));
                return;
            }
        };
        let reading = self.journal.as_mut().map_or(0, Journal::read);
        let regions = self.regions();
        let given_up = if reach.keeps(Rule::TheRegisteredIsDoubtfulToo) { self.table.given_up } else { [false; PAGES] };
        let is_managed = |page: Page| regions[page] || given_up[page];
        let taken = self.window.take(record, is_managed, reach.keeps(Rule::TheDoubtfulIsHeldBack));
        if let Some(record) = taken {
            self.note(record, reading, reach);
        }
    }

    /// Whether messages are held back.
    pub fn is_holding(&self) -> bool {
        self.window.is_holding()
    }

    /// Whether they can be followed: none is on its way.
    pub fn may_sort(&self, reach: &Reach<'_>) -> bool {
        self.window.is_holding() && reach.memory.changing == 0 && !self.scans()
    }

    /// Follows what is held back.
    pub fn sort(&mut self, reach: &Reach<'_>) {
        let regions = self.regions();
        let before = core::array::from_fn(|page| match self.place(page) {
            _ if !regions[page] && !self.table.given_up[page] => Before::Unmanaged,
            Place::Untouched => Before::Managed,
            Place::Resident => Before::Resident,
            _ => Before::Away,
        });
        let order = self.window.sort(before, reach.memory);
        for (place, record) in order {
            self.note(record, 0, reach);
            self.journal.iter_mut().for_each(|journal| journal.pass_mark(place));
        }
    }

    /// Whether the server can look at a fault.
    pub fn may_serve(&self) -> bool {
        self.serving.is_none() && !self.window.is_holding() && !self.scans()
    }

    /// Looks a page up; says whether the fault has been dealt with. False: to be asked again.
    pub fn look_up(&mut self, page: Page, reach: &mut Reach<'_>) -> bool {
        let origin = match self.trace(page) {
            Traced::At(origin) => origin,
            Traced::Resident => return self.fill_if_discarded(page, reach),
            Traced::Untouched => {
                self.serving = Some((page, Found::Zeros, Served::Found));
                return true;
            }
        };
        match (self.table.places[origin], self.table.kept(origin, reach.medium)) {
            (Place::Resident, _) if reach.keeps(Rule::ResidentIsAskedUnderTheLock) => {
                return self.fill_if_discarded(page, reach);
            }
            (Place::Leaving(_), Some(value)) if self.journal.is_none() => {
                if reach.memory.fill(page, value) == Err(Refusal::Changing) {
                    return false;
                }
                self.window.end();
                self.table.settle(page);
            }
            (_, Some(value)) => self.serving = Some((page, Found::Kept(value), Served::Found)),
            (_, None) => self.serving = Some((page, Found::Zeros, Served::Found)),
        }
        true
    }

    /// What is resident for us has been discarded, or is there already. The lock is held.
    fn fill_if_discarded(&mut self, page: Page, reach: &mut Reach<'_>) -> bool {
        reach.memory.fill(page, 0) != Err(Refusal::Changing)
    }

    /// The page that the server is at.
    pub fn served(&self) -> Option<Page> {
        self.serving.map(|(page, ..)| page)
    }

    /// Whether a page that has been found is to be put in place.
    pub fn may_fill(&self) -> bool {
        matches!(self.serving, Some((_, _, Served::Found)))
    }

    /// Puts it in place. The page whose fault is to be looked at again, if the kernel has refused.
    pub fn fill(&mut self, reach: &mut Reach<'_>) -> Option<Page> {
        let (page, found, _) = self.serving?;
        let value = match found {
            Found::Zeros => 0,
            Found::Kept(value) => value,
        };
        let served = match reach.memory.fill(page, value) {
            Ok(()) => Some(Served::Filled),
            Err(Refusal::Exists) => Some(Served::WasThere),
            Err(Refusal::Missing) => None,
            Err(Refusal::Changing) => {
                self.serving = None;
                return Some(page);
            }
        };
        self.serving = served.map(|served| (page, found, served));
        None
    }

    /// Whether that is to be noted.
    pub fn may_note(&self) -> bool {
        self.serving.is_some() && !self.may_fill() && !self.scans()
    }

    /// Notes it.
    pub fn note_served(&mut self, reach: &Reach<'_>) {
        let Some((page, found, served)) = self.serving.take() else { return };
        self.window.end();
        let place = self.place(page);
        let is_known = matches!(place, Place::Resident | Place::Leaving(_));
        let is_news = match (served, found) {
            // It may be about to be discarded.
            (Served::WasThere, Found::Zeros) if reach.keeps(Rule::WhatIsThereMayGo) => false,
            (Served::WasThere, Found::Kept(_)) => !is_known,
            (_, Found::Zeros) => place == Place::Untouched,
            (_, Found::Kept(_)) => true,
        };
        if is_news || !reach.keeps(Rule::ResidentIsAskedUnderTheLock) {
            self.note(Record::Filled(page), 0, reach);
        }
    }

    /// Whether the state can be frozen.
    pub fn may_freeze(&self) -> bool {
        self.encoding.is_none() && self.scanned.is_none() && !self.window.is_holding() && self.journal.is_none()
    }

    /// Freezes it.
    pub fn freeze(&mut self, reach: &Reach<'_>) {
        if reach.keeps(Rule::SegmentsArePinned) {
            self.pinned = self.table.segments.map(|segment| segment == Segment::Written);
        }
        self.journal = Some(Journal::default());
    }

    /// Whether the child's agent can take over: no message is on its way, and the server is not at work.
    pub fn may_hand_over(&self, reach: &Reach<'_>) -> bool {
        self.serving.is_none() && !self.window.is_holding() && reach.memory.changing == 0
    }

    /// Makes up for what has happened since the state was frozen. What the child shares of it; `None` if no order explains
    /// what the child has.
    pub fn hand_over(&mut self, child: &Memory, read: u8, reach: &Reach<'_>) -> Option<Vec<Record>> {
        let journal = self.journal.take()?;
        let shared = journal.place_fork(&self.table, child, read, reach.broken);
        journal.records().iter().for_each(|record| self.table.apply(*record));
        shared
    }

    /// The agent of the child, from a copy of the frozen state.
    pub fn of_child(mut table: Table, shared: &[Record], memory: &Memory) -> Self {
        for record in shared {
            table.apply(*record);
        }
        for page in 0..PAGES {
            if !table.regions[page] {
                continue;
            }
            if !memory.is_registered(page) {
                table.forget(page);
            } else if memory.present(page).is_some() {
                table.settle(page);
            } else if table.places[page] == Place::Resident {
                table.places[page] = Place::Untouched;
            }
        }
        Self::new(table)
    }

    /// What a missing page of the child's is.
    pub fn kept(&self, page: Page, medium: &[Value; SEGMENTS]) -> Value {
        self.table.kept(page, medium).unwrap_or(0)
    }

    /// Whether this step of reclaim is possible.
    pub fn may(&self, step: Reclaim, reach: &Reach<'_>) -> bool {
        let is_still = self.journal.is_some();
        match step {
            Reclaim::Write | Reclaim::Adopt => {}
            _ if self.scans() => return false,
            _ => {}
        }
        match step {
            Reclaim::Evict(page) => {
                let is_resident = self.table.places[page] == Place::Resident && self.table.regions[page];
                is_resident && !is_still && !self.window.is_holding() && self.free_frame().is_some()
            }
            Reclaim::Encode(page) => {
                self.encoding.is_none() && !is_still && matches!(self.table.places[page], Place::Leaving(_))
            }
            Reclaim::Publish => self.encoding.is_some(),
            Reclaim::Gather(page) => {
                let has_room = self.free_segment().is_some() && self.writing.is_none();
                has_room && !is_still && matches!(self.table.places[page], Place::Stored(_))
            }
            Reclaim::Write => self.writing.is_some_and(
                |at| matches!(self.table.segments[at], Segment::Gathered(value) if reach.medium[at] != value),
            ),
            Reclaim::NoteWritten => {
                let is_written = |at: usize| self.table.segments[at] == Segment::Gathered(reach.medium[at]);
                !is_still && self.writing.is_some_and(is_written)
            }
            // What is managed by our count may have moved away, and nobody has read of it.
            Reclaim::Register(page) => {
                let is_new = reach.memory.pages[page].is_some() && !self.table.regions[page];
                let is_calm = !self.window.is_holding() && reach.memory.changing == 0;
                !is_still && is_new && is_calm
            }
            Reclaim::Adopt => self.scans(),
        }
    }

    /// Makes it. Nothing changes where the kernel refuses.
    pub fn reclaim(&mut self, step: Reclaim, reach: &mut Reach<'_>) {
        match step {
            Reclaim::Evict(page) => self.evict(page, reach),
            Reclaim::Encode(page) => {
                if let Place::Leaving(frame) = self.table.places[page]
                    && let Frame::Full(value) = self.table.frames[frame]
                {
                    self.encoding = Some(Encoding { page, frame, value });
                }
            }
            Reclaim::Publish => self.publish(reach),
            Reclaim::Gather(page) => {
                if let (Some(segment), Place::Stored(value)) = (self.free_segment(), self.table.places[page]) {
                    self.table.segments[segment] = Segment::Gathered(value);
                    self.table.places[page] = Place::Below(segment);
                    self.writing = Some(segment);
                }
            }
            Reclaim::Write => {
                if let Some(segment) = self.writing
                    && let Segment::Gathered(value) = self.table.segments[segment]
                {
                    reach.medium[segment] = value;
                }
            }
            Reclaim::NoteWritten => {
                if let Some(segment) = self.writing.take() {
                    self.table.note_written(segment);
                }
            }
            Reclaim::Register(page) => {
                reach.memory.pages[page].iter_mut().for_each(|mapping| mapping.is_registered = true);
                self.table.given_up[page] = true;
                self.scanned = Some(page);
            }
            Reclaim::Adopt => self.adopt(reach),
        }
    }

    fn free_segment(&self) -> Option<usize> {
        (0..SEGMENTS).find(|at| self.table.segments[*at] == Segment::Free && !self.pinned[*at])
    }

    /// One that is free, or whose page has gone elsewhere, and nobody encodes what was there.
    fn free_frame(&self) -> Option<usize> {
        let is_encoded = |at| self.encoding.is_some_and(|encoding| encoding.frame == at);
        let is_full = |frame| matches!(frame, Frame::Full(_));
        (0..FRAMES).find(|at| !is_full(self.table.frames[*at]) && !is_encoded(*at))
    }

    fn evict(&mut self, page: Page, reach: &mut Reach<'_>) {
        let Some(frame) = self.free_frame() else { return };
        let is_through_its_own = reach.keeps(Rule::MovesGoThroughTheProgramsOwn);
        match reach.memory.move_out(page, is_through_its_own) {
            Ok(value) => {
                self.window.end();
                self.table.frames[frame] = Frame::Full(value);
                self.table.places[page] = Place::Leaving(frame);
            }
            Err(Refusal::Missing) => self.table.places[page] = Place::Untouched,
            Err(Refusal::Changing | Refusal::Exists) => {}
        }
    }

    fn publish(&mut self, reach: &Reach<'_>) {
        let Some(Encoding { page, frame, value }) = self.encoding.take() else { return };
        let owner = self.table.places.iter().position(|place| *place == Place::Leaving(frame));
        let owner = if reach.keeps(Rule::PublishAsks) { owner } else { Some(page) };
        if let Some(page) = owner {
            self.table.places[page] = Place::Stored(value);
        }
        self.table.frames[frame] = Frame::Free;
    }

    /// What has been registered becomes a region, if nothing has been changing the layout meanwhile.
    fn adopt(&mut self, reach: &Reach<'_>) {
        let Some(page) = self.scanned.take() else { return };
        let is_whole = reach.memory.changing == 0 && reach.memory.is_registered(page);
        let is_early = reach.keeps(Rule::TheDiscardedIsNotAdopted) && self.table.discarded_early[page];
        if is_whole {
            self.window.end();
            self.table.regions[page] = true;
            self.table.given_up[page] = false;
            let is_there = reach.memory.present(page).is_some() && self.table.places[page] == Place::Untouched;
            if is_there && !is_early {
                self.table.places[page] = Place::Resident;
            }
        }
        self.table.discarded_early[page] = false;
    }
}
