//! What is read beside: it comes with another's read, once, and only as what it is.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use super::{Directory, Random, Twins, memory};
use crate::failing::{FailingBacking, Fault, Operation};
use crate::{ASIDE_MAX, BackingError, BackingKey, BackingStore, Located, ReadError, ReadJob, SwapFile};

const SEGMENT_BYTES: usize = 64 << 10;

/// So many encodings in several segments on the medium: no more at once than the log has buffers.
fn fill(twins: &mut Twins, random: &mut Random, count: u64, bytes: usize) -> Vec<BackingKey> {
    (0..count / 20).flat_map(|_| twins.fill(random, 20, bytes)).collect()
}

fn job(twins: &mut Twins, key: BackingKey) -> ReadJob {
    match twins.log.locate(key) {
        Located::Disk(job) => job,
        Located::Memory(_) => panic!("it has been written"),
    }
}

/// Runs a job with others beside it, and then each of those; checks all bytes. Returns how many of the others were there.
fn run_together(twins: &mut Twins, keys: &[BackingKey]) -> usize {
    let mut jobs: Vec<_> = keys.iter().map(|key| job(twins, *key)).collect();
    let besides: Vec<_> = jobs.drain(1..).map(Some).collect();
    let first = jobs.remove(0);
    assert!(first.run_with(&besides, &mut twins.buffer).unwrap() == twins.map[&keys[0]].1);
    twins.log.finish_read(first);
    besides.into_iter().flatten().for_each(|job| twins.log.finish_read(job));
    let mut there = 0;
    for key in &keys[1..] {
        let job = job(twins, *key);
        there += usize::from(twins.buffer.has(&job));
        assert!(job.run(&mut twins.buffer).unwrap() == twins.map[key].1);
        assert!(!twins.buffer.has(&job), "nobody asks twice");
        twins.log.forgo_read(job);
    }
    there
}

#[test]
fn all_come_with_one_read() {
    let mut random = Random::new(31);
    let store = Arc::new(FailingBacking::new(memory(8, SEGMENT_BYTES)));
    let mut twins = Twins::new(store.clone(), SEGMENT_BYTES);
    let keys = fill(&mut twins, &mut random, 100, 3000);
    let (before, _) = store.operations();
    // From several segments, and two of one block.
    let chosen: Vec<_> = [3, 99, 50, 51, 0, 77, 20, 64].map(|at| keys[at]).into();
    assert_eq!(run_together(&mut twins, &chosen), ASIDE_MAX);
    assert_eq!(store.operations().0 - before, 8, "each was read once");
    twins.read_all();
}

#[test]
fn a_swap_file_reads_together() {
    let mut random = Random::new(32);
    let directory = Directory::new("beside");
    let file = SwapFile::create_in(&directory.path(""), 1 << 20).unwrap();
    let mut twins = Twins::new(file, SEGMENT_BYTES);
    let keys = fill(&mut twins, &mut random, 200, 2900);
    for round in 0..40 {
        let drawn: BTreeSet<_> = (0..2 + round % 7).map(|_| keys[random.below(200) as usize]).collect();
        let chosen: Vec<_> = drawn.into_iter().collect();
        assert_eq!(run_together(&mut twins, &chosen), chosen.len() - 1);
    }
    twins.read_all();
}

/// Its segment is cleaned away and its place written anew between the two: it is another segment then, with another number.
#[test]
fn what_lies_aside_is_not_taken_for_what_has_its_place_now() {
    let mut random = Random::new(33);
    let mut twins = Twins::new(memory(3, SEGMENT_BYTES), SEGMENT_BYTES);
    let keys = twins.fill(&mut random, 15, 3900);
    let (first, beside) = (job(&mut twins, keys[0]), Some(job(&mut twins, keys[7])));
    first.run_with(core::slice::from_ref(&beside), &mut twins.buffer).unwrap();
    twins.log.finish_read(first);
    twins.log.finish_read(beside.unwrap());
    twins.discard_all(&keys);
    for _ in 0..4 {
        let again = twins.fill(&mut random, 15, 3900);
        let same_entry = job(&mut twins, again[7]);
        assert!(!twins.buffer.has(&same_entry));
        assert!(same_entry.run(&mut twins.buffer).unwrap() == twins.map[&again[7]].1);
        twins.log.finish_read(same_entry);
        twins.discard_all(&again);
    }
}

#[test]
fn a_read_that_fails_fails_alone() {
    for fault in [Fault::Io(sys::Errno::IO), Fault::Short, Fault::Flip(3500, 4), Fault::Lost] {
        let mut random = Random::new(34);
        let store = Arc::new(FailingBacking::new(memory(8, SEGMENT_BYTES)));
        let mut twins = Twins::new(store.clone(), SEGMENT_BYTES);
        let keys = fill(&mut twins, &mut random, 60, 3000);
        // The second of those beside, once: it reads by itself.
        store.fail(Operation::Read(store.operations().0 + 2), fault);
        run_together(&mut twins, &[keys[0], keys[30], keys[40], keys[50]]);
        // The first one, which must come: a medium that gives other bytes is told, any other failure tried once more.
        store.fail(Operation::Read(store.operations().0), fault);
        let (first, beside) = (job(&mut twins, keys[1]), Some(job(&mut twins, keys[31])));
        let result = first.run_with(core::slice::from_ref(&beside), &mut twins.buffer).map(<[u8]>::to_vec);
        match fault {
            Fault::Flip(..) | Fault::Lost => assert!(matches!(result, Err(ReadError::Damaged { .. })), "{fault:?}"),
            _ => assert!(result == Ok(twins.map[&keys[1]].1.clone()), "{fault:?}"),
        }
        twins.log.finish_read(first);
        twins.log.finish_read(beside.unwrap());
        twins.read_all();
    }
}

/// A medium that is gone for good says so, as it does without others beside.
#[test]
fn a_medium_that_gives_nothing_is_told() {
    let mut random = Random::new(35);
    let store = Arc::new(FailingBacking::new(memory(8, SEGMENT_BYTES)));
    let mut twins = Twins::new(store.clone(), SEGMENT_BYTES);
    let keys = fill(&mut twins, &mut random, 60, 3000);
    let next = store.operations().0;
    for read in [0, 2] {
        store.fail(Operation::Read(next + read), Fault::Io(sys::Errno::IO));
    }
    let (first, beside) = (job(&mut twins, keys[1]), Some(job(&mut twins, keys[31])));
    let result = first.run_with(core::slice::from_ref(&beside), &mut twins.buffer).map(<[u8]>::to_vec);
    assert!(matches!(result, Err(ReadError::Device(BackingError::Io { .. }))), "{result:?}");
    assert!(store.bytes_max() > 0 && twins.buffer.has(beside.as_ref().unwrap()));
    twins.log.finish_read(first);
    twins.log.finish_read(beside.unwrap());
}
