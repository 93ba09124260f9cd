//! Media that fail. What comes back is always what was written, or an error that names the place.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use page::PageIndex;
use sys::Errno;

use super::{Random, Twins, memory};
use crate::failing::{FailingBacking, Fault, Operation};
use crate::{
    BackingError, BackingKey, BackingStore, Beside, Located, LogFull, MemoryBacking, ReadBuffer, ReadError, ReadJob,
    SegmentLog,
};

const SEGMENT_BYTES: usize = 1 << 14;

type Failing = Arc<FailingBacking<MemoryBacking>>;

fn twins(segments: u64) -> (Failing, Twins) {
    let store = Arc::new(FailingBacking::new(memory(segments, SEGMENT_BYTES)));
    (store.clone(), Twins::new(store, SEGMENT_BYTES))
}

/// How many of the keys read right, and how many as damaged; nothing else may happen.
fn tally(twins: &mut Twins, keys: &[BackingKey]) -> (usize, usize) {
    let damaged = keys.iter().filter(|&&key| match twins.read(key) {
        Ok(()) => false,
        Err(ReadError::Damaged { .. }) => true,
        Err(other) => panic!("{other}"),
    });
    let damaged = damaged.count();
    (keys.len() - damaged, damaged)
}

#[test]
fn a_late_read_finds_its_bytes_whatever_happens_meanwhile() {
    // While the medium reads, without the log's lock, everything is discarded and the file is filled twice over.
    let log: Arc<Mutex<Option<SegmentLog>>> = Arc::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let (other, counter) = (log.clone(), calls.clone());
    let keys: Arc<Mutex<Vec<BackingKey>>> = Arc::default();
    let all_keys = keys.clone();
    let meanwhile = Box::new(move |operation| {
        // Relaxed: one thread. The writes below come here too.
        if operation != Operation::Read(0) || counter.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let mut log = other.lock().unwrap().take().expect("nobody holds the log during a read");
        for key in all_keys.lock().unwrap().drain(..) {
            log.discard(key);
        }
        for round in 0..16 {
            let key = log.append(PageIndex(round), &[round as u8; 4096]).unwrap();
            log.seal();
            let mut job = log.write_job().unwrap();
            let result = job.run();
            log.finish_write(job, result);
            log.discard(key);
        }
        log.check();
        *other.lock().unwrap() = Some(log);
    });
    let store = FailingBacking::new(memory(4, SEGMENT_BYTES)).with_meanwhile(meanwhile);
    let mut twins = Twins::new(store, SEGMENT_BYTES);
    let mut random = Random::new(1);
    *keys.lock().unwrap() = twins.fill(&mut random, 9, 1000);
    let key = keys.lock().unwrap()[4];
    let Located::Disk(job) = twins.log.locate(key) else { panic!("it has been written") };
    *log.lock().unwrap() = Some(twins.log);
    let mut buffer = ReadBuffer::new();
    assert!(job.run(&mut buffer).unwrap() == twins.map[&key].1);
    let mut log = log.lock().unwrap().take().unwrap();
    assert_eq!(log.figures().segments, 1, "the reader keeps the segment");
    log.finish_read(job);
    assert_eq!((log.figures().segments, calls.load(Ordering::Relaxed)), (0, 1));
    log.check();
}

#[test]
fn a_late_write_is_read_from_memory() {
    let (_, mut twins) = twins(8);
    for owner in 0..3 {
        twins.append(owner, &[owner as u8; 4000]).unwrap();
    }
    twins.log.seal();
    let job = twins.log.write_job().unwrap();
    twins.read_all();
    let dead = twins.keys()[0];
    twins.discard(dead);
    twins.append(9, &[9; 99]).unwrap();
    twins.read_all();
    // It has never run: then it did not reach the medium, and the caller says so.
    twins.log.finish_write(job, Err(BackingError::Short { offset: 0 }));
    twins.read_all();
}

#[test]
fn a_failed_write_loses_nothing() {
    for fault in [Fault::Short, Fault::Io(Errno::IO)] {
        let (store, mut twins) = twins(8);
        store.fail(Operation::Write(0), fault);
        store.fail(Operation::Write(1), fault);
        let mut random = Random::new(2);
        for owner in 0..10 {
            twins.append(owner, &random.bytes(1500)).unwrap();
        }
        twins.log.seal();
        let error = twins.write().unwrap().unwrap_err();
        assert_eq!(twins.log.trouble(), Some(error));
        assert_eq!(twins.append(77, &[1; 10]), Err(LogFull::Trouble(error)));
        assert!(twins.write().is_none(), "not before the caller says so");
        twins.read_all();
        twins.log.retry();
        assert_eq!(twins.write(), Some(Err(error)));
        assert!(twins.append(77, &[1; 10]).is_err());
        twins.log.retry();
        assert_eq!(twins.write(), Some(Ok(())));
        assert_eq!(twins.log.trouble(), None);
        twins.append(77, &[1; 10]).unwrap();
        twins.read_all();
        twins.write_all();
        twins.read_all();
    }
}

/// A disk that is full takes a segment now and then, where another has been freed. What is kept in memory for it meanwhile may stay there.
#[test]
fn behind_a_failure_nothing_is_kept_for_a_medium_that_is_behind() {
    let (store, mut twins) = twins(64);
    let is_worth = |twins: &Twins| [twins.log.has_room(100), twins.log.is_worth_waiting_for(100)];
    twins.append(0, &[1; 100]).unwrap();
    twins.log.seal();
    assert_eq!(is_worth(&twins), [true, true], "nothing has failed yet");
    store.fail(Operation::Write(0), Fault::Io(Errno::NOSPC));
    assert!(twins.write().unwrap().is_err());
    assert_eq!(is_worth(&twins), [false, false]);
    twins.log.retry();
    for owner in 1..=u64::from(crate::segment_log::DOUBT) {
        assert_eq!(twins.write(), Some(Ok(())));
        assert_eq!(is_worth(&twins), [true, true]);
        twins.append(owner, &[1; 100]).unwrap();
        twins.log.seal();
        assert_eq!(is_worth(&twins), [true, owner == u64::from(crate::segment_log::DOUBT)], "{owner}");
    }
    twins.write_all();
    twins.read_all();
}

#[test]
fn a_full_disk_passes() {
    let (store, mut twins) = twins(16);
    let mut random = Random::new(3);
    store.full_from_write(3);
    let mut refused = 0;
    for owner in 0..500 {
        let encoding = random.encoding(3000);
        match twins.append(owner, &encoding) {
            Ok(_) => {}
            Err(LogFull::Trouble(error)) => {
                assert_eq!(error, BackingError::Full);
                refused += 1;
                twins.read_all();
                twins.log.retry();
                assert_eq!(twins.write(), Some(Err(BackingError::Full)));
            }
            Err(other) => panic!("{other}"),
        }
        if twins.log.trouble().is_none() {
            twins.write();
        }
        if refused == 20 {
            break;
        }
    }
    assert_eq!(refused, 20);
    // Discards work meanwhile, also of what could not be written.
    for key in twins.keys().into_iter().step_by(3) {
        twins.discard(key);
    }
    twins.read_all();
    store.recover();
    twins.log.retry();
    twins.write_all();
    twins.read_all();
    twins.append(1, &[1; 4096]).unwrap();
}

#[test]
fn of_two_that_failed_and_died_one_is_written_again() {
    let error = BackingError::Short { offset: 0 };
    for first_to_end in [0, 1] {
        let (_store, mut twins) = twins(8);
        let keys = [1, 2].map(|owner| {
            let key = twins.append(owner, &[1; 100]).unwrap();
            twins.log.seal();
            key
        });
        let job = twins.log.write_job().unwrap();
        twins.log.finish_write(job, Err(error));
        twins.discard(keys[0]);
        twins.log.retry();
        let mut jobs = [twins.log.write_job().unwrap(), twins.log.write_job().unwrap()];
        jobs.rotate_left(first_to_end);
        for job in jobs {
            twins.log.finish_write(job, Err(error));
            twins.log.check();
        }
        twins.discard(keys[1]);
        twins.log.check();
        twins.log.retry();
        assert_eq!([twins.write(), twins.write()], [Some(Ok(())), None], "{first_to_end}");
        assert_eq!((twins.log.trouble(), twins.log.figures().segments), (None, 0));
        twins.append(1, &[2; 100]).unwrap();
        twins.write_all();
        twins.read_all();
    }
}

#[test]
fn what_failed_and_then_died_is_trouble_until_the_medium_takes_it() {
    let (store, mut twins) = twins(8);
    store.fail(Operation::Write(0), Fault::Io(Errno::IO));
    let key = twins.append(1, &[1; 100]).unwrap();
    twins.log.seal();
    assert!(twins.write().unwrap().is_err());
    twins.discard(key);
    let error = twins.log.trouble().expect("the medium has taken nothing since");
    assert_eq!(twins.append(1, &[2; 100]), Err(LogFull::Trouble(error)));
    assert!(twins.write().is_none(), "not before the caller says so");
    twins.log.retry();
    assert_eq!(twins.write(), Some(Ok(())));
    assert_eq!((twins.log.trouble(), twins.log.figures().segments), (None, 0));
    twins.append(1, &[2; 100]).unwrap();
    twins.write_all();
    twins.read_all();
}

/// A job for one of the keys, which those behind it have joined.
fn joined(twins: &mut Twins, keys: &[BackingKey]) -> ReadJob {
    let Located::Disk(mut job) = twins.log.locate(keys[0]) else { panic!("it has been written") };
    for &key in &keys[1..] {
        assert!(matches!(twins.log.locate_beside(key, Some(&mut job)), Beside::Joined), "{key:?}");
    }
    job
}

/// What each of the others is: right, or not there.
fn others(twins: &Twins, job: &ReadJob, keys: &[BackingKey], buffer: &mut ReadBuffer) -> Vec<bool> {
    let mut is_right = |(number, key)| {
        let encoding = job.other(number, buffer);
        encoding.inspect(|encoding| assert!(*encoding == twins.map[key].1, "wrong bytes")).is_some()
    };
    (1..).zip(&keys[1..]).map(&mut is_right).collect()
}

#[test]
fn others_come_with_the_same_request() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(21), 20, 1500);
    let elsewhere = twins.fill(&mut Random::new(22), 1, 100)[0];
    let in_memory = twins.append(7, &[7; 70]).unwrap();
    assert_ne!(keys[0].number(), keys[19].number(), "the last are in a segment of their own");
    let mut job = joined(&mut twins, &[keys[2], keys[3], keys[6]]);
    for key in [keys[1], keys[5], keys[19], elsewhere] {
        assert!(matches!(twins.log.locate_beside(key, Some(&mut job)), Beside::Apart), "{key:?}");
    }
    assert!(matches!(twins.log.locate_beside(in_memory, Some(&mut job)), Beside::Memory(bytes) if bytes == [7; 70]));
    assert!(matches!(twins.log.locate_beside(keys[7], None), Beside::Apart));
    let (reads, mut buffer) = (store.operations().0, ReadBuffer::new());
    assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[2]].1);
    assert_eq!(others(&twins, &job, &[keys[2], keys[3], keys[6]], &mut buffer), [true, true]);
    assert_eq!(store.operations().0, reads + 1);
    twins.log.finish_read(job);
    twins.read_all();
}

#[test]
fn one_request_takes_sixteen_whole_pages_and_no_more_than_its_buffer() {
    const SEGMENT_BYTES: usize = 1 << 17;
    let mut twins = Twins::new(memory(4, SEGMENT_BYTES), SEGMENT_BYTES);
    let first = twins.append(0, &[1; 300]).unwrap();
    let keys: Vec<_> = (1..20).map(|owner| twins.append(owner, &[owner as u8; 4096]).unwrap()).collect();
    twins.write_all();
    let mut job = joined(&mut twins, &keys[..17]);
    assert!(matches!(twins.log.locate_beside(keys[17], Some(&mut job)), Beside::Apart));
    let mut buffer = ReadBuffer::new();
    job.run(&mut buffer).unwrap();
    assert_eq!(others(&twins, &job, &keys[..17], &mut buffer), [true; 16]);
    twins.log.finish_read(job);
    // However few they are, they must lie within what the buffer holds.
    let Located::Disk(mut job) = twins.log.locate(first) else { panic!() };
    assert!(matches!(twins.log.locate_beside(keys[18], Some(&mut job)), Beside::Apart));
    assert!(matches!(twins.log.locate_beside(keys[15], Some(&mut job)), Beside::Joined));
    twins.log.finish_read(job);
}

#[test]
fn a_damaged_neighbour_stays_away() {
    let (store, mut twins) = twins(8);
    // Extents of 1520 bytes: in the sixth.
    store.fail(Operation::Write(0), Fault::Flip(5 * 1520 + 100, 4));
    let keys = twins.fill(&mut Random::new(23), 8, 1500);
    let job = joined(&mut twins, &keys[4..8]);
    let mut buffer = ReadBuffer::new();
    assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[4]].1);
    assert_eq!(others(&twins, &job, &keys[4..8], &mut buffer), [false, true, true]);
    twins.log.finish_read(job);
    assert_eq!(tally(&mut twins, &keys), (7, 1));
}

#[test]
fn what_is_asked_for_comes_although_its_neighbours_cannot_be_read() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(24), 8, 1500);
    for fault in [Fault::Io(Errno::IO), Fault::Short] {
        store.fail(Operation::Read(store.operations().0), fault);
        let job = joined(&mut twins, &keys[1..6]);
        let mut buffer = ReadBuffer::new();
        assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[1]].1);
        // Only its own block is read again.
        assert_eq!(others(&twins, &job, &keys[1..6], &mut buffer), [false; 4]);
        twins.log.finish_read(job);
    }
    // Nor does a job give out what another has left in the buffer.
    let job = joined(&mut twins, &keys[1..6]);
    let mut buffer = ReadBuffer::new();
    job.run(&mut buffer).unwrap();
    let reads = store.operations().0;
    store.fail(Operation::Read(reads), Fault::Short);
    store.fail(Operation::Read(reads + 1), Fault::Short);
    let again = joined(&mut twins, &keys[1..6]);
    assert!(again.run(&mut buffer).is_err());
    assert_eq!(others(&twins, &again, &keys[1..6], &mut buffer), [false; 4]);
    twins.log.finish_read(job);
    twins.log.finish_read(again);
}

/// The keys that a job has read ahead, as far as they have come.
fn ahead(twins: &Twins, job: &ReadJob, buffer: &mut ReadBuffer) -> Vec<BackingKey> {
    let numbers = job.ahead(buffer);
    let checked = |number| {
        let (key, encoding) = job.one_ahead(number, buffer);
        assert!(twins.map[&key].1 == encoding, "wrong bytes");
        key
    };
    numbers.map(checked).collect()
}

#[test]
fn what_lies_behind_is_read_ahead_with_the_same_request() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(25), 20, 1500);
    let count = keys.iter().filter(|key| key.number() == keys[0].number()).count();
    twins.discard(keys[5]);
    let mut job = joined(&mut twins, &keys[2..4]);
    twins.log.read_ahead(&mut job);
    let (reads, mut buffer) = (store.operations().0, ReadBuffer::new());
    assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[2]].1);
    assert_eq!(others(&twins, &job, &keys[2..4], &mut buffer), [true]);
    assert_eq!(ahead(&twins, &job, &mut buffer), [&keys[4..5], &keys[6..count]].concat());
    assert_eq!(store.operations().0, reads + 1);
    twins.log.finish_read(job);
    // The last of a segment; and the second where the request has failed and its own two blocks come alone.
    store.fail(Operation::Read(store.operations().0 + 1), Fault::Short);
    for (from, end) in [(count - 1, count), (2, 5)] {
        let mut job = joined(&mut twins, &[keys[from]]);
        twins.log.read_ahead(&mut job);
        assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[from]].1);
        assert_eq!(ahead(&twins, &job, &mut buffer), keys[from + 1..end]);
        twins.log.finish_read(job);
    }
    twins.read_all();
}

#[test]
fn reading_ahead_ends_at_damage_and_at_what_one_request_takes() {
    let (store, mut twins) = twins(8);
    store.fail(Operation::Write(0), Fault::Flip(6 * 144 + 100, 4));
    let keys = twins.fill(&mut Random::new(26), 80, 120);
    assert_eq!(keys[0].number(), keys[79].number());
    for (from, end) in [(0, 6), (2, 6), (7, 7 + 20), (65, 80)] {
        let mut job = joined(&mut twins, &[keys[from]]);
        twins.log.read_ahead(&mut job);
        let mut buffer = ReadBuffer::new();
        assert!(job.run(&mut buffer).unwrap() == twins.map[&keys[from]].1);
        assert_eq!(ahead(&twins, &job, &mut buffer), keys[from + 1..end], "from {from}");
        twins.log.finish_read(job);
    }
}

#[test]
fn a_torn_write_is_found() {
    let (store, mut twins) = twins(8);
    store.fail(Operation::Write(0), Fault::Torn);
    let keys = twins.fill(&mut Random::new(4), 10, 1500);
    // Half of 4 blocks: five extents of 1520 bytes lie in the first 8192.
    assert_eq!(tally(&mut twins, &keys), (5, 5));
}

#[test]
fn a_lost_write_does_not_bring_back_the_past() {
    let (store, mut twins) = twins(8);
    let old = twins.fill(&mut Random::new(5), 10, 1500);
    twins.discard_all(&old);
    store.fail(Operation::Write(1), Fault::Lost);
    let keys = twins.fill(&mut Random::new(6), 10, 1500);
    let Located::Disk(job) = twins.log.locate(keys[3]) else { panic!() };
    assert_eq!(job.home.place, 0, "the same place: its old content is whole");
    twins.log.finish_read(job);
    assert_eq!(tally(&mut twins, &keys), (0, 10));
}

#[test]
fn a_misplaced_write_is_found_in_both_places() {
    let (store, mut twins) = twins(8);
    let mut random = Random::new(7);
    store.fail(Operation::Write(1), Fault::Misplaced(0));
    let victims = twins.fill(&mut random, 10, 1500);
    let strays = twins.fill(&mut random, 10, 1500);
    assert_eq!(tally(&mut twins, &victims), (0, 10));
    assert_eq!(tally(&mut twins, &strays), (0, 10));
}

#[test]
fn a_misplaced_read_is_found() {
    let (store, mut twins) = twins(8);
    let mut random = Random::new(8);
    let keys = twins.fill(&mut random, 10, 1500);
    twins.fill(&mut random, 10, 1500);
    store.fail(Operation::Read(0), Fault::Misplaced(SEGMENT_BYTES as u64));
    assert_eq!(twins.read(keys[0]), Err(ReadError::Damaged { segment: 0, entry: 0, offset: 0 }));
    twins.read(keys[0]).unwrap();
}

#[test]
fn swapped_blocks_are_found() {
    // Extents of exactly one block, so that a swapped one holds a whole extent, tag and all.
    for (first, second) in [(0, 4096), (0, SEGMENT_BYTES as u64)] {
        let (store, mut twins) = twins(8);
        let mut random = Random::new(9);
        let mut keys = twins.fill(&mut random, 4, 4096 - 16);
        keys.extend(twins.fill(&mut random, 4, 4096 - 16));
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        store.inner().read_at(first, &mut a).unwrap();
        store.inner().read_at(second, &mut b).unwrap();
        store.inner().write_at(first, &b).unwrap();
        store.inner().write_at(second, &a).unwrap();
        assert_eq!(tally(&mut twins, &keys), (6, 2));
        store.inner().write_at(first, &a).unwrap();
        store.inner().write_at(second, &b).unwrap();
        assert_eq!(tally(&mut twins, &keys), (8, 0));
    }
}

#[test]
fn a_punched_segment_is_found() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(10), 10, 1500);
    store.discard(0, SEGMENT_BYTES as u64);
    assert_eq!(tally(&mut twins, &keys), (0, 10));
}

#[test]
fn a_failed_read_is_told_and_passes() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(11), 10, 1500);
    store.fail(Operation::Read(0), Fault::Io(Errno::IO));
    store.fail(Operation::Read(1), Fault::Short);
    store.fail(Operation::Read(2), Fault::Lost);
    assert_eq!(twins.read(keys[0]), Err(ReadError::Device(BackingError::Io { offset: 0, errno: Errno::IO })));
    // Two blocks, of which one came.
    assert_eq!(twins.read(keys[2]), Err(ReadError::Device(BackingError::Short { offset: 4096 })));
    // Nothing came, so that the buffer holds another block.
    assert!(matches!(twins.read(keys[5]), Err(ReadError::Damaged { .. })));
    twins.read_all();
}

#[test]
fn each_flipped_bit_is_found() {
    let (store, mut twins) = twins(8);
    let keys = twins.fill(&mut Random::new(12), 20, 301);
    // Entry 13 lies across a block's end: 13 × 320 = 4160; entry 12: 3840..4160.
    for (key, start) in [(keys[0], 0), (keys[12], 3840)] {
        let place = ReadError::Damaged { segment: 0, entry: key.entry() as u16, offset: start as u64 };
        for at in start..start + 301 + 16 {
            for bit in 0..8 {
                let (reads, _) = store.operations();
                store.fail(Operation::Read(reads), Fault::Flip(at, 1 << bit));
                assert_eq!(twins.read(key), Err(place), "byte {at}, bit {bit}");
            }
        }
        // Padding is not looked at.
        let (reads, _) = store.operations();
        store.fail(Operation::Read(reads), Fault::Flip(start + 301 + 16, 0xff));
        twins.read(key).unwrap();
    }
}

#[test]
fn a_bit_flipped_on_its_way_to_the_medium_is_found() {
    let (store, mut twins) = twins(8);
    store.fail(Operation::Write(0), Fault::Flip(5000, 4));
    let keys = twins.fill(&mut Random::new(13), 10, 1500);
    assert_eq!(tally(&mut twins, &keys), (9, 1));
    assert_eq!(twins.read(keys[3]), Err(ReadError::Damaged { segment: 0, entry: 3, offset: 3 * 1520 }));
}

#[test]
fn a_nonce_is_never_used_twice() {
    let (store, mut twins) = twins(6);
    let mut random = Random::new(14);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..300 {
        if round % 7 == 3 {
            let (_, writes) = store.operations();
            store.fail(Operation::Write(writes), Fault::Io(Errno::IO));
        }
        let key = twins.append(round, &random.encoding(4096)).unwrap();
        twins.log.seal();
        while let Some(mut job) = twins.log.write_job() {
            assert!(seen.insert(job.sequence), "sequence number {} again", job.sequence);
            let result = job.run();
            twins.log.finish_write(job, result);
            twins.log.retry();
        }
        twins.read(key).unwrap();
        twins.discard(key);
    }
    assert_eq!(seen.len() as u64, twins.log.sequence());
    assert!(seen.len() > 300);
}

#[test]
fn no_clear_text_reaches_the_medium() {
    let (store, mut twins) = twins(8);
    for _ in 0..4 {
        // Sealed short of full, after longer segments in the same buffers.
        for count in [3, 1] {
            let keys: Vec<_> = (0..count).map(|owner| twins.append(owner, &[0xab; 4001]).unwrap()).collect();
            twins.write_all();
            twins.discard_all(&keys);
        }
    }
    let mut block = vec![0; 8 * SEGMENT_BYTES];
    store.inner().read_at(0, &mut block).unwrap();
    assert!(!block.windows(6).any(|bytes| bytes == [0xab; 6]));
}

#[test]
fn a_damaged_entry_stays_when_its_segment_is_cleaned() {
    let (store, mut twins) = twins(8);
    let mut random = Random::new(15);
    store.fail(Operation::Write(2), Fault::Flip(1600, 1));
    let keys: Vec<_> = (0..6).map(|_| twins.fill(&mut random, 10, 1500)).collect();
    // The third segment is the emptiest.
    for &key in keys[2][4..].iter().chain(&keys[4][8..]) {
        twins.discard(key);
    }
    let cleaned = twins.clean().unwrap();
    assert_eq!((cleaned.is_empty, cleaned.entries_left), (false, 1));
    let damaged = keys[2][1];
    assert_eq!(
        twins.read(damaged),
        Err(ReadError::Damaged { segment: 2, entry: 1, offset: 2 * SEGMENT_BYTES as u64 + 1520 })
    );
    assert_eq!(twins.clean().map(|cleaned| cleaned.is_empty), Some(true), "another segment, not the same again");
    twins.discard(damaged);
    twins.read_all();
}
