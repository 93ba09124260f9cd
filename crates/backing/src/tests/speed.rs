//! How fast it is. Not run by default: `cargo test --release -p pleat-backing -- --ignored --nocapture speed`.

use std::time::Instant;

use page::PageIndex;

use super::{Directory, Random};
use crate::{
    BackingError, BackingKey, BackingStore, Located, LogFull, MemoryBacking, ReadBuffer, SegmentLog, SwapFile,
};

const ENCODINGS: u64 = 100_000;
const ENCODING_BYTES: usize = 1500;
const BYTES_MAX: u64 = 1 << 30;

/// Takes everything and keeps nothing: what is left is our own time.
struct Nothing;

impl BackingStore for Nothing {
    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<(), BackingError> {
        out.fill(0);
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), BackingError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) {}
    fn bytes_max(&self) -> u64 {
        BYTES_MAX
    }
}

fn fill(name: &str, store: Box<dyn BackingStore>) -> (SegmentLog, Vec<BackingKey>) {
    let mut log = SegmentLog::new(store, [1; 32], BYTES_MAX);
    let encoding = Random::new(1).bytes(ENCODING_BYTES);
    let mut keys = Vec::with_capacity(ENCODINGS as usize);
    let (start, mut writing) = (Instant::now(), core::time::Duration::ZERO);
    let mut write = |log: &mut SegmentLog| {
        let begin = Instant::now();
        while let Some(mut job) = log.write_job() {
            let result = job.run();
            log.finish_write(job, result);
        }
        writing += begin.elapsed();
    };
    for owner in 0..ENCODINGS {
        match log.append(PageIndex(owner), &encoding) {
            Ok(key) => keys.push(key),
            Err(LogFull::WritesBehind) => write(&mut log),
            Err(error) => panic!("{error}"),
        }
    }
    log.seal();
    write(&mut log);
    let figures = log.figures();
    let per_page = |time: core::time::Duration| time.as_secs_f64() * 1e6 / keys.len() as f64;
    println!(
        "{name}: append {:.3} µs, encrypt and write {:.3} µs an encoding, {:.0} MB/s; tables {:.1} bytes an entry",
        per_page(start.elapsed().saturating_sub(writing)),
        per_page(writing),
        figures.written_bytes as f64 / writing.as_secs_f64() / 1e6,
        figures.metadata_bytes as f64 / figures.entries as f64,
    );
    (log, keys)
}

fn read(name: &str, log: &mut SegmentLog, keys: &[BackingKey]) {
    let mut random = Random::new(2);
    let mut buffer = ReadBuffer::new();
    let mut times: Vec<f64> = (0..20_000)
        .map(|_| {
            let key = keys[random.below(keys.len() as u64) as usize];
            let start = Instant::now();
            let Located::Disk(job) = log.locate(key) else { panic!("all is on disk") };
            assert_eq!(job.run(&mut buffer).unwrap().len(), ENCODING_BYTES);
            log.finish_read(job);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[(times.len() as f64 * part) as usize];
    println!("{name}: random read p50 {:.2} µs, p99 {:.2}, p99.9 {:.2}", at(0.5), at(0.99), at(0.999));
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    fill("no medium", Box::new(Nothing));
    let (mut log, keys) = fill("memory", Box::new(MemoryBacking::new(BYTES_MAX / 4)));
    read("memory", &mut log, &keys);
    let directory = Directory::new("speed");
    let file = SwapFile::create_in(&directory.path("."), BYTES_MAX).unwrap();
    let name = format!("swap file, {:?}", file.caching());
    let (mut log, keys) = fill(&name, Box::new(file));
    read(&name, &mut log, &keys);
    if let Ok(file) = SwapFile::create_in(c"/dev/shm", BYTES_MAX) {
        let name = format!("/dev/shm, {:?}", file.caching());
        let (mut log, keys) = fill(&name, Box::new(file));
        read(&name, &mut log, &keys);
    }
}
