//! What counts of memory that a forked process shares, between two looks at it.

use page::{PageCount, PageIndex};
use sys::fake::Flag;
use sys::kernel::{Kernel, PageRange};

use super::content::Content;
use super::program::FIRST;
use super::world::{Setup, World};
use crate::sharing::{LOOK_NS_MIN, Sharing};

const PAGES: u64 = 100;

/// 100 pages that are shared with one other process, and a look at them; and when that was.
fn shared() -> (World, Sharing, u64) {
    let mut world = World::new(Setup { interleave: 0, ..Setup::plain(30) });
    let range = PageRange::new(PageIndex(FIRST), PageCount(PAGES));
    world.program.borrow_mut().map(&world.pager.kernel, range);
    world.round();
    write(&mut world, 0, PAGES);
    world.pager.kernel.set(range, Flag::Shared, true);
    let mut sharing = Sharing::default();
    sharing.begin();
    let now = world.pager.kernel.now_ns();
    assert_eq!(elsewhere(&world, &mut sharing, now), PAGES / 2);
    (world, sharing, now)
}

fn write(world: &mut World, first: u64, count: u64) {
    for page in first..first + count {
        world.touch(PageIndex(FIRST + page), Some(Content::Text(page))).unwrap();
    }
}

/// Pages that do not count here.
fn elsewhere(world: &World, sharing: &mut Sharing, now: u64) -> u64 {
    let resident = world.pager.kernel.resident_anonymous();
    let counted = sharing.counted(&world.pager, resident, now);
    resident.saturating_sub(counted).0 / page::PAGE_BYTES as u64
}

#[test]
fn what_is_written_counts_before_the_next_look() {
    let (mut world, mut sharing, now) = shared();
    write(&mut world, 0, 20);
    // The kernel would say 40, for the other process has its pages for itself as well now; 30 is the safe side.
    assert_eq!(elsewhere(&world, &mut sharing, now), 30);
    write(&mut world, 20, PAGES - 20);
    assert_eq!(elsewhere(&world, &mut sharing, now), 0);
}

#[test]
fn a_look_corrects_it_and_the_end_of_sharing_ends_the_looks() {
    let (mut world, mut sharing, _) = shared();
    let later = |world: &World| {
        world.pager.kernel.sleep_ns(LOOK_NS_MIN * 1000);
        world.pager.kernel.now_ns()
    };
    write(&mut world, 0, 20);
    let now = later(&world);
    assert_eq!(elsewhere(&world, &mut sharing, now), 40);
    write(&mut world, 20, PAGES - 20);
    let now = later(&world);
    assert_eq!(elsewhere(&world, &mut sharing, now), 0);
    assert_eq!(sharing.shared(), Some(page::ByteCount::ZERO));
}
