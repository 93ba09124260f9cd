//! Rounds that are not made while the program sleeps, beside those that are made then.

use std::cell::Cell;
use std::rc::Rc;

use page::{ByteCount, PageCount, PageIndex};
use sys::fake::Call;
use sys::kernel::PageRange;

use super::content::Content;
use super::program::FIRST;
use super::world::{Setup, World};
use crate::Rest;
use crate::idleness::{ROUND_NS, RUN_NS_MAX};

const SHARE: ByteCount = ByteCount(64 << 20);

/// A program that has done nothing for so long that nothing is left to do.
fn asleep() -> World {
    let mut world = World::new(Setup { interleave: 0, share: SHARE, ..Setup::plain(50) });
    world.program.borrow_mut().map(&world.pager.kernel, PageRange::new(PageIndex(FIRST), PageCount(100)));
    for page in FIRST..FIRST + 100 {
        world.touch(PageIndex(page), Some(Content::Text(page))).unwrap();
    }
    world.pager.kernel.let_sleep(true);
    for _ in 0..1000 {
        round(&world, SHARE);
    }
    world
}

/// What a round says, and whether it was one: what is none reads the clock once.
fn round(world: &World, share: ByteCount) -> (Rest, bool) {
    let readings = Rc::new(Cell::new(0));
    world.pager.kernel.set_meanwhile(Some(Box::new({
        let readings = readings.clone();
        move |_, call| readings.set(readings.get() + u32::from(call == Call::Now))
    })));
    let rest = world.reclaimer.borrow_mut().round(&world.pager, share);
    world.pager.kernel.set_meanwhile(None);
    (rest, readings.get() > 1)
}

#[test]
fn what_a_round_would_say_is_said_without_it() {
    let world = asleep();
    let (rest, was_one) = round(&world, SHARE);
    world.pager.hurry();
    assert_eq!((was_one, round(&world, SHARE)), (false, (rest, true)));
}

#[test]
fn a_round_is_made_now_and_then_and_where_something_may_have_changed() {
    let world = asleep();
    let is_one = |world: &World, share| round(world, share).1;
    let part = |part: u64| ByteCount(SHARE.0 - SHARE.0 / part);
    assert!(!is_one(&world, SHARE));
    world.pager.kernel.sleep_ns(ROUND_NS);
    assert_eq!([is_one(&world, SHARE), is_one(&world, SHARE)], [true, false], "it is time");
    world.pager.hurry();
    assert_eq!([is_one(&world, SHARE), is_one(&world, SHARE)], [true, false], "somebody rings");
    world.reclaimer.borrow_mut().set_processes(2);
    assert_eq!([is_one(&world, SHARE), is_one(&world, SHARE)], [true, false], "there is another process");
    assert_eq!([64, 63, 63].map(|share| is_one(&world, part(share))), [false, true, false], "others need room");
    world.pager.kernel.let_sleep(false);
    world.pager.kernel.sleep_ns(RUN_NS_MAX);
    assert!(is_one(&world, SHARE), "the program has run");
}

/// Others have the share of who sleeps.
#[test]
fn who_sleeps_gives_up_what_is_his_no_longer() {
    let world = asleep();
    let resident = || world.pager.lock().cache.census().resident.0;
    let before = resident();
    for _ in 0..100 {
        round(&world, PageCount(60).bytes());
    }
    assert!(before >= 100 && resident() < 50, "{before} resident, then {}", resident());
}
