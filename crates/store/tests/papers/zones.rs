//! Zones: against a plain twin, and each rule of Tuduce and Gross (2005) by the sentence that states it.

use crate::common::{Model, any_step, bytes, churn, read, walk_all};
use page::{ByteCount, PAGE_BYTES, PageIndex};
use pleat_store::{Blocked, Full, Resize, Store, StoreKey, ZoneShape, Zones};
use proptest::prelude::*;

const SMALL: ZoneShape = ZoneShape { zone_bytes: 16384, block_bytes: 128, compression_factor: 4 };

/// An area of so many zones.
fn zones(shape: ZoneShape, count: usize) -> Zones {
    let mut zones = Zones::new(64 << 20, shape).unwrap();
    (0..count).for_each(|_| zones.grow().unwrap());
    zones
}

fn put(zones: &mut Zones, owner: u64, length: usize) -> StoreKey {
    zones.put(PageIndex(owner), &bytes(owner, length)).unwrap()
}

/// Puts encodings of `length` until no more fits; how many did.
fn fill(zones: &mut Zones, length: usize) -> u64 {
    let mut owner = 0;
    while zones.put(PageIndex(owner), &bytes(owner, length)).is_ok() {
        owner += 1;
    }
    owner
}

fn no_move(_: PageIndex, _: StoreKey, _: StoreKey) {
    panic!("nothing has to move")
}

/// The zone that a key names.
fn zone_of(key: StoreKey) -> u64 {
    key.bits() >> 16
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn zones_do_what_a_map_does(
        steps in prop::collection::vec(any_step(PAGE_BYTES), 1..500),
        block_bytes in prop::sample::select(vec![64_usize, 128, 1024]),
        compression_factor in 1_usize..6,
        count in 1_usize..6,
    ) {
        let shape = ZoneShape { zone_bytes: 8192, block_bytes, compression_factor };
        walk_all(&mut Zones::new(count * 8192, shape).unwrap(), &steps, true);
    }
}

/// "A compressed page is stored as a list of blocks that are all within the same zone."
#[test]
fn a_page_lives_in_one_zone() {
    let mut area = zones(SMALL, 2);
    // Five pages of 24 blocks leave 8 of a zone's 128.
    let keys: Vec<_> = (0..10).map(|at| put(&mut area, at, 3000)).collect();
    assert_eq!(keys.iter().map(|&key| zone_of(key)).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(area.figures().free, ByteCount(16 * 128));
    assert_eq!(area.put(PageIndex(20), &bytes(20, 9 * 128)), Err(Full));
    assert_eq!(area.put(PageIndex(21), &bytes(21, 8 * 128)).map(zone_of), Ok(0));
}

/// "The system searches for the first zone that has enough blocks to store the compressed page (the allocation is
/// basically the first-fit algorithm)."
#[test]
fn the_first_zone_that_has_room_is_taken() {
    let mut area = zones(SMALL, 3);
    let keys: Vec<_> = (0..12).map(|at| put(&mut area, at, 4096)).collect();
    assert_eq!(keys.iter().map(|&key| zone_of(key)).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    area.remove(keys[10]);
    area.remove(keys[5]);
    assert_eq!([2000, 2096, 2000].map(|length| zone_of(put(&mut area, 20, length))), [1, 2, 1]);
    area.check();
}

/// "new zones are added at the end of the chain"
#[test]
fn a_new_zone_is_the_last_choice() {
    let mut area = zones(SMALL, 3);
    let keys: Vec<_> = (0..9).map(|at| put(&mut area, at, 4096)).collect();
    // Zone 2 has least in it and goes; zone 0 goes next; its number comes back at the end of the chain.
    let mut moves = Vec::new();
    area.remove(keys[8]);
    area.shrink(&mut no_move).unwrap();
    (0..3).for_each(|at| area.remove(keys[at]));
    area.remove(keys[4]);
    area.shrink(&mut |owner, from, to| moves.push((owner, zone_of(from), zone_of(to)))).unwrap();
    assert_eq!(moves, [(PageIndex(3), 0, 1)]);
    area.grow().unwrap();
    assert_eq!(zone_of(put(&mut area, 50, 4096)), 0);
    area.remove(keys[5]);
    // Zone 1 is first in the chain now.
    assert_eq!(zone_of(put(&mut area, 51, 4096)), 1);
    area.check();
}

/// "The number of entries in comp page table gives the maximum number of compressed pages that can be stored in a zone,
/// and is equal with a compression factor multiplied with the number of pages that can be stored in a zone if no
/// compression is used."
#[test]
fn a_zone_holds_no_more_pages_than_its_factor_says() {
    for factor in [1, 4, 9] {
        let shape = ZoneShape { compression_factor: factor, ..SMALL };
        assert_eq!(shape.entries(), factor * 4);
        let mut area = zones(shape, 1);
        assert_eq!(fill(&mut area, 100), factor as u64 * 4);
    }
}

/// "Because the number of entries in the comp page table is smaller than the number of compressed pages that can be stored
/// in a zone, some memory remains unused."
#[test]
fn a_factor_below_the_ratio_wastes_zones() {
    // Pages that compress to a ninth.
    let full = |factor| {
        let mut area = zones(ZoneShape { compression_factor: factor, ..ZoneShape::default() }, 1);
        fill(&mut area, 448);
        area.figures()
    };
    let (four, nine, fourteen) = (full(4), full(9), full(14));
    assert_eq!(four.encodings, 4096);
    assert!(four.tail.0 * 2 >= four.pool.0 && four.free.0 == 0, "{four:?}");
    assert!(nine.encodings > 8000 && nine.external_waste().0 * 50 < nine.pool.0, "{nine:?}");
    // "On the other hand, a high value of the compression factor increases the size of the comp page table unnecessarily."
    assert!(fourteen.encodings < nine.encodings + nine.encodings / 20);
    assert!(fourteen.metadata.0 > nine.metadata.0 + nine.metadata.0 / 4, "{nine:?} {fourteen:?}");
}

/// "The selected blocks are still linked by their next field, and therefore all the blocks that store a compressed page
/// are linked in a chain."
#[test]
fn a_page_may_lie_scattered_over_its_zone() {
    let mut area = zones(SMALL, 1);
    let keys: Vec<_> = (0..16).map(|at| put(&mut area, at, 1000)).collect();
    keys.iter().step_by(2).for_each(|&key| area.remove(key));
    // 8 blocks each are free in 8 places; a page of 32 blocks takes four of them.
    let key = put(&mut area, 99, 4096);
    assert_eq!(read(&area, key), bytes(99, 4096));
    area.check();
}

/// "On a page fault, the system uses the hash table to check whether the faulted page is in the compressed area."
#[test]
fn the_hash_table_finds_pages() {
    let mut area = zones(SMALL, 1);
    let mut keys: Vec<_> = (0..16).map(|at| put(&mut area, at << 20, 1000)).collect();
    // The table grows with the area.
    (0..5).for_each(|_| area.grow().unwrap());
    keys.extend((16..60).map(|at| put(&mut area, at << 20, 1000)));
    area.check();
    for (at, &key) in keys.iter().enumerate() {
        assert_eq!(area.find(PageIndex((at as u64) << 20)), Some(key));
    }
    area.remove(keys[7]);
    area.set_owner(keys[8], PageIndex(5));
    assert_eq!([7 << 20, 8 << 20, 5].map(|page| area.find(PageIndex(page))), [None, None, Some(keys[8])]);
    assert_eq!(Zones::new(1 << 20, SMALL).unwrap().find(PageIndex(5)), None);
}

/// "To shrink the compressed area, the system deletes the zone with the smallest number of blocks used (to keep the overhead
/// as low as possible). The compressed pages within the zone to be deleted are relocated within other zones (using again
/// the first-fit algorithm)."
#[test]
fn the_emptiest_zone_is_deleted_and_its_pages_move_first_fit() {
    let mut area = zones(SMALL, 4);
    let keys: Vec<_> = (0..16).map(|at| put(&mut area, at, 4096)).collect();
    // 3, 2, 1 and 2 pages stay.
    for at in [0, 4, 5, 8, 9, 10, 14, 15] {
        area.remove(keys[at]);
    }
    let mut moves = Vec::new();
    area.shrink(&mut |owner, from, to| moves.push((owner.0, zone_of(from), zone_of(to)))).unwrap();
    assert_eq!(moves, [(11, 2, 0)]);
    area.shrink(&mut |owner, from, to| moves.push((owner.0, zone_of(from), zone_of(to)))).unwrap();
    assert_eq!(moves[1..], [(6, 1, 3), (7, 1, 3)]);
    area.check();
}

/// "When the free space within other zones is too small to store the pages to be relocated, some compressed pages are
/// swapped to disk. […] (The LRU order is always preserved.)"
#[test]
fn what_does_not_fit_makes_the_oldest_go_first() {
    let mut area = zones(SMALL, 2);
    let mut model = Model::default();
    let keys: Vec<_> = (0..7).map(|at| model.put(&mut area, PageIndex(at), bytes(at, 4096)).unwrap()).collect();
    assert!(keys[..4].iter().all(|&key| zone_of(key) == 0));
    assert_eq!(model.shrink(&mut area), Err(Blocked));
    let mut gone = Vec::new();
    while model.shrink(&mut area) == Err(Blocked) {
        let oldest = area.oldest().unwrap();
        gone.push(area.owner(oldest).0);
        model.remove(&mut area, oldest);
        model.compare(&area, true);
    }
    assert_eq!(gone, [0, 1, 2]);
    assert_eq!(area.figures().pool, area.unit());
    // The order of age is that of putting, whatever has moved.
    let mut ages = Vec::new();
    while let Some(oldest) = area.oldest() {
        ages.push(area.owner(oldest).0);
        model.remove(&mut area, oldest);
    }
    assert_eq!(ages, [3, 4, 5, 6]);
}

// Eq. 1: "overhead = sizeof(BlockTable) + sizeof(CompPageTable)", that is 2 · sizeof(int) · ZoneSize / BlockSize for the
// first, and so many integers · ComprFactor · ZoneSize / PageSize for the second. How many, our copy of the paper has lost;
// here they are six, one for each field that section 3.1 names: first, swap handle, size, LRU next, LRU previous, next.
#[test]
fn the_overhead_is_that_of_equation_1() {
    const INT: usize = size_of::<u32>();
    for zone_bytes in [2 << 20, 4 << 20, 8 << 20] {
        for block_bytes in [64, 128, 256, 512, 1024] {
            for factor in [4, 9, 14, 20] {
                let shape = ZoneShape { zone_bytes, block_bytes, compression_factor: factor };
                let overhead = 2 * INT * zone_bytes / block_bytes + 6 * INT * factor * zone_bytes / PAGE_BYTES;
                let (one, two) = (zones(shape, 1).figures().metadata.0, zones(shape, 2).figures().metadata.0);
                // Beside the tables: a zone's structure, its place in the chain, and a bucket for each page uncompressed.
                let rest = (two - one) as usize - overhead - INT * zone_bytes / PAGE_BYTES;
                assert!(rest <= 80, "{shape:?}: {rest} bytes beside the tables");
            }
        }
    }
    // The paper's default: 0.25 MiB of block table and 96 KiB of pages a zone, 8.3 %.
    let shape = ZoneShape::default();
    assert_eq!(2 * INT * shape.blocks() + 6 * INT * shape.entries(), (256 << 10) + (96 << 10));
}

/// "The internal fragmentation of the compressed-memory system is the sum of the unused space in the last block of each
/// compressed page. Because the percentage of unused memory in the last block increases when the block size increases, the
/// internal fragmentation increases as well."
#[test]
fn internal_waste_is_the_rest_of_last_blocks() {
    let mut before = 0;
    for block_bytes in [64, 128, 256, 512, 1024] {
        let mut area = zones(ZoneShape { block_bytes, ..ZoneShape::default() }, 1);
        let lengths = (0..500).map(|at| 300 + at * 7).collect::<Vec<usize>>();
        for (at, &length) in lengths.iter().enumerate() {
            put(&mut area, at as u64, length);
        }
        let rest: usize = lengths.iter().map(|length| length.next_multiple_of(block_bytes) - length).sum();
        assert_eq!(area.figures().internal_waste(), ByteCount(rest as u64));
        assert!(rest > before);
        before = rest;
    }
}

/// "A zone's physical data and its structures are allocated/deallocated when a zone is added/deleted."
#[test]
fn a_deleted_zone_costs_nothing() {
    let mut area = zones(SMALL, 3);
    let three = area.figures();
    (0..3).for_each(|_| area.shrink(&mut no_move).unwrap());
    assert_eq!(area.figures().pool, ByteCount::ZERO);
    assert!(area.figures().metadata.0 * 4 < three.metadata.0, "{:?}", area.figures());
    assert_eq!(area.shrink(&mut no_move), Err(Blocked));
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut area = zones(SMALL, 1);
    let key = put(&mut area, 1, 50);
    area.remove(key);
    area.owner(key);
}

#[test]
fn churn_in_a_full_area_adds_up() {
    let mut area = Zones::new(4 << 20, ZoneShape { zone_bytes: 256 << 10, ..ZoneShape::default() }).unwrap();
    let figures = churn(&mut area, 4 << 20, 20_000, |random| 300 + random.below(2200));
    println!("zones: {figures:?}");
    assert!(figures.stored.0 * 100 > figures.pool.0 * 90, "{figures:?}");
}
