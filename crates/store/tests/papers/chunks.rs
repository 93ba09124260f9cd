//! Chunks: against a plain twin, and what the slides of Yang, Dick, Lekatsas and Chakradhar (CRAMES) say of them.

use crate::common::{Model, any_step, bytes, churn, read, walk_all};
use page::{ByteCount, PAGE_BYTES, PageIndex};
use pleat_store::{Blocked, Chunks, Full, Resize, Store, StoreFigures, StoreKey};
use proptest::prelude::*;

const CHUNK: usize = 16384;

fn chunks(count: usize) -> Chunks {
    let mut chunks = Chunks::new(16 << 20, CHUNK).unwrap();
    for _ in 0..count {
        chunks.grow().unwrap();
    }
    chunks
}

fn put(chunks: &mut Chunks, owner: u64, length: usize) -> StoreKey {
    chunks.put(PageIndex(owner), &bytes(owner, length)).unwrap()
}

fn no_move(_: PageIndex, _: StoreKey, _: StoreKey) {
    panic!("keys of chunks do not change")
}

fn address(chunks: &Chunks, key: StoreKey) -> usize {
    chunks.view(key, &mut [0; PAGE_BYTES]).as_ptr() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn chunks_do_what_a_map_does(steps in prop::collection::vec(any_step(PAGE_BYTES), 1..500), count in 1_usize..6) {
        walk_all(&mut Chunks::new(count * 8192, 8192).unwrap(), &steps, true);
    }
}

/// "Compressed memory maintained in a linked list": the first chunk of it with a hole that is long enough is divided.
#[test]
fn chunks_are_filled_in_their_order() {
    let mut area = chunks(3);
    let keys: Vec<_> = (0..12).map(|at| put(&mut area, at, PAGE_BYTES)).collect();
    let places: Vec<_> = keys.iter().map(|&key| address(&area, key)).collect();
    assert!(places.windows(2).all(|pair| pair[1] == pair[0] + PAGE_BYTES));
    for at in [5, 10, 2] {
        area.remove(keys[at]);
    }
    let [short, long, last] = [100, PAGE_BYTES, 2000].map(|length| put(&mut area, 20, length));
    assert_eq!([short, long, last].map(|key| address(&area, key)), [places[2], places[5], places[2] + 112]);
    area.check();
}

/// "Unlike memory pages, compressed memory are fragmented due to compression. […] Resource Map allocator was used for best
/// tradeoff." Encodings take what they need, and holes merge with their neighbours.
#[test]
fn neighbouring_holes_become_one() {
    let mut area = chunks(1);
    let keys: Vec<_> = (0..16).map(|at| put(&mut area, at, 1024)).collect();
    let place = address(&area, keys[4]);
    for at in [4, 6, 7, 5] {
        area.remove(keys[at]);
    }
    let key = put(&mut area, 20, PAGE_BYTES);
    assert_eq!(address(&area, key), place);
    area.check();
}

/// "Locate block using index mapping table, determines whether to discard old block, and compress the new block".
#[test]
fn a_block_that_is_written_again_gives_its_room_back() {
    let mut area = chunks(1);
    let keys: Vec<_> = (0..4).map(|at| put(&mut area, at, 4000)).collect();
    let before = area.figures();
    for round in 0..100 {
        area.overwrite(keys[1], &bytes(round, 3000 + (round as usize * 37) % 1000)).unwrap();
        area.check();
    }
    assert_eq!((area.owner(keys[1]), area.figures().encodings), (PageIndex(1), 4));
    area.overwrite(keys[1], &bytes(5, 4000)).unwrap();
    assert_eq!(area.figures(), before);
    assert_eq!(read(&area, keys[1]), bytes(5, 4000));
    // A block that has been written is the youngest.
    assert_eq!(area.oldest(), Some(keys[0]));
    area.overwrite(keys[0], &[1]).unwrap();
    assert_eq!(area.oldest(), Some(keys[2]));
}

#[test]
fn a_block_that_finds_no_room_keeps_what_it_had() {
    let mut area = chunks(1);
    let key = put(&mut area, 1, 100);
    while area.put(PageIndex(2), &bytes(2, 1000)).is_ok() {}
    let before = area.figures();
    assert_eq!(area.overwrite(key, &[7; 2000]), Err(Full));
    assert_eq!((read(&area, key), area.figures()), (bytes(1, 100), before));
    area.check();
}

/// "Kernel notify the CRAMES to eliminate from compressed memory."
#[test]
fn a_freed_block_leaves_nothing() {
    let mut area = chunks(1);
    let empty = area.figures();
    let keys: Vec<_> = (0..9).map(|at| put(&mut area, at, 1700)).collect();
    for key in keys {
        area.remove(key);
    }
    let StoreFigures { metadata, .. } = empty;
    assert_eq!(StoreFigures { metadata, ..area.figures() }, empty);
    area.check();
}

#[test]
fn the_emptiest_chunk_is_given_back() {
    let mut area = chunks(3);
    let mut model = Model::default();
    let keys: Vec<_> = (0..12).map(|at| model.put(&mut area, PageIndex(at), bytes(at, PAGE_BYTES)).unwrap()).collect();
    assert_eq!(area.shrink(&mut no_move), Err(Blocked));
    for at in [0, 5, 6, 7, 8] {
        model.remove(&mut area, keys[at]);
    }
    let kept = [1, 2, 3, 9, 10, 11].map(|at| address(&area, keys[at]));
    area.shrink(&mut no_move).unwrap();
    assert_eq!([1, 2, 3, 9, 10, 11].map(|at| address(&area, keys[at])), kept);
    assert_eq!(area.figures().pool, ByteCount(2 * CHUNK as u64));
    model.compare(&area, true);
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut area = chunks(1);
    let keys = [put(&mut area, 1, 50), put(&mut area, 2, 50)];
    area.remove(keys[0]);
    area.remove(keys[0]);
}

#[test]
fn churn_in_a_full_area_adds_up() {
    let mut area = Chunks::new(16 << 20, 64 << 10).unwrap();
    let figures = churn(&mut area, 4 << 20, 20_000, |random| 300 + random.below(2200));
    println!("chunks: {figures:?}");
    assert!(figures.stored.0 * 100 > figures.pool.0 * 85, "{figures:?}");
}
