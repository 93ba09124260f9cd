//! What the schedules have found, and what they leave out, one test each.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;

use cache::Place;
use page::{ByteCount, PageCount, PageIndex};
use sys::Errno;
use sys::fake::{Access, Call, FakeKernel, Flag, Progress};
use sys::kernel::{Kernel, PageRange};

use super::content::Content;
use super::program::{Disturbance, FIRST, Mix, Program};
use super::world::{Setup, TestPager, World};
use crate::eviction::{Evicted, Worker};
use crate::ledger::{Counter, Histogram};
use crate::scan::{Extent, Scanned, scan};

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(PageIndex(FIRST + start), PageCount(count))
}

/// Moves pages out until this one is in a frame.
fn leave(pager: &TestPager, page: PageIndex) {
    for _ in 0..2000 {
        if matches!(pager.lock().cache.place(page), Place::Leaving(_)) {
            return;
        }
        if Worker::evict(pager) == Evicted::NoFrames {
            Worker::patient().encode(pager);
        }
    }
    panic!("the page does not leave");
}

/// The page is with us.
fn take(world: &mut World, page: PageIndex) {
    while world.pager.lock().cache.place(page) == Place::Resident {
        world.round();
        Worker::evict(&world.pager);
        Worker::patient().encode(&world.pager);
    }
}

/// Mapped, registered, written.
fn world(pages: u64, setup: Setup, content: impl Fn(u64) -> Content) -> World {
    let mut world = World::new(Setup { interleave: 0, ..setup });
    world.program.borrow_mut().map(&world.pager.kernel, range(0, pages));
    world.round();
    for page in 0..pages {
        world.touch(PageIndex(FIRST + page), Some(content(page))).unwrap();
        world.round();
    }
    world
}

/// Serves what waits, and reads everything back. At each of these calls to the kernel others act, who are told which of
/// them it is, from 1 on.
fn serve_while(mut world: World, call: Call, mut act: impl FnMut(&TestPager, &mut Program, u64) + 'static) {
    let (pager, program) = (world.pager.clone(), world.program.clone());
    let mut count = 0;
    world.pager.kernel.set_meanwhile(Some(Box::new(move |_, made| {
        if made == call {
            count += 1;
            act(&pager, &mut program.borrow_mut(), count);
        }
    })));
    world.server.borrow_mut().serve(&world.pager).unwrap();
    world.pager.kernel.set_meanwhile(None);
    world.finish().unwrap();
}

/// Scans of many mappings take long, and are spaced by as much again. A thread that waits for the next one must not wait
/// for the end of a rest that is longer: it would give up, and fill its memory while nobody manages it.
#[test]
fn who_waits_for_a_scan_gets_it_when_the_pause_ends() {
    let share = ByteCount(64 << 20);
    let mut world = world(100, Setup { share, ..Setup::plain(3) }, Content::Noise);
    world.pager.kernel.set_meanwhile(Some(Box::new(|kernel, call| {
        if call == Call::Mappings {
            kernel.sleep_ns(1_000_000);
        }
    })));
    let scans = |world: &World| world.pager.entry.count(Counter::Scans);
    world.pager.kernel.sleep_ns(1_000_000_000);
    world.pager.announcements.places.put(None);
    world.pager.announcements.make();
    world.round();
    let before = scans(&world);
    world.pager.announcements.places.put(None);
    world.pager.announcements.make();
    let rest = world.round().time;
    assert!(scans(&world) == before && rest < Duration::from_millis(7), "too soon for the next scan: {rest:?}");
    world.pager.kernel.sleep_ns(rest.as_nanos() as u64);
    world.round();
    assert!(scans(&world) == before + 1 && !world.pager.announcements.is_one_new());
}

/// The watchdog ends a process whose handler is at the same thing for ten seconds, and a fault may wait a fifth of one for room.
#[test]
fn each_fault_is_a_sign_of_life() {
    let mut world = world(400, Setup::plain(6), Content::Text);
    let pages = [7, 107, 207].map(|page| PageIndex(FIRST + page));
    while pages.iter().any(|page| world.pager.lock().cache.place(*page) == Place::Resident) {
        world.round();
        Worker::evict(&world.pager);
        Worker::patient().encode(&world.pager);
    }
    for (thread, page) in pages.into_iter().enumerate() {
        world.program.borrow_mut().touch(&world.pager.kernel, thread, page, None);
    }
    let entry = world.pager.entry;
    let seen = std::rc::Rc::new(std::cell::RefCell::new(std::collections::BTreeSet::new()));
    let signs = seen.clone();
    serve_while(world, Call::Now, move |_, _, _| {
        signs.borrow_mut().insert(entry.busy_since_ns.load(core::sync::atomic::Ordering::Relaxed));
    });
    assert!(seen.borrow().len() >= 3, "{seen:?}");
}

/// The kernel fills nothing while a layout message is unread, and hands out all faults before it: those of a hundred threads, of
/// which there is room for some, or the same one over and over, of a thread that does not wait because a signal is pending.
#[test]
fn a_layout_message_behind_many_faults_is_read() {
    for distinct in [100, 1] {
        let mut world = world(400, Setup::plain(6), Content::Text);
        let page = |number: u64| PageIndex(FIRST + number % distinct);
        while (0..100).any(|number| world.pager.lock().cache.place(page(number)) == Place::Resident) {
            world.round();
            Worker::evict(&world.pager);
            Worker::patient().encode(&world.pager);
        }
        let kernel = &world.pager.kernel;
        for number in 0..100 {
            assert!(matches!(kernel.access(1000 + number as u32, page(number), None), Access::Blocked));
        }
        world.program.borrow_mut().remap(kernel, 0, range(300, 8), PageIndex(FIRST + 1000), false);
        while kernel.has_messages() {
            world.server.borrow_mut().serve(&world.pager).unwrap();
        }
        // Who was woken for want of room faults again.
        for number in 0..100 {
            assert!(!kernel.is_waiting(1000 + number as u32), "{number} of {distinct}");
        }
        world.finish().unwrap();
    }
}

/// Where processes work by turns, faults wait; layout messages do not. What has waited is not filled, but asked for again: meanwhile
/// a guard region may have come there, and no message tells of one.
#[test]
fn while_faults_are_held_back_layout_messages_are_read() {
    let mut world = world(400, Setup::plain(7), Content::Text);
    let page = PageIndex(FIRST);
    take(&mut world, page);
    let kernel = &world.pager.kernel;
    assert!(matches!(kernel.access(1000, page, None), Access::Blocked));
    world.program.borrow_mut().remap(kernel, 0, range(300, 8), PageIndex(FIRST + 1000), false);
    while kernel.has_messages() {
        world.server.borrow_mut().follow(&world.pager);
    }
    assert!(kernel.is_waiting(1000) && world.server.borrow().has_deferred());
    world.server.borrow_mut().serve(&world.pager).unwrap();
    assert!(!kernel.is_waiting(1000) && !world.server.borrow().has_deferred());
    assert!(!kernel.is_present(page), "filled for a fault that is out of date");
    assert!(matches!(kernel.access(1000, page, None), Access::Blocked));
    world.server.borrow_mut().serve(&world.pager).unwrap();
    assert!(!kernel.is_waiting(1000) && kernel.is_present(page));
    world.finish().unwrap();
}

/// Without swap such pages go out and straight back. A fault that finds no room must not move them for ever.
#[test]
fn incompressible_pages_do_not_hold_a_fault_up() {
    let share = ByteCount(3 << 19);
    let mut world = world(500, Setup { share, ..Setup::plain(1) }, Content::Noise);
    let mut exhausted = false;
    for _ in 0..100 {
        exhausted |= world.round().exhausted;
    }
    assert!(exhausted);
    world.finish().unwrap();
}

/// Noise takes most of the share, and what is used folds. Encoding the noise again at each eighth turn of the hand, as an age of seven
/// would have it, was most of what reclaim did.
#[test]
fn noise_is_not_encoded_again_and_again_for_what_folds() {
    const NOISE: u64 = 4000;
    const TEXT: u64 = 3000;
    let share = ByteCount(20 << 20);
    let mut world = world(NOISE + TEXT, Setup { share, ..Setup::plain(4) }, |page| {
        if page < NOISE { Content::Noise(page) } else { Content::Text(page) }
    });
    for page in (NOISE..NOISE + TEXT).cycle().take(10 * TEXT as usize) {
        world.touch(PageIndex(FIRST + page), None).unwrap();
        assert!(!world.round().exhausted, "{:?}", world.pager.lock().cache.census());
    }
    let folded: u64 = world.pager.entry.encodings.iter().map(|made| made.load(Ordering::Relaxed)).sum();
    let in_vain = world.pager.entry.count(Counter::Encoded) - folded;
    assert!(in_vain < 100_000, "{in_vain} pages encoded in vain; 752,036 where nobody was spared");
    world.finish().unwrap();
}

/// More distinct words than the table holds: the rest is encoded.
#[test]
fn too_many_words_are_encoded() {
    let share = ByteCount(8 << 20);
    let mix = Mix { pages_max: 10_000, ..Mix::PLAIN };
    let frames = PageCount(512);
    let mut world = world(6500, Setup { share, frames, mix, ..Setup::plain(2) }, |page| Content::Word(page << 8 | 1));
    let census = world.pager.lock().cache.census();
    assert!(census.same_filled == PageCount(4096), "{census:?}");
    assert!(census.compressed > PageCount::ZERO, "{census:?}");
    for page in (0..6500).step_by(7) {
        world.touch(PageIndex(FIRST + page), None).unwrap();
    }
}

/// A mapping grows without a message; what has left of its new end must survive the scan that finds it.
#[test]
fn the_grown_end_of_a_mapping_survives_its_scan() {
    let mut world = world(500, Setup::plain(3), Content::Text);
    world.pager.kernel.grow(PageIndex(FIRST + 500), PageCount(300));
    for page in 500..800 {
        let zero = super::program::Allowed { content: Content::Zero, or_zero: false };
        world.program.borrow_mut().shadow.insert(PageIndex(FIRST + page), zero);
        world.touch(PageIndex(FIRST + page), Some(Content::Text(page))).unwrap();
        world.serve().unwrap();
    }
    for _ in 0..50 {
        world.round();
        scan(&world.pager, Extent::Everywhere);
    }
    world.finish().unwrap();
}

/// Between the look at the mappings and their registering the program unmaps one, and an area of the agent's goes there.
#[test]
fn a_scan_leaves_no_area_of_our_own_registered() {
    let place = range(5_000_000, 32);
    for extent in [Extent::Everywhere, Extent::At(&[place])] {
        leaves_no_area_registered(place, extent);
    }
}

/// `place` is where no other test has anything.
fn leaves_no_area_registered(place: PageRange, extent: Extent<'_>) {
    let world = world(100, Setup::plain(9), Content::Text);
    world.program.borrow_mut().map(&world.pager.kernel, place);
    let mut own = None;
    world.pager.kernel.set_meanwhile(Some(Box::new(move |kernel, call| {
        if call == Call::Register && own.is_none() {
            assert_eq!(kernel.unmap(1, place), Progress::Done);
            kernel.map(place);
            own = Some(sys::area::pretend_own(place));
        }
    })));
    assert_eq!(scan(&world.pager, extent), Scanned::Registered(0));
    assert!(!world.pager.kernel.is_registered(place.start));
    assert!(!world.pager.lock().regions.intersects(place));
}

/// While a scan registers a mapping, another thread unmaps its second half and maps it anew: without a message, for it is
/// not registered yet, and behind the registration, so that it never is. What would be moved out of there would read as
/// zeros: a scan adopts only what is whole.
#[test]
fn a_scan_adopts_only_what_is_whole() {
    for extent in [Extent::Everywhere, Extent::At(&[range(1000, 10)])] {
        adopts_only_what_is_whole(extent);
    }
}

fn adopts_only_what_is_whole(extent: Extent<'_>) {
    let mut world = world(100, Setup::plain(9), Content::Text);
    let (whole, replaced) = (range(1000, 200), range(1100, 100));
    world.program.borrow_mut().map(&world.pager.kernel, whole);
    let program = world.program.clone();
    let mut looks = 0;
    world.pager.kernel.set_meanwhile(Some(Box::new(move |kernel, call| {
        looks += u64::from(call == Call::Mappings);
        match call {
            Call::Register => assert_eq!(kernel.unmap(1, replaced), Progress::Done),
            Call::Mappings if looks == 2 => {
                let mut program = program.borrow_mut();
                program.map(kernel, replaced);
                for page in replaced.start.until(replaced.end) {
                    program.touch(kernel, 0, page, Some(Content::Text(page.0)));
                }
            }
            _ => {}
        }
    })));
    assert_eq!(scan(&world.pager, extent), Scanned::Registered(0));
    world.pager.kernel.set_meanwhile(None);
    assert!(world.pager.kernel.is_registered(whole.start) && !world.pager.kernel.is_registered(replaced.start));
    // Everything leaves that can.
    while Worker::evict(&world.pager) != Evicted::Nothing {
        Worker::patient().encode(&world.pager);
    }
    assert!(world.pager.kernel.is_present(replaced.start));
    // The next scan sees two mappings, each of them whole.
    assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(2));
    world.finish().unwrap();
}

/// Two threads miss a page. The first fault brings it, the second finds it there; before that is noted the page is moved
/// out again, with what the first thread has written.
#[test]
fn a_page_that_leaves_before_its_second_fault_is_noted() {
    let mut world = world(400, Setup::plain(6), Content::Text);
    let page = PageIndex(FIRST + 7);
    take(&mut world, page);
    for thread in 0..2 {
        world.program.borrow_mut().touch(&world.pager.kernel, thread, page, Some(Content::Text(70 + thread as u64)));
    }
    serve_while(world, Call::Filled, move |pager, program, count| match count {
        1 => program.drain(&pager.kernel),
        2 if !pager.is_locked() => leave(pager, page),
        _ => {}
    });
}

/// Two threads miss a page. The first fault brings it, the second finds it there; before the kernel is asked whether it
/// still is, the page is moved out, with what the first thread has written: zeros must not stand for it.
#[test]
fn a_page_that_leaves_before_its_second_fault_is_filled() {
    let mut world = world(400, Setup::plain(10), Content::Text);
    let page = PageIndex(FIRST + 7);
    take(&mut world, page);
    for thread in 0..2 {
        world.program.borrow_mut().touch(&world.pager.kernel, thread, page, Some(Content::Text(70)));
    }
    serve_while(world, Call::Fill, move |pager, program, count| {
        if count == 2 && !pager.is_locked() {
            program.drain(&pager.kernel);
            leave(pager, page);
        }
    });
}

/// Two threads miss a page. The first fault brings it, and before the second has been looked at the page is to be discarded: it is there still,
/// and must not leave with what was in it.
#[test]
fn a_page_that_is_about_to_be_discarded_does_not_leave() {
    let mut world = world(400, Setup::plain(6), Content::Text);
    let page = PageIndex(FIRST + 7);
    take(&mut world, page);
    let (pager, program) = (world.pager.clone(), world.program.clone());
    for thread in 0..2 {
        let write = (thread == 0).then_some(Content::Text(70));
        program.borrow_mut().touch(&pager.kernel, thread, page, write);
    }
    let is_there = Rc::new(Cell::new(false));
    let (found, discarding) = (is_there.clone(), PageRange::new(page, PageCount(1)));
    let mut is_discarded = false;
    pager.kernel.set_meanwhile(Some(Box::new({
        let program = program.clone();
        move |kernel, call| match call {
            Call::Filled if !is_discarded => {
                is_discarded = true;
                program.borrow_mut().drain(kernel);
                program.borrow_mut().discard(kernel, 0, discarding);
            }
            // Once the message has been read the thread runs, and has not discarded yet.
            Call::Fill if is_discarded => {
                program.borrow_mut().go_on(kernel, 0);
                found.set(kernel.about_to_zap(0).is_some() && kernel.is_present(page));
            }
            _ => {}
        }
    })));
    world.server.borrow_mut().serve(&pager).unwrap();
    pager.kernel.set_meanwhile(None);
    assert!(is_there.get());
    for _ in 0..1000 {
        Worker::evict(&pager);
        Worker::patient().encode(&pager);
    }
    world.finish().unwrap();
}

/// The new end of a mapping is registered, but no region yet. A fault there is served, and before that is noted a scan
/// finds the page and it is moved out, with what the program has written.
#[test]
fn a_page_that_a_scan_finds_before_its_fault_is_noted() {
    let world = world(200, Setup::plain(7), Content::Text);
    let page = PageIndex(FIRST + 200);
    world.pager.kernel.grow(page, PageCount(16));
    let zero = super::program::Allowed { content: Content::Zero, or_zero: false };
    world.program.borrow_mut().shadow.insert(page, zero);
    world.program.borrow_mut().touch(&world.pager.kernel, 0, page, Some(Content::Text(71)));
    serve_while(world, Call::Filled, move |pager, program, count| {
        if count == 1 {
            program.drain(&pager.kernel);
            scan(pager, Extent::Everywhere);
            leave(pager, page);
        }
    });
}

/// A fault copies a page out of its frame. Before it is filled the page, which no codec makes smaller, would go back by
/// itself, be changed there and leave once more: then the copy is out of date.
#[test]
fn a_page_that_is_copied_out_of_its_frame_does_not_go_back() {
    let world = world(300, Setup::plain(8), Content::Noise);
    let page = PageIndex(FIRST + 7);
    leave(&world.pager, page);
    world.pager.kernel.fail(Call::MoveBack, sys::Errno::AGAIN);
    world.program.borrow_mut().touch(&world.pager.kernel, 0, page, Some(Content::Noise(72)));
    serve_while(world, Call::Fill, move |pager, program, count| {
        if count > 1 {
            return;
        }
        while matches!(pager.lock().cache.place(page), Place::Leaving(_)) {
            Worker::patient().encode(pager);
        }
        program.drain(&pager.kernel);
        if pager.lock().cache.place(page) == Place::Resident {
            leave(pager, page);
        }
    });
}

/// Thread 0 moves A to B; before its message about the vacated A is posted, thread 1 moves C to A. Linux then tells:
/// A to B, C to A, A is unmapped. The last, followed by its letter, would discard what came from C.
#[test]
fn two_remaps_at_once() {
    let mut world = world(600, Setup::plain(4), Content::Text);
    for _ in 0..20 {
        world.round();
    }
    let (kernel, program) = (&world.pager.kernel, &world.program);
    program.borrow_mut().remap(kernel, 0, range(0, 64), PageIndex(FIRST + 1000), false);
    program.borrow_mut().remap(kernel, 1, range(100, 64), PageIndex(FIRST), false);
    world.drain().unwrap();
    world.finish().unwrap();
}

/// A scan registers a mapping, which thread 0 unmaps before it becomes a region; before its message is posted, thread 1 moves something to where that
/// was. Nothing is managed there, but what thread 0 tells then is not about what has come.
#[test]
fn what_a_scan_has_given_up_is_unmapped_late() {
    let mut world = world(400, Setup::plain(11), Content::Text);
    let (kernel, program) = (&world.pager.kernel, &world.program);
    let (moved, place) = (range(0, 64), range(1000, 64));
    while moved.start.until(moved.end).any(|page| kernel.is_present(page)) {
        Worker::evict(&world.pager);
        Worker::patient().encode(&world.pager);
    }
    program.borrow_mut().map(kernel, place);
    let unmaps = program.clone();
    let mut readings = 0;
    kernel.set_meanwhile(Some(Box::new(move |kernel, call| {
        readings += u32::from(call == Call::Mappings);
        if call == Call::Mappings && readings == 2 {
            unmaps.borrow_mut().unmap(kernel, 0, place);
            kernel.hold_back(0);
        }
    })));
    assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Changing);
    kernel.set_meanwhile(None);
    program.borrow_mut().remap(kernel, 1, moved, place.start, false);
    for _ in 0..4 {
        world.server.borrow_mut().serve(&world.pager).unwrap();
        program.borrow_mut().drain(kernel);
    }
    kernel.hold_back_no_more();
    world.drain().unwrap();
    world.finish().unwrap();
}

/// What mremap keeps (`MREMAP_DONTUNMAP`) nobody tells of any more. Once it is managed again, its unmapping is no rest of that move.
#[test]
fn what_a_move_has_kept_is_unmapped_later() {
    let moved = |world: &World| {
        let (kernel, program) = (&world.pager.kernel, &world.program);
        program.borrow_mut().remap(kernel, 0, range(0, 64), PageIndex(FIRST + 1000), true);
        while kernel.layout_is_changing() {
            world.server.borrow_mut().serve(&world.pager).unwrap();
            world.program.borrow_mut().drain(kernel);
        }
        assert!(!world.pager.lock().regions.intersects(range(0, 64)));
    };
    // Each of them shows that no message is on its way.
    let scanned = |world: &World| assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(1));
    let moved_out = |world: &World| leave(&world.pager, PageIndex(FIRST + 1000));
    for ends in [&scanned as &dyn Fn(&World), &moved_out] {
        let mut world = world(64, Setup::plain(4), Content::Text);
        moved(&world);
        ends(&world);
        // As a fault of the program's would.
        world.pager.lock().regions.insert(range(0, 64));
        world.program.borrow_mut().unmap(&world.pager.kernel, 0, range(0, 64));
        world.drain().unwrap();
        assert!(
            !world.pager.lock().regions.intersects(range(0, 64)),
            "what is mapped there next would not be registered"
        );
        world.finish().unwrap();
    }
}

/// 600 pages, most of which have left, and two threads that change the layout. What the last has told comes first.
fn told_late(act: impl FnOnce(&FakeKernel, &mut Program)) -> World {
    let mut world = world(600, Setup::plain(11), Content::Text);
    for _ in 0..20 {
        world.round();
    }
    act(&world.pager.kernel, &mut world.program.borrow_mut());
    world.pager.kernel.overtake();
    world
}

/// Thread 0 unmaps A; before it says so thread 1 moves B to A and tells of it.
#[test]
fn an_unmapping_is_told_late() {
    let mut world = told_late(|kernel, program| {
        program.unmap(kernel, 0, range(0, 64));
        program.remap(kernel, 1, range(100, 64), PageIndex(FIRST), false);
    });
    world.drain().unwrap();
    world.finish().unwrap();
}

/// Thread 0 moves A away; before it says so thread 1 moves B to a part of A and tells of it.
#[test]
fn a_move_is_told_late() {
    for keep in [false, true] {
        let mut world = told_late(|kernel, program| {
            program.remap(kernel, 0, range(0, 64), PageIndex(FIRST + 1000), false);
            program.remap(kernel, 1, range(100, 32), PageIndex(FIRST + 8), keep);
        });
        world.drain().unwrap();
        world.finish().unwrap();
    }
}

/// Thread 0 moves A over several mappings, so it has several messages, of which some come behind that of thread 1, which
/// has moved B to A meanwhile.
#[test]
fn a_move_over_several_mappings_is_told_late() {
    let mut world = world(600, Setup::plain(11), Content::Text);
    for _ in 0..20 {
        world.round();
    }
    {
        let (kernel, mut program) = (&world.pager.kernel, world.program.borrow_mut());
        // What is mapped anew is a mapping of its own.
        program.map_over(kernel, 2, range(320, 16));
    }
    world.drain().unwrap();
    for page in 300..364 {
        let content = Content::Text(1 << 40 | page);
        world.touch(PageIndex(FIRST + page), Some(content)).unwrap();
    }
    for _ in 0..20 {
        world.round();
    }
    {
        let (kernel, mut program) = (&world.pager.kernel, world.program.borrow_mut());
        program.remap(kernel, 0, range(0, 64), PageIndex(FIRST + 300), false);
        program.remap(kernel, 1, range(100, 7), PageIndex(FIRST), false);
    }
    world.drain().unwrap();
    world.finish().unwrap();
}

/// The same while the state is frozen for a fork, of which nothing comes.
#[test]
fn a_move_is_told_late_while_the_program_forks() {
    let mut world = world(600, Setup::plain(12), Content::Text);
    for _ in 0..20 {
        world.round();
    }
    assert!(world.pager.try_freeze(false, true));
    for (first, to) in [(0, 1000), (300, 100)] {
        let (kernel, program) = (&world.pager.kernel, &world.program);
        program.borrow_mut().remap(kernel, 0, range(first, 64), PageIndex(FIRST + to), false);
        program.borrow_mut().remap(kernel, 1, range(first + 100, 32), PageIndex(FIRST + first + 8), false);
        kernel.overtake();
        world.drain().unwrap();
    }
    for page in (0..600).step_by(7) {
        let page = PageIndex(FIRST + page);
        if world.program.borrow().shadow.contains_key(&page) {
            world.touch(page, None).unwrap();
        }
    }
    world.pager.thaw();
    world.finish().unwrap();
}

/// Thread 1 goes on meanwhile: it moves on what it has moved, or gives it up. Thread 0 is still on its way.
#[test]
fn a_move_is_told_late_and_its_place_is_left_again() {
    for second in [Disturbance::MovesAway, Disturbance::Unmaps] {
        let mut world = told_late(|kernel, program| {
            program.remap(kernel, 0, range(0, 64), PageIndex(FIRST + 1000), false);
            program.remap(kernel, 1, range(100, 64), PageIndex(FIRST), false);
        });
        // Only the message of thread 1 is read: then thread 0 gets some time before anything else is.
        world.pager.kernel.hold_back(0);
        let mut rounds = 0;
        while !world.program.borrow().is_idle_but(0) {
            rounds += 1;
            assert!(rounds < 400);
            world.serve().unwrap();
            world.program.borrow_mut().drain(&world.pager.kernel);
        }
        let (kernel, program) = (&world.pager.kernel, &world.program);
        match second {
            Disturbance::MovesAway => {
                program.borrow_mut().remap(kernel, 1, range(0, 64), PageIndex(FIRST + 2000), false);
            }
            _ => program.borrow_mut().unmap(kernel, 1, range(0, 64)),
        }
        world.serve().unwrap();
        world.pager.kernel.hold_back_no_more();
        world.drain().unwrap();
        world.finish().unwrap();
    }
}

/// Pages that are away, asked for from the last to the first: most come before that.
#[test]
fn a_walk_downwards_brings_what_lies_below() {
    let mut world = scattered();
    let is_away = |world: &World, page: u64| world.pager.lock().cache.place(PageIndex(FIRST + page)).is_away();
    let pages: Vec<u64> = (100..400).filter(|&page| is_away(&world, page)).collect();
    let faults = |world: &World| world.pager.entry.faults.iter().map(Histogram::count).sum::<u64>();
    let before = faults(&world);
    for page in pages.iter().rev() {
        world.touch(PageIndex(FIRST + page), None).unwrap();
        world.round();
    }
    let faults = faults(&world) - before;
    assert!(pages.len() > 100 && faults * 3 < pages.len() as u64, "{faults} faults for {} pages", pages.len());
    world.finish().unwrap();
}

/// What comes along with a fault must not take the place of a guard.
#[test]
fn guards_are_not_filled() {
    let mut world = world(20, Setup::plain(13), Content::Text);
    world.program.borrow_mut().map(&world.pager.kernel, range(200, 100));
    assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(1));
    let guard = range(240, 1);
    world.pager.kernel.set(guard, Flag::Guarded, true);
    for page in 200..240 {
        world.touch(PageIndex(FIRST + page), None).unwrap();
    }
    assert!(!world.pager.kernel.is_present(guard.start));
    assert!(world.pager.kernel.is_present(range(239, 1).start));
    let prefetched =
        world.pager.entry.counters[Counter::Prefetched as usize].load(core::sync::atomic::Ordering::Relaxed);
    assert!(prefetched > 0);
}

/// The same where it comes along with a fault above it.
#[test]
fn guards_below_are_not_filled() {
    let mut world = scattered();
    let is_away = |world: &World, page: u64| world.pager.lock().cache.place(PageIndex(FIRST + page)).is_away();
    let first = (0..590).find(|&page| (page..page + 8).all(|page| is_away(&world, page))).expect("eight in a row");
    let guard = range(first + 1, 1);
    world.pager.kernel.set(guard, Flag::Guarded, true);
    for page in (first + 2..first + 8).rev() {
        world.touch(PageIndex(FIRST + page), None).unwrap();
    }
    assert!(!world.pager.kernel.is_present(guard.start));
    assert!(world.pager.entry.count(Counter::Prefetched) > 0);
    world.pager.kernel.set(guard, Flag::Guarded, false);
    world.finish().unwrap();
}

/// 600 pages in 1.5 MiB, of which none waits in the ring, and which have gone one by one.
fn scattered() -> World {
    let world = world(600, Setup { share: ByteCount(3 << 19), ..Setup::plain(20) }, Content::Text);
    while Worker::patient().encode(&world.pager).frames > 0 {}
    note_runs(&world, PageCount(1));
    world
}

/// As if runs had been so long for some time.
fn note_runs(world: &World, pages: PageCount) {
    for _ in 0..200 {
        world.pager.lock().moves.note_run(pages);
    }
}

fn stocked(world: &World) -> u64 {
    // Relaxed: one thread.
    world.pager.entry.counters[Counter::Stocked as usize].load(core::sync::atomic::Ordering::Relaxed)
}

/// Touches pages that are out, so that the server is asked for them.
fn fault(world: &mut World, faults: u64) {
    for page in 0..faults {
        world.touch(PageIndex(FIRST + page * 7 % 600), None).unwrap();
    }
}

#[test]
fn the_server_stocks_the_ring_while_the_reclaimer_rests() {
    let mut world = scattered();
    world.pager.lock().moves.favour_server();
    fault(&mut world, 20);
    assert_eq!(stocked(&world), 0, "the reclaimer is awake");
    world.pager.pretend_rest(true);
    fault(&mut world, 100);
    assert!(stocked(&world) > 0);
    note_runs(&world, PageCount(1));
    assert!(world.pager.lock().moves.are_the_servers());
    note_runs(&world, PageCount(32));
    assert!(!world.pager.lock().moves.are_the_servers(), "runs are the reclaimer's");
    world.finish().unwrap();
}

#[test]
fn runs_that_the_reclaimer_moves_are_counted() {
    let mut world = scattered();
    let count = |world: &World| {
        [Counter::RunsReclaimed, Counter::Reclaimed, Counter::Stocked].map(|counter| world.pager.entry.count(counter))
    };
    let [runs, reclaimed, stocked] = count(&world);
    assert!(runs > 0 && runs <= reclaimed && reclaimed <= runs * 32 && stocked == 0, "{runs} runs of {reclaimed}");
    // What the server moves is none of them.
    world.pager.lock().moves.favour_server();
    world.pager.pretend_rest(true);
    fault(&mut world, 30);
    let [after, _, stocked] = count(&world);
    assert!(after == runs && stocked > 0, "{after} runs after {runs}, {stocked} stocked");
    world.finish().unwrap();
}

/// While the program forks no page may change its place.
#[test]
fn the_server_stocks_nothing_while_the_program_forks() {
    let mut world = scattered();
    // Until there is so little room that the server would stock.
    for page in 0..600 {
        if !world.pager.lock().is_high() {
            break;
        }
        world.touch(PageIndex(FIRST + page), None).unwrap();
    }
    assert!(!world.pager.lock().is_high());
    world.pager.lock().moves.favour_server();
    world.pager.pretend_rest(true);
    assert!(world.pager.try_freeze(false, true));
    fault(&mut world, 100);
    assert_eq!(stocked(&world), 0);
    world.pager.thaw();
    fault(&mut world, 600);
    assert!(stocked(&world) > 0);
    world.finish().unwrap();
}

#[test]
fn the_server_leaves_runs_to_the_reclaimer() {
    let mut world = scattered();
    world.pager.lock().moves.favour_server();
    world.pager.pretend_rest(true);
    note_runs(&world, PageCount(32));
    fault(&mut world, 100);
    assert_eq!(stocked(&world), 0);
}

/// Where the reclaimer keeps it stocked nobody would ever know what it costs the server.
#[test]
fn the_server_tries_though_the_ring_is_stocked() {
    let mut world = scattered();
    let is_stocked = |world: &World| {
        let state = world.pager.lock();
        state.ring.is_stocked(&state.cache.census())
    };
    while !is_stocked(&world) {
        assert!(matches!(Worker::evict(&world.pager), Evicted::Moved(_) | Evicted::Aged));
    }
    note_runs(&world, PageCount(1));
    world.pager.pretend_rest(true);
    fault(&mut world, 20);
    assert!(is_stocked(&world) && stocked(&world) > 0);
    world.finish().unwrap();
}

/// In the fake kernel a move costs the same from everywhere: as where the program runs on several processors.
#[test]
fn the_server_stops_where_it_is_not_cheaper() {
    let mut world = scattered();
    world.pager.pretend_rest(true);
    fault(&mut world, 300);
    let first = stocked(&world);
    assert!(first > 0);
    assert!(!world.pager.lock().moves.are_the_servers());
    fault(&mut world, 300);
    assert_eq!(stocked(&world), first, "it tries again only after many faults");
    world.finish().unwrap();
}

/// 40 pages that a scan has registered and not adopted, because it found the layout changing; eight of them are about
/// to be discarded by thread 1, which has told of it.
fn about_to_discard() -> World {
    let world = World::new(Setup { interleave: 0, ..Setup::plain(40) });
    let kernel = &world.pager.kernel;
    world.program.borrow_mut().map(kernel, range(0, 40));
    for page in 0..40 {
        world.program.borrow_mut().touch(kernel, 0, PageIndex(FIRST + page), Some(Content::Text(page)));
    }
    kernel.register(range(0, 40)).unwrap();
    assert_eq!(kernel.discard(1, range(8, 8)), Progress::Stepped);
    world.server.borrow_mut().serve(&world.pager).unwrap();
    assert_eq!(kernel.advance(1), Progress::Stepped);
    assert_eq!(kernel.about_to_zap(1), Some(range(8, 8)));
    world
}

/// madvise tells before it discards. A scan in between finds the pages, which are as good as gone: were one adopted it
/// could be moved out, and would survive.
#[test]
fn a_page_that_is_about_to_be_discarded_is_not_adopted() {
    for extent in [Extent::Everywhere, Extent::At(&[range(39, 4)])] {
        let world = about_to_discard();
        let kernel = &world.pager.kernel;
        assert_eq!(scan(&world.pager, extent), Scanned::Registered(1));
        let place = |page: u64| world.pager.lock().cache.place(PageIndex(FIRST + page));
        assert_eq!(
            (place(7), place(8), place(15), place(16)),
            (Place::Resident, Place::Untouched, Place::Untouched, Place::Resident)
        );
        assert_eq!(kernel.advance(1), Progress::Done);
        assert!(world.pager.lock().discarded_early.is_empty());
    }
}

/// What another thread unmaps meanwhile is no concern of a scan any more.
#[test]
fn what_is_unmapped_is_about_to_be_discarded_no_more() {
    // Before another mapping, and behind the last.
    for unmapped in [range(4, 16), range(4, 36)] {
        let world = about_to_discard();
        let kernel = &world.pager.kernel;
        assert_eq!(kernel.unmap(0, unmapped), Progress::Stepped);
        world.server.borrow_mut().serve(&world.pager).unwrap();
        assert_eq!(kernel.advance(0), Progress::Done);
        assert!(!world.pager.lock().discarded_early.is_empty());
        assert!(matches!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(_)));
        assert!(world.pager.lock().discarded_early.is_empty(), "{unmapped:?}");
    }
}

/// Decision 16: for a loop, what was used last is wanted last. How much that gives is tested with the policy.
#[test]
fn behind_a_walk_in_rounds_pages_go_first() {
    let pages = 900;
    let mix = Mix { pages_max: pages, ..Mix::PLAIN };
    let setup = Setup { share: ByteCount(11 << 18), frames: PageCount(64), mix, ..Setup::plain(31) };
    let mut world = world(pages, setup, Content::Text);
    for _ in 0..40 {
        for page in 0..pages {
            world.touch(PageIndex(FIRST + page), None).unwrap();
            world.round();
        }
    }
    let dropped = world.pager.entry.count(Counter::DroppedBehind);
    assert!(dropped > pages, "{dropped} pages dropped behind the walk");
    world.finish().unwrap();
}

/// What waited in frames when the program forked is shared with the other process, perhaps for good (BUSY), and what may be
/// read only by now cannot be moved to (INVAL): where it gains nothing it goes back as a copy.
#[test]
fn what_cannot_be_moved_back_is_copied_back() {
    for errno in [Errno::BUSY, Errno::INVAL] {
        let mut world = world(40, Setup::plain(11), Content::Noise);
        let page = PageIndex(FIRST + 7);
        leave(&world.pager, page);
        for _ in 0..40 {
            world.pager.kernel.fail(Call::MoveBack, errno);
        }
        while matches!(world.pager.lock().cache.place(page), Place::Leaving(_)) {
            Worker::patient().encode(&world.pager);
        }
        assert_eq!(world.pager.lock().cache.place(page), Place::Resident);
        assert!(world.pager.kernel.is_present(page));
        world.finish().unwrap();
    }
}
