//! What the papers report of their systems, where it is a contrast that a store, a policy and the loop between them show together.
#![forbid(unsafe_code)]

use codec::{Codec as _, Lz4, Scratch};
use page::{ByteCount, FrameIndex, PAGE_BYTES, PageBytes, PageIndex};
use pleat_cache::system::{Admission, WriteBack};
use pleat_cache::{AreaKeeper, Cache, Memory, Outcome, Published, Rules};
use policy::area::fill_rate::FillRate;
use policy::replacement::Arrival;
use store::Chunks;

const TOTAL: ByteCount = ByteCount(4 << 20);
const CHUNK_BYTES: usize = 64 << 10;

/// Half noise.
fn content(page: u64) -> PageBytes {
    let mut state = page * 2 + 1;
    let mut bytes = PageBytes::ZERO;
    bytes.0[..PAGE_BYTES / 2].fill_with(|| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    });
    bytes
}

/// Pages that are stored before one is refused, while a program takes what memory is left. With or without looks between
/// them, at which the policy asks ahead.
fn stored_until_refused(looks: bool) -> u64 {
    let mut cache = Cache::new(Chunks::new(16 << 20, CHUNK_BYTES).unwrap(), None);
    let rules = Rules { admission: Admission::All, write_back: WriteBack::Encodings, codec: &Lz4, daemon: None };
    let mut keeper = AreaKeeper::new(FillRate::default(), rules);
    let (mut scratch, mut out) = (Scratch::new(), [0; PAGE_BYTES]);
    for number in 0.. {
        // The program takes a page, the area what it has.
        let taken = ByteCount(number * PAGE_BYTES as u64) + cache.store_figures().pool;
        let memory = Memory { available: TOTAL.saturating_sub(taken), total: TOTAL, area_max: TOTAL };
        if looks {
            cache.look_at_area(&mut keeper, memory);
        }
        let (page, raw) = (PageIndex(number), content(number));
        cache.settle(page, Arrival::Asked);
        cache.leave(page, FrameIndex(0));
        let length = Lz4.encode(&raw, &mut scratch, &mut out).unwrap();
        let outcome = Outcome::Encoded(&out[..length]);
        if cache.publish_in_area(page, FrameIndex(0), &raw, outcome, &mut keeper, memory) != Published::Done {
            cache.check();
            assert_eq!(cache.census().compressed.0, number);
            return number;
        }
    }
    unreachable!("memory ends")
}

/// A-CRAMES: "Predictively request additional memory - So that CRAMES can always make space for memory request". Asked only when
/// a page finds no room, it can be too late.
#[test]
fn asking_ahead_stores_more_before_pages_are_refused() {
    let (with, without) = (stored_until_refused(true), stored_until_refused(false));
    println!("{with} pages with looks, {without} without");
    assert!(with > without, "{with} with looks, {without} without");
}
