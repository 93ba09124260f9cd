//! Areas: every store of the papers under every sizing policy, against a plain map, over a backing store that fails.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use backing::failing::{FailingBacking, Fault, Operation};
use backing::{MemoryBacking, ReadBuffer, SegmentLog};
use codec::{Codec, Lz4, MxtLz1, Scratch};
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use pleat_cache::system::{Admission, WriteBack};
use pleat_cache::{AreaCounters, AreaKeeper, Cache, Lookup, Memory, Outcome, Place, Published, Rules};
use policy::area::AreaSizing;
use policy::area::demand::Demand;
use policy::area::exhaustion::Exhaustion;
use policy::area::expense_profit::{ExpenseProfit, Sensitivity};
use policy::area::fill_rate::FillRate;
use policy::area::fixed::{Fixed, Off};
use policy::area::free_space::FreeSpace;
use policy::area::percent::Percent;
use policy::replacement::Arrival;
use policy::write_back::FreeEntries;
use store::{Buddies, Cells, Chunks, Resize, Sectors, ZoneShape, Zones};

const SEGMENT_BYTES: usize = 64 << 10;
const ADDRESS_BYTES: usize = 16 << 20;
const TOTAL: ByteCount = ByteCount(4 << 20);
const DAEMON: FreeEntries = FreeEntries { threshold: PageCount(32) };
/// Steps from one look at all invariants to the next.
const CHECK_STEPS: u64 = 50;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A page that is the more compressible the lower its number's last digits are.
fn content(page: PageIndex, version: u64) -> PageBytes {
    let mut random = Random((page.0 << 20 | version) * 2 + 1);
    let mut bytes = PageBytes::ZERO;
    // The last one in ten does not shrink at all.
    let share = (page.0 % 10 * 460).min(PAGE_BYTES as u64 - 8) as usize;
    bytes.0[..share].fill_with(|| random.below(256) as u8);
    bytes.0[PAGE_BYTES - 8..].copy_from_slice(&((page.0 << 8) | (version % 256)).to_le_bytes());
    bytes
}

/// A program of `pages` pages over one area.
struct World<S, P> {
    cache: Cache<S>,
    keeper: AreaKeeper<P>,
    codec: &'static dyn Codec,
    scratch: Scratch,
    /// The most that the area may take.
    area_max: ByteCount,
    has_daemon: bool,
    pages: BTreeMap<PageIndex, PageBytes>,
    /// What the medium has.
    backing: Arc<FailingBacking<MemoryBacking>>,
    /// Pages that came back from below.
    reads: u64,
}

impl<S: Resize, P: AreaSizing> World<S, P> {
    fn new(store: S, sizing: P, rules: Rules, area_max: ByteCount) -> Self {
        let backing = Arc::new(FailingBacking::new(MemoryBacking::new(16 << 20)));
        let log = SegmentLog::with_segment_bytes(Box::new(backing.clone()), [3; 32], 16 << 20, SEGMENT_BYTES);
        let cache = Cache::new(store, Some(log));
        let keeper = AreaKeeper::new(sizing, rules);
        let (codec, scratch, pages) = (rules.codec, Scratch::new(), BTreeMap::new());
        let has_daemon = rules.daemon.is_some();
        Self { cache, keeper, codec, scratch, area_max, has_daemon, pages, backing, reads: 0 }
    }

    fn memory(&self) -> Memory {
        let taken = self.cache.census().resident.bytes() + self.cache.store_figures().pool;
        Memory { available: TOTAL.saturating_sub(taken), total: TOTAL, area_max: self.area_max }
    }

    /// The program writes to a page, which must be resident.
    fn touch(&mut self, page: PageIndex, version: u64) {
        if self.cache.place(page) != Place::Resident {
            self.bring(page);
        }
        self.pages.insert(page, content(page, version));
    }

    /// Brings a page back and compares it with what the program left.
    fn bring(&mut self, page: PageIndex) {
        let mut copy = [0; PAGE_BYTES];
        let mut found = PageBytes::ZERO;
        self.reads += u64::from(matches!(self.cache.place(page), Place::Below(_)));
        match self.cache.look_up(page, &mut copy) {
            Lookup::Zeros => {}
            Lookup::Encoded(length) => self.decode(&copy[..length], &mut found),
            Lookup::Backed(job) => {
                let mut buffer = ReadBuffer::new();
                // A read that fails is tried again: the medium is not broken for good.
                let encoding = loop {
                    if let Ok(encoding) = job.run(&mut buffer) {
                        break encoding.to_vec();
                    }
                };
                self.cache.finish_read(job);
                self.decode(&encoding, &mut found);
            }
            other => panic!("{page:?} is {other:?}"),
        }
        assert!(self.pages.get(&page).is_none_or(|expected| expected.0 == found.0), "{page:?} came back as another");
        let memory = self.memory();
        self.cache.settle_from_area(page, Arrival::Along, &mut self.keeper, memory);
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) {
        match encoding.try_into() {
            Ok(whole) => page.0 = whole,
            Err(_) => self.codec.decode(encoding, page).unwrap(),
        }
    }

    /// A resident page leaves. Says whether there was room for it.
    fn reclaim(&mut self, page: PageIndex) -> bool {
        let raw = PageBytes(self.pages[&page].0);
        self.cache.leave(page, FrameIndex(1));
        let mut out = [0; PAGE_BYTES];
        let outcome = match self.codec.encode(&raw, &mut self.scratch, &mut out[..PAGE_BYTES - 1]) {
            Some(length) => Outcome::Encoded(&out[..length]),
            None => Outcome::Incompressible(&raw),
        };
        let memory = self.memory();
        let published = self.cache.publish_in_area(page, FrameIndex(1), &raw, outcome, &mut self.keeper, memory);
        if published == Published::NoRoom {
            // The front end gives the page back.
            self.cache.settle(page, Arrival::Along);
        }
        published == Published::Done
    }

    fn look(&mut self) {
        if self.has_daemon {
            self.relieve();
        }
        for _ in 0..1000 {
            let memory = self.memory();
            if !self.cache.look_at_area(&mut self.keeper, memory) {
                return;
            }
        }
        panic!("the area never settles");
    }

    /// Makes the room that the daemon keeps, and sometimes the area smaller. Only a medium that takes no more keeps it from that.
    fn relieve(&mut self) {
        let goal = ByteCount(if self.reads.is_multiple_of(5) { 64 << 10 } else { 0 });
        let done = self.cache.relieve_area(&mut self.keeper, goal, 1000);
        let figures = self.cache.store_figures();
        let is_done = done.bytes >= goal && figures.free >= DAEMON.threshold.bytes();
        assert!(done.refused.is_some() || is_done || figures.encodings == 0, "{figures:?}");
    }

    fn write(&mut self) {
        while let Some(mut job) = self.cache.log().unwrap().write_job() {
            let result = job.run();
            let failed = result.is_err();
            self.cache.log().unwrap().finish_write(job, result);
            if failed {
                self.cache.log().unwrap().retry();
                return;
            }
        }
        if let Some(mut job) = self.cache.log().unwrap().clean()
            && job.run().is_ok()
        {
            self.cache.finish_clean(job);
        }
    }

    fn check(&self) {
        self.cache.check();
        let figures = self.cache.store_figures();
        let parts = figures.stored + figures.headers + figures.rounding + figures.free + figures.tail;
        assert_eq!(parts, figures.pool + figures.in_tables);
    }

    fn run(&mut self, seed: u64) -> AreaCounters {
        let mut random = Random(seed * 2 + 1);
        for step in 0..3000 {
            let page = PageIndex(random.below(1500));
            match random.below(20) {
                0..=8 => self.touch(page, step),
                9..=16 => {
                    let resident = |&page: &PageIndex| self.cache.place(page) == Place::Resident;
                    if let Some(page) = self.pages.range(page..).map(|(&page, _)| page).find(resident) {
                        self.reclaim(page);
                    }
                }
                17 => {
                    self.cache.discard(page, PageIndex(page.0 + 3));
                    self.pages.retain(|at, _| !(page..PageIndex(page.0 + 3)).contains(at));
                }
                18 => self.look(),
                _ => {
                    let (reads, writes) = self.backing.operations();
                    match random.below(8) {
                        0 => self.backing.fail(Operation::Write(writes), Fault::Short),
                        1 => self.backing.fail(Operation::Read(reads), Fault::Short),
                        2 => self.backing.fail(Operation::Read(reads), Fault::Flip(random.below(3000) as usize, 4)),
                        _ => {}
                    }
                    self.write();
                }
            }
            if step % CHECK_STEPS == 0 {
                self.check();
                assert!(self.cache.store_figures().pool <= self.area_max);
            }
        }
        self.check();
        for page in self.pages.keys().copied().collect::<Vec<_>>() {
            if self.cache.place(page) != Place::Resident {
                self.bring(page);
            }
        }
        self.keeper.counters()
    }
}

/// What most runs keep to.
fn rules(codec: &'static dyn Codec, write_back: WriteBack) -> Rules {
    Rules { admission: Admission::All, write_back, codec, daemon: None }
}

/// A run of a store under a policy, with the codec that goes with it.
fn run<S: Resize, P: AreaSizing>(
    store: S,
    sizing: P,
    codec: &'static dyn Codec,
    write_back: WriteBack,
) -> AreaCounters {
    run_by(store, sizing, rules(codec, write_back), TOTAL)
}

/// The same by any rules, where the area may take no more than `area_max`.
fn run_by<S: Resize, P: AreaSizing>(store: S, sizing: P, rules: Rules, area_max: ByteCount) -> AreaCounters {
    let mut world = World::new(store, sizing, rules, area_max);
    let mut sum = AreaCounters::default();
    for seed in 1..3 {
        sum = world.run(seed);
    }
    assert!(world.reads > 0 || sum.released + sum.refused < 8, "what went below never came back: {sum:?}");
    sum
}

/// All policies over one store.
fn run_all<S: Resize>(store: impl Fn() -> S, codec: &'static dyn Codec) {
    let fixed = run(store(), Fixed { size: ByteCount(512 << 10) }, codec, WriteBack::Pages);
    assert!(fixed.released > 100 && fixed.shrunk == 0, "{fixed:?}");
    let free_space = run(store(), FreeSpace::default(), codec, WriteBack::Pages);
    assert!(free_space.grown > 2 && free_space.released + free_space.shrunk > 0, "{free_space:?}");
    let expense_profit = run(store(), ExpenseProfit::new(Sensitivity::REFERENCE), codec, WriteBack::Encodings);
    assert!(expense_profit.expense_reads > 100 && expense_profit.grown > 10, "{expense_profit:?}");
    let fill_rate = run(store(), FillRate::default(), codec, WriteBack::Encodings);
    assert!(fill_rate.grown > 4 && fill_rate.released == 0, "{fill_rate:?}");
    let percent = run(store(), Percent::default(), codec, WriteBack::Pages);
    assert!(percent.refused > 0 && percent.released > 0, "{percent:?}");
    let off = run(store(), Off, codec, WriteBack::Pages);
    assert_eq!((off.grown, off.released), (0, 0));
    assert!(off.refused > 100, "{off:?}");
    let demand = run(store(), Demand, codec, WriteBack::Encodings);
    assert!(demand.grown > 2 && demand.refused == 0, "{demand:?}");
    let narrow = run_by(store(), Demand, rules(codec, WriteBack::Pages), ByteCount(512 << 10));
    assert!(narrow.released > 100 && narrow.refused == 0, "{narrow:?}");
    let exhaustion = run_by(store(), Exhaustion::default(), rules(codec, WriteBack::Pages), ByteCount(512 << 10));
    assert!(exhaustion.released > 100 && exhaustion.limit_hits > 0, "{exhaustion:?}");
    run_with_a_daemon(&store, codec);
    run_rejecting(&store, codec);
}

/// The daemon lets pages go before there is no room.
fn run_with_a_daemon<S: Resize>(store: &impl Fn() -> S, codec: &'static dyn Codec) {
    let fixed = || Fixed { size: ByteCount(512 << 10) };
    let with = run_by(store(), fixed(), Rules { daemon: Some(DAEMON), ..rules(codec, WriteBack::Pages) }, TOTAL);
    let without = run_by(store(), fixed(), rules(codec, WriteBack::Pages), TOTAL);
    assert!(with.released > 100 && with.limit_hits < without.limit_hits, "{with:?}, {without:?}");
}

/// Pages that do not shrink go past the area.
fn run_rejecting<S: Resize>(store: &impl Fn() -> S, codec: &'static dyn Codec) {
    let poor = Rules { admission: Admission::RejectPoor, ..rules(codec, WriteBack::Pages) };
    let rejecting = run_by(store(), FreeSpace::default(), poor, TOTAL);
    assert!(rejecting.rejected_poor > 10, "{rejecting:?}");
}

#[test]
fn zones_keep_what_they_are_given() {
    let shape = ZoneShape { zone_bytes: 64 << 10, ..ZoneShape::default() };
    run_all(|| Zones::new(ADDRESS_BYTES, shape).unwrap(), &Lz4);
}

#[test]
fn cells_keep_what_they_are_given() {
    run_all(|| Cells::new(ADDRESS_BYTES, 2).unwrap(), &Lz4);
}

#[test]
fn chunks_keep_what_they_are_given() {
    run_all(|| Chunks::new(ADDRESS_BYTES, 64 << 10).unwrap(), &Lz4);
}

#[test]
fn buddies_keep_what_they_are_given() {
    run_all(|| Buddies::new(ADDRESS_BYTES).unwrap(), &Lz4);
}

#[test]
fn sectors_keep_what_they_are_given() {
    let store = || Sectors::new(ADDRESS_BYTES, 64 << 10, MxtLz1::line_lengths).unwrap();
    run_all(store, &MxtLz1);
}
