//! Tests of the log.
use super::*;
use page::PageIndex;

#[test]
fn smoke() {
    let store = Arc::new(MemoryBacking::new(64 * 8192));
    let mut log = SegmentLog::with_segment_bytes(Box::new(store), [1; 32], 64 * 8192, 8192);
    let keys: Vec<_> = (0..200u64)
        .map(|at| {
            while let Some(mut job) = log.write_job() {
                let result = job.run();
                log.finish_write(job, result);
            }
            log.append(PageIndex(at), &vec![at as u8; 1 + at as usize * 7]).unwrap()
        })
        .collect();
    log.check();
    let mut buffer = ReadBuffer::new();
    for (at, &key) in keys.iter().enumerate() {
        let want = vec![at as u8; 1 + at * 7];
        match log.locate(key) {
            Located::Memory(bytes) => assert_eq!(bytes, want),
            Located::Disk(job) => {
                assert_eq!(job.run(&mut buffer).unwrap(), want);
                log.finish_read(job);
            }
        }
        assert_eq!(log.owner(key), PageIndex(at as u64));
    }
    for key in keys {
        log.discard(key);
    }
    log.check();
    assert_eq!(log.figures().segments, 0);
}
