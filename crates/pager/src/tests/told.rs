//! Scans of what the program has told of, next to scans of everything.

use std::collections::BTreeMap;

use cache::Place;
use page::{PageCount, PageIndex};
use proptest::prelude::*;
use sys::Errno;
use sys::fake::{Call, FakeKernel, Flag};
use sys::kernel::PageRange;

use super::content::Content;
use super::program::FIRST;
use super::world::{Setup, World};
use crate::ledger::Counter;
use crate::scan::{Extent, Scanned, scan};

const PAGES: u64 = 400;

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(PageIndex(FIRST + start), PageCount(count))
}

/// Something that makes memory of the program's manageable, or no more.
#[derive(Clone, Copy, Debug)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    Grow(u64),
    Protect(u64, u64),
    Open(u64, u64),
    Touch(u64),
    /// What is there by now is scanned.
    Scan,
}

impl Step {
    fn any() -> impl Strategy<Value = Self> {
        let place = || (0..PAGES, 1_u64..60);
        prop_oneof![
            6 => place().prop_map(|(start, count)| Self::Map(start, count)),
            1 => place().prop_map(|(start, count)| Self::Unmap(start, count)),
            1 => (0..PAGES).prop_map(Self::Grow),
            1 => place().prop_map(|(start, count)| Self::Protect(start, count)),
            1 => place().prop_map(|(start, count)| Self::Open(start, count)),
            6 => (0..PAGES).prop_map(Self::Touch),
            1 => Just(Self::Scan),
        ]
    }

    /// Does it; where something is new is added to `told`.
    fn act(self, world: &World, told: &mut Vec<PageRange>) {
        let kernel = &world.pager.kernel;
        let is_mapped = |at: u64| kernel.is_mapped(PageIndex(FIRST + at));
        match self {
            Self::Map(start, count) if !(start..start + count).any(is_mapped) => {
                kernel.map(range(start, count));
                told.push(range(start, count));
            }
            Self::Unmap(start, count) => {
                let _ = kernel.unmap(1, range(start, count));
                settle(world);
            }
            Self::Grow(end) if end > 0 && is_mapped(end - 1) && !is_mapped(end) => {
                kernel.grow(PageIndex(FIRST + end), PageCount(1));
                told.push(range(end, 1));
            }
            Self::Protect(start, count) => kernel.set(range(start, count), Flag::Protected, true),
            Self::Open(start, count) => {
                kernel.set(range(start, count), Flag::Protected, false);
                told.push(range(start, count));
            }
            Self::Touch(at) if is_mapped(at) => {
                let _ = kernel.access(0, PageIndex(FIRST + at), Some(&Content::Text(at).bytes()));
                settle(world);
            }
            Self::Scan => {
                assert!(matches!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(_)));
                told.clear();
            }
            _ => {}
        }
    }
}

/// Serves what waits, until nothing does.
fn settle(world: &World) {
    while world.pager.kernel.has_messages() || !can_go_on(&world.pager.kernel) {
        world.server.borrow_mut().serve(&world.pager).unwrap();
        if world.pager.kernel.can_go_on(1) && sys::kernel::Kernel::layout_is_changing(&world.pager.kernel) {
            let _ = world.pager.kernel.advance(1);
        }
    }
}

fn can_go_on(kernel: &FakeKernel) -> bool {
    !kernel.is_waiting(0) && !sys::kernel::Kernel::layout_is_changing(kernel)
}

/// What is managed, what is registered, and where the pages are.
fn picture(world: &World) -> (Vec<PageRange>, BTreeMap<PageIndex, (bool, Place)>) {
    let state = world.pager.lock();
    let pages = range(0, PAGES + 100);
    let of_page = |page| (page, (world.pager.kernel.is_registered(page), state.cache.place(page)));
    (state.regions.iter().collect(), pages.start.until(pages.end).map(of_page).collect())
}

proptest! {
    #[test]
    fn what_is_told_is_scanned_as_everything(steps in prop::collection::vec(Step::any(), 1..80)) {
        let [everything, told_alone] = [false, true].map(|is_told| {
            let world = World::new(Setup { interleave: 0, ..Setup::plain(1) });
            let mut told = Vec::new();
            for step in &steps {
                step.act(&world, &mut told);
            }
            told.sort_unstable_by_key(|place| place.start);
            let extent = if is_told { Extent::At(&told) } else { Extent::Everywhere };
            let scanned = scan(&world.pager, extent);
            (scanned, picture(&world))
        });
        prop_assert!(matches!(everything.0, Scanned::Registered(_)));
        prop_assert_eq!(everything, told_alone);
    }
}

/// A world with a mapping, managed, whose next scan of everything is not due for long.
fn scanned_world() -> World {
    let mut world = World::new(Setup { interleave: 0, ..Setup::plain(3) });
    world.program.borrow_mut().map(&world.pager.kernel, range(0, 32));
    world.pager.kernel.set_meanwhile(Some(Box::new(|kernel, call| {
        if call == Call::Mappings {
            kernel.sleep_ns(50_000_000);
        }
    })));
    world.round();
    world
}

fn announce(world: &World, place: Option<PageRange>) {
    world.pager.announcements.places.put(place);
    world.pager.announcements.make();
}

/// However long a scan of everything takes, and however soon after it.
#[test]
fn who_tells_where_waits_for_no_scan_of_everything() {
    let mut world = scanned_world();
    let scans = world.pager.entry.count(Counter::Scans);
    for number in 1..10 {
        let place = range(100 * number, 32);
        world.program.borrow_mut().map(&world.pager.kernel, place);
        announce(&world, Some(place));
        world.round();
        assert!(!world.pager.announcements.is_one_new() && world.pager.kernel.is_registered(place.start));
        assert!(world.pager.lock().regions.contains(place.start));
    }
    assert_eq!(world.pager.entry.count(Counter::Scans), scans);
    // Who does not tell where has to.
    announce(&world, None);
    world.round();
    assert!(world.pager.entry.count(Counter::Scans) == scans + 1 && !world.pager.announcements.is_one_new());
    world.program.borrow_mut().map(&world.pager.kernel, range(1500, 32));
    announce(&world, None);
    world.round();
    assert!(world.pager.announcements.is_one_new(), "it is too soon for that");
    world.pager.kernel.sleep_ns(1_000_000_000);
    world.round();
    assert_eq!(world.pager.entry.count(Counter::Scans), scans + 2);
    assert!(!world.pager.announcements.is_one_new() && world.pager.kernel.is_registered(range(1500, 1).start));
}

/// Linux before 6.11 tells of all mappings together only.
#[test]
fn where_a_place_cannot_be_looked_at_everything_is() {
    let mut world = scanned_world();
    let scans = world.pager.entry.count(Counter::Scans);
    world.pager.kernel.sleep_ns(1_000_000_000);
    let place = range(100, 32);
    world.program.borrow_mut().map(&world.pager.kernel, place);
    world.pager.kernel.fail(Call::Mappings, Errno::NOTTY);
    announce(&world, Some(place));
    world.round();
    assert_eq!(world.pager.entry.count(Counter::Scans), scans + 1);
    assert!(!world.pager.announcements.is_one_new() && world.pager.lock().regions.contains(place.start));
}

/// A place is looked at until that could be finished.
#[test]
fn a_place_is_not_forgotten_while_the_layout_changes() {
    let mut world = scanned_world();
    let (kernel, place) = (&world.pager.kernel, range(100, 32));
    assert_eq!(kernel.unmap(1, range(0, 16)), sys::fake::Progress::Stepped);
    world.program.borrow_mut().map(kernel, place);
    announce(&world, Some(place));
    world.round();
    assert!(world.pager.announcements.is_one_new() && !world.pager.lock().regions.contains(place.start));
    settle(&world);
    world.round();
    assert!(!world.pager.announcements.is_one_new() && world.pager.lock().regions.contains(place.start));
}

/// Small mappings that have a sixteenth of the share are managed, others are left alone; and once they are, what is told of is, too.
#[test]
fn small_mappings_are_managed_once_they_have_much() {
    // Of two pages each, in a share of 512.
    for (pieces, are_managed) in [(16, false), (17, true)] {
        let mut world = World::new(Setup { interleave: 0, ..Setup::plain(3) });
        let piece = |number: u64| range(3 * number, 2);
        for number in 0..pieces {
            world.program.borrow_mut().map(&world.pager.kernel, piece(number));
            for page in piece(number).start.until(piece(number).end) {
                world.touch(page, Some(Content::Text(page.0))).unwrap();
            }
        }
        world.round();
        let is_managed = |world: &World, number| world.pager.lock().regions.contains(piece(number).start);
        assert!((0..pieces).all(|number| is_managed(&world, number) == are_managed), "{pieces} pieces");
        // Those do not count as unmanaged any more.
        world.program.borrow_mut().map(&world.pager.kernel, piece(100));
        announce(&world, Some(piece(100)));
        world.round();
        assert_eq!(is_managed(&world, 100), are_managed);
        world.program.borrow_mut().map(&world.pager.kernel, piece(101));
        announce(&world, None);
        world.pager.kernel.sleep_ns(1_000_000_000);
        world.round();
        assert!(is_managed(&world, 101) == are_managed && !world.pager.announcements.is_one_new());
        world.finish().unwrap();
    }
}

/// Addresses are no memory.
#[test]
fn small_mappings_that_hold_little_are_left_alone() {
    let mut world = World::new(Setup { interleave: 0, ..Setup::plain(3) });
    for number in 0..200 {
        world.program.borrow_mut().map(&world.pager.kernel, range(3 * number, 2));
    }
    world.round();
    assert!(world.pager.lock().regions.is_empty());
}

/// Linux allows so many, and no more.
#[test]
fn very_many_small_mappings_are_left_alone() {
    for (mappings, are_managed) in [(32_000, true), (32_001, false)] {
        let world = World::new(Setup { interleave: 0, ..Setup::plain(3) });
        (0..mappings).for_each(|number| world.pager.kernel.map(range(2 * number, 1)));
        world.pager.lock().accounts.unmanaged = 1 << 30;
        let managed = if are_managed { mappings as usize } else { 0 };
        assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(managed));
        // Those that are managed stay so, and what is new beside them is.
        world.pager.kernel.unmap(1, range(0, 1));
        settle(&world);
        world.pager.kernel.map(range(0, 1));
        assert_eq!(scan(&world.pager, Extent::At(&[range(0, 1)])), Scanned::Registered(usize::from(are_managed)));
    }
}
