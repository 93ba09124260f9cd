//! How much room is kept free: little for a program that tells of its growth and takes nothing else.

use page::{ByteCount, PageCount, PageIndex};
use policy::sizing::{Surge, Watermarks};
use sys::kernel::PageRange;

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
    let (wide, narrow) = (Watermarks::wide(SHARE).high.0, Watermarks::narrow(SHARE, ByteCount::ZERO).high.0);
    assert_eq!((wide, narrow), (8 * MIB, MIB * 3 / 2));
    assert_eq!(high_after(&world, 1, SHARE), wide, "nothing is known at first");
    let calm = high_after(&world, 30, SHARE);
    assert_eq!(calm, narrow);
    // A MiB more, which no scan will find.
    world.pager.kernel.set_other_bytes(ByteCount(MIB));
    assert_eq!(high_after(&world, 1, SHARE), narrow + 4 * MIB);
    assert_eq!(high_after(&world, 30, SHARE), narrow);
}

#[test]
fn beside_other_processes_and_behind_a_fork_the_marks_stay_wide() {
    let world = world();
    let half = ByteCount(SHARE.0 / 2);
    assert_eq!(high_after(&world, 30, half), Watermarks::wide(half).high.0);
    assert_eq!(high_after(&world, 1, SHARE), Watermarks::narrow(SHARE, ByteCount::ZERO).high.0);
    world.pager.kernel.set(PageRange::new(PageIndex(FIRST), PageCount(100)), sys::fake::Flag::Shared, true);
    world.reclaimer.borrow_mut().shares_memory();
    assert_eq!(high_after(&world, 1, SHARE), Watermarks::wide(SHARE).high.0);
}
