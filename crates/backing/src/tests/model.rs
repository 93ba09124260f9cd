//! Random operations on the log and on a map. Jobs stay out for a random time, and processes fork.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::Cell;

use super::{Directory, Random, Twins, memory};
use crate::{
    BackingKey, BackingStore, Beside, ChildPin, CleanJob, Located, PunchJob, ReadBuffer, ReadJob, SwapFile, WriteJob,
};

const SEGMENT_BYTES: usize = 1 << 15;
const SEGMENTS: u64 = 24;
const WORLDS_MAX: usize = 4;

/// Holds back the places of process `parent` until its last holder is gone.
struct Hold {
    parent: usize,
    pin: Cell<Option<ChildPin>>,
}

/// A process.
struct World {
    twins: Twins,
    writes: Vec<WriteJob>,
    /// Jobs, with what each should find.
    reads: Vec<(ReadJob, Vec<Vec<u8>>)>,
    /// Encodings that came along with another.
    joined: usize,
    cleans: Option<CleanJob>,
    punches: Vec<PunchJob>,
    holds: Vec<Rc<Hold>>,
}

impl World {
    fn new(twins: Twins, holds: Vec<Rc<Hold>>) -> Self {
        Self { twins, writes: Vec::new(), reads: Vec::new(), joined: 0, cleans: None, punches: Vec::new(), holds }
    }

    fn any_key(&self, random: &mut Random) -> Option<BackingKey> {
        let count = self.twins.map.len() as u64;
        (count > 0).then(|| *self.twins.map.keys().nth(random.below(count) as usize).unwrap())
    }

    /// One random step.
    fn step(&mut self, random: &mut Random) {
        // Sometimes shrinking, sometimes growing.
        match random.below(100) {
            0..40 => {
                let encoding = random.encoding(4096);
                let _ = self.twins.append(random.below((1 << 36) - 1), &encoding);
            }
            40..64 => {
                if let Some(key) = self.any_key(random) {
                    self.twins.discard(key);
                }
            }
            64..70 => {
                if let Some(key) = self.any_key(random) {
                    let owner = page::PageIndex(random.below(1 << 30));
                    self.twins.log.set_owner(key, owner);
                    self.twins.map.get_mut(&key).unwrap().0 = owner;
                }
            }
            70..76 => self.begin_read(random),
            76..80 => self.end_read(random),
            80..85 => self.writes.extend(self.twins.log.write_job()),
            85..90 => self.end_write(random),
            90..93 => self.cleans = self.cleans.take().or_else(|| self.twins.log.clean()),
            93..96 => self.end_clean(random),
            96 => self.punches.extend(self.twins.log.punch_job()),
            97 => {
                if let Some(mut job) = self.punches.pop() {
                    job.run();
                    self.twins.log.finish_punch(job);
                }
            }
            98 => self.twins.log.seal(),
            _ => self.twins.log.check(),
        }
    }

    fn begin_read(&mut self, random: &mut Random) {
        let Some(key) = self.any_key(random) else { return };
        let (owner, encoding) = &self.twins.map[&key];
        assert_eq!(self.twins.log.owner(key), *owner);
        match self.twins.log.locate(key) {
            Located::Memory(bytes) => assert!(bytes == encoding),
            Located::Disk(mut job) => {
                let mut encodings = vec![encoding.clone()];
                // Some of those behind it, and of other segments.
                for (&key, (_, encoding)) in self.twins.map.range(key..).skip(1).step_by(1 + random.below(3) as usize) {
                    match self.twins.log.locate_beside(key, Some(&mut job)) {
                        Beside::Memory(bytes) => assert!(bytes == encoding),
                        Beside::Joined => encodings.push(encoding.clone()),
                        Beside::Apart => break,
                    }
                }
                self.joined += encodings.len() - 1;
                self.reads.push((job, encodings));
            }
        }
    }

    /// The entry may have been discarded long ago: the segment has waited.
    fn end_read(&mut self, random: &mut Random) {
        if self.reads.is_empty() {
            return;
        }
        let (job, encodings) = self.reads.swap_remove(random.below(self.reads.len() as u64) as usize);
        let mut buffer = ReadBuffer::new();
        assert!(job.run(&mut buffer).unwrap() == encodings[0]);
        for (number, encoding) in encodings.iter().enumerate().skip(1) {
            assert!(job.other(number, &mut buffer).unwrap() == encoding);
        }
        self.twins.log.finish_read(job);
    }

    fn end_write(&mut self, random: &mut Random) {
        if self.writes.is_empty() {
            return;
        }
        let mut job = self.writes.swap_remove(random.below(self.writes.len() as u64) as usize);
        let result = job.run();
        result.unwrap();
        self.twins.log.finish_write(job, result);
    }

    fn end_clean(&mut self, random: &mut Random) {
        let Some(mut job) = self.cleans.take() else { return };
        if random.below(8) > 0 {
            job.run().unwrap();
        }
        let Twins { log, map, .. } = &mut self.twins;
        let mut moved = |owner, from, to| {
            let (known, encoding) = map.remove(&from).unwrap();
            assert_eq!(known, owner);
            assert!(map.insert(to, (owner, encoding)).is_none());
        };
        if random.below(2) == 0 {
            log.clean_some(&mut job, 1 + random.below(5) as usize, &mut moved);
        }
        let cleaned = log.finish_clean(job, &mut moved);
        assert_eq!(cleaned.is_empty, cleaned.entries_left == 0);
    }

    fn finish_jobs(&mut self, random: &mut Random) {
        while !self.reads.is_empty() {
            self.end_read(random);
        }
        while !self.writes.is_empty() {
            self.end_write(random);
        }
        self.end_clean(random);
        while let Some(job) = self.punches.pop() {
            self.twins.log.finish_punch(job);
        }
    }

    fn fork(&mut self, own_index: usize, store: Box<dyn BackingStore>, key: u64) -> Self {
        let pin = self.twins.log.pin_for_child();
        let mut log = self.twins.log.forked_copy();
        let mut fresh_key = [0; 32];
        fresh_key[..8].copy_from_slice(&key.to_le_bytes());
        log.fork_child(store, fresh_key);
        log.check();
        let mut holds = self.holds.clone();
        holds.push(Rc::new(Hold { parent: own_index, pin: Cell::new(Some(pin)) }));
        Self::new(Twins { log, map: self.twins.map.clone(), buffer: ReadBuffer::new() }, holds)
    }
}

/// Returns how many encodings came along with another, in the processes that are left at the end.
fn run(seed: u64, steps: u64, mut new_store: impl FnMut() -> Box<dyn BackingStore>) -> usize {
    let mut random = Random::new(seed);
    let mut worlds =
        vec![Some(World::new(Twins::new(Arc::<dyn BackingStore>::from(new_store()), SEGMENT_BYTES), Vec::new()))];
    for step in 0..steps {
        let alive: Vec<usize> = (0..worlds.len()).filter(|&at| worlds[at].is_some()).collect();
        let at = alive[random.below(alive.len() as u64) as usize];
        match random.below(600) {
            0 if alive.len() < WORLDS_MAX => {
                let child = worlds[at].as_mut().unwrap().fork(at, new_store(), 1 + step);
                worlds.push(Some(child));
            }
            1 if alive.len() > 1 => {
                let holds = worlds[at].take().unwrap().holds;
                for hold in holds {
                    let is_last = Rc::strong_count(&hold) == 1;
                    if is_last && let Some(parent) = &mut worlds[hold.parent] {
                        parent.twins.log.unpin_child(hold.pin.take().unwrap());
                    }
                }
            }
            _ => worlds[at].as_mut().unwrap().step(&mut random),
        }
    }
    for world in worlds.iter_mut().flatten() {
        world.finish_jobs(&mut random);
        world.twins.read_all();
        for key in world.twins.keys() {
            world.twins.discard(key);
        }
        world.twins.log.check();
        let figures = world.twins.log.figures();
        assert_eq!((figures.entries, figures.live_bytes, figures.dead_bytes), (0, 0, 0));
        assert_eq!((figures.segments, figures.foreign_segments), (0, 0));
    }
    worlds.iter().flatten().map(|world| world.joined).sum()
}

#[test]
fn the_log_equals_a_map() {
    let joined: usize = (0..40).map(|seed| run(seed, 8_000, || Box::new(memory(SEGMENTS, SEGMENT_BYTES)))).sum();
    assert!(joined > 1000, "only {joined} encodings came along with another");
}

#[test]
fn the_log_on_a_swap_file_equals_a_map() {
    let directory = Directory::new("model");
    let path = directory.path(".");
    for seed in 100..104 {
        run(seed, 8_000, || Box::new(SwapFile::create_in(&path, SEGMENTS * SEGMENT_BYTES as u64).unwrap()));
    }
}

/// Stores of no or hardly any room: what is in memory stays there.
#[test]
fn a_tiny_store_refuses_and_loses_nothing() {
    for segments in 0..4 {
        run(200 + segments, 4_000, || Box::new(memory(segments, SEGMENT_BYTES)));
    }
}
