//! A program under a pager, and everything that may happen in between.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use backing::{BackingStore, SegmentLog};
use cache::system::{PRESETS, StoreName, System};
use cache::{Cache, Place};
use codec::{Codec, Corrupt, Lz4, MxtLz1, Scratch, same_filled};
use page::{ByteCount, PageBytes, PageCount, PageIndex};
use store::AnyStore;
use sys::fake::{Call, FakeKernel};
use sys::kernel::PageRange;

use super::content::Random;
use super::program::{FIRST, Mix, Program};
use crate::ledger::Process;
use crate::{Config, Pager, Reclaimer, Rest, Server, Stuck};

/// Small, so that a schedule writes several.
pub(super) const SEGMENT_BYTES: usize = 64 << 10;
/// Rounds after which everybody must have been served.
const DRAIN_ROUNDS: usize = 400;

pub(super) type Between = Box<dyn FnMut()>;

thread_local! {
    /// What another thread of the pager does while this one holds no lock.
    static BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
}

/// Has this done where the pager holds no lock.
pub(super) fn set_between(act: Between) {
    BETWEEN.set(Some(act));
}

/// To be called where the pager holds no lock.
pub(crate) fn between() {
    let taken = BETWEEN.with_borrow_mut(Option::take);
    if let Some(mut act) = taken {
        act();
        BETWEEN.with_borrow_mut(|place| {
            place.get_or_insert(act);
        });
    }
}

/// A codec, with the other thread of the pager running in the middle of it.
struct Interleaved(&'static dyn Codec);

static INTERLEAVED_LZ4: Interleaved = Interleaved(&Lz4);
/// For sectors, which want lines.
static INTERLEAVED_LINES: Interleaved = Interleaved(&MxtLz1);

impl Codec for Interleaved {
    fn name(&self) -> &'static str {
        "interleaved"
    }

    fn maker(&self, encoding: &[u8]) -> usize {
        self.0.maker(encoding)
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let length = self.0.encode(page, scratch, out);
        // A same-filled page is encoded under the lock, when there are too many words.
        if same_filled(page).is_none() {
            between();
        }
        length
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        let result = self.0.decode(encoding, page);
        between();
        result
    }
}

pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) share: ByteCount,
    pub(super) frames: PageCount,
    pub(super) mix: Mix,
    pub(super) swap: Option<(Box<dyn BackingStore>, u64)>,
    /// The program and the other thread of the pager act once in so many calls; 0 is never.
    pub(super) interleave: u64,
    pub(super) system: System,
}

impl Setup {
    pub(super) fn plain(seed: u64) -> Self {
        let (share, frames) = (ByteCount(2 << 20), PageCount(128));
        Self { seed, share, frames, mix: Mix::PLAIN, swap: None, interleave: 12, system: PRESETS[0].1 }
    }
}

pub(super) type TestPager = Pager<FakeKernel, AnyStore>;

pub(super) struct World {
    pub(super) pager: Rc<TestPager>,
    pub(super) server: Rc<RefCell<Server>>,
    pub(super) reclaimer: Rc<RefCell<Reclaimer>>,
    pub(super) program: Rc<RefCell<Program>>,
    pub(super) random: Random,
    pub(super) share: ByteCount,
    pub(super) last: Rest,
    interleave: u64,
    /// While this is set nobody begins anything inside others.
    quiet: Rc<Cell<bool>>,
}

pub(super) fn entry() -> &'static Process {
    // SAFETY: numbers all the way down, valid when zero (see `Ledger`).
    Box::leak(unsafe { Box::<Process>::new_zeroed().assume_init() })
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { seed, share, frames, mix, swap, interleave, system } = setup;
        let log = swap.map(|(store, bytes)| SegmentLog::with_segment_bytes(store, [7; 32], bytes, SEGMENT_BYTES));
        let codec = if system.store == StoreName::Sectors { &INTERLEAVED_LINES } else { &INTERLEAVED_LZ4 };
        // Not the interleaved one: what goes below as pages is decoded under the lock.
        let (store, area) = system.open(codec.0, share, 64 << 20, ByteCount(1 << 19)).unwrap();
        let cache = Cache::new(store, log);
        let agent = ByteCount::ZERO;
        let config = Config {
            codec,
            area,
            divider: system.divider(share, ByteCount(share.0 / 4)),
            entry: entry(),
            share,
            agent,
            is_told_of_growth: true,
            references: None,
            frames,
            journal: sys::Area::reserve(crate::JOURNAL_BYTES).unwrap(),
            untouchable: vec![],
        };
        let program = Program::new(seed, mix);
        let pager = Pager::new(FakeKernel::new(frames), cache, config);
        Self::with(pager, program, Random::new(seed ^ 0xabcd), share, interleave)
    }

    pub(super) fn with(pager: TestPager, program: Program, random: Random, share: ByteCount, interleave: u64) -> Self {
        let world = Self {
            pager: Rc::new(pager),
            server: Rc::new(RefCell::new(Server::new())),
            reclaimer: Rc::new(RefCell::new(Reclaimer::new())),
            program: Rc::new(RefCell::new(program)),
            random,
            share,
            last: Rest { time: core::time::Duration::ZERO, exhausted: false },
            interleave,
            quiet: Rc::new(Cell::new(false)),
        };
        world.interleave();
        world
    }

    fn interleave(&self) {
        let times = self.interleave;
        let (program, quiet) = (self.program.clone(), self.quiet.clone());
        let (mut random, pager) = (self.random.clone(), Rc::downgrade(&self.pager));
        self.pager.kernel.set_meanwhile(Some(Box::new(move |kernel, call| {
            let is_free = pager.upgrade().is_some_and(|pager| !pager.is_locked());
            if matches!(call, Call::Fill | Call::Filled) && is_free {
                between();
            }
            if let Ok(mut program) = program.try_borrow_mut() {
                if !quiet.get() && times > 0 && random.one_in(times) {
                    program.step(kernel);
                }
                // Threads do go on: nobody waits for a message that has been read.
                if random.one_in(4) {
                    program.drain(kernel);
                }
            }
        })));
        let (server, reclaimer, pager) = (self.server.clone(), self.reclaimer.clone(), Rc::downgrade(&self.pager));
        let mut random = self.random.clone();
        let (share, quiet) = (self.share, self.quiet.clone());
        let act = move || {
            let Some(pager) = pager.upgrade() else { return };
            if quiet.get() || times == 0 || !random.one_in(times) {
                return;
            }
            if let Ok(mut server) = server.try_borrow_mut() {
                if !pager.lock().is_short() {
                    server.serve(&pager).unwrap();
                }
            } else if let Ok(mut reclaimer) = reclaimer.try_borrow_mut() {
                count_own(&pager);
                reclaimer.round(&pager, share);
            }
        };
        BETWEEN.set(Some(Box::new(act)));
    }

    /// One step of somebody.
    pub(super) fn step(&mut self) -> Result<(), Stuck> {
        if self.random.one_in(16) {
            self.pager.pretend_rest(self.random.one_in(2));
            self.pager.lock().moves.favour_server();
        }
        match self.random.below(20) {
            0..=3 => self.serve()?,
            4 => {
                self.round();
            }
            5 => self.program.borrow_mut().drain(&self.pager.kernel),
            _ => self.program.borrow_mut().step(&self.pager.kernel),
        }
        Ok(())
    }

    /// Serves what waits. Now and then gives the buffers back, as if a long time followed: nothing of a fault may be in them any more.
    /// The reclaimer has had its turns before, or the server would wait for it, in real time.
    pub(super) fn serve(&mut self) -> Result<(), Stuck> {
        for _ in 0..60 {
            if !self.pager.lock().is_short() {
                break;
            }
            self.round();
        }
        let mut server = self.server.borrow_mut();
        server.serve(&self.pager)?;
        if server.served().is_multiple_of(16) {
            server.relinquish();
        }
        Ok(())
    }

    pub(super) fn round(&mut self) -> Rest {
        count_own(&self.pager);
        self.announce();
        self.last = self.reclaimer.borrow_mut().round(&self.pager, self.share);
        self.last
    }

    /// Now and then a thread waits until what is new is managed, and all of that is told, or not.
    fn announce(&mut self) {
        let untold = core::mem::take(&mut self.program.borrow_mut().untold);
        if self.interleave > 0 && !untold.is_empty() && self.random.one_in(2) {
            let announcements = &self.pager.announcements;
            for place in untold {
                announcements.places.put(Some(place));
            }
            if self.random.one_in(8) {
                announcements.places.put(None);
            }
            announcements.make();
        }
    }

    /// Nobody begins anything inside others any more.
    pub(super) fn be_quiet(&mut self) {
        self.quiet.set(true);
    }

    /// Lets everybody finish what has been begun.
    pub(super) fn drain(&mut self) -> Result<(), Stuck> {
        for _ in 0..DRAIN_ROUNDS {
            if self.program.borrow().is_idle() {
                return Ok(());
            }
            self.serve()?;
            self.program.borrow_mut().drain(&self.pager.kernel);
        }
        panic!("seed {}: a thread waits for ever", self.program.borrow().seed);
    }

    /// A thread touches a page, and is served until it has it.
    pub(super) fn touch(&mut self, page: PageIndex, write: Option<super::content::Content>) -> Result<(), Stuck> {
        self.program.borrow_mut().touch(&self.pager.kernel, 0, page, write);
        self.drain()
    }

    /// Reads everything back.
    pub(super) fn finish(&mut self) -> Result<(), Stuck> {
        self.be_quiet();
        self.drain()?;
        self.check();
        let pages: Vec<PageIndex> = self.program.borrow().shadow.keys().copied().collect();
        for page in pages {
            self.touch(page, None)?;
        }
        self.check();
        Ok(())
    }

    /// Asserts that tables and kernel agree: no page is twice, none is nowhere.
    pub(super) fn check(&self) {
        let (program, kernel) = (self.program.borrow(), &self.pager.kernel);
        let state = self.pager.lock();
        state.cache.check();
        assert_eq!(state.ring.held(), kernel.frames_full(), "seed {}: frames", program.seed);
        if state.frozen || !program.is_calm(kernel) {
            return;
        }
        for page in PageRange::new(PageIndex(FIRST), PageCount(4096)).pages() {
            let place = state.cache.place(page);
            if place == Place::Untouched {
                continue;
            }
            assert!(program.shadow.contains_key(&page), "seed {}: {page:?} is {place:?}, unmapped", program.seed);
            assert!(kernel.is_registered(page), "seed {}: {page:?} is {place:?}, unregistered", program.seed);
            let is_twice = kernel.is_present(page) && place != Place::Resident;
            assert!(!is_twice, "seed {}: {page:?} is present and {place:?}", program.seed);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        BETWEEN.set(None);
        self.pager.kernel.set_meanwhile(None);
    }
}

trait Pages {
    fn pages(self) -> impl Iterator<Item = PageIndex>;
}

impl Pages for PageRange {
    fn pages(self) -> impl Iterator<Item = PageIndex> {
        self.start.until(self.end)
    }
}

/// Tells the fake kernel what the pager itself has taken.
pub(super) fn count_own(pager: &TestPager) {
    let state = pager.lock();
    let buffers = state.cache.log_figures().map_or(0, |figures| figures.buffer_bytes);
    let own = state.cache.store_figures().pool + state.cache.metadata_bytes() + ByteCount(buffers);
    drop(state);
    pager.kernel.set_other_bytes(own);
}
