//! What a program references, told while it runs: each page that faults, and how short pages get (`pleat record --light`).
//!
//! A ring in the ledger that threads of one process fill and `pleat record` empties. Whoever dies in the middle of an entry
//! leaves a gap, which is passed over at the end.

use page::PageIndex;
use sys::sync::AtomicU64;
use sys::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Entries that may wait to be read: some tens of milliseconds of faults.
const ENTRIES: usize = 1 << 15;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// The program has referenced a page that was not there.
    Reference {
        /// Which.
        page: PageIndex,
        /// By which thread.
        thread: u32,
        /// Whether to write.
        is_write: bool,
        /// When: `CLOCK_MONOTONIC`, less what serving faults has taken so far.
        ns: u64,
    },
    /// A page that has left was so many bytes long when encoded: 4096 if the codec made it no shorter, 0 if it is one repeated word.
    Sample {
        /// Which.
        page: PageIndex,
        /// How long.
        bytes: u16,
    },
}

const READ: u64 = 0;
const WRITE: u64 = 1;
const SAMPLE: u64 = 2;
const KIND_BITS: u32 = 2;

impl Noted {
    /// Page and kind; time; thread or length.
    fn to_words(self) -> [u64; 3] {
        match self {
            Self::Reference { page, thread, is_write, ns } => {
                [page.0 << KIND_BITS | if is_write { WRITE } else { READ }, ns, u64::from(thread)]
            }
            Self::Sample { page, bytes } => [page.0 << KIND_BITS | SAMPLE, 0, u64::from(bytes)],
        }
    }

    fn from_words([place, ns, other]: [u64; 3]) -> Self {
        let page = PageIndex(place >> KIND_BITS);
        match place & ((1 << KIND_BITS) - 1) {
            SAMPLE => Self::Sample { page, bytes: other as u16 },
            kind => Self::Reference { page, thread: other as u32, is_write: kind == WRITE, ns },
        }
    }
}

/// A process. It stays the same one through exec, and no other one is, not even one that gets its number later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its number.
    pub process: u32,
    /// When it started, in clock ticks after boot.
    pub start_ticks: u64,
}

impl Owner {
    fn word(self) -> u64 {
        u64::from(self.process) << 32 | self.start_ticks & u64::from(u32::MAX)
    }
}

#[repr(C)]
#[derive(Debug, Default)]
struct Entry {
    /// One more than its number in the order of all, once the words are there.
    written: AtomicU64,
    words: [AtomicU64; 3],
}

/// The ring. All zeros: nobody reads it.
#[repr(C)]
#[derive(Debug)]
pub struct ReferenceLog<const N: usize = ENTRIES> {
    /// Entries ever begun, and ever read.
    begun: AtomicU64,
    read: AtomicU64,
    /// Entries for which there was no room.
    lost: AtomicU64,
    /// 1 if somebody reads.
    is_read: AtomicU64,
    /// Whose references these are, as [`Owner::word`] has it: those of the first process that asks. 0 for nobody's.
    owner: AtomicU64,
    entries: [Entry; N],
}

/// One that nobody reads. The run's lies in its ledger, which begins as zeros.
impl<const N: usize> Default for ReferenceLog<N> {
    fn default() -> Self {
        Self {
            begun: AtomicU64::default(),
            read: AtomicU64::default(),
            lost: AtomicU64::default(),
            is_read: AtomicU64::default(),
            owner: AtomicU64::default(),
            entries: core::array::from_fn(|_| Entry::default()),
        }
    }
}

impl<const N: usize> ReferenceLog<N> {
    /// From now on it is read.
    pub fn open(&self) {
        self.is_read.store(1, Release);
    }

    /// Nobody reads any more: nobody is to wait for that.
    pub fn close(&self) {
        self.is_read.store(0, Release);
    }

    fn is_open(&self) -> bool {
        self.is_read.load(Acquire) == 1
    }

    /// Whether this process is the one to fill it.
    pub fn is_for(&self, owner: Owner) -> bool {
        if !self.is_open() {
            return false;
        }
        let before = self.owner.compare_exchange(0, owner.word(), AcqRel, Relaxed);
        before.is_ok() || before == Err(owner.word())
    }

    /// Puts an entry, if there is room.
    #[must_use]
    pub fn put(&self, noted: Noted) -> bool {
        let is_room = |begun: u64| begun.wrapping_sub(self.read.load(Acquire)) < N as u64;
        let Ok(number) = self.begun.fetch_update(AcqRel, Acquire, |begun| is_room(begun).then_some(begun + 1)) else {
            return false;
        };
        let entry = self.entry(number);
        for (place, word) in entry.words.iter().zip(noted.to_words()) {
            place.store(word, Relaxed);
        }
        // Release: who sees the number sees the words.
        entry.written.store(number + 1, Release);
        true
    }

    /// Puts an entry, and waits for room so many pauses long. Who does not read in that time will not read any more.
    pub fn put_patiently(&self, noted: Noted, pauses: u32, pause: impl Fn()) {
        for _ in 0..pauses {
            if !self.is_open() {
                break;
            }
            if self.put(noted) {
                return;
            }
            pause();
        }
        self.close();
        self.lose();
    }

    /// One is given up.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// How many are not there.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Takes the next entry, if it is written. To be called by one thread.
    pub fn take(&self) -> Option<Noted> {
        let number = self.read.load(Relaxed);
        let entry = self.entry(number);
        if entry.written.load(Acquire) != number + 1 {
            return None;
        }
        let noted = Noted::from_words([0, 1, 2].map(|word| entry.words[word].load(Relaxed)));
        // Release: the words have been read, and may be overwritten.
        self.read.store(number + 1, Release);
        Some(noted)
    }

    /// Passes over an entry that nobody will write any more, as its process has ended. Says whether there was one.
    pub fn pass_gap(&self) -> bool {
        let number = self.read.load(Relaxed);
        let is_gap = number < self.begun.load(Acquire);
        if is_gap {
            self.lose();
            self.read.store(number + 1, Release);
        }
        is_gap
    }

    fn entry(&self, number: u64) -> &Entry {
        &self.entries[number as usize % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Box<ReferenceLog> {
        // SAFETY: numbers all the way down, valid when zero.
        unsafe { Box::<ReferenceLog>::new_zeroed().assume_init() }
    }

    fn reference(number: u64) -> Noted {
        Noted::Reference { page: PageIndex(number * 3), thread: 7, is_write: number.is_multiple_of(2), ns: number + 1 }
    }

    #[test]
    fn what_is_put_comes_out_in_order_and_no_more_fits_than_there_is_room() {
        let log = log();
        for round in 0..3 {
            let first = round * ENTRIES as u64;
            assert!((0..ENTRIES as u64).all(|step| log.put(reference(first + step))));
            assert!(!log.put(reference(1)), "it is full");
            for step in 0..ENTRIES as u64 {
                assert_eq!(log.take(), Some(reference(first + step)));
            }
            assert_eq!(log.take(), None);
        }
        let sample = Noted::Sample { page: PageIndex((1 << 52) - 1), bytes: 4096 };
        assert!(log.put(sample));
        assert_eq!((log.take(), log.lost()), (Some(sample), 0));
    }

    #[test]
    fn threads_that_put_lose_nothing() {
        let log = log();
        let mut seen = std::collections::BTreeSet::new();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..50_000 {
                        while !log.put(reference(number * 3 + thread)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while seen.len() < 150_000 {
                if let Some(Noted::Reference { ns, .. }) = log.take() {
                    assert!(seen.insert(ns), "{ns} came twice");
                }
            }
        });
        assert_eq!((seen.first(), seen.last(), log.take()), (Some(&1), Some(&150_000), None));
    }

    #[test]
    fn who_dies_over_an_entry_leaves_a_gap() {
        let log = log();
        assert!(log.put(reference(1)));
        log.begun.fetch_add(1, Relaxed);
        assert!(log.put(reference(2)));
        assert_eq!((log.take(), log.take()), (Some(reference(1)), None));
        assert!(log.pass_gap());
        assert_eq!((log.take(), log.lost(), log.pass_gap()), (Some(reference(2)), 1, false));
    }

    #[test]
    fn who_waits_for_a_reader_that_is_gone_waits_once() {
        let log = log();
        log.open();
        let waited = core::cell::Cell::new(0);
        let put = |number| log.put_patiently(reference(number), 50, || waited.set(waited.get() + 1));
        (0..ENTRIES as u64).for_each(put);
        assert_eq!((waited.get(), log.lost()), (0, 0));
        put(1);
        assert_eq!((waited.get(), log.lost()), (50, 1));
        (0..1000).for_each(put);
        assert_eq!((waited.get(), log.lost()), (50, 1001));
    }

    #[test]
    fn it_is_for_one_process_and_only_where_somebody_reads() {
        let log = log();
        let is_for = |process, start_ticks| log.is_for(Owner { process, start_ticks });
        assert!(!is_for(5, 70));
        log.open();
        assert!(
            is_for(5, 70) && !is_for(6, 70) && !is_for(5, 80),
            "a process that has ended and one of the same number"
        );
        assert!(is_for(5, 70), "the same process behind an exec");
    }
}
