//! Memory that the program takes back.

use std::collections::BTreeMap;

use cache::Place;
use page::{ByteCount, PageCount, PageIndex};
use sys::kernel::PageRange;

use super::content::Content;
use super::program::FIRST;
use super::schedules::{self, begin};
use super::world::{Setup, World};
use crate::surrender::Taking;

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(PageIndex(FIRST + start), PageCount(count))
}

/// The program's thread, as far as it comes without waiting; what else happens does so between its pages. True once all has been let go.
fn ask(world: &mut World, taking: &mut Taking, meanwhile: fn(&mut World)) -> bool {
    if let Some(out) = world.pager.surrender.answered() {
        world.drain().unwrap();
        let out = taking.go_on(out);
        for page in out.start.until(out.end) {
            let is_mapped = world.program.borrow().shadow.contains_key(&page);
            if is_mapped {
                world.touch(page, None).unwrap();
            }
            meanwhile(world);
        }
        if taking.left.start == taking.left.end {
            return true;
        }
        assert!(taking.goes_on());
        world.pager.surrender.put_question(taking.left);
    }
    false
}

/// What has been brought in leaves again.
fn reclaim_at_times(world: &mut World) {
    if world.random.one_in(16) {
        world.round();
    }
}

/// "A userfaultfd of the program's own": what was out is there, what was never touched is not, and nobody but the program hears of
/// either.
#[test]
fn what_is_taken_back_is_whole() {
    // In a share of 512 pages, of which half are never touched.
    take_back(ByteCount(2 << 20), 64);
}

/// As above, in a share of which a part that is to be brought in is a multiple: with all of it at a time none would ever be let go.
#[test]
fn more_than_the_share_holds_is_taken_back() {
    take_back(ByteCount(256 << 10), 128);
}

/// The program touches so many pages of 128.
fn take_back(share: ByteCount, touched: u64) {
    let mut world = World::new(Setup { interleave: 0, share, ..Setup::plain(5) });
    let (kernel, all) = (world.pager.clone(), range(0, 1200));
    world.program.borrow_mut().map(&kernel.kernel, all);
    for page in all.start.until(all.end).filter(|page| page.0 % 128 < touched) {
        world.touch(page, Some(Content::Text(page.0))).unwrap();
        world.round();
    }
    let taken = range(100, 700);
    let place = |world: &World, page| world.pager.lock().cache.place(page);
    let before: BTreeMap<_, _> = all.start.until(all.end).map(|page| (page, place(&world, page))).collect();
    let count = |wanted: fn(&Place) -> bool| taken.start.until(taken.end).filter(|page| wanted(&before[page])).count();
    let out = count(|place| !matches!(place, Place::Resident | Place::Untouched));
    assert!(out > 200 && (touched == 128 || count(|place| *place == Place::Untouched) > 30), "{out} of {taken:?}");
    assert!(world.pager.surrender.begin(taken, || 0));
    let mut taking = Taking::of(taken);
    world.pager.surrender.put_question(taking.left);
    let rounds = (0..2000)
        .take_while(|_| {
            !ask(&mut world, &mut taking, reclaim_at_times) && world.round().time > core::time::Duration::ZERO
        })
        .count();
    assert!(rounds < 2000, "the rest is {:?}", taking.left);
    for page in all.start.until(all.end) {
        let is_managed = world.pager.lock().regions.contains(page);
        assert_eq!(is_managed, !taken.contains(page), "{page:?}");
        assert_eq!(kernel.kernel.is_registered(page), is_managed);
        if !is_managed {
            assert_eq!(kernel.kernel.is_present(page), before[&page] != Place::Untouched, "{page:?}");
            assert_eq!(place(&world, page), Place::Untouched, "known no more");
        }
    }
    // Nobody takes it up, however often the mappings are looked at, until the program is done.
    let scanned = |world: &World| crate::scan::scan(&world.pager, crate::scan::Extent::Everywhere);
    scanned(&world);
    assert!(!world.pager.lock().regions.intersects(taken));
    world.pager.surrender.end();
    scanned(&world);
    assert!(taken.start.until(taken.end).all(|page| world.pager.lock().regions.contains(page)));
    world.finish().unwrap();
}

/// "Is to hear of each page that is missing": a walk brings nothing of what comes next, as it does where nobody asks for that.
#[test]
fn a_walk_fills_nothing_ahead_where_the_program_has_a_userfaultfd() {
    let filled_ahead = [false, true].map(|is_exact| {
        let mut world = World::new(Setup { interleave: 0, ..Setup::plain(5) });
        world.program.borrow_mut().map(&world.pager.kernel, range(0, 200));
        world.round();
        if is_exact {
            world.pager.be_exact();
        }
        for page in range(0, 100).start.until(range(0, 100).end) {
            world.touch(page, Some(Content::Text(page.0))).unwrap();
        }
        range(100, 100).start.until(range(100, 100).end).filter(|page| world.pager.kernel.is_present(*page)).count()
    });
    assert!(filled_ahead[0] > 0 && filled_ahead[1] == 0, "{filled_ahead:?}");
}

/// While the program does all it can to its memory, there and elsewhere, with pages on their way.
#[test]
fn memory_taken_back_in_the_middle_of_everything() {
    let (mut taken_back, count) = (0, schedules::number("PLEAT_SCHEDULES").unwrap_or(30));
    let first = schedules::number("PLEAT_SEED").unwrap_or(77 << 20);
    for seed in first..first + count {
        let _tell = schedules::Tell(seed);
        let mut world = World::new(Setup::plain(seed));
        begin(&mut world);
        let mut taking: Option<Taking> = None;
        for _ in 0..2500 {
            world.step().unwrap();
            if taking.is_none() && world.random.one_in(50) {
                let whole = range(world.random.below(900), 1 + world.random.below(200));
                assert!(world.pager.surrender.begin(whole, || 0));
                world.pager.surrender.put_question(whole);
                taking = Some(Taking::of(whole));
            }
            if taking.as_mut().is_some_and(|taking| ask(&mut world, taking, |_| {})) {
                taken_back += 1;
                // Registered by the program and given up again, after some time.
                (0..world.random.below(20)).for_each(|_| world.step().unwrap());
                world.pager.surrender.end();
                taking = None;
            }
        }
        world.finish().unwrap();
    }
    assert!(taken_back > 3 * count, "{taken_back}");
}
