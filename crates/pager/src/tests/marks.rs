//! How much room is kept free: little for a program that tells of its growth and takes nothing else.

use page::{ByteCount, PageCount, PageIndex};
use policy::sizing::{Stride, Surge, Watermarks};
use sys::kernel::PageRange;

use crate::ledger::Gauge;
use crate::scan::{Extent, Scanned, scan};

use super::content::Content;
use super::program::FIRST;
use super::world::{Setup, World};

const MIB: u64 = 1 << 20;
const SHARE: ByteCount = ByteCount(64 * MIB);

/// A program with some managed memory that nobody has looked at for a long time.
fn world() -> World {
    let world = World::new(Setup { interleave: 0, share: SHARE, ..Setup::plain(40) });
    let range = PageRange::new(PageIndex(FIRST), PageCount(100));
    world.program.borrow_mut().map(&world.pager.kernel, range);
    world
}

/// The first of them.
fn touch_all(world: &mut World, pages: PageCount) {
    for page in FIRST..FIRST + pages.0 {
        world.touch(PageIndex(page), Some(Content::Text(page))).unwrap();
    }
}

/// A round of the reclaimer after so many half-lives of a surge; the high mark then.
fn high_after(world: &World, half_lives: u64, share: ByteCount) -> u64 {
    for _ in 0..half_lives {
        world.pager.kernel.sleep_ns(Surge::HALF_LIFE_NS);
        world.reclaimer.borrow_mut().round(&world.pager, share);
    }
    world.pager.lock().accounts.marks.high.0
}

#[test]
fn who_takes_nothing_unasked_has_nearly_all_and_a_surge_takes_it_back() {
    let world = world();
    let (wide, narrow) =
        (Watermarks::wide(SHARE).high.0, Watermarks::narrow(SHARE, SHARE, ByteCount::ZERO, Stride::default()).high.0);
    assert_eq!((wide, narrow), (8 * MIB, MIB));
    assert_eq!(high_after(&world, 1, SHARE), wide, "nothing is known at first");
    let calm = high_after(&world, 30, SHARE);
    assert_eq!(calm, narrow);
    // A MiB more, which no scan will find.
    world.pager.kernel.set_other_bytes(ByteCount(MIB));
    assert_eq!(high_after(&world, 1, SHARE), narrow + 4 * MIB);
    assert_eq!(high_after(&world, 30, SHARE), narrow);
}

#[test]
fn a_share_that_shrinks_for_others_widens_the_marks() {
    let world = world();
    let (half, most) = (ByteCount(SHARE.0 / 2), ByteCount(SHARE.0 / 2 - 3 * MIB / 4));
    let narrow = |share, surge| Watermarks::narrow(share, SHARE, ByteCount(surge), Stride::default()).high.0;
    assert_eq!(high_after(&world, 30, half), narrow(half, 0));
    assert_eq!(narrow(half, 0), MIB / 2, "its part of the room of all");
    assert_eq!(high_after(&world, 1, most), narrow(most, 3 * MIB / 16));
    assert_eq!(high_after(&world, 1, half), narrow(half, 3 * MIB / 32), "and one that grows does not");
}

#[test]
fn behind_a_fork_there_is_room_for_copies() {
    let mut world = world();
    let pages = PageCount(100);
    touch_all(&mut world, pages);
    let calm = high_after(&world, 30, SHARE);
    world.pager.kernel.set(PageRange::new(PageIndex(FIRST), pages), sys::fake::Flag::Shared, true);
    world.reclaimer.borrow_mut().shares_memory();
    // Half of them are its child's.
    let shared = pages.bytes().0 / 2;
    assert_eq!(high_after(&world, 1, SHARE), calm + shared / 4);
    world.pager.kernel.set(PageRange::new(PageIndex(FIRST), pages), sys::fake::Flag::Shared, false);
    assert_eq!(high_after(&world, 30, SHARE), calm);
}

/// "memory shared after fork is counted once (PSS)", also by those who look before the parent has looked itself.
#[test]
fn a_parent_counts_half_until_it_looks() {
    let mut world = world();
    let pages = PageCount(100);
    touch_all(&mut world, pages);
    let publish = |world: &World| {
        world.reclaimer.borrow_mut().publish(&world.pager);
        world.pager.entry.get(Gauge::ResidentBytes)
    };
    let whole = publish(&world);
    world.pager.kernel.set(PageRange::new(PageIndex(FIRST), pages), sys::fake::Flag::Shared, true);
    world.pager.count_half();
    assert_eq!(world.pager.entry.get(Gauge::ResidentBytes), whole / 2);
    world.reclaimer.borrow_mut().shares_memory();
    let shared = publish(&world);
    world.pager.kernel.set(PageRange::new(PageIndex(FIRST), pages), sys::fake::Flag::Shared, false);
    world.reclaimer.borrow_mut().shares_memory();
    // Now with no child.
    world.pager.count_half();
    assert_eq!((whole - shared, publish(&world)), (pages.bytes().0 / 2, whole));
}

/// Between a scan and the next look at the kernel's count other threads ask how much is free.
#[test]
fn what_a_scan_finds_counts_once_before_the_next_look() {
    let world = world();
    let pages = PageCount(100);
    for page in FIRST..FIRST + pages.0 {
        world.pager.kernel.access(0, PageIndex(page), Some(&Content::Text(page).bytes()));
    }
    let resident = sys::kernel::Kernel::resident_anonymous(&world.pager.kernel);
    assert!(resident >= pages.bytes());
    let taken = |pages: PageCount| {
        let state = world.pager.lock();
        assert_eq!(state.cache.census().resident, pages);
        SHARE.0 as i64 - state.free()
    };
    {
        let mut state = world.pager.lock();
        let holdings = state.holdings();
        state.accounts.reconcile(resident, holdings, ByteCount::ZERO);
    }
    let before = taken(PageCount::ZERO);
    assert_eq!(scan(&world.pager, Extent::Everywhere), Scanned::Registered(1));
    let tables = world.pager.lock().holdings().metadata.0 as i64;
    assert!(taken(pages) <= before + tables, "{} after {before}", taken(pages));
}

#[test]
fn where_pages_are_asked_for_one_by_one_less_room_is_kept_free() {
    let world = world();
    let calm = high_after(&world, 30, SHARE);
    // Of a walk each fault brings more; what is asked for at random comes alone.
    let note = |faults: u64, pages| {
        (0..faults).for_each(|_| world.pager.lock().stride.note(PageCount(pages), true));
        high_after(&world, 1, SHARE)
    };
    assert_eq!((calm, note(300, 32), note(5000, 1), note(5000, 32)), (MIB, MIB, MIB / 4, MIB));
}

/// First touches here and there.
#[test]
fn faults_tell_how_many_pages_they_bring() {
    let mut world = world();
    high_after(&world, 30, SHARE);
    for page in 0..100 {
        world.touch(PageIndex(FIRST + page * 37 % 100), Some(Content::Text(page))).unwrap();
    }
    high_after(&world, 1, SHARE);
    let high = |world: &World| world.pager.lock().accounts.marks.high.0;
    assert!(high(&world) < MIB, "{}", high(&world));
}
