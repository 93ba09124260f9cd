//! Forks: the same seed is played twice, once on as the parent and once as the child. So nothing is copied but the fake
//! memory, and the state that the child takes over is the one that was frozen.

use std::rc::Rc;

use backing::{BackingError, MemoryBacking, WriteJob};
use cache::Census;
use page::{ByteCount, PageCount, PageIndex};
use sys::fake::{Access, FakeKernel, Flag};
use sys::kernel::{ForkedMemory, Kernel as _, Message, PageRange, Uncopied};

use super::content::Content;
use super::program::{Disturbance, FIRST, Mix, Program};
use super::schedules::{begin, number};
use super::world::{Setup, World, entry};
use crate::eviction::Worker;
use crate::{FreshBacking, Inherited, Pager, Stuck};

const BYTES: u64 = 8 << 20;
const SCHEDULES: u64 = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Parent,
    Child,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Device {
    Answers,
    /// It has a segment in its hands when the program forks, and gives it back when the child is on its own.
    Hangs,
}

/// What another thread does to the layout while the program forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Rests,
    /// It has asked before for memory that the child finds empty.
    Wipes,
    /// Its change is in the copied memory, its message is not read yet.
    ChangesBefore,
    /// The same, and its message comes behind that of the fork.
    ChangesBeforeAndTellsLate,
    /// The memory is copied without its change, which is told first.
    ChangesAfterAndTellsEarly,
    ChangesAfter,
}

impl Other {
    /// What it may do. Where the order of the messages is not that of the deeds, the child tells: but not, that mremap has kept its source.
    fn among(self) -> &'static [Disturbance] {
        use Disturbance::{MapsOver, MovesAndKeeps, MovesAway, MovesOver, Unmaps};
        match self {
            Self::Rests | Self::Wipes => &[],
            Self::ChangesBeforeAndTellsLate => &[Unmaps, MapsOver, MovesOver, MovesAway],
            Self::ChangesBefore | Self::ChangesAfter | Self::ChangesAfterAndTellsEarly => {
                &[Unmaps, MapsOver, MovesOver, MovesAway, MovesAndKeeps]
            }
        }
    }
}

fn world(seed: u64) -> World {
    let mix = Mix { layout: 6, flags: 0, late: 0, noise: 30, words: 3, text: 15, pages_max: 1200 };
    let swap: Option<(Box<dyn backing::BackingStore>, u64)> = Some((Box::new(MemoryBacking::new(BYTES)), BYTES));
    // Nobody acts inside others: both plays must come to the same state.
    World::new(Setup { mix, swap, share: ByteCount(5 << 18), interleave: 0, ..Setup::plain(seed) })
}

/// Some life in the frozen state: faults and layout changes, which are only noted.
fn live_frozen(world: &mut World, steps: usize) {
    for step in 0..steps {
        world.program.borrow_mut().step(&world.pager.kernel);
        if step % 3 == 0 {
            world.server.borrow_mut().serve(&world.pager).unwrap();
        }
    }
}

fn settle_down(world: &mut World) {
    for _ in 0..200 {
        if world.program.borrow().is_idle() {
            return;
        }
        world.server.borrow_mut().serve(&world.pager).unwrap();
        world.program.borrow_mut().drain(&world.pager.kernel);
    }
    panic!("a thread waits for ever in a frozen state");
}

/// The child's thread touches pages, and the parent's server brings them.
fn serve_child(world: &mut World, child: &FakeKernel, program: &mut Program, every: usize) {
    let pages: Vec<PageIndex> = program.shadow.keys().copied().collect();
    for page in pages.into_iter().step_by(every) {
        if let Access::Blocked = child.access(0, page, None) {
            let Some(Message::Fault { page: asked, .. }) = child.next_message() else { panic!("no fault") };
            assert_eq!(asked, page);
            let fill = &mut |page, bytes: &page::PageBytes| {
                child.fill(page, core::slice::from_ref(bytes)).error.map_or(Ok(()), Err)
            };
            world.server.borrow_mut().serve_child(&world.pager, &[], page, fill).unwrap();
        }
        program.touch(child, 0, page, None);
        assert!(program.is_idle(), "the child has not got {page:?}");
    }
}

/// Somebody leaves a segment to a writer that does nothing with it. Says no if nobody writes.
fn hang(world: &mut World) -> bool {
    world.pager.expect_writer();
    for _ in 0..2000 {
        if world.pager.desk.is_busy() {
            return true;
        }
        world.step().unwrap();
    }
    false
}

/// The device answers. While the state is frozen nothing of it must show.
fn answer(world: &World) -> (WriteJob, Result<(), BackingError>) {
    let mut job = world.pager.desk.take().expect("the device hung");
    let result = job.run();
    let before = world.pager.lock().cache.log_figures();
    let job = world.pager.finish_write(job, result).expect("the state is frozen");
    assert_eq!(world.pager.lock().cache.log_figures(), before);
    (job, result)
}

/// The program forks while another thread does what it does. Returns the child's memory, what the program in it knows of
/// it, and the layout messages that it shares.
fn fork(world: &mut World, other: Other) -> (FakeKernel, Program, Vec<Message>) {
    let kernel = &world.pager.kernel;
    let mut program = world.program.borrow_mut();
    if matches!(other, Other::ChangesBefore | Other::ChangesBeforeAndTellsLate) {
        program.disturb(kernel, 2, other.among());
    }
    // The program's memory as the child finds it.
    let mut childs = program.clone();
    childs.become_child(kernel);
    let readings = world.pager.readings();
    program.fork(kernel, 1);
    if matches!(other, Other::ChangesAfter | Other::ChangesAfterAndTellsEarly) {
        program.disturb(kernel, 2, other.among());
    }
    if matches!(other, Other::ChangesBeforeAndTellsLate | Other::ChangesAfterAndTellsEarly) {
        kernel.overtake();
    }
    while kernel.layout_is_changing() {
        world.server.borrow_mut().serve(&world.pager).unwrap();
        program.drain(kernel);
    }
    // The forking thread looks while anybody may hold the lock: if it took it, this would not end.
    let held = world.pager.lock();
    assert!(world.pager.has_forked_for_sure());
    drop(held);
    let forked = world.pager.take_forked().expect("the message has been read");
    let child = kernel.take_child(&forked);
    let shared = place_fork(world, forked, &child, readings);
    (child, childs, shared)
}

/// What a child shares in whose memory there had been so many readings.
fn place_fork(world: &World, forked: ForkedMemory, child: &FakeKernel, readings: u32) -> Vec<Message> {
    for readings in [None, Some(readings)] {
        let is_placed = world.pager.place_fork(forked, readings, &mut |page| Some(child.is_registered(page)));
        assert!(is_placed, "no order explains it");
    }
    world.pager.shared_layout(readings)
}

/// Says where the pages were when the program forked; nowhere if the device was to hang and nobody has written.
fn play(seed: u64, side: Side, device: Device, other: Other) -> Census {
    let mut world = world(seed);
    begin(&mut world);
    for _ in 0..1500 {
        world.step().unwrap();
    }
    if device == Device::Hangs && !hang(&mut world) {
        return Census::default();
    }
    world.drain().unwrap();
    world.round();
    if other == Other::Wipes {
        world.program.borrow_mut().wipe_on_fork(&world.pager.kernel);
    }
    assert!(world.pager.try_freeze(other == Other::Wipes, true));
    let census = world.pager.lock().cache.census();
    live_frozen(&mut world, 60);
    settle_down(&mut world);
    let (child, mut childs, shared) = fork(&mut world, other);
    settle_down(&mut world);
    serve_child(&mut world, &child, &mut childs, 5);
    match side {
        Side::Parent => {
            live_frozen(&mut world, 60);
            settle_down(&mut world);
            serve_child(&mut world, &child, &mut childs, 3);
            let written = (device == Device::Hangs).then(|| answer(&world));
            let pin = world.pager.thaw().expect("there is a log");
            if let Some((job, result)) = written {
                assert!(world.pager.finish_write(job, result).is_none());
                // SAFETY: this test has one thread.
                unsafe { world.pager.desk.clear() };
            }
            world.check();
            world.reclaimer.borrow_mut().shares_memory();
            for step in 0..1500 {
                world.step().unwrap();
                if step == 700 {
                    world.check();
                }
            }
            world.pager.unpin(pin);
            world.finish().unwrap();
        }
        Side::Child => become_child(world, child, childs, &shared),
    }
    census
}

/// Plays both sides of some seeds (`PLEAT_SCHEDULES` and `PLEAT_SEED` as in `schedules.rs`). Pages must have been wherever
/// encodings are kept, or the plays show nothing.
fn play_all(first: u64, device: Device, other: Other) {
    let mut sums = [PageCount::ZERO; 4];
    let first = number("PLEAT_SEED").unwrap_or(first);
    for seed in first..first + number("PLEAT_SCHEDULES").unwrap_or(SCHEDULES) {
        for side in [Side::Parent, Side::Child] {
            println!("seed {seed} {side:?}");
            let Census { same_filled, compressed, incompressible, below, .. } = play(seed, side, device, other);
            for (sum, count) in sums.iter_mut().zip([same_filled, compressed, incompressible, below]) {
                *sum += count;
            }
        }
    }
    assert!(sums.iter().all(|sum| *sum > PageCount(100)), "{sums:?}");
}

fn become_child(world: World, child: FakeKernel, childs: Program, shared: &[Message]) {
    let (share, random) = (world.share, world.random.clone());
    let pager = world.pager.clone();
    drop(world);
    let mut pager: Pager<FakeKernel, _> = Rc::into_inner(pager).expect("the world has ended");
    let fresh = FreshBacking { store: Box::new(MemoryBacking::new(BYTES)), key: [8; 32] };
    // SAFETY: this test has one thread.
    unsafe { pager.resume_in_child(entry(), Some(fresh), shared, Inherited::Registered, |_| Ok(child)) }.unwrap();
    let mut world = World::with(pager, childs, random, share, 12);
    world.reclaimer.borrow_mut().shares_memory();
    world.check();
    for step in 0..1500 {
        world.step().unwrap();
        if step == 700 {
            world.check();
        }
    }
    world.finish().unwrap();
}

#[test]
fn parents_and_children_read_what_was_written() {
    play_all(0, Device::Answers, Other::Rests);
}

#[test]
fn a_fork_does_not_wait_for_a_device_that_hangs() {
    play_all(200, Device::Hangs, Other::Rests);
}

#[test]
fn a_layout_change_that_is_unread_at_the_fork_is_shared() {
    play_all(300, Device::Answers, Other::ChangesBefore);
}

#[test]
fn a_layout_change_before_the_fork_is_shared_though_it_is_told_late() {
    play_all(400, Device::Answers, Other::ChangesBeforeAndTellsLate);
}

#[test]
fn a_layout_change_after_the_fork_is_not_shared_though_it_is_told_early() {
    play_all(500, Device::Answers, Other::ChangesAfterAndTellsEarly);
}

#[test]
fn a_layout_change_after_the_fork_is_not_shared() {
    play_all(600, Device::Answers, Other::ChangesAfter);
}

#[test]
fn a_child_finds_memory_empty_that_is_wiped_on_fork() {
    play_all(700, Device::Answers, Other::Wipes);
}

/// Another thread moves a range and unmaps one that the child does not have, both after the fork. That the child misses the
/// one says nothing of when it was unmapped; that it misses the other where it has gone to does.
#[test]
fn what_a_child_does_not_have_says_nothing_of_the_order() {
    let mix = Mix { layout: 0, late: 0, ..Mix::PLAIN };
    let mut world = World::new(Setup { interleave: 0, mix, ..Setup::plain(5) });
    let range = |start| PageRange::new(PageIndex(FIRST + start), PageCount(32));
    let (moved, kept) = (range(0), range(100));
    for range in [moved, kept] {
        world.program.borrow_mut().map(&world.pager.kernel, range);
    }
    world.round();
    world.pager.kernel.set(kept, Flag::Uncopied(Uncopied::Absent), true);
    assert!(world.pager.try_freeze(true, true));
    let readings = world.pager.readings();
    {
        let (kernel, mut program) = (&world.pager.kernel, world.program.borrow_mut());
        program.fork(kernel, 0);
        program.wait_for(1, kernel.remap(1, moved, PageIndex(FIRST + 200), false));
        program.wait_for(2, kernel.unmap(2, kept));
        while kernel.layout_is_changing() {
            world.server.borrow_mut().serve(&world.pager).unwrap();
            program.drain(kernel);
        }
    }
    let forked = world.pager.take_forked().expect("the message has been read");
    let child = world.pager.kernel.take_child(&forked);
    assert!(child.is_registered(moved.start) && !child.is_registered(kept.start));
    let shared = place_fork(&world, forked, &child, readings);
    assert_eq!(shared, [], "nothing of it was before the fork");
}

/// What is to be empty in a child has moved, and nobody has heard of it yet: the state does not know which of its pages are meant.
#[test]
fn what_is_wiped_is_told_by_its_new_place_only_when_the_move_is() {
    let mix = Mix { layout: 0, late: 0, ..Mix::PLAIN };
    let mut world = World::new(Setup { interleave: 0, mix, ..Setup::plain(5) });
    let range = |start| PageRange::new(PageIndex(FIRST + start), PageCount(32));
    let (before, after) = (range(0), range(200));
    world.program.borrow_mut().map(&world.pager.kernel, before);
    world.round();
    world.pager.kernel.set(before, Flag::Uncopied(Uncopied::Empty), true);
    let kernel = &world.pager.kernel;
    world.program.borrow_mut().wait_for(1, kernel.remap(1, before, after.start, false));
    assert!(!world.pager.try_freeze(true, true));
    while kernel.layout_is_changing() {
        world.server.borrow_mut().serve(&world.pager).unwrap();
        world.program.borrow_mut().drain(kernel);
    }
    assert!(world.pager.try_freeze(true, true));
    let state = world.pager.lock();
    assert!(state.wiped == [after] && state.regions.contains(after.start));
}

/// Its thread waits until the page is there, and nobody tells of the fault again.
#[test]
fn what_a_child_has_discarded_is_filled_though_the_first_try_is_refused() {
    let mut world = World::new(Setup { interleave: 0, ..Setup::plain(5) });
    let range = PageRange::new(PageIndex(FIRST), PageCount(32));
    world.program.borrow_mut().map(&world.pager.kernel, range);
    world.round();
    let mut tries = Vec::new();
    let fill = &mut |page, bytes: &page::PageBytes| {
        tries.push((page, bytes.0 == [0; 4096]));
        if tries.len() == 1 { Err(sys::Errno::AGAIN) } else { Ok(()) }
    };
    let own = [Message::Remove(range)];
    world.server.borrow_mut().serve_child(&world.pager, &own, range.start, fill).unwrap();
    assert_eq!(tries, [(range.start, true); 2]);
}

/// A fork handler of another library maps memory where the child does not have what its parent has: that is not managed, and
/// what the parent has there is not the child's.
#[test]
fn what_a_child_maps_where_something_was_left_out_is_its_own() {
    let mix = Mix { layout: 0, late: 0, ..Mix::PLAIN };
    let mut world = World::new(Setup { interleave: 0, mix, share: ByteCount(5 << 18), ..Setup::plain(5) });
    let kept = PageRange::new(PageIndex(FIRST), PageCount(32));
    let bulk = PageRange::new(PageIndex(FIRST + 100), PageCount(800));
    for range in [kept, bulk] {
        world.program.borrow_mut().map(&world.pager.kernel, range);
        world.round();
        for page in range.start.until(range.end) {
            world.touch(page, Some(Content::Text(page.0))).unwrap();
        }
    }
    for _ in 0..20 {
        world.round();
    }
    assert!(kept.start.until(kept.end).any(|page| world.pager.lock().cache.place(page).is_away()));
    world.pager.kernel.set(kept, Flag::Uncopied(Uncopied::Absent), true);
    assert!(world.pager.try_freeze(true, true));
    let (child, mut childs, shared) = fork(&mut world, Other::Rests);
    childs.map(&child, kept);
    let pager = world.pager.clone();
    drop(world);
    let mut pager: Pager<FakeKernel, _> = Rc::into_inner(pager).expect("the world has ended");
    // SAFETY: this test has one thread.
    unsafe { pager.resume_in_child(entry(), None, &shared, Inherited::Registered, |_| Ok(child)) }.unwrap();
    let state = pager.lock();
    assert!(!state.regions.intersects(kept) && state.regions.contains(bulk.start));
    assert!(kept.start.until(kept.end).all(|page| state.cache.place(page) == cache::Place::Untouched));
}

/// Before the fork a range is moved, and another thread maps over a part of where it has gone to; that message is
/// read last. The child must not find there what its parent had.
#[test]
fn what_moved_just_before_the_fork_is_mapped_over() {
    let mix = Mix { layout: 0, late: 0, ..Mix::PLAIN };
    let mut world = World::new(Setup { interleave: 0, mix, ..Setup::plain(5) });
    let range = PageRange::new(PageIndex(FIRST), PageCount(32));
    let target = PageRange::new(PageIndex(FIRST + 200), PageCount(32));
    let over = PageRange::new(target.start + PageCount(8), PageCount(16));
    world.program.borrow_mut().map(&world.pager.kernel, range);
    world.round();
    for page in range.start.until(range.end) {
        world.touch(page, Some(Content::Text(page.0))).unwrap();
    }
    assert!(world.pager.try_freeze(false, true));
    let (childs, readings) = {
        let (kernel, mut program) = (&world.pager.kernel, world.program.borrow_mut());
        program.remap(kernel, 1, range, target.start, false);
        while kernel.layout_is_changing() {
            world.server.borrow_mut().serve(&world.pager).unwrap();
            program.drain(kernel);
        }
        program.map_over(kernel, 1, over);
        let mut childs = program.clone();
        childs.become_child(kernel);
        let readings = world.pager.readings();
        program.fork(kernel, 0);
        kernel.overtake();
        while kernel.layout_is_changing() {
            world.server.borrow_mut().serve(&world.pager).unwrap();
            program.drain(kernel);
        }
        (childs, readings)
    };
    let forked = world.pager.take_forked().expect("the message has been read");
    let child = world.pager.kernel.take_child(&forked);
    let shared = place_fork(&world, forked, &child, readings);
    let moved = Message::Remap { from: range, to: target.start };
    assert_eq!(shared, [moved, Message::Unmap(over)]);
    become_child(world, child, childs, &shared);
}

/// madvise tells before it discards, and what is with us was missing in the child before and after: only when its message was
/// read says whether the child's memory has seen it.
#[test]
fn a_child_has_what_is_discarded_once_it_is_forked() {
    for is_before in [false, true] {
        let mut world = World::new(Setup { interleave: 0, ..Setup::plain(10) });
        let range = PageRange::new(PageIndex(FIRST), PageCount(32));
        world.program.borrow_mut().map(&world.pager.kernel, range);
        world.round();
        for page in range.start.until(range.end) {
            world.touch(page, Some(Content::Text(page.0))).unwrap();
        }
        while range.start.until(range.end).any(|page| world.pager.kernel.is_present(page)) {
            Worker::evict(&world.pager);
            Worker::patient().encode(&world.pager);
        }
        assert!(world.pager.try_freeze(false, true));
        let serve = |program: &mut Program| {
            while world.pager.kernel.layout_is_changing() {
                world.server.borrow_mut().serve(&world.pager).unwrap();
                program.drain(&world.pager.kernel);
            }
        };
        let mut program = world.program.borrow_mut();
        if is_before {
            program.discard(&world.pager.kernel, 1, range);
            serve(&mut program);
            program.drain(&world.pager.kernel);
        }
        let mut childs = program.clone();
        childs.become_child(&world.pager.kernel);
        let readings = world.pager.readings();
        program.fork(&world.pager.kernel, 0);
        if !is_before {
            program.discard(&world.pager.kernel, 1, range);
            world.pager.kernel.overtake();
        }
        serve(&mut program);
        drop(program);
        let forked = world.pager.take_forked().expect("the message has been read");
        let child = world.pager.kernel.take_child(&forked);
        let shared = place_fork(&world, forked, &child, readings);
        assert_eq!(shared, if is_before { vec![Message::Remove(range)] } else { vec![] });
        become_child(world, child, childs, &shared);
    }
}

/// A world whose state is frozen, with so many pages, away as far as there is no room for them.
fn frozen(pages: u64) -> (World, PageRange) {
    let swap: Option<(Box<dyn backing::BackingStore>, u64)> = Some((Box::new(MemoryBacking::new(BYTES)), BYTES));
    let mix = Mix { layout: 0, late: 0, ..Mix::PLAIN };
    let mut world = World::new(Setup { interleave: 0, mix, swap, share: ByteCount(5 << 18), ..Setup::plain(5) });
    let range = PageRange::new(PageIndex(FIRST), PageCount(pages));
    world.program.borrow_mut().map(&world.pager.kernel, range);
    world.round();
    for page in range.start.until(range.end) {
        world.touch(page, Some(Content::Text(page.0))).unwrap();
        world.round();
    }
    assert!(world.pager.try_freeze(false, true));
    (world, range)
}

/// Another thread discards pages and fills them, many more than there are, while it holds a lock that the forking thread waits for
/// in libc: so all of that must be served before the program forks.
#[test]
fn a_fork_waits_for_a_thread_that_fills_and_discards_without_end() {
    for side in [Side::Parent, Side::Child] {
        let (mut world, range) = frozen(1000);
        for step in 0..6000 {
            let page = range.start + PageCount(step * 37 % 1000);
            let count = PageCount(1 + step % 3).min(range.end - page);
            world.program.borrow_mut().discard(&world.pager.kernel, 1, PageRange::new(page, count));
            settle_down(&mut world);
            let write = (step % 2 == 0).then_some(Content::Text(step));
            world.program.borrow_mut().touch(&world.pager.kernel, 1, page, write);
            settle_down(&mut world);
        }
        let (child, mut childs, shared) = fork(&mut world, Other::Rests);
        serve_child(&mut world, &child, &mut childs, 5);
        match side {
            Side::Parent => {
                let pin = world.pager.thaw().expect("there is a log");
                world.check();
                world.pager.unpin(pin);
                world.finish().unwrap();
            }
            Side::Child => become_child(world, child, childs, &shared),
        }
    }
}

/// What must be served before the program forks is more than can be noted, and what is to happen then is not that
/// somebody waits for ever.
#[test]
fn a_fork_that_does_not_come_ends_the_program() {
    let crossed = |fault: bool| {
        let (world, range) = frozen(100);
        let (kernel, mut server) = (&world.pager.kernel, world.server.borrow_mut());
        let far = |step: u64| PageRange::new(range.end + PageCount(1 + 2 * step), PageCount(1));
        for step in 0..1_u64 << 16 {
            let mut state = world.pager.lock();
            state.follow(Message::Remove(far(step)));
            if fault && !state.can_fill() {
                break;
            }
            drop(state);
            if let Err(stuck) = server.serve(&world.pager) {
                assert!(!fault && step > 60_000, "{step}");
                return stuck;
            }
        }
        world.program.borrow_mut().discard(kernel, 1, range);
        loop {
            world.program.borrow_mut().drain(kernel);
            if world.program.borrow().is_idle() {
                world.program.borrow_mut().touch(kernel, 1, range.start, None);
                assert!(!world.program.borrow().is_idle());
            }
            if let Err(stuck) = server.serve(&world.pager) {
                return stuck;
            }
        }
    };
    assert_eq!([crossed(false), crossed(true)], [Stuck::ForkIsLate; 2]);
}

/// Which layout messages the child shares is known once none is on its way: they must be read.
#[test]
fn layout_messages_are_read_at_a_nearly_full_journal_until_the_fork_is_placed() {
    let (world, range) = frozen(100);
    let mut state = world.pager.lock();
    let mut far = range.end;
    while state.can_fill() {
        far = far + PageCount(2);
        state.follow(Message::Remove(PageRange::new(far, PageCount(1))));
    }
    let child = ForkedMemory(7);
    state.follow(Message::Fork(child));
    assert!(state.can_follow());
    assert!(state.place_fork(child, None, |_| Some(true)));
    assert!(!state.can_follow());
}

/// Nothing forks: the state thaws and goes on.
#[test]
fn a_frozen_state_thaws() {
    for seed in 100..100 + SCHEDULES {
        println!("seed {seed}");
        let mut world = world(seed);
        begin(&mut world);
        for _ in 0..8 {
            for _ in 0..300 {
                world.step().unwrap();
            }
            if world.pager.try_freeze(false, true) {
                live_frozen(&mut world, 150);
                let pin = world.pager.thaw().expect("there is a log");
                world.pager.unpin(pin);
                world.check();
            }
        }
        world.finish().unwrap();
    }
}
