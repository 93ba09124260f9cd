//! Seeded random schedules. `PLEAT_SCHEDULES=n` runs n of each kind instead of a few, `PLEAT_SEED=s` begins at seed s.

use std::sync::atomic::Ordering;

use backing::{BackingStore, MemoryBacking};
use cache::system::{Choice as _, PRESETS, SizingName, System};
use page::{ByteCount, PageCount, PageIndex};
use sys::kernel::PageRange;

use super::content::Random;
use super::program::{FIRST, Mix};
use super::world::{Setup, World};
use crate::ledger::{Counter, FaultKind};

const SCHEDULES: u64 = 40;
const STEPS: u64 = 2500;

pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs schedules of one kind.
pub(super) fn run(kind: u64, make: impl Fn(&mut Random, Setup) -> Setup) -> Seen {
    let first = number("PLEAT_SEED").unwrap_or(kind << 20);
    let count = number("PLEAT_SCHEDULES").unwrap_or(SCHEDULES);
    let mut seen = Seen::default();
    let begun = std::time::Instant::now();
    for seed in first..first + count {
        let mut random = Random::new(seed ^ 0x5eed);
        let setup = make(&mut random, Setup::plain(seed));
        let begun = std::time::Instant::now();
        one(seed, setup, &mut seen);
        // The pager sleeps in real time where it waits for somebody: a schedule that takes long is a near hang.
        assert!(begun.elapsed().as_secs() < 20, "seed {seed} took {:?}", begun.elapsed());
    }
    println!("kind {kind}: {count} schedules of {STEPS} steps, {:?}, {seen:?}", begun.elapsed());
    assert!(
        seen.reclaimed > 0 && seen.stocked > 0 && seen.faults[..4].iter().all(|faults| *faults > 0),
        "the schedules reach too little"
    );
    seen
}

/// What has happened, to see that schedules reach what they are for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    accesses: u64,
    reclaimed: u64,
    stocked: u64,
    unmovable: u64,
    prefetched: u64,
    written_back: u64,
    compacted: u64,
    layout_events: u64,
    sortings: u64,
    /// By `FaultKind`.
    faults: [u64; FaultKind::ALL.len()],
    exhausted: u64,
    /// Pages that areas have let go or sent below as they are.
    spilt: u64,
    /// Units that areas have taken and given back.
    resized: [u64; 2],
}

impl Seen {
    fn add(&mut self, world: &World) {
        let entry = world.pager.entry;
        let counter = |counter: Counter| entry.counters[counter as usize].load(Ordering::Relaxed);
        self.accesses += world.program.borrow().accesses;
        self.reclaimed += counter(Counter::Reclaimed);
        self.stocked += counter(Counter::Stocked);
        self.unmovable += counter(Counter::Unmovable);
        self.prefetched += counter(Counter::Prefetched);
        self.written_back += counter(Counter::WrittenBackBytes);
        self.compacted += counter(Counter::Compacted);
        self.spilt += counter(Counter::PagesReleased) + counter(Counter::PagesRefused);
        self.spilt += counter(Counter::PagesRejectedPoor);
        self.resized[0] += counter(Counter::UnitsAdded);
        self.resized[1] += counter(Counter::UnitsDeleted);
        self.layout_events += world.pager.lock().layout_events;
        self.sortings += world.pager.lock().sortings;
        self.exhausted += u64::from(world.last.exhausted);
        for (sum, histogram) in self.faults.iter_mut().zip(&entry.faults) {
            *sum += histogram.buckets.iter().map(|bucket| u64::from(bucket.load(Ordering::Relaxed))).sum::<u64>();
        }
    }
}

/// Prints the seed, whatever goes wrong.
pub(super) struct Tell(pub(super) u64);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with PLEAT_SEED={} PLEAT_SCHEDULES=1", self.0);
        }
    }
}

/// One schedule.
fn one(seed: u64, setup: Setup, seen: &mut Seen) {
    let tell = Tell(seed);
    let mut world = World::new(setup);
    begin(&mut world);
    for step in 0..STEPS {
        world.step().unwrap();
        if step % 256 == 0 {
            world.check();
        }
    }
    world.finish().unwrap();
    drop(tell);
    seen.add(&world);
}

/// Some memory to begin with, part of it written before the pager knows of it.
pub(super) fn begin(world: &mut World) {
    let kernel = &world.pager.kernel;
    let mut program = world.program.borrow_mut();
    let pages = program.mix.pages_max * 2 / 3;
    let start = PageIndex(FIRST + world.random.below(64));
    program.map(kernel, PageRange::new(start, PageCount(pages / 2)));
    program.map(kernel, PageRange::new(start + PageCount(pages / 2), PageCount(pages / 2)));
    for page in start.until(start + PageCount(pages / 3)) {
        let content = program.content();
        program.touch(kernel, 0, page, Some(content));
    }
    drop(program);
    world.round();
}

#[test]
fn a_program_in_half_its_memory() {
    run(1, |_, setup| setup);
}

#[test]
fn layout_storms() {
    run(2, |_, setup| Setup { mix: Mix { layout: 15, ..Mix::PLAIN }, ..setup });
}

#[test]
fn layout_changes_told_late() {
    let seen = run(6, |_, setup| Setup { mix: Mix { layout: 20, late: 40, ..Mix::PLAIN }, ..setup });
    assert!(seen.sortings > 0);
}

#[test]
fn pinned_and_locked_pages() {
    run(3, |_, setup| Setup { mix: Mix { flags: 10, ..Mix::PLAIN }, ..setup });
}

#[test]
fn incompressible_pages_without_swap() {
    run(4, |_, setup| Setup {
        mix: Mix { noise: 20, pages_max: 600, ..Mix::PLAIN },
        share: ByteCount(3 << 19),
        ..setup
    });
}

#[test]
fn everything_with_swap() {
    run(5, |random, setup| {
        let bytes = 4 << 20;
        let share = ByteCount((5 << 18) + random.below(1 << 19));
        let mix = Mix { layout: random.below(8), noise: random.below(10), words: 1, ..Mix::PLAIN };
        let frames = PageCount(16 + random.below(300));
        let interleave = [0, 3, 12, 40][random.below(4) as usize];
        Setup { mix, share, frames, interleave, swap: Some((Box::new(MemoryBacking::new(bytes)), bytes)), ..setup }
    });
}

/// The systems of the papers in turns, each with every sizing policy that its store goes with.
#[test]
fn systems_of_the_papers() {
    let seen = run(7, |random, setup| {
        let number = random.below(5) as usize + 1;
        let system = PRESETS[number].1;
        // All but the first, which is for slabs.
        let sizing = SizingName::at(1 + random.below(SizingName::ALL.len() as u64 - 1) as u32);
        let sizing = if random.one_in(2) { sizing } else { system.sizing };
        let system = System { sizing, ..system };
        assert_eq!(system.obstacle(), None);
        let bytes = 16 << 20;
        let share = ByteCount((5 << 18) + random.below(3 << 18));
        let pages_max = 1000 + random.below(500);
        let mix = Mix { pages_max, layout: random.below(16), noise: random.below(10), words: 1, ..Mix::PLAIN };
        let interleave = [0, 3, 12, 40][random.below(4) as usize];
        let swap: Box<dyn BackingStore> = Box::new(MemoryBacking::new(bytes));
        Setup { mix, share, interleave, swap: Some((swap, bytes)), system, ..setup }
    });
    assert!(seen.spilt > 100 && seen.resized.iter().all(|units| *units > 20), "{seen:?}");
}
