//! What counts of memory that a forked process shares, between two looks at it.

use page::{PageCount, PageIndex};
use sys::fake::{Call, Flag};
use sys::kernel::{Kernel, PageRange};

use super::content::Content;
use super::program::FIRST;
use super::world::{Setup, World};
use crate::sharing::{LOOK_NS_MIN, LOOK_SHARE, Sharing};

const PAGES: u64 = 100;
const MS: u64 = 1_000_000;

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

/// The looks of forty processes take as much of the time as those of one, as long as there is nothing to be found.
#[test]
fn of_many_processes_each_looks_more_rarely_until_something_changes() {
    const MANY: u64 = 40;
    let (mut world, mut sharing, _) = shared();
    sharing.set_processes(MANY);
    let later = |world: &World, ns: u64| {
        world.pager.kernel.sleep_ns(ns);
        world.pager.kernel.now_ns()
    };
    // A look of a millisecond: between two readings of the clock.
    let look = |world: &World, sharing: &mut Sharing| {
        world.pager.kernel.set_meanwhile(Some(Box::new(|kernel, call| {
            if call == Call::Now {
                kernel.sleep_ns(MS);
            }
        })));
        let now = later(world, 10 * LOOK_SHARE * MANY * MS);
        let elsewhere = elsewhere(world, sharing, now);
        world.pager.kernel.set_meanwhile(None);
        elsewhere
    };
    assert_eq!(look(&world, &mut sharing), PAGES / 2);
    let range = |first, count| PageRange::new(PageIndex(FIRST + first), PageCount(count));
    // Somebody else has given up what he shared with us.
    world.pager.kernel.set(range(90, 10), Flag::Shared, false);
    let now = later(&world, 2 * LOOK_SHARE * MS);
    assert_eq!(elsewhere(&world, &mut sharing, now), PAGES / 2, "nobody has looked");
    sharing.set_processes(MANY * 7 / 8);
    assert_eq!(elsewhere(&world, &mut sharing, now), PAGES / 2, "an eighth of them has ended, and no more");
    sharing.set_processes(MANY * 7 / 8 - 1);
    assert_eq!(elsewhere(&world, &mut sharing, now), 45);
    sharing.set_processes(MANY);
    assert_eq!(look(&world, &mut sharing), 45);
    write(&mut world, 0, 5);
    let now = later(&world, 2 * LOOK_SHARE * MS);
    assert_eq!(elsewhere(&world, &mut sharing, now), 40, "what is written counts, but is no eighth");
    write(&mut world, 5, 1);
    assert_eq!(elsewhere(&world, &mut sharing, now), 42, "the kernel knows of two for each");
}
