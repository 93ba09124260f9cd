//! Forks: the child reads what the parent wrote, and neither harms the other.

use alloc::sync::Arc;

use super::{Random, Twins, memory};
use crate::failing::FailingBacking;
use crate::{Located, MemoryBacking, ReadBuffer, ReadError};

const SEGMENT_BYTES: usize = 1 << 14;

type Failing = Arc<FailingBacking<MemoryBacking>>;

fn store(segments: u64) -> Failing {
    Arc::new(FailingBacking::new(memory(segments, SEGMENT_BYTES)))
}

/// The child of `parent`, as it is before `fork_child`.
fn copy(parent: &Twins) -> Twins {
    Twins { log: parent.log.forked_copy(), map: parent.map.clone(), buffer: ReadBuffer::new() }
}

/// Replaces all that is in the log, several times.
fn overwrite(twins: &mut Twins, random: &mut Random) {
    for _ in 0..5 {
        for key in twins.keys() {
            twins.discard(key);
        }
        for owner in 0..20 {
            twins.append(owner, &random.bytes(1500)).unwrap();
            twins.write();
        }
    }
    twins.log.check();
}

#[test]
fn a_pinned_segment_outlives_the_parents_use() {
    let mut random = Random::new(1);
    let parents = store(12);
    let mut parent = Twins::new(parents.clone(), SEGMENT_BYTES);
    parent.fill(&mut random, 30, 1500);
    let pin = parent.log.pin_for_child();
    let mut child = copy(&parent);
    let own = store(12);
    child.log.fork_child(Box::new(own.clone()), [2; 32]);
    assert_eq!((child.log.figures().foreign_segments, child.log.figures().segments), (3, 0));
    overwrite(&mut parent, &mut random);
    child.read_all();
    assert!(parent.log.figures().file_bytes >= 3 * SEGMENT_BYTES as u64);

    // The child writes to its own store only.
    let (_, parents_writes) = parents.operations();
    child.fill(&mut random, 20, 2000);
    child.read_all();
    assert_eq!((parents.operations().1, own.operations().1 > 0), (parents_writes, true));

    // What is left of the foreign segments goes with their entries, and the store with the last of them.
    let holders = Arc::strong_count(&parents);
    overwrite(&mut child, &mut random);
    assert_eq!(child.log.figures().foreign_segments, 0);
    child.read_all();
    assert_eq!(parents.discards(), [], "a child punches nothing of its parent");

    parent.log.unpin_child(pin);
    parent.read_all();
    for key in parent.keys() {
        parent.discard(key);
    }
    parent.log.check();
    drop(parent);
    assert!(Arc::strong_count(&parents) < holders);
}

#[test]
fn without_a_pin_the_child_gets_an_error_and_no_wrong_bytes() {
    let mut random = Random::new(2);
    let mut parent = Twins::new(store(4), SEGMENT_BYTES);
    parent.fill(&mut random, 30, 1500);
    let mut child = copy(&parent);
    child.log.fork_child(Box::new(store(4)), [2; 32]);
    for key in parent.keys() {
        parent.discard(key);
    }
    parent.fill(&mut random, 30, 1500);
    for key in child.keys() {
        assert!(matches!(child.read(key), Err(ReadError::Damaged { .. })));
    }
}

#[test]
fn pins_keep_places_only_as_long_as_they_must() {
    let mut random = Random::new(3);
    let mut parent = Twins::new(store(8), SEGMENT_BYTES);
    let seen = parent.fill(&mut random, 10, 1500);
    let pin = parent.log.pin_for_child();
    let unseen = parent.fill(&mut random, 10, 1500);
    parent.discard_all(&seen);
    parent.discard_all(&unseen);
    // Both segments are free; the first place must wait.
    let keys = parent.fill(&mut random, 10, 1500);
    let Located::Disk(job) = parent.log.locate(keys[0]) else { panic!() };
    assert_eq!(job.home.place, 1);
    parent.log.finish_read(job);
    assert_eq!(parent.log.figures().file_bytes, 2 * SEGMENT_BYTES as u64);
    parent.log.unpin_child(pin);
    let keys = parent.fill(&mut random, 10, 1500);
    let Located::Disk(job) = parent.log.locate(keys[0]) else { panic!() };
    assert_eq!(job.home.place, 0);
    parent.log.finish_read(job);
    parent.log.check();
}

#[test]
fn what_is_on_its_way_at_the_fork_is_written_by_both() {
    let mut random = Random::new(4);
    let parents = store(12);
    let mut parent = Twins::new(parents.clone(), SEGMENT_BYTES);
    for owner in 0..25 {
        parent.append(owner, &random.bytes(1500)).unwrap();
    }
    // One being written, one sealed, one open.
    let mut job = parent.log.write_job().unwrap();
    let pin = parent.log.pin_for_child();
    let mut child = copy(&parent);
    let own = store(12);
    child.log.fork_child(Box::new(own.clone()), [2; 32]);
    child.log.check();
    assert_eq!(child.log.figures().memory_entries, 25);
    let result = job.run();
    parent.log.finish_write(job, result);
    parent.write_all();
    child.read_all();
    child.write_all();
    child.read_all();
    assert_eq!((parents.operations().1, own.operations().1), (3, 3));
    // The lost writer's two buffers stay counted: they stay allocated.
    assert!(child.log.figures().buffer_bytes > parent.log.figures().buffer_bytes);
    overwrite(&mut parent, &mut random);
    child.read_all();
    parent.log.unpin_child(pin);
}

#[test]
fn the_childs_trouble_is_not_the_parents() {
    let mut random = Random::new(5);
    let parents = store(12);
    parents.full_from_write(0);
    let mut parent = Twins::new(parents, SEGMENT_BYTES);
    for owner in 0..12 {
        parent.append(owner, &random.bytes(1500)).unwrap();
    }
    assert!(parent.write().unwrap().is_err());
    let _pin = parent.log.pin_for_child();
    let mut child = copy(&parent);
    child.log.fork_child(Box::new(store(12)), [2; 32]);
    assert_eq!(child.log.trouble(), None);
    child.write_all();
    child.read_all();
    assert!(parent.log.trouble().is_some());
    parent.read_all();
}

#[test]
fn readers_and_cleaners_of_the_parent_do_not_bind_the_child() {
    let mut random = Random::new(6);
    let mut parent = Twins::new(store(8), SEGMENT_BYTES);
    let keys: Vec<_> = (0..6).flat_map(|_| parent.fill(&mut random, 10, 1500)).collect();
    for &key in &keys[11..20] {
        parent.discard(key);
    }
    let Located::Disk(read) = parent.log.locate(keys[0]) else { panic!() };
    let clean = parent.log.clean().unwrap();
    for &key in &keys[..10] {
        parent.discard(key);
    }
    assert!(parent.log.waits_for_readers());
    let _pin = parent.log.pin_for_child();
    let mut child = copy(&parent);
    child.log.fork_child(Box::new(store(8)), [2; 32]);
    child.log.check();
    assert!(!child.log.waits_for_readers());
    assert_eq!(child.log.figures().foreign_segments, 5, "a segment that only the parent's reader held is free");
    child.read_all();
    parent.log.finish_read(read);
    assert!(!parent.log.waits_for_readers(), "what is being cleaned is alive");
    let Twins { log, map, .. } = &mut parent;
    log.finish_clean(clean, &mut |_, _, _| panic!("it has not run"));
    assert_eq!(log.figures().entries, map.len() as u64);
    parent.read_all();
}

#[test]
#[should_panic(expected = "before the fork")]
fn a_job_of_the_parent_is_refused_by_the_child() {
    let mut parent = Twins::new(store(8), SEGMENT_BYTES);
    let keys = parent.fill(&mut Random::new(7), 10, 1500);
    let Located::Disk(job) = parent.log.locate(keys[0]) else { panic!() };
    let mut child = copy(&parent);
    child.log.fork_child(Box::new(store(8)), [2; 32]);
    child.log.finish_read(job);
}
