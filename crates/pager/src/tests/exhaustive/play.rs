//! Two scripts, the server, the reclaimer, the writer and a fork, and whose turn it is.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use backing::failing::{FailingBacking, Operation};
use backing::{BackingError, MemoryBacking, WriteJob};
use cache::Place;
use page::{ByteCount, PageCount, PageIndex};
use sys::fake::{Access, Call, FakeKernel};
use sys::kernel::{Kernel as _, Message, PageRange};

use super::tree::Tree;
use crate::eviction::{Evicted, Worker};
use crate::tests::content::Content;
use crate::tests::program::{FIRST, Program};
use crate::tests::world::{Setup, TestPager, World, between, set_between};

/// Steps of a plain schedule, and many more.
const STEPS_MAX: usize = 300;
/// Points inside one step of an actor; then threads that can go on do.
const POINTS_MAX: u32 = 24;
const BACKING_BYTES: u64 = 1 << 20;
/// A mapping that is worth managing, and another, further on.
const PAGES: u64 = 16;
pub(super) const OTHER: u64 = 100;
pub(super) const NOWHERE: u64 = 200;
/// The thread that forks.
const FORKER: usize = 2;

/// What a thread of the program does next. Pages are counted from the first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Read(u64),
    Write(u64, Content),
    Discard(u64, u64),
    Unmap(u64, u64),
    MapOver(u64, u64),
    Move { from: u64, count: u64, to: u64, keep: bool },
}

impl Op {
    /// What a layout change is about.
    fn ranges(self) -> Vec<PageRange> {
        match self {
            Self::Read(_) | Self::Write(..) => vec![],
            Self::Discard(start, count) | Self::Unmap(start, count) | Self::MapOver(start, count) => {
                vec![range(start, count)]
            }
            Self::Move { from, count, to, .. } => vec![range(from, count), range(to, count)],
        }
    }
}

/// Who acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Actor {
    Thread(usize),
    Serve,
    Evict,
    Encode,
    /// Encodings go into a segment, which is left for the writer.
    WriteBack,
    /// The writer writes it, and then notes that.
    Write,
    Fork,
}

/// How far a fork is.
#[derive(Default)]
pub(super) enum Fork {
    #[default]
    Unwanted,
    Wanted,
    Frozen,
    /// With what the program in the child knows of its memory.
    Forked(Box<Program>),
}

/// A small world at one schedule.
pub(super) struct Play {
    pub(super) pager: Rc<TestPager>,
    pub(super) world: RefCell<World>,
    server: Rc<RefCell<crate::Server>>,
    worker: RefCell<Worker>,
    program: Rc<RefCell<Program>>,
    scripts: RefCell<[VecDeque<Op>; 2]>,
    evictions: Cell<u32>,
    write_backs: Cell<u32>,
    /// What the writer has written, and not noted yet.
    written: RefCell<Option<(WriteJob, Result<(), BackingError>)>>,
    fork: RefCell<Fork>,
    tree: Rc<RefCell<Tree>>,
    /// Whose turn it is next in the plain order.
    turn: Cell<usize>,
    /// Points inside the present step.
    points: Cell<u32>,
}

/// Where the first pages are at the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Begin {
    #[default]
    Untouched,
    Leaving,
    Stored,
    Below,
}

impl Begin {
    pub(super) const ALL: [Self; 4] = [Self::Untouched, Self::Leaving, Self::Stored, Self::Below];
}

/// What a scenario lets happen besides two scripts.
#[derive(Clone, Copy, Default)]
pub(super) struct Also {
    pub(super) begin: Begin,
    pub(super) evictions: u32,
    pub(super) write_backs: u32,
    pub(super) forks: bool,
}

pub(super) fn page(number: u64) -> PageIndex {
    PageIndex(FIRST + number)
}

pub(super) fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(page(start), PageCount(count))
}

impl Play {
    pub(super) fn new(tree: Rc<RefCell<Tree>>, scripts: [&[Op]; 2], also: Also) -> Rc<Self> {
        let swap = FailingBacking::new(MemoryBacking::new(BACKING_BYTES)).with_meanwhile(Box::new(|operation| {
            if matches!(operation, Operation::Read(_)) {
                between();
            }
        }));
        let setup = Setup {
            interleave: 0,
            swap: Some((Box::new(swap), BACKING_BYTES)),
            frames: PageCount(32),
            ..Setup::plain(1)
        };
        let mut world = World::new(setup);
        for start in [0, OTHER] {
            world.program.borrow_mut().map(&world.pager.kernel, range(start, PAGES));
        }
        world.pager.kernel.set_meanwhile(None);
        world.round();
        let play = Rc::new(Self {
            pager: world.pager.clone(),
            server: world.server.clone(),
            program: world.program.clone(),
            worker: RefCell::new(Worker::patient()),
            scripts: RefCell::new(scripts.map(|script| script.iter().copied().collect())),
            evictions: Cell::new(also.evictions),
            write_backs: Cell::new(also.write_backs),
            written: RefCell::new(None),
            fork: RefCell::new(if also.forks { Fork::Wanted } else { Fork::Unwanted }),
            world: RefCell::new(world),
            tree,
            turn: Cell::new(0),
            points: Cell::new(0),
        });
        play.begin(also.begin);
        play.pager.expect_writer();
        play
    }

    fn begin(&self, begin: Begin) {
        if begin == Begin::Untouched {
            return;
        }
        for number in [0, 1, OTHER] {
            self.world.borrow_mut().touch(page(number), Some(Content::Text(50 + number))).unwrap();
        }
        while self.pager.lock().cache.census().resident > PageCount::ZERO {
            Worker::evict(&self.pager);
        }
        if begin != Begin::Leaving {
            self.worker.borrow_mut().encode(&self.pager);
        }
        if begin == Begin::Below {
            self.write_back();
        }
        let place = self.pager.lock().cache.place(page(0));
        let is_there = match begin {
            Begin::Untouched => place == Place::Untouched,
            Begin::Leaving => matches!(place, Place::Leaving(_)),
            Begin::Stored => matches!(place, Place::Compressed(_)),
            Begin::Below => matches!(place, Place::Below(_)),
        };
        assert!(is_there, "{begin:?}: {place:?}");
    }

    /// Others may go on inside the pager's calls to the kernel, and in the middle of its coding.
    pub(super) fn interleave(self: &Rc<Self>) {
        let play = Rc::downgrade(self);
        self.pager.kernel.set_meanwhile(Some(Box::new(move |_, call| {
            // Nobody sees the clock, or a wake-up, from outside.
            if let Some(play) = play.upgrade()
                && !matches!(call, Call::Now | Call::Wake)
            {
                play.turn_inside();
            }
        })));
        let play = Rc::downgrade(self);
        set_between(Box::new(move || {
            if let Some(play) = play.upgrade() {
                play.turn_inside();
            }
        }));
    }

    fn turn_inside(self: &Rc<Self>) {
        // Inside what others do here, too.
        self.interleave();
        // Whoever waits for a thread that has only to run gets it in the end.
        self.points.set(self.points.get() + 1);
        if self.points.get() > POINTS_MAX {
            if let Ok(mut program) = self.program.try_borrow_mut() {
                program.drain(&self.pager.kernel);
            }
            return;
        }
        loop {
            let able: Vec<Actor> = self.able().into_iter().filter(|actor| self.is_free(*actor)).collect();
            let taken = self.tree.borrow_mut().choose(1 + able.len());
            if taken == 0 {
                return;
            }
            self.act(able[taken - 1]);
        }
    }

    /// Whether this actor can go on inside what is being done now.
    fn is_free(&self, actor: Actor) -> bool {
        match actor {
            Actor::Thread(_) => true,
            Actor::Serve => !self.pager.is_locked() && self.server.try_borrow().is_ok(),
            Actor::Evict | Actor::Encode | Actor::WriteBack => {
                !self.pager.is_locked() && self.worker.try_borrow().is_ok()
            }
            Actor::Write => !self.pager.is_locked(),
            // It waits until everybody is between two steps.
            Actor::Fork => false,
        }
    }

    /// Who could go on now.
    fn able(&self) -> Vec<Actor> {
        let kernel = &self.pager.kernel;
        let Ok(program) = self.program.try_borrow() else { return vec![] };
        let scripts = self.scripts.borrow();
        let mut able = Vec::new();
        for thread in 0..=FORKER {
            let is_idle = program.is_idle_at(thread);
            // A program knows of what another thread has made only when that has returned.
            let may_begin = |op: &Op| op.ranges().into_iter().all(|range| program.is_free(range));
            let begins = is_idle && scripts.get(thread).and_then(VecDeque::front).is_some_and(may_begin);
            if begins || !is_idle && kernel.can_go_on(thread as u32) {
                able.push(Actor::Thread(thread));
            }
        }
        if kernel.has_messages() {
            able.push(Actor::Serve);
        }
        // A try, in the middle of others' calls.
        if self.pager.is_locked() {
            return able;
        }
        let state = self.pager.lock();
        let census = state.cache.census();
        let is_written = self.written.borrow().is_some();
        if if is_written { !state.frozen } else { self.pager.desk.is_busy() } {
            able.push(Actor::Write);
        }
        if !state.frozen {
            if self.evictions.get() > 0 && census.resident > PageCount::ZERO {
                able.push(Actor::Evict);
            }
            if state.ring.waiting() > 0 {
                able.push(Actor::Encode);
            }
            let may_write = self.write_backs.get() > 0 && !self.pager.desk.is_busy();
            if may_write && census.compressed + census.incompressible > PageCount::ZERO {
                able.push(Actor::WriteBack);
            }
        }
        let may_fork = match &*self.fork.borrow() {
            Fork::Unwanted => false,
            // As in `forks`: what a madvise has half done at the fork cannot be known.
            Fork::Wanted | Fork::Frozen => program.discards_nothing(),
            Fork::Forked(_) => !kernel.layout_is_changing() && program.is_idle_at(FORKER),
        };
        if may_fork {
            able.push(Actor::Fork);
        }
        able
    }

    pub(super) fn act(&self, actor: Actor) {
        match actor {
            Actor::Thread(thread) => self.run(thread),
            Actor::Serve => {
                self.server.borrow_mut().serve(&self.pager).unwrap();
            }
            Actor::Evict => {
                self.evictions.set(self.evictions.get() - 1);
                self.evict();
            }
            Actor::Encode => {
                self.worker.borrow_mut().encode(&self.pager);
            }
            Actor::WriteBack => {
                self.write_backs.set(self.write_backs.get() - 1);
                self.write_back();
            }
            Actor::Write => self.write(),
            Actor::Fork => self.go_on_forking(),
        }
    }

    fn run(&self, thread: usize) {
        let (kernel, mut program) = (&self.pager.kernel, self.program.borrow_mut());
        if !program.is_idle_at(thread) {
            return program.go_on(kernel, thread);
        }
        let op = self.scripts.borrow_mut()[thread].pop_front().expect("it is able to");
        match op {
            // Another thread may have unmapped it, which a program knows of itself.
            Op::Read(number) | Op::Write(number, _) if !program.shadow.contains_key(&page(number)) => {}
            Op::Read(number) => program.touch(kernel, thread, page(number), None),
            Op::Write(number, content) => program.touch(kernel, thread, page(number), Some(content)),
            Op::Discard(start, count) => program.discard(kernel, thread, range(start, count)),
            Op::Unmap(start, count) => program.unmap(kernel, thread, range(start, count)),
            Op::MapOver(start, count) => program.map_over(kernel, thread, range(start, count)),
            Op::Move { from, count, to, keep } => program.remap(kernel, thread, range(from, count), page(to), keep),
        }
    }

    /// Until something has gone, or cannot: the hand makes pages younger first.
    fn evict(&self) {
        let _worker = self.worker.borrow_mut();
        for _ in 0..100 {
            match Worker::evict(&self.pager) {
                Evicted::Aged | Evicted::Moved(PageCount::ZERO) => {}
                Evicted::Shared(range) => {
                    crate::eviction::evict_shared(&self.pager, range);
                    return;
                }
                _ => return,
            }
        }
    }

    fn write_back(&self) {
        let _worker = self.worker.borrow_mut();
        let mut state = self.pager.lock();
        for _ in 0..4 {
            state.write_back(ByteCount(1 << 16), 64);
        }
        state.cache.log().expect("there is one").seal();
        self.pager.push_segment(state);
    }

    fn write(&self) {
        let written = self.written.take();
        if let Some((job, result)) = written {
            assert!(self.pager.finish_write(job, result).is_none(), "the state is not frozen");
            self.pager.desk.done();
        } else {
            let mut job = self.pager.desk.take().expect("the desk is busy");
            let result = job.run();
            self.written.replace(Some((job, result)));
        }
    }

    /// What is left is written at once: nobody takes turns any more.
    pub(super) fn dismiss_writer(&self) {
        assert!(!self.pager.desk.is_busy());
        // SAFETY: there is one thread.
        unsafe { self.pager.desk.clear() };
    }

    fn go_on_forking(&self) {
        let kernel = &self.pager.kernel;
        let stage = core::mem::take(&mut *self.fork.borrow_mut());
        let next = match stage {
            Fork::Unwanted => Fork::Unwanted,
            Fork::Wanted if self.pager.try_freeze(false, true) => Fork::Frozen,
            Fork::Wanted => Fork::Wanted,
            Fork::Frozen => {
                let mut program = self.program.borrow_mut();
                let mut childs = program.clone();
                childs.become_child(kernel);
                program.fork(kernel, FORKER);
                Fork::Forked(Box::new(childs))
            }
            Fork::Forked(childs) => {
                self.end_fork(*childs);
                Fork::Unwanted
            }
        };
        *self.fork.borrow_mut() = next;
    }

    /// The message of the fork has been read: the child reads all that it has, and the parent's state thaws.
    fn end_fork(&self, mut childs: Program) {
        let forked = self.pager.take_forked().expect("the message has been read");
        let child = self.pager.kernel.take_child(&forked);
        let is_placed = self.pager.place_fork(forked, None, &mut |page| Some(child.is_registered(page)));
        assert!(is_placed, "no order explains it");
        let pages: Vec<PageIndex> = childs.shadow.keys().copied().collect();
        for page in pages {
            if let Access::Blocked = child.access(0, page, None) {
                self.bring(&child, page);
            }
            childs.touch(&child, 0, page, None);
            assert!(childs.is_idle(), "the child has not got {page:?}");
        }
        let pin = self.pager.thaw().expect("there is a log");
        self.pager.unpin(pin);
    }

    fn bring(&self, child: &FakeKernel, page: PageIndex) {
        let Some(Message::Fault { page: asked, .. }) = child.next_message() else { panic!("no fault") };
        assert_eq!(asked, page);
        let fill = &mut |page, bytes: &page::PageBytes| {
            child.fill(page, core::slice::from_ref(bytes)).error.map_or(Ok(()), Err)
        };
        self.server.borrow_mut().serve_child(&self.pager, &[], page, fill).unwrap();
    }

    /// Everybody in turn, until nobody can go on.
    pub(super) fn run_all(&self) {
        const ORDER: [Actor; 9] = [
            Actor::Thread(0),
            Actor::Thread(1),
            Actor::Thread(FORKER),
            Actor::Serve,
            Actor::Evict,
            Actor::Encode,
            Actor::WriteBack,
            Actor::Write,
            Actor::Fork,
        ];
        for _ in 0..STEPS_MAX {
            let able = self.able();
            if able.is_empty() {
                return;
            }
            let turn = self.turn.get();
            let plain = (0..ORDER.len()).map(|step| (turn + step) % ORDER.len());
            let able: Vec<usize> = plain.filter(|at| able.contains(&ORDER[*at])).collect();
            let taken = able[self.tree.borrow_mut().choose(able.len())];
            self.turn.set(taken + 1);
            self.points.set(0);
            self.act(ORDER[taken]);
        }
        panic!("no end");
    }
}
