//! Tests of the log: against a model, on media that fail, over forks, and when it is nearly full.

use alloc::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use page::PageIndex;

use crate::{
    BackingError, BackingKey, BackingStore, Located, LogFull, MemoryBacking, ReadBuffer, ReadError, SegmentLog,
};

mod aside;
mod cleaning;
mod faults;
mod files;
mod forks;
mod model;
mod speed;

/// Random numbers (xorshift64*): seeded, and the same for ever.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// An encoding of up to `bytes_max` bytes; often short, sometimes as long as can be.
    fn encoding(&mut self, bytes_max: u64) -> Vec<u8> {
        let bytes = match self.below(8) {
            0 => bytes_max,
            1 => 1 + self.below(40).min(bytes_max - 1),
            _ => 1 + self.below(bytes_max),
        };
        self.bytes(bytes as usize)
    }
}

/// A log and its plain twin, a map.
struct Twins {
    log: SegmentLog,
    map: BTreeMap<BackingKey, (PageIndex, Vec<u8>)>,
    buffer: ReadBuffer,
}

impl Twins {
    fn new(store: impl BackingStore + 'static, segment_bytes: usize) -> Self {
        let bytes_max = store.bytes_max();
        let log = SegmentLog::with_segment_bytes(Box::new(store), [0x11; 32], bytes_max, segment_bytes);
        Self { log, map: BTreeMap::new(), buffer: ReadBuffer::new() }
    }

    fn append(&mut self, owner: u64, encoding: &[u8]) -> Result<BackingKey, LogFull> {
        let has_room = self.log.has_room(encoding.len());
        let appended = self.log.append(PageIndex(owner), encoding);
        let is_full = matches!(appended, Err(LogFull::NoSegment | LogFull::Trouble(_)));
        assert_eq!(has_room, !is_full, "{appended:?}");
        let key = appended?;
        assert!(self.map.insert(key, (PageIndex(owner), encoding.to_vec())).is_none(), "{key:?} given out twice");
        Ok(key)
    }

    fn discard(&mut self, key: BackingKey) {
        self.log.discard(key);
        self.map.remove(&key).unwrap();
    }

    fn discard_all(&mut self, keys: &[BackingKey]) {
        for &key in keys {
            self.discard(key);
        }
    }

    /// Reads through the log; whether it came, which must then be what the map has.
    fn read(&mut self, key: BackingKey) -> Result<(), ReadError> {
        let (owner, encoding) = &self.map[&key];
        assert_eq!(self.log.owner(key), *owner);
        match self.log.locate(key) {
            Located::Memory(bytes) => assert!(bytes == encoding, "wrong bytes from memory"),
            Located::Disk(job) => {
                let result = job.run(&mut self.buffer).map(|bytes| assert!(bytes == encoding, "wrong bytes"));
                self.log.finish_read(job);
                return result;
            }
        }
        Ok(())
    }

    fn keys(&self) -> Vec<BackingKey> {
        self.map.keys().copied().collect()
    }

    fn read_all(&mut self) {
        for key in self.keys() {
            self.read(key).unwrap();
        }
        self.log.check();
        assert_eq!(self.log.figures().entries, self.map.len() as u64);
    }

    /// One write, if there is one to do.
    fn write(&mut self) -> Option<Result<(), BackingError>> {
        let mut job = self.log.write_job()?;
        let result = job.run();
        self.log.finish_write(job, result);
        Some(result)
    }

    fn write_all(&mut self) {
        self.log.seal();
        while let Some(result) = self.write() {
            result.unwrap();
        }
        assert_eq!(self.log.figures().memory_entries, 0);
    }

    /// Cleans one segment, if the log wants to.
    fn clean(&mut self) -> Option<crate::Cleaned> {
        let mut job = self.log.clean()?;
        let _ = job.run();
        let map = &mut self.map;
        Some(self.log.finish_clean(job, &mut |owner, from, to| {
            let (known, encoding) = map.remove(&from).unwrap();
            assert_eq!(known, owner);
            assert!(map.insert(to, (owner, encoding)).is_none());
        }))
    }

    /// Appends `count` encodings of `bytes` each and puts them on disk.
    fn fill(&mut self, random: &mut Random, count: u64, bytes: usize) -> Vec<BackingKey> {
        let keys = (0..count).map(|owner| self.append(owner, &random.bytes(bytes)).unwrap()).collect();
        self.write_all();
        keys
    }
}

/// A directory of a test's own, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pleat-backing-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.0.join(name).as_os_str().as_bytes()).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn memory(segments: u64, segment_bytes: usize) -> MemoryBacking {
    MemoryBacking::new(segments * segment_bytes as u64)
}
