//! `pleat run --system` on a clock of its own: the live cache, hand, ring, watermarks, prefetch and segment log, with the
//! store, the sizing, the admission and the write-back of any system.

use std::iter;
use std::ops::Range;

use backing::{Nowhere, READ_BYTES_MAX, ReadJob, SegmentLog, WriteJob};
use cache::system::{System, WriteBack};
use cache::{AreaCounters, AreaKeeper, Beside, Cache, Lookup, Memory, Outcome, Place, Published};
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use policy::area::divider::{self, Divider, Held, LOOK_NS};
use policy::area::measured::{Measured, Sums};
use policy::drop_behind;
use policy::prefetch::Room;
use policy::replacement::Arrival;
use policy::sizing::{self, Stride, Watermarks};
use store::AnyStore;

use super::encodings::Encodings;
use super::moves::{Moves, STOCK_BURST, STOCK_TRIES_MAX};
use super::{Keeper, Run, Seat};
use crate::live::{ENCODE_BATCH, Live};

/// What an agent takes for itself, but for tables and the log's buffers, and the most that counts of it in small memories.
const AGENT_BYTES: u64 = 13 << 16;
const AGENT_DIVISOR: u64 = 8;
/// Address space of the store.
const STORE_BYTES_MAX: usize = 1 << 36;
/// Looks at an area in a row, and pages that it lets go at a time, as in the pager.
const LOOKS_MAX: usize = 16;
const RELEASES_MAX: u64 = 16;
/// The part of the pool that may lie idle before it is compacted, as in the pager.
const IDLE_DIVISOR: u64 = 16;
/// The segment log's place is never used again here: nothing reads back what was written.
const LOG_BYTES_MAX: u64 = 1 << 43;

/// The marks of a run of one process, where all growth is told.
fn agents_marks(share: ByteCount, stride: Stride) -> Watermarks {
    Watermarks::narrow(share, share, ByteCount::ZERO, stride)
}

/// The marks of Linux 2.4 (`free_area_init_core`: `zone_balance_ratio`, `_min` and `_max`), which the papers were built in.
fn kernel_marks(memory: ByteCount) -> Watermarks {
    let pages = PageCount((memory.0 / PAGE_BYTES as u64 / 128).clamp(20, 255));
    let marks = [1, 2, 3].map(|times| PageCount(pages.0 * times).bytes());
    Watermarks { min: marks[0], low: marks[1], high: marks[2] }
}

/// A cache that is kept inside RAM.
pub(super) struct Cached {
    seat: Seat,
    share: ByteCount,
    marks: Watermarks,
    agent: ByteCount,
    /// An agent begins to manage when so much is held. A kernel does not tell anybody of first touches.
    threshold: Option<ByteCount>,
    pub(super) live: Live<AnyStore>,
    area: Option<Area>,
    divider: Option<Box<Divider>>,
    /// What faults and encoding have taken so far, and what the divider is told of it.
    taken: Sums,
    measured: Measured,
    /// Whether it has begun.
    is_managed: bool,
    /// Pages that have come along with a first touch, and are there when they are touched.
    zeroed: Range<PageIndex>,
    stride: Stride,
    /// When the divider is looked at next.
    divided_at_ns: f64,
    moves: Moves,
    /// When the reclaimer has done what it was woken for.
    reclaimed_at_ns: f64,
    /// The segment that is being written, and when it will be.
    writing: Option<(WriteJob, f64)>,
    copy: Box<[u8; PAGE_BYTES]>,
}

/// What a system has that does not size itself.
struct Area {
    keeper: AreaKeeper,
    encodings: Encodings,
    write_back: WriteBack,
    /// What had been done when it was last looked at.
    counted: AreaCounters,
}

impl Cached {
    pub(super) fn new(parts: &System, share: ByteCount, pool: ByteCount, seat: Seat) -> Self {
        let codec = super::codec_of(parts);
        let opened = parts.open(codec, share, STORE_BYTES_MAX, pool);
        let (store, keeper) = opened.expect("address space");
        let log = SegmentLog::new(Box::new(Nowhere), [0; 32], LOG_BYTES_MAX);
        let area = keeper.map(|keeper| Area {
            counted: keeper.counters(),
            keeper,
            encodings: Encodings::new(codec),
            write_back: parts.write_back,
        });
        let (marks, agent) = match seat {
            Seat::Process => {
                (agents_marks(share, Stride::default()), ByteCount(AGENT_BYTES.min(share.0 / AGENT_DIVISOR)))
            }
            Seat::Kernel => (kernel_marks(share), ByteCount::ZERO),
        };
        Self {
            seat,
            share,
            marks,
            agent,
            threshold: (seat == Seat::Process).then(|| sizing::threshold(share)),
            live: Live::new(Cache::new(store, Some(log)), PageCount(share.0 / PAGE_BYTES as u64)),
            area,
            divider: parts.divider(share, pool),
            taken: Sums::default(),
            measured: Measured::default(),
            is_managed: false,
            zeroed: PageIndex(0)..PageIndex(0),
            stride: Stride::default(),
            divided_at_ns: 0.0,
            moves: Moves::default(),
            reclaimed_at_ns: 0.0,
            writing: None,
            copy: Box::new([0; PAGE_BYTES]),
        }
    }

    pub(super) fn free(&self) -> i64 {
        let held = self.live.held().bytes() + self.pool() + self.fixed();
        self.share.0 as i64 - held.0 as i64
    }

    /// What does not go: the agent's own, its tables, and the buffers of segments.
    fn fixed(&self) -> ByteCount {
        let figures = if self.seat == Seat::Process { self.live.cache.log_figures() } else { None };
        let buffers = figures.map_or(0, |figures| figures.buffer_bytes);
        self.live.cache.metadata_bytes() + self.agent + ByteCount(buffers)
    }

    fn pool(&self) -> ByteCount {
        self.live.cache.store_figures().pool
    }

    /// What the sizing policy must know, as in the pager.
    fn memory(&self) -> Memory {
        let available = ByteCount((self.free() + self.live.ring.held().bytes().0 as i64).max(0) as u64);
        let area_max = self.pool_bytes_max();
        Memory { available, total: self.share, area_max }
    }

    /// The most that the pool may take.
    fn pool_bytes_max(&self) -> ByteCount {
        divider::pool_bytes_max(self.divider.as_deref(), self.memory_for_pages())
    }

    /// What resident pages and pool may take together.
    fn memory_for_pages(&self) -> ByteCount {
        self.share.saturating_sub(self.fixed() + self.marks.high)
    }

    /// As the pager's state says it.
    fn may_read_ahead(&self) -> bool {
        let spare = self.free() - self.marks.high.0 as i64;
        let pool = self.pool_bytes_max().saturating_sub(self.pool());
        let is_ample = Room { share: self.share, spare, pool }.is_ample_for(ByteCount(READ_BYTES_MAX as u64));
        is_ample && self.area.is_none()
    }

    /// The page is with the program, wherever it was.
    fn settle(&mut self, page: PageIndex, arrival: Arrival) {
        if self.area.is_none() {
            return self.live.cache.settle(page, arrival);
        }
        let memory = self.memory();
        let keeper = &mut self.area.as_mut().expect("looked at above").keeper;
        self.live.cache.settle_from_area(page, arrival, keeper, memory);
    }

    /// A page is touched for the first time. An agent that manages serves that, too, and brings those beside it along.
    fn touch_first(&mut self, run: &mut Run<'_>, page: PageIndex) {
        let machine = run.setup.machine;
        run.faults.first_touch += 1;
        self.is_managed |=
            self.threshold.is_some_and(|threshold| self.share.0 as i64 - self.free() >= threshold.0 as i64);
        if !self.is_managed {
            run.pass(&machine.first_touch);
        } else if !self.zeroed.contains(&page) {
            let (window, _) = self.live.windows(page);
            run.pass(&machine.fault);
            (0..window.0).for_each(|_| run.pass(&machine.fill));
            self.stride.note(window, true);
            self.zeroed = page + PageCount(1)..page + window;
        }
        self.live.cache.settle(page, Arrival::Asked);
    }

    /// Serves a fault on a page that is stored or below, and brings those beside it along.
    fn bring(&mut self, run: &mut Run<'_>, page: PageIndex) {
        run.pass(&run.setup.machine.fault);
        let (window, below) = self.live.windows(page);
        let count = self.bring_run(run, page, window, true);
        self.live.brought(page, count, window);
        self.live.streams.shortened(page, window, count);
        // The papers' kernels do not follow walks downwards.
        if below == PageCount::ZERO || self.seat != Seat::Process {
            return;
        }
        // The program has its page meanwhile; here it waits for all of them.
        let away = (1..=below.0.min(page.0)).map(|step| PageIndex(page.0 - step));
        let first = away.take_while(|page| self.live.cache.place(*page).is_away()).last();
        let count = first.map_or(PageCount::ZERO, |first| {
            let count = self.bring_run(run, first, page - first, false);
            self.live.brought(first, count, below);
            count
        });
        self.live.descents.shortened(page, below, count);
    }

    /// Brings a page that is stored or below, and those behind it that come along.
    fn bring_run(&mut self, run: &mut Run<'_>, page: PageIndex, window: PageCount, by_fault: bool) -> PageCount {
        let mut job = None;
        let found = match self.live.cache.look_up(page, &mut self.copy) {
            Lookup::Filled(word) => Beside::Filled(word),
            Lookup::Encoded(bytes) => Beside::Encoded(bytes),
            Lookup::Backed(read) => {
                job = Some(read);
                Beside::Joined
            }
            found => unreachable!("a page that is stored or below is {found:?}"),
        };
        *match found {
            Beside::Filled(_) => &mut run.faults.same_filled,
            Beside::Joined => &mut run.faults.backed,
            _ => &mut run.faults.compressed,
        } += u64::from(by_fault);
        // Whether the papers' systems read what lies beside it they do not tell.
        let reads_ahead = self.seat == Seat::Process;
        let others = self.find_others(page, window, job.as_mut().filter(|_| reads_ahead));
        if let Some(mut job) = job {
            if reads_ahead && self.may_read_ahead() {
                self.live.cache.read_ahead(&mut job);
            }
            run.read(job.bytes() as u64);
            for (key, bytes) in job.asked_ahead() {
                run.now_ns += run.seal_ns(bytes as u64);
                self.live.cache.promote(key, &self.copy[..bytes]);
            }
            self.live.cache.finish_read(job);
        }
        let count = PageCount(1 + others.len() as u64);
        run.prefetched += count.0 - u64::from(by_fault);
        self.stride.note(count, by_fault);
        for (step, found) in (0..).zip(iter::once(found).chain(others)) {
            if found == Beside::Joined {
                run.now_ns += run.seal_ns(run.lengths.of(page + PageCount(step)) as u64);
            }
            if !matches!(found, Beside::Filled(_) | Beside::Encoded(PAGE_BYTES)) {
                run.pass(run.decode);
            }
            run.pass(&run.setup.machine.fill);
            let (page, is_asked_for) = (page + PageCount(step), by_fault && step == 0);
            self.note_return(page, is_asked_for);
            self.settle(page, if is_asked_for { Arrival::Asked } else { Arrival::Along });
        }
        count
    }

    /// As the pager tells the divider of pages that leave.
    fn note_leave(&mut self, moved: Option<drop_behind::Run>) {
        if let (Some(divider), Some(drop_behind::Run { start, count })) = (&mut self.divider, moved) {
            (0..count.0).for_each(|step| divider.left(start + PageCount(step)));
        }
    }

    /// As the pager tells the divider of a page that comes back.
    fn note_return(&mut self, page: PageIndex, is_asked_for: bool) {
        let Some(divider) = &mut self.divider else { return };
        if is_asked_for {
            divider.asked(page, self.live.cache.census().resident);
        } else {
            divider.returned(page);
        }
    }

    /// A look at the division, if it is time, with the costs that faults have had.
    fn divide(&mut self, run: &Run<'_>) {
        let memory = self.memory_for_pages().saturating_sub(self.live.ring.held().bytes());
        let Some(divider) = &mut self.divider else { return };
        if run.now_ns < self.divided_at_ns {
            return;
        }
        self.divided_at_ns = run.now_ns + LOOK_NS as f64;
        let costs = self.measured.costs(&self.taken);
        let (census, pool) = (self.live.cache.census(), self.live.cache.store_figures().pool);
        let held = Held { memory, pool, pages: census.compressed + census.incompressible, filled: census.same_filled };
        divider.look(self.share, held, costs);
    }

    /// Where the pages behind it are that come along, as the pager's server finds them.
    fn find_others(&mut self, page: PageIndex, window: PageCount, mut job: Option<&mut ReadJob>) -> Vec<Beside> {
        let Self { live, copy, .. } = self;
        let look = |step| live.cache.look_beside(page + PageCount(step), copy, job.as_deref_mut());
        (1..window.0).map(look).take_while(|found| !matches!(found, Beside::Zeros | Beside::Apart)).collect()
    }

    /// Whether it is at the fault that pages move, while the reclaimer rests: then nobody is interrupted.
    fn is_stocked_at_faults(&self, run: &Run<'_>) -> bool {
        let machine = run.setup.machine;
        self.seat == Seat::Process
            && machine.processors >= 2
            && machine.interrupt.ns > 0.0
            && self.moves.are_scattered()
    }

    /// A fault moves some pages out, as the pager's server does.
    fn stock(&mut self, run: &mut Run<'_>) {
        let is_resting = self.reclaimed_at_ns <= run.now_ns;
        if !self.is_managed || !is_resting || !self.is_stocked_at_faults(run) {
            return;
        }
        let (mut pages, mut tries) = (PageCount::ZERO, 0);
        while pages < STOCK_BURST
            && tries < STOCK_TRIES_MAX
            && self.free() < self.marks.high.0 as i64
            && !self.live.ring.is_stocked(&self.live.cache.census())
            && let Some(moved) = self.live.move_out()
        {
            self.note_leave(Some(moved));
            run.now_ns += self.moves.note(run.setup.machine, moved.count, 0.0);
            pages += moved.count;
            tries += usize::from(moved.count == PageCount::ZERO);
        }
    }

    fn ring_wants_pages(&self, run: &Run<'_>) -> bool {
        let census = self.live.cache.census();
        if self.is_stocked_at_faults(run) {
            self.live.ring.is_bare(&census)
        } else {
            !self.live.ring.is_stocked(&census)
        }
    }

    /// What the reclaimer does once it is woken: until the high mark is reached, or nothing helps.
    fn reclaim(&mut self, run: &mut Run<'_>) {
        let machine = run.setup.machine;
        let mut work_ns = 0.0;
        if self.seat == Seat::Process {
            self.marks = agents_marks(self.share, self.stride);
        }
        self.divide(run);
        loop {
            self.look();
            let free = self.free();
            if free >= self.marks.high.0 as i64 && !self.stalls() {
                break;
            }
            let moved = if self.ring_wants_pages(run) { self.live.move_out() } else { None };
            self.note_leave(moved);
            if let Some(moved) = moved {
                let busy = self.interrupt(run, u64::from(moved.count > PageCount::ZERO));
                work_ns += self.moves.note(machine, moved.count, busy);
            }
            let encoded = if moved.is_none() { self.encode(run, &mut work_ns) } else { 0 };
            let written = self.write_back(run, free);
            work_ns += self.write(run);
            if moved.is_some() || encoded > 0 || written {
                continue;
            }
            let is_pressed = self.free() < self.marks.min.0 as i64;
            if !is_pressed || !self.wait_for_write(run) {
                break;
            }
        }
        if machine.processors < 2 {
            run.now_ns += work_ns;
        }
        // What the reclaimer and the device are behind with is free already here, but nobody has it yet: at least `min` must be left without
        // it, or the program waits. The papers' kernels look when no more than `low` is free.
        let free = if self.seat == Seat::Process { self.free().max(0) as u64 } else { self.marks.low.0 };
        let slack = PageCount(free.saturating_sub(self.marks.min.0) / PAGE_BYTES as u64);
        let behind_ns = if self.stalls() { 0.0 } else { slack.0 as f64 * (self.moves.page_ns() + run.encode.ns) };
        self.reclaimed_at_ns = self.reclaimed_at_ns.max(run.now_ns) + work_ns;
        if machine.processors >= 2 {
            run.wait_until(self.reclaimed_at_ns - behind_ns);
        }
        if self.seat == Seat::Kernel {
            run.wait_until(run.queue.has_written_ns(slack.bytes().0));
        }
    }

    /// Lets an area grow and shrink as its policy says, until it is content.
    fn look(&mut self) {
        for _ in 0..LOOKS_MAX {
            let memory = self.memory();
            let Some(area) = &mut self.area else { return };
            if !self.live.cache.look_at_area(&mut area.keeper, memory) {
                return;
            }
        }
    }

    /// Whether those who need memory wait for the area to get emptier.
    fn stalls(&self) -> bool {
        self.area.as_ref().is_some_and(|area| area.keeper.stalls())
    }

    /// Interrupts the program, if it is at work: for which part of the time it is.
    fn interrupt(&mut self, run: &mut Run<'_>, times: u64) -> f64 {
        let busy = self.moves.busy(run);
        run.now_ns += run.setup.machine.interrupts_take_ns(times, busy);
        busy
    }

    /// Encodes a batch; returns its frames.
    fn encode(&mut self, run: &mut Run<'_>, work_ns: &mut f64) -> usize {
        let window = self.live.ring.take(ENCODE_BATCH);
        for frame in window.frames() {
            let Some(page) = self.live.ring.page(frame) else { continue };
            *work_ns += run.encode.ns;
            self.taken.encoded.add(run.encode.ns as u64);
            let length = run.lengths.of(page);
            let mut is_written = false;
            while self.publish(page, frame, length) == Published::NoRoom {
                // The log's buffers are full: the page waits until the device has taken one.
                assert!(!is_written, "with nothing to write there is room");
                *work_ns += self.write(run);
                is_written = !self.wait_for_write(run);
            }
        }
        // It has been moved aside before, and is given back now.
        self.interrupt(run, if window.count > 0 { 2 } else { 0 });
        self.live.ring.freed(window);
        window.count
    }

    /// What a page becomes of which `length` bytes are left.
    fn publish(&mut self, page: PageIndex, frame: FrameIndex, length: usize) -> Published {
        const RAW: PageBytes = PageBytes::ZERO;
        let memory = self.memory();
        let Some(area) = &mut self.area else {
            let outcome = match length {
                0 => Outcome::SameFilled(0),
                PAGE_BYTES.. => Outcome::Incompressible(&RAW),
                length => Outcome::Encoded(&self.copy[..length]),
            };
            return self.live.cache.publish(page, frame, outcome);
        };
        let encoding = if length == 0 { None } else { area.encodings.of(length) };
        let outcome = match encoding {
            Some(encoding) => Outcome::Encoded(encoding),
            None if length == 0 => Outcome::SameFilled(0),
            None => Outcome::Incompressible(&RAW),
        };
        self.live.cache.publish_in_area(page, frame, &RAW, outcome, &mut area.keeper, memory)
    }

    /// Writes back what the pool has no room for; says whether anything went.
    fn write_back(&mut self, run: &mut Run<'_>, free: i64) -> bool {
        let over = self.pool().saturating_sub(self.pool_bytes_max());
        let is_bare = self.live.held().bytes() <= ByteCount(self.share.0 / 64);
        let short = if is_bare { sizing::reclaim_goal(free, self.marks) } else { ByteCount::ZERO };
        let goal = over.max(short);
        if let Some(area) = &mut self.area {
            return self.live.cache.relieve_area(&mut area.keeper, goal, RELEASES_MAX).bytes > ByteCount::ZERO;
        }
        if goal == ByteCount::ZERO {
            return false;
        }
        let before = self.live.cache.census().below;
        let done = self.live.cache.write_back(goal, u64::MAX);
        run.pages_swapped_out += (self.live.cache.census().below - before).0;
        let figures = self.live.cache.store_figures();
        if figures.free.0 > figures.pool.0 / IDLE_DIVISOR {
            self.live.cache.compact(ENCODE_BATCH);
        }
        done.bytes > ByteCount::ZERO
    }

    /// Gives the device the next segment if it has none, and returns what that takes of the reclaimer's processor: it is encrypted, and
    /// pages that go as pages are decoded.
    fn write(&mut self, run: &mut Run<'_>) -> f64 {
        if let Some((job, _)) = self.writing.take_if(|(_, done_ns)| *done_ns <= run.now_ns) {
            self.end_write(job);
        }
        let mut work_ns = 0.0;
        while self.writing.is_none()
            && let Some(job) = self.live.cache.log().and_then(SegmentLog::write_job)
        {
            let seal_ns = run.seal_ns(job.bytes() as u64);
            run.write(job.bytes() as u64);
            work_ns += seal_ns;
            match self.seat {
                Seat::Process => self.writing = Some((job, run.queue.idle_ns() + seal_ns)),
                // What its pages take until they are written is in the device's queue.
                Seat::Kernel => self.end_write(job),
            }
        }
        let Some(area) = &mut self.area else { return work_ns };
        let (now, before) = (area.keeper.counters(), area.counted);
        area.counted = now;
        let released = now.released - before.released;
        run.pages_swapped_out += released + now.refused - before.refused + now.rejected_poor - before.rejected_poor;
        work_ns + if area.write_back == WriteBack::Pages { released as f64 * run.decode.ns } else { 0.0 }
    }

    /// The program waits for the segment that is being written; says whether there is one.
    fn wait_for_write(&mut self, run: &mut Run<'_>) -> bool {
        let Some((job, done_ns)) = self.writing.take() else { return false };
        run.wait_until(done_ns);
        self.end_write(job);
        true
    }

    fn end_write(&mut self, job: WriteJob) {
        self.live.cache.log().expect("it gave the job").finish_write(job, Ok(()));
    }
}

impl Keeper for Cached {
    fn touch(&mut self, run: &mut Run<'_>, page: PageIndex, _: bool) {
        let machine = run.setup.machine;
        let place = self.live.cache.place(page);
        if place == Place::Resident {
            return;
        }
        let (begun_ns, before) = (run.now_ns + machine.fault.ns, run.faults);
        match place {
            Place::Untouched => self.touch_first(run, page),
            Place::Leaving(frame) => {
                run.faults.soft += 1;
                run.pass(&machine.fault);
                self.note_return(page, true);
                self.live.take_back(page, frame);
            }
            _ => self.bring(run, page),
        }
        self.stock(run);
        if self.free() < self.marks.low.0 as i64 || self.stalls() {
            self.reclaim(run);
        }
        let served_ns = (run.now_ns - begun_ns) as u64;
        if run.faults.compressed > before.compressed {
            self.taken.compressed.add(served_ns);
        } else if run.faults.backed > before.backed {
            self.taken.below.add(served_ns);
        }
    }

    fn pool_bytes(&self) -> u64 {
        self.pool().0
    }

    fn resident_bytes(&self) -> u64 {
        self.live.held().bytes().0
    }

    fn check(&self, run: &Run<'_>) {
        let census = self.live.cache.census();
        let stored = census.compressed + census.incompressible + census.same_filled;
        let held = census.resident + census.leaving + stored;
        assert_eq!(held + census.below, PageCount(run.faults.first_touch), "{census:?}");
        assert_eq!(census.leaving, self.live.ring.held());
        assert!(self.free() >= 0, "{} bytes more than there are: {census:?}", -self.free());
    }
}
