//! What a managed page costs in tables.

use backing::{MemoryBacking, SegmentLog};
use cache::{Cache, Outcome, Published};
use page::{FrameIndex, PageCount, PageIndex};
use policy::replacement::Arrival;
use store::Slabs;

use super::content::Random;

const PAGES: u64 = 100_000;
/// Bytes of tables for a managed page.
const BYTES_MAX: u64 = 16;

/// Lengths as LZ4 makes them of real pages: about 0.45 of a page on average, widely spread.
fn length(random: &mut Random) -> usize {
    200 + random.below(1650) as usize + random.below(1650) as usize
}

#[test]
fn tables_stay_below_sixteen_bytes_a_page() {
    let bytes = 256 << 20;
    let log = SegmentLog::new(Box::new(MemoryBacking::new(bytes)), [1; 32], bytes);
    let mut cache = Cache::new(Slabs::new(1 << 30).unwrap(), Some(log));
    let mut random = Random::new(1);
    let encoding = [0x5a; 4096];
    for step in 0..PAGES {
        let page = PageIndex(0x10_0000 + step);
        cache.settle(page, Arrival::Along);
        if step % 4 == 0 {
            continue; // A quarter stays resident.
        }
        cache.leave(page, FrameIndex(0));
        let outcome = match step % 16 {
            1 => Outcome::SameFilled(step % 3),
            _ => Outcome::Encoded(&encoding[..length(&mut random)]),
        };
        assert_eq!(cache.publish(page, FrameIndex(0), outcome), Published::Done);
    }
    // A third of what is stored goes below.
    let goal = page::ByteCount(cache.store_figures().stored.0 / 3);
    let mut written = page::ByteCount::ZERO;
    while written < goal {
        written += cache.write_back(goal.saturating_sub(written), 4096).bytes;
        while let Some(mut job) = cache.log().unwrap().write_job() {
            let result = job.run();
            cache.log().unwrap().finish_write(job, result);
        }
    }
    let census = cache.census();
    assert!(census.below > PageCount(PAGES / 5) && census.compressed > PageCount(PAGES / 3), "{census:?}");
    let (tables, headers) = (cache.metadata_bytes().0, cache.store_figures().headers.0);
    println!(
        "{census:?}: {:.2} bytes of tables, {:.2} of heads a page",
        tables as f64 / PAGES as f64,
        headers as f64 / PAGES as f64
    );
    assert!(tables + headers <= BYTES_MAX * PAGES, "{tables} of tables and {headers} of heads for {PAGES} pages");
}
