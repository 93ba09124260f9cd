//! The cache against a plain twin: a map from page to where it is and what it holds.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use backing::{MemoryBacking, ReadJob, SegmentLog};
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageCount, PageIndex};
use pleat_cache::{Beside, Cache, Hand, Lookup, Outcome, Place, Published};
use policy::replacement::{Age, Arrival};
use store::Slabs;

const PAGES: u64 = 700;
const SEGMENT_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    Resident,
    Leaving(FrameIndex),
    /// And the frame that it left to.
    Word(u64, FrameIndex),
    /// So many bytes, made of a seed; a whole page is incompressible. And the frame that it left to.
    Stored(usize, u64, FrameIndex),
}

impl Twin {
    /// Pages that have left since it did, where each leaves to the next frame, and `frame` was the last.
    fn refault_distance(self, frame: u32) -> Option<PageCount> {
        match self {
            Self::Resident => None,
            Self::Leaving(left) | Self::Word(_, left) | Self::Stored(_, _, left) => {
                Some(PageCount(u64::from(frame - left.0)))
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn encoding(length: usize, seed: u64) -> PageBytes {
    let mut bytes = PageBytes::ZERO;
    for (at, byte) in bytes.0[..length].iter_mut().enumerate() {
        *byte = (seed as u8).wrapping_add(at as u8).wrapping_mul(31) ^ (seed >> 8) as u8;
    }
    bytes
}

fn cache(bytes: u64) -> Cache<Slabs> {
    let log = SegmentLog::with_segment_bytes(Box::new(MemoryBacking::new(bytes)), [3; 32], bytes, SEGMENT_BYTES);
    Cache::new(Slabs::new(64 << 20).unwrap(), Some(log))
}

fn write_all(cache: &mut Cache<Slabs>) {
    while let Some(mut job) = cache.log().unwrap().write_job() {
        let result = job.run();
        cache.log().unwrap().finish_write(job, result);
    }
}

/// What a look-up finds must be what the twin holds.
fn compare(cache: &mut Cache<Slabs>, page: PageIndex, twin: Option<Twin>, seed: u64) {
    let mut copy = [0xee; PAGE_BYTES];
    let beside = cache.look_beside(page, &mut copy, None);
    let copied_beside = copy;
    let found = cache.look_up(page, &mut copy);
    match (&found, beside) {
        (Lookup::Filled(word), Beside::Filled(beside)) => assert_eq!(*word, beside),
        (Lookup::Encoded(length), Beside::Encoded(beside)) => {
            assert_eq!((*length, &copy[..]), (beside, &copied_beside[..]), "seed {seed}");
        }
        (Lookup::Zeros, Beside::Zeros) | (Lookup::Resident | Lookup::Leaving(_) | Lookup::Backed(_), Beside::Apart) => {
        }
        (found, beside) => panic!("seed {seed}: {page:?} is {found:?}, and as another {beside:?}"),
    }
    match (found, twin) {
        (Lookup::Zeros, None) | (Lookup::Resident, Some(Twin::Resident)) => {}
        (Lookup::Filled(word), Some(Twin::Word(expected, _))) => assert_eq!(word, expected),
        (Lookup::Leaving(frame), Some(Twin::Leaving(expected))) => assert_eq!(frame, expected),
        (Lookup::Encoded(length), Some(Twin::Stored(expected, stamp, _))) => {
            assert_eq!(length, expected);
            assert_eq!(copy[..length], encoding(length, stamp).0[..length], "seed {seed}");
        }
        (Lookup::Backed(job), Some(Twin::Stored(length, stamp, _))) => {
            let mut buffer = backing::ReadBuffer::new();
            assert_eq!(job.run(&mut buffer).unwrap(), &encoding(length, stamp).0[..length], "seed {seed}");
            cache.finish_read(job);
        }
        (found, expected) => panic!("seed {seed}: {page:?} is {found:?} instead of {expected:?}"),
    }
}

/// A slot knows it to sixteen pages.
fn is_told(distance: Option<PageCount>, exact: Option<PageCount>) -> bool {
    let is_near = |(told, exact): (PageCount, PageCount)| (exact.0..exact.0 + 16).contains(&told.0);
    distance.is_some() == exact.is_some() && distance.zip(exact).is_none_or(is_near)
}

fn tidy(cache: &mut Cache<Slabs>, encodings_max: usize) {
    cache.compact(encodings_max);
    if let Some(mut job) = cache.log().unwrap().clean() {
        job.run().unwrap();
        while cache.clean_some(&mut job, 16) {}
        cache.finish_clean(job);
    }
}

/// Returns how many pages have been promoted.
fn one(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut cache = cache(8 << 20);
    let mut twin: BTreeMap<PageIndex, Twin> = BTreeMap::new();
    let mut hand = Hand::default();
    let (mut frame, mut reads, mut promoted) = (0, vec![], 0);
    for step in 0..1500 {
        let page = PageIndex(random.below(PAGES) * 3);
        let length = 1 + random.below(80);
        match random.below(18) {
            0..=4 => {
                let arrivals = [Arrival::Along, Arrival::Asked, Arrival::Recalled, Arrival::Refused];
                cache.settle(page, arrivals[random.below(4) as usize]);
                twin.insert(page, Twin::Resident);
                hand.tries_refused = random.below(2) == 0;
                cache.refuse(PageIndex(random.below(PAGES) * 3));
            }
            5..=7 => {
                let Some((first, count)) = cache.victims(&mut hand, PageCount(8), 2000) else { continue };
                for page in first.until(first + count) {
                    assert_eq!(twin.get(&page), Some(&Twin::Resident));
                    frame += 1;
                    cache.leave(page, FrameIndex(frame));
                    twin.insert(page, Twin::Leaving(FrameIndex(frame)));
                }
            }
            8..=10 => {
                let leaving: Vec<_> = twin.iter().map(|(page, twin)| (*page, *twin)).collect();
                for (page, place) in leaving {
                    let Twin::Leaving(frame) = place else { continue };
                    publish(&mut cache, &mut twin, &mut random, page, frame);
                }
            }
            11 => {
                cache.discard(page, page + PageCount(length));
                twin.retain(|at, _| !(page <= *at && *at < page + PageCount(length)));
            }
            12 => {
                let to = PageIndex(if random.below(2) == 0 { page.0 + length + 7 } else { 5000 + random.below(900) });
                remap(&mut cache, &mut twin, page, PageCount(length), to);
            }
            13 => {
                let _ = cache.write_back(ByteCount(random.below(200_000)), 300);
            }
            14 => write_all(&mut cache),
            15 => begin_reading_ahead(&mut cache, page, &mut reads),
            16 => promoted += end_reading_ahead(&mut cache, &mut reads),
            _ => tidy(&mut cache, random.below(100) as usize),
        }
        compare(&mut cache, page, twin.get(&page).copied(), seed);
        let distance = twin.get(&page).and_then(|twin| twin.refault_distance(frame));
        assert!(is_told(cache.refault_distance(page), distance), "seed {seed}");
        if step % 50 == 0 {
            cache.check();
        }
    }
    while !reads.is_empty() {
        promoted += end_reading_ahead(&mut cache, &mut reads);
    }
    cache.check();
    for page in 0..7000 {
        compare(&mut cache, PageIndex(page), twin.get(&PageIndex(page)).copied(), seed);
    }
    let census = cache.census();
    let sum = census.resident + census.leaving + census.same_filled + census.compressed + census.incompressible;
    assert_eq!(sum + census.below, PageCount(twin.len() as u64));
    cache.discard(PageIndex(0), PageIndex(1 << 30));
    cache.check();
    assert_eq!(cache.store_figures().encodings, 0);
    promoted
}

/// A job is out for as long as it likes.
fn begin_reading_ahead(cache: &mut Cache<Slabs>, page: PageIndex, reads: &mut Vec<ReadJob>) {
    if let Some(mut job) = cache.look_below(page) {
        cache.read_ahead(&mut job);
        reads.push(job);
    }
}

/// What it has read is promoted, wherever its pages are by now. Each is where it was, or in the store, with the same bytes.
fn end_reading_ahead(cache: &mut Cache<Slabs>, reads: &mut Vec<ReadJob>) -> usize {
    let Some(job) = reads.pop() else { return 0 };
    let mut buffer = backing::ReadBuffer::new();
    job.run(&mut buffer).unwrap();
    let ahead = job.ahead(&mut buffer).map(|number| job.one_ahead(number, &buffer));
    let promoted = ahead.filter(|&(key, encoding)| cache.promote(key, encoding)).count();
    cache.finish_read(job);
    promoted
}

fn publish(
    cache: &mut Cache<Slabs>,
    twin: &mut BTreeMap<PageIndex, Twin>,
    random: &mut Random,
    page: PageIndex,
    frame: FrameIndex,
) {
    assert_eq!(cache.publish(page, FrameIndex(frame.0 + 1_000_000), Outcome::SameFilled(1)), Published::Stale);
    let stamp = random.below(1 << 40);
    let (place, done) = match random.below(8) {
        0 => (Twin::Word(stamp % 5, frame), cache.publish(page, frame, Outcome::SameFilled(stamp % 5))),
        1 => {
            let bytes = encoding(PAGE_BYTES, stamp);
            (Twin::Stored(PAGE_BYTES, stamp, frame), cache.publish(page, frame, Outcome::Incompressible(&bytes)))
        }
        _ => {
            let length = 1 + random.below(4094) as usize;
            let bytes = encoding(length, stamp);
            (Twin::Stored(length, stamp, frame), cache.publish(page, frame, Outcome::Encoded(&bytes.0[..length])))
        }
    };
    assert_eq!(done, Published::Done);
    twin.insert(page, place);
}

fn remap(
    cache: &mut Cache<Slabs>,
    twin: &mut BTreeMap<PageIndex, Twin>,
    page: PageIndex,
    count: PageCount,
    to: PageIndex,
) {
    if to < page + count && page < to + count {
        return; // Linux refuses ranges that overlap.
    }
    let mut heard = BTreeMap::new();
    cache.remap(page, page + count, to, &mut |frame, page| {
        heard.insert(page, frame);
    });
    let moved: Vec<_> = twin.range(page..page + count).map(|(page, twin)| (*page, *twin)).collect();
    twin.retain(|at, _| !(page <= *at && *at < page + count || to <= *at && *at < to + count));
    for (old, place) in moved {
        let new = to + (old - page);
        twin.insert(new, place);
        if let Twin::Leaving(frame) = place {
            assert_eq!(heard.remove(&new), Some(frame), "the front end must hear of {new:?}");
        }
    }
    assert!(heard.is_empty());
}

#[test]
fn the_cache_agrees_with_a_plain_map() {
    let count = std::env::var("PLEAT_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let promoted = (1..=count).map(|seed| {
        println!("seed {seed}");
        one(seed)
    });
    let promoted: usize = promoted.sum();
    assert!(promoted > 10 * count as usize, "{promoted} promoted");
}

/// Brings a page to a place of the diagram.
fn bring(cache: &mut Cache<Slabs>, page: PageIndex, kind: usize) {
    let bytes = encoding(PAGE_BYTES, 5);
    if kind == 0 {
        return;
    }
    cache.settle(page, Arrival::Along);
    if kind == 1 {
        return;
    }
    cache.leave(page, FrameIndex(9));
    let outcome = match kind {
        2 => return,
        3 => Outcome::SameFilled(77),
        4 | 6 => Outcome::Encoded(&bytes.0[..1000]),
        _ => Outcome::Incompressible(&bytes),
    };
    assert_eq!(cache.publish(page, FrameIndex(9), outcome), Published::Done);
    if kind == 6 {
        // Twice: the first look takes its age.
        cache.write_back(ByteCount(1), 10);
        cache.write_back(ByteCount(1), 10);
    }
}

fn kind(place: Place) -> usize {
    match place {
        Place::Untouched => 0,
        Place::Resident => 1,
        Place::Leaving(_) => 2,
        Place::SameFilled(_) => 3,
        Place::Compressed(_) => 4,
        Place::Incompressible(_) => 5,
        Place::Below(_) => 6,
    }
}

#[test]
fn every_edge_of_the_diagram_can_be_walked() {
    let page = PageIndex(1000);
    for from in 0..7 {
        // `bring` walks leave, publish and write_back; here come settle, discard and remap from every place.
        for edge in 0..3 {
            let mut cache = cache(8 << 20);
            bring(&mut cache, page, from);
            assert_eq!(kind(cache.place(page)), from);
            let to = match edge {
                0 => {
                    cache.settle(page, Arrival::Recalled);
                    1
                }
                1 => {
                    cache.discard(page, page + PageCount(1));
                    0
                }
                _ => {
                    cache.remap(page, page + PageCount(1), PageIndex(5), &mut |frame, new| {
                        assert_eq!((frame, new), (FrameIndex(9), PageIndex(5)));
                    });
                    assert_eq!(kind(cache.place(PageIndex(5))), from);
                    0
                }
            };
            cache.check();
            assert_eq!(kind(cache.place(page)), to, "edge {edge} from {from}");
        }
    }
}

#[test]
fn what_is_promoted_is_the_first_to_go_below_again() {
    let (mut cache, pages) = (cache(8 << 20), [PageIndex(1000), PageIndex(1001), PageIndex(1002)]);
    pages[..2].iter().for_each(|page| bring(&mut cache, *page, 4));
    (0..2).for_each(|_| _ = cache.write_back(ByteCount(1 << 20), 10));
    cache.log().unwrap().seal();
    write_all(&mut cache);
    let mut reads = vec![];
    begin_reading_ahead(&mut cache, pages[0], &mut reads);
    assert_eq!(end_reading_ahead(&mut cache, &mut reads), 1);
    bring(&mut cache, pages[2], 4);
    assert_eq!(pages.map(|page| kind(cache.place(page))), [6, 4, 4]);
    cache.write_back(ByteCount(1 << 20), 2);
    assert_eq!(pages.map(|page| kind(cache.place(page))), [6, 6, 4], "the other has an age");
    cache.check();
}

#[test]
fn only_resident_pages_leave() {
    for from in [0, 2, 3, 4, 5, 6] {
        let left = std::panic::catch_unwind(|| {
            let mut cache = cache(8 << 20);
            bring(&mut cache, PageIndex(7), from);
            cache.leave(PageIndex(7), FrameIndex(1));
        });
        assert!(left.is_err(), "a page left from place {from}");
    }
}

#[test]
fn only_the_frame_that_a_page_lies_in_publishes_it() {
    for from in [0, 1, 2, 3, 4, 5, 6] {
        let mut cache = cache(8 << 20);
        bring(&mut cache, PageIndex(7), from);
        assert_eq!(cache.publish(PageIndex(7), FrameIndex(1), Outcome::SameFilled(0)), Published::Stale);
        assert_eq!(kind(cache.place(PageIndex(7))), from);
    }
}

/// Moves incompressible pages below until the log refuses one, which comes back to the program. Nothing is stored then.
fn fill_log(cache: &mut Cache<Slabs>) -> Vec<PageIndex> {
    let bytes = encoding(PAGE_BYTES, 5);
    let mut below = Vec::new();
    for page in (0..1000).map(PageIndex) {
        cache.settle(page, Arrival::Along);
        cache.leave(page, FrameIndex(9));
        assert_eq!(cache.publish(page, FrameIndex(9), Outcome::Incompressible(&bytes)), Published::Done);
        // Twice: the first look takes its age.
        cache.write_back(ByteCount(1), 10);
        if cache.write_back(ByteCount(1), 10).refused.is_some() {
            cache.settle(page, Arrival::Along);
            return below;
        }
        below.push(page);
        write_all(cache);
    }
    panic!("the log is never full");
}

#[test]
fn a_log_that_was_full_is_offered_pages_again_once_it_has_room() {
    let bytes = encoding(PAGE_BYTES, 5);
    let mut cache = cache(8 * SEGMENT_BYTES as u64);
    let below = fill_log(&mut cache);
    assert_eq!(cache.store_figures().encodings, 0);
    assert!(!cache.gains(Outcome::Incompressible(&bytes)) && cache.gains(Outcome::Encoded(&bytes.0[..9])));
    // Half of each segment dies, which frees none of them; cleaning does.
    for page in below.iter().step_by(2) {
        cache.discard(*page, *page + PageCount(1));
    }
    assert!(!cache.gains(Outcome::Incompressible(&bytes)), "no segment is free yet");
    while let Some(mut job) = cache.log().unwrap().clean() {
        job.run().unwrap();
        cache.finish_clean(job);
        write_all(&mut cache);
    }
    assert!(cache.gains(Outcome::Incompressible(&bytes)));
    cache.check();
}

/// In turns of the hand: those that pass before it takes `page`, the only one, after each arrival.
fn turns_until_taken(page: PageIndex, arrivals: &[Arrival]) -> Vec<u64> {
    let mut cache = cache(1 << 20);
    let mut hand = Hand::default();
    let mut until_taken = |arrival: &Arrival| {
        cache.settle(page, *arrival);
        let begun = hand.turns();
        while cache.victims(&mut hand, PageCount(8), 2).is_none() {}
        cache.leave(page, FrameIndex(1));
        hand.turns() - begun
    };
    until_taken(&Arrival::Along);
    arrivals.iter().map(until_taken).collect()
}

#[test]
fn who_is_refused_again_and_again_is_spared_for_longer_each_time() {
    let refused = |page| turns_until_taken(PageIndex(page), &[Arrival::Refused; 6]);
    assert_eq!(refused(0), [9, 17, 33, 65, 65, 65]);
    for page in [1, 5, 300] {
        let least = [9, 17, 33, 65, 65, 65];
        assert!(refused(page).iter().zip(least).all(|(turns, least)| (least..2 * least).contains(turns)), "{page}");
    }
    let spread: std::collections::BTreeSet<u64> = (0..64).map(|page| refused(page)[3]).collect();
    assert!(spread.len() > 32, "they come back together: {spread:?}");
    // Who is asked for in its frame has not been tried; who has left for good, and comes back, may have become another.
    let then =
        |arrival| turns_until_taken(PageIndex(0), &[Arrival::Refused, Arrival::Refused, arrival, Arrival::Refused])[3];
    assert_eq!([Arrival::Recalled, Arrival::Asked, Arrival::Along].map(then), [33, 9, 9]);
}

#[test]
fn who_is_spared_goes_neither_along_nor_behind_a_walk_but_to_a_hand_that_spares_nobody() {
    let mut cache = cache(1 << 20);
    for page in (0..4).map(PageIndex) {
        cache.settle(page, if page.0 == 2 { Arrival::Refused } else { Arrival::Along });
    }
    let (mut hand, mut unsparing) = (Hand::default(), Hand::default());
    unsparing.tries_refused = true;
    let mut next = |hand: &mut Hand| cache.victims(hand, PageCount(8), 8).map(|(first, count)| (first.0, count.0));
    assert_eq!([(); 3].map(|()| next(&mut hand)), [Some((0, 2)), Some((3, 1)), Some((0, 2))]);
    assert_eq!(next(&mut unsparing), Some((0, 4)));
    let passed = |start: u64| cache.resident_run(PageIndex(start), PageCount(4 - start), Age::TOUCHED);
    assert_eq!([0, 2].map(passed), [Some((PageIndex(0), PageCount(2))), Some((PageIndex(3), PageCount(1)))]);
    // So is who could not be moved, and only that.
    cache.refuse(PageIndex(3));
    assert_eq!(cache.resident_run(PageIndex(3), PageCount(1), Age::TOUCHED), None);
    cache.refuse(PageIndex(4));
    assert_eq!(cache.place(PageIndex(4)), Place::Untouched);
    // It is spared wherever it moves to.
    cache.remap(PageIndex(2), PageIndex(3), PageIndex(9), &mut |_, _| {});
    assert_eq!(cache.place(PageIndex(9)), Place::Resident);
    assert_eq!(cache.resident_run(PageIndex(9), PageCount(1), Age::TOUCHED), None);
}

/// Ages of ten neighbours, and where the hand is behind its first run and its second.
#[test]
fn who_lies_beside_a_victim_goes_along_unless_it_is_kept_for_long() {
    let runs = |ages: [u64; 10]| {
        let mut cache = cache(1 << 20);
        for (page, age) in (0..).map(PageIndex).zip(ages) {
            cache.settle(page, Arrival::Along);
            (0..age).for_each(|_| cache.settle(page, Arrival::Recalled));
        }
        let mut hand = Hand::default();
        let mut next = |run_max| {
            let (first, count) = cache.victims(&mut hand, PageCount(run_max), 10)?;
            first.until(first + count).for_each(|page| cache.leave(page, FrameIndex(page.0 as u32)));
            Some((first.0, count.0))
        };
        [next(8), next(3)]
    };
    assert_eq!(runs([0; 10]), [Some((0, 8)), Some((8, 2))]);
    assert_eq!(runs([0, 1, 2, 0, 2, 1, 3, 0, 0, 0]), [Some((0, 6)), Some((7, 3))]);
    // The hand passes who has an age and is met first.
    assert_eq!(runs([1, 2, 0, 2, 1, 7, 1, 2, 1, 0]), [Some((2, 3)), Some((9, 1))]);
}
