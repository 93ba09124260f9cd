//! The simulator decides as the live pager does: what a run has done is told again to the simulator's page table, hand, ring,
//! walks and drop-behind, and after each step every page must be where the pager has it.
//!
//! Told are the faults, and how many pages each round of the reclaimer has moved out; which ones, and what a fault brings along,
//! is for the policies to say.

use cache::{Cache, Outcome, Place};
use page::{ByteCount, PageCount, PageIndex};
use policy::replacement::Arrival;
use sim::live::{ENCODE_BATCH, Live};
use store::Slabs;
use sys::kernel::PageRange;

use super::content::{Content, Random};
use super::program::FIRST;
use super::world::{Setup, World};

const PAGES: u64 = 1500;
/// Room for about half of them.
const SHARE: ByteCount = ByteCount(3 << 20);
const FRAMES: u64 = 128;
const STEPS: u64 = 12_000;
/// Rounds until there is room.
const ROUNDS_MAX: u32 = 1000;

/// Where a page is, as both can say it: in which frame, if it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Untouched,
    Resident,
    Waiting(u32),
    Away,
}

fn seen(place: Place) -> Seen {
    match place {
        Place::Untouched => Seen::Untouched,
        Place::Resident => Seen::Resident,
        Place::Leaving(frame) => Seen::Waiting(frame.0),
        _ => Seen::Away,
    }
}

fn pages() -> impl Iterator<Item = PageIndex> {
    (FIRST..FIRST + PAGES).map(PageIndex)
}

/// The simulator's side.
struct Simulated(Live<Slabs>);

impl Simulated {
    fn new() -> Self {
        // A memory of which a quarter may wait has as many frames.
        let live = Live::new(Cache::new(Slabs::new(1 << 24).unwrap(), None), PageCount(FRAMES * 4));
        assert_eq!(live.ring.capacity(), FRAMES);
        Self(live)
    }

    fn place(&self, page: PageIndex) -> Seen {
        seen(self.0.cache.place(page))
    }

    /// A fault on `page`.
    fn fault(&mut self, page: PageIndex) {
        match self.0.cache.place(page) {
            Place::Leaving(frame) => self.0.take_back(page, frame),
            Place::Untouched => self.bring(page, Seen::Untouched),
            _ => self.bring(page, Seen::Away),
        }
    }

    /// Brings a page and those beside it that are where it is, as far as walks say.
    fn bring(&mut self, page: PageIndex, from: Seen) {
        let (window, below) = self.0.windows(page);
        let others = (1..window.0).map(|step| page + PageCount(step));
        let count =
            PageCount(1 + others.take_while(|next| next.0 < FIRST + PAGES && self.place(*next) == from).count() as u64);
        self.settle(page, count, true);
        if from == Seen::Away {
            self.0.brought(page, count, window);
        }
        self.0.streams.shortened(page, window, count);
        if from == Seen::Untouched || below == PageCount::ZERO {
            return;
        }
        let lower =
            (1..=below.0).map(|step| PageIndex(page.0 - step)).take_while(|next| self.place(*next) == Seen::Away);
        let count = PageCount(lower.count() as u64);
        if count > PageCount::ZERO {
            let first = PageIndex(page.0 - count.0);
            self.settle(first, count, false);
            self.0.brought(first, count, below);
        }
        self.0.descents.shortened(page, below, count);
    }

    fn settle(&mut self, first: PageIndex, count: PageCount, by_fault: bool) {
        for step in 0..count.0 {
            let arrival = if by_fault && step == 0 { Arrival::Asked } else { Arrival::Along };
            self.0.cache.settle(first + PageCount(step), arrival);
        }
    }

    /// A round that has filled `moved` frames and left `waiting`.
    fn round(&mut self, moved: u64, waiting: u64) {
        let end = self.0.ring.filled_ever() + moved;
        while self.0.ring.filled_ever() != end || self.0.ring.waiting() != waiting {
            if self.0.ring.is_stocked(&self.0.cache.census()) || self.0.ring.filled_ever() == end {
                self.encode();
            } else {
                self.0.move_out().expect("the pager found pages");
            }
            assert!(self.0.ring.filled_ever() <= end, "another run than the pager's");
        }
    }

    fn encode(&mut self) {
        let Live { ring, cache, .. } = &mut self.0;
        let window = ring.take(ENCODE_BATCH);
        assert!(window.count > 0, "fewer pages wait than with the pager");
        for frame in window.frames() {
            if let Some(page) = ring.page(frame) {
                cache.publish(page, frame, Outcome::SameFilled(0));
            }
        }
        ring.freed(window);
    }
}

/// Both, side by side.
struct Pair {
    world: World,
    simulated: Simulated,
    faults: u64,
}

impl Pair {
    fn new() -> Self {
        let setup = Setup { interleave: 0, share: SHARE, frames: PageCount(FRAMES), ..Setup::plain(50) };
        let mut world = World::new(setup);
        world.be_quiet();
        world.program.borrow_mut().map(&world.pager.kernel, PageRange::new(PageIndex(FIRST), PageCount(PAGES)));
        let mut pair = Self { world, simulated: Simulated::new(), faults: 0 };
        pair.round();
        pair
    }

    /// Where the pager has it.
    fn place(&self, page: PageIndex) -> Seen {
        seen(self.world.pager.lock().cache.place(page))
    }

    fn ring(&self) -> (u64, u64) {
        let ring = &self.world.pager.lock().ring;
        (ring.filled_ever(), ring.waiting())
    }

    fn round(&mut self) {
        let (before, _) = self.ring();
        self.world.round();
        let (filled, waiting) = self.ring();
        self.simulated.round(filled - before, waiting);
    }

    /// The program touches a page.
    fn touch(&mut self, page: PageIndex) {
        let mut rounds = 0;
        while self.world.pager.lock().goal() > ByteCount::ZERO {
            self.round();
            rounds += 1;
            let census = self.world.pager.lock().cache.census();
            assert!(rounds < ROUNDS_MAX, "no room: {census:?}");
        }
        let was_there = self.place(page) == Seen::Resident;
        let before = self.ring();
        self.world.touch(page, Some(Content::Text(page.0))).unwrap();
        assert_eq!(self.ring().0, before.0, "only rounds move pages out here");
        if !was_there {
            self.faults += 1;
            self.simulated.fault(page);
        }
    }

    fn compare(&self, step: u64) {
        for page in pages() {
            assert_eq!(self.simulated.place(page), self.place(page), "{page:?} after step {step}: simulated and live");
        }
    }
}

#[test]
fn simulated_and_live_decisions_are_the_same() {
    let mut pair = Pair::new();
    let mut random = Random::new(51);
    let mut at = 0;
    for step in 0..STEPS {
        // Walks upwards and downwards, a hot part, and anywhere.
        let page = match step / 1500 % 4 {
            0 => step % PAGES,
            1 => PAGES - 1 - step % PAGES,
            2 => {
                let part = if random.one_in(3) { PAGES } else { 300 };
                random.below(part)
            }
            _ => {
                at = if random.one_in(40) { random.below(PAGES) } else { (at + 1) % PAGES };
                at
            }
        };
        pair.touch(PageIndex(FIRST + page));
        pair.compare(step);
    }
    let (filled, _) = pair.ring();
    assert!(pair.faults > 1000 && filled > 4000, "{} faults, {filled} pages moved: nothing to compare", pair.faults);
}
