//! Media that fail: the program never sees wrong bytes.

use core::time::Duration;
use std::sync::Arc;

use backing::failing::{FailingBacking, Fault, Operation};
use backing::{MemoryBacking, ReadError};
use cache::system::{PRESETS, SizingName, System};
use cache::{Lookup, Place};
use page::{ByteCount, PAGE_BYTES, PageCount, PageIndex};
use sys::Errno;
use sys::kernel::Kernel as _;

use super::content::{Content, Random};
use super::program::Mix;
use super::schedules::begin;
use super::world::{Setup, World, between};
use crate::Stuck;
use crate::ledger::{Counter, FaultKind};

const BYTES: u64 = 8 << 20;
/// The pager tries a failed device again after a second.
const SECOND_NS: u64 = 1_100_000_000;

type Medium = Arc<FailingBacking<MemoryBacking>>;

fn medium() -> Medium {
    let failing = FailingBacking::new(MemoryBacking::new(BYTES));
    Arc::new(failing.with_meanwhile(Box::new(|_| between())))
}

/// Twice as much memory as the share, most of it hard to compress.
fn world(seed: u64, medium: &Medium) -> World {
    let mix = Mix { layout: 1, flags: 0, late: 0, noise: 30, text: 5, words: 1, pages_max: 1200 };
    let share = ByteCount(1 << 20);
    let mut world =
        World::new(Setup { mix, share, swap: Some((Box::new(medium.clone()), BYTES)), ..Setup::plain(seed) });
    begin(&mut world);
    world
}

#[test]
fn failing_writes_lose_nothing() {
    let mut writes = 0;
    for seed in 0..4 {
        let medium = medium();
        let mut random = Random::new(seed);
        for number in 0..60 {
            let fault = match random.below(6) {
                0 => Fault::Io(Errno::IO),
                1 => Fault::Short,
                2 => Fault::Io(Errno::NOSPC),
                _ => continue,
            };
            medium.fail(Operation::Write(number), fault);
        }
        let mut world = world(seed, &medium);
        for step in 0..1500 {
            world.step().unwrap();
            if step % 50 == 0 {
                world.pager.kernel.sleep_ns(SECOND_NS);
            }
        }
        world.finish().unwrap();
        writes += medium.operations().1;
    }
    assert!(writes > 100, "only {writes} writes");
}

/// While the first is served the other thread of the pager, the program and whoever changes its layout act, and what lies aside may
/// be dropped, discarded, moved or brought by another fault before its own is served.
#[test]
fn what_waits_for_the_medium_is_read_together() {
    let (mut reads, mut beside) = (0, 0);
    for seed in 100..130 {
        let medium = medium();
        // In some runs a read does not come. Beside another's that is nothing; else the program is ended.
        if seed % 3 == 0 {
            for number in (seed % 100..2000).step_by(211) {
                medium.fail(Operation::Read(number), if seed % 2 == 0 { Fault::Short } else { Fault::Io(Errno::IO) });
            }
        }
        let mut world = world(seed, &medium);
        let result = (0..1500).try_for_each(|_| world.step()).and_then(|()| world.finish());
        assert!(matches!(result, Ok(()) | Err(Stuck::Unreadable(ReadError::Device(_)))), "{result:?}");
        (reads, beside) = (reads + medium.operations().0, beside + world.pager.entry.count(Counter::ReadBeside));
    }
    println!("{beside} of {reads} reads beside others");
    assert!(beside > 150, "{beside} of {reads}");
}

/// Who has given way to others has his memory on the medium, and much room when he may go on. While a read is on its way the other thread
/// of the pager, the program and whoever changes its layout act.
#[test]
fn where_there_is_room_what_lies_behind_is_read_ahead() {
    let mut ahead = 0;
    for seed in 200..212 {
        let medium = medium();
        if seed % 3 == 0 {
            for number in (seed % 100..2000).step_by(211) {
                medium.fail(Operation::Read(number), if seed % 2 == 0 { Fault::Short } else { Fault::Flip(900, 2) });
            }
        }
        let mut world = world(seed, &medium);
        let mut result = Ok(());
        for turn in 0..20 {
            world.share = ByteCount(if turn % 2 == 0 { 640 << 10 } else { 6 << 20 });
            result = result.and_then(|()| (0..150).try_for_each(|_| world.step()));
        }
        let result = result.and_then(|()| world.finish());
        assert!(matches!(result, Ok(()) | Err(Stuck::Unreadable(_))), "{result:?}");
        ahead += world.pager.entry.count(Counter::ReadAhead);
    }
    assert!(ahead > 1000, "{ahead}");
}

/// It would send other encodings below, or have pages leave.
#[test]
fn where_there_is_no_room_nothing_is_read_ahead() {
    let medium = medium();
    let (mut world, pages) = much_noise_below(&medium, 4800, PRESETS[0].1, ByteCount(8 << 20));
    let mut random = Random::new(5);
    let mut reads = |world: &mut World| {
        let (before, ahead) = (medium.operations().0, world.pager.entry.count(Counter::ReadAhead));
        for _ in 0..3000 {
            world.touch(pages[random.below(pages.len() as u64) as usize], None).unwrap();
            world.round();
        }
        (medium.operations().0 - before, world.pager.entry.count(Counter::ReadAhead) - ahead)
    };
    // The noise has left some room, which is taken first.
    reads(&mut world);
    let (pressed, ahead) = reads(&mut world);
    assert!(pressed > 500 && ahead == 0, "{ahead} with {pressed} reads");
    let below = world.pager.lock().cache.census().below.0;
    world.share = ByteCount(2 * world.share.0);
    let (reads, ahead) = reads(&mut world);
    assert!(below > 800 && ahead > below / 3 && reads < below * 2 / 3, "{ahead} of {below} with {reads} reads");
    world.finish().unwrap();
}

/// Every write from some time on is torn, lost or flipped: reads say so, and name the segment.
#[test]
fn damage_is_found_and_named() {
    let mut stuck_runs = 0;
    for seed in 0..30 {
        let medium = medium();
        for number in 0..200 {
            let fault = [Fault::Torn, Fault::Lost, Fault::Flip(5000, 0x10), Fault::Misplaced(0)][seed as usize % 4];
            medium.fail(Operation::Write(number), fault);
        }
        let mut world = world(seed, &medium);
        // Any thread of the pager may meet the damage: nobody but this one serves.
        world.be_quiet();
        let result = (0..1500).try_for_each(|_| world.step()).and_then(|()| world.finish());
        match result {
            Ok(()) => {}
            Err(Stuck::Unreadable(ReadError::Damaged { segment, offset, .. })) => {
                assert_eq!(u64::from(segment), offset / super::world::SEGMENT_BYTES as u64);
                stuck_runs += 1;
            }
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(stuck_runs > 10, "only {stuck_runs} runs met the damage");
}

#[test]
fn a_device_that_cannot_be_read_is_told() {
    let medium = medium();
    for number in 0..10_000 {
        medium.fail(Operation::Read(number), Fault::Io(Errno::IO));
    }
    let mut world = world(3, &medium);
    world.be_quiet();
    let result = (0..3000).try_for_each(|_| world.step()).and_then(|()| world.finish());
    assert!(matches!(result, Err(Stuck::Unreadable(ReadError::Device(_)))), "{result:?}");
}

/// A program that uses a third of its memory again and again, none of which shrinks: in a pool each use would be a fault. Where
/// the pool is divided off by costs, it shrinks until most of that third stays resident. In many shares: a small world is a
/// matter of luck.
#[test]
fn a_pool_of_noise_shrinks_where_part_of_it_is_hot() {
    let faults_in = |sizing, share| {
        let (mut world, pages) = noise_below_in(&medium(), System { sizing, ..PRESETS[0].1 }, share);
        let (mut random, hot) = (Random::new(3), pages.len() as u64 / 3);
        let mut count = |steps| {
            let faults = |world: &World| world.pager.entry.faults[FaultKind::Compressed as usize].count();
            let before = faults(&world);
            for _ in 0..steps {
                let page = if random.one_in(10) { random.below(pages.len() as u64) } else { random.below(hot) };
                world.touch(pages[page as usize], None).unwrap();
                world.round();
                world.pager.kernel.sleep_ns(1_000_000);
            }
            faults(&world) - before
        };
        count(6000);
        let faults = count(3000);
        world.finish().unwrap();
        faults
    };
    let shares = (70..100).map(|part| ByteCount(part * 20_000));
    let [demand, marginal] = [SizingName::Demand, SizingName::Marginal]
        .map(|sizing| shares.clone().map(|share| faults_in(sizing, share)).sum::<u64>());
    assert!(demand > 1500 && marginal * 5 < demand * 3, "{marginal} faults on the pool against {demand}");
}

/// What agent, tables and the free room take is not there for the program: the pool leaves it a part of what is.
#[test]
fn the_pool_leaves_room_beside_what_others_take() {
    let (mut world, _) = noise_below(&medium());
    world.pager.set_agent_bytes(ByteCount(world.share.0 / 2));
    for _ in 0..200 {
        world.round();
    }
    let state = world.pager.lock();
    let (most, memory) = (state.pool_bytes_max(), state.memory_for_pages());
    let taken = state.accounts.agent + state.holdings().metadata + state.accounts.marks.high;
    assert!(taken.0 > world.share.0 / 2 && memory <= world.share - taken, "{memory:?} beside {taken:?}");
    assert!(most <= memory - ByteCount(memory.0 / 16), "{most:?} of {memory:?}");
    assert!(state.holdings().pool <= most, "{:?} of {most:?}", state.holdings());
    drop(state);
    world.finish().unwrap();
}

/// Memory of noise that does not fit into the share, written once from its start to its end; some of it is below.
fn noise_below(medium: &Medium) -> (World, Vec<PageIndex>) {
    noise_below_in(medium, PRESETS[0].1, ByteCount(3 << 19))
}

fn noise_below_in(medium: &Medium, system: System, share: ByteCount) -> (World, Vec<PageIndex>) {
    much_noise_below(medium, 600, system, share)
}

fn much_noise_below(medium: &Medium, pages_max: u64, system: System, share: ByteCount) -> (World, Vec<PageIndex>) {
    let mix = Mix { layout: 0, flags: 0, late: 0, noise: 1, text: 0, words: 0, pages_max };
    let swap: Option<(Box<dyn backing::BackingStore>, u64)> = Some((Box::new(medium.clone()), BYTES));
    let mut world = World::new(Setup { mix, share, swap, interleave: 0, system, ..Setup::plain(9) });
    begin(&mut world);
    let pages: Vec<PageIndex> = world.program.borrow().shadow.keys().copied().collect();
    for (number, page) in pages.iter().enumerate() {
        world.touch(*page, Some(Content::Noise(number as u64))).unwrap();
        world.round();
    }
    (world, pages)
}

#[test]
fn a_walk_reads_many_pages_with_one_request() {
    let medium = medium();
    let (mut world, pages) = noise_below(&medium);
    let below = world.pager.lock().cache.census().below;
    let reads = medium.operations().0;
    for page in &pages {
        world.touch(*page, None).unwrap();
        world.round();
    }
    let reads = medium.operations().0 - reads;
    assert!(below.0 > 100 && reads > 0 && reads < below.0 / 3, "{reads} reads for {below:?}");
    world.finish().unwrap();
}

#[test]
fn a_damaged_page_harms_only_who_asks_for_it() {
    let medium = medium();
    // In the sixth of the pages of the first segment.
    medium.fail(Operation::Write(0), Fault::Flip(5 * 4112 + 100, 1));
    let (mut world, pages) = noise_below(&medium);
    let failed = pages.iter().position(|page| world.touch(*page, None).is_err()).expect("one is damaged");
    let place = |page| world.pager.lock().cache.place(page);
    let (damaged, before) = (pages[failed], pages[failed - 1]);
    assert!(matches!(place(damaged), Place::Below(_)), "{:?}", place(damaged));
    assert!(matches!(place(before), Place::Resident | Place::Leaving(_)), "{:?}", place(before));
}

/// While the program forks the kernel copies the log page by page. A read that ends then must not free its segment: the child
/// could find the segment's number both used and free, and use it twice.
#[test]
fn no_fork_begins_while_a_read_holds_a_segment_that_is_dead() {
    let (world, pages) = noise_below(&medium());
    let job = {
        let mut state = world.pager.lock();
        let mut copy = [0; PAGE_BYTES];
        let mut found = pages.iter().map(|page| state.cache.look_up(*page, &mut copy));
        let job = found.find_map(|found| if let Lookup::Backed(job) = found { Some(job) } else { None }).unwrap();
        // Its segment is emptied, as the cleaner does it.
        state.cache.discard(PageIndex(0), PageIndex::END);
        job
    };
    let freezes = || {
        let has_frozen = world.pager.try_freeze(false, true);
        if has_frozen {
            world.pager.unpin(world.pager.thaw().unwrap());
        }
        has_frozen
    };
    assert!(!freezes());
    world.pager.lock().cache.finish_read(job);
    assert!(freezes());
}

/// Four times the share is memory that nobody manages, so room is short for ever: a round does not go round an empty pool until its time is over.
#[test]
fn a_round_ends_where_nothing_is_stored() {
    let swap: Option<(Box<dyn backing::BackingStore>, u64)> = Some((Box::new(medium()), BYTES));
    let share = ByteCount(1 << 20);
    let world = World::new(Setup { share, swap, interleave: 0, ..Setup::plain(3) });
    world.pager.kernel.set_other_bytes(ByteCount(4 << 20));
    let rounds = [(); 3].map(|()| {
        let begun = world.pager.kernel.now_ns();
        let rest = world.reclaimer.borrow_mut().round(&world.pager, share);
        (world.pager.kernel.now_ns() - begun, rest.time)
    });
    assert!(world.pager.lock().goal() > ByteCount::ZERO);
    for (round_ns, rest) in rounds {
        assert!(round_ns < 100_000 && rest == Duration::from_millis(1), "{rounds:?}");
    }
}

/// No space: nothing is lost, the budget counts as out of reach when nothing else helps, and no longer once there is
/// space again.
#[test]
fn a_full_medium_exhausts_the_budget_until_it_recovers() {
    let medium = medium();
    medium.full_from_write(0);
    let mix = Mix { layout: 0, flags: 0, late: 0, noise: 1, text: 0, words: 0, pages_max: 600 };
    let swap: Option<(Box<dyn backing::BackingStore>, u64)> = Some((Box::new(medium.clone()), BYTES));
    let mut world = World::new(Setup { mix, share: ByteCount(3 << 19), swap, interleave: 0, ..Setup::plain(9) });
    begin(&mut world);
    let pages: Vec<PageIndex> = world.program.borrow().shadow.keys().copied().collect();
    assert!(PageCount(pages.len() as u64).bytes() > world.share);
    let mut exhausted = false;
    for (number, page) in pages.iter().enumerate() {
        world.touch(*page, Some(Content::Noise(number as u64))).unwrap();
        exhausted |= world.round().exhausted;
    }
    for _ in 0..200 {
        exhausted |= world.round().exhausted;
    }
    assert!(exhausted);
    medium.recover();
    for _ in 0..200 {
        world.pager.kernel.sleep_ns(SECOND_NS);
        world.round();
    }
    assert!(!world.last.exhausted, "{:?}", world.pager.lock().cache.census());
    assert!(world.pager.lock().cache.census().below > PageCount::ZERO);
    world.finish().unwrap();
}
