//! Buddies: against a plain twin, and the rules of the `zswap` paper and of the kernel's zbud.

use crate::common::{Model, any_step, bytes, churn, walk_all};
use page::{ByteCount, PAGE_BYTES, PageIndex};
use pleat_store::{Blocked, Buddies, Full, Resize, Store, StoreKey};
use proptest::prelude::*;

const LONGEST: usize = PAGE_BYTES - 128;

fn buddies(count: usize) -> Buddies {
    let mut buddies = Buddies::new(16 << 20).unwrap();
    for _ in 0..count {
        buddies.grow().unwrap();
    }
    buddies
}

fn put(buddies: &mut Buddies, owner: u64, length: usize) -> StoreKey {
    buddies.put(PageIndex(owner), &bytes(owner, length)).unwrap()
}

fn frame_of(key: StoreKey) -> u64 {
    key.bits() >> 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn buddies_do_what_a_map_does(steps in prop::collection::vec(any_step(LONGEST), 1..500), count in 1_usize..12) {
        walk_all(&mut Buddies::new(count * PAGE_BYTES).unwrap(), &steps, false);
    }
}

/// "Zbud stores two compressed pages (buddies) instead of one in a frame (space allocated for one physical memory page) in
/// compression pool. It has got a disadvantage too that it denies the possibility of more compression."
#[test]
fn a_frame_holds_two_and_never_more() {
    let mut area = buddies(1);
    let keys = [put(&mut area, 1, 100), put(&mut area, 2, 100)];
    assert_eq!(keys.map(frame_of), [0, 0]);
    assert_eq!(area.put(PageIndex(3), &[1]), Err(Full));
    // So little is lost to rounding, so much to the rule: 4032 bytes less two times two chunks.
    let figures = area.figures();
    assert_eq!((figures.rounding, figures.tail, figures.free), (ByteCount(56), ByteCount(4032 - 256), ByteCount::ZERO));
    assert_eq!((figures.headers, figures.internal_waste()), (ByteCount(64), ByteCount(120)));
}

/// zbud: "The first buddy is 'left justified' at the beginning of the zbud page, and the last buddy is 'right justified' at the
/// end of the zbud page. The benefit is that if either buddy is freed, the freed buddy space, coalesced with whatever slack
/// space that existed between the buddies, results in the largest possible free region within the zbud page."
#[test]
fn either_end_can_be_freed() {
    for (gone, rest) in [(0, 3000 - 64), (1, 1500)] {
        let mut area = buddies(1);
        let keys = [put(&mut area, 1, 1000), put(&mut area, 2, 2400)];
        area.remove(keys[gone]);
        let other = area.put(PageIndex(3), &bytes(3, rest)).map(frame_of);
        assert_eq!(other, if rest + [2400, 1000][gone] <= 4032 { Ok(0) } else { Err(Full) });
        area.check();
    }
}

/// zbud: "zbud pages are […] unbuddied lists": the fullest frame with one buddy that has room takes the next.
#[test]
fn the_best_buddy_is_found() {
    let mut area = buddies(4);
    // None of them fits beside another.
    let keys = [2100, 3000, 2500].map(|length| put(&mut area, length as u64, length));
    let [a, b, c] = keys.map(frame_of);
    assert!(a != b && b != c && a != c);
    assert_eq!([900, 1400, 1900].map(|length| frame_of(put(&mut area, 9, length))), [b, c, a]);
    assert_eq!(area.figures().free, ByteCount(4032));
    area.check();
}

// zbud: "size > PAGE_SIZE - ZHDR_SIZE_ALIGNED - CHUNK_SIZE" is refused.
#[test]
#[should_panic(expected = "3969 bytes in a frame")]
fn what_leaves_no_room_for_a_second_is_refused() {
    let mut area = buddies(1);
    assert_eq!(area.encoding_bytes_max(), 3968);
    put(&mut area, 1, 3968);
    area.check();
    put(&mut area, 2, 3969);
}

/// "it grows or shrinks on demand": a frame is given back as soon as both buddies are gone.
#[test]
fn an_empty_frame_is_given_back() {
    let mut area = buddies(2);
    let keys: Vec<_> = (0..4).map(|at| put(&mut area, at, 1900)).collect();
    area.remove(keys[0]);
    assert_eq!(area.figures().pool, ByteCount(8192));
    area.remove(keys[1]);
    assert_eq!(area.figures().pool, ByteCount(4096));
    area.remove(keys[3]);
    area.remove(keys[2]);
    assert_eq!(area.figures().pool, ByteCount::ZERO);
    area.check();
}

/// "The selection of pages for eviction is done on the Least Recently Used (LRU) basis." In zbud that is of frames: "Add/move
/// zbud page to beginning of LRU" when it gets a buddy.
#[test]
fn frames_leave_in_the_order_of_their_last_buddy() {
    let mut area = buddies(3);
    let keys: Vec<_> = (0..3).map(|at| put(&mut area, at, 2100)).collect();
    put(&mut area, 3, 1900);
    let mut order = Vec::new();
    while let Some(oldest) = area.oldest() {
        order.push(area.owner(oldest).0);
        area.remove(oldest);
    }
    // The last one of three equals got the second buddy, and was young anyway.
    assert_eq!(order, [0, 1, 2, 3]);
    let mut area = buddies(3);
    put(&mut area, 0, 2000);
    let keys: Vec<_> = keys.iter().zip(1..).map(|(_, at)| put(&mut area, at, 3000)).take(2).collect();
    put(&mut area, 9, 1900);
    assert_eq!(area.oldest(), Some(keys[0]));
    area.check();
}

#[test]
fn a_single_buddy_moves_so_that_its_frame_can_go() {
    let mut area = buddies(3);
    let mut model = Model::default();
    for (owner, length) in [(1, 2100), (2, 2200), (3, 3000)] {
        model.put(&mut area, PageIndex(owner), bytes(owner, length)).unwrap();
    }
    assert_eq!(model.shrink(&mut area), Err(Blocked));
    model.compare(&area, false);
    let key = model.put(&mut area, PageIndex(4), bytes(4, 900)).unwrap();
    let third = *model.pages.iter().find(|(_, (owner, _))| *owner == PageIndex(3)).unwrap().0;
    assert_eq!(frame_of(key), frame_of(third));
    // The short one is alone in its frame now, and fits beside the first.
    model.remove(&mut area, third);
    model.shrink(&mut area).unwrap();
    assert_eq!(area.figures().pool, ByteCount(8192));
    model.compare(&area, false);
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut area = buddies(1);
    let key = put(&mut area, 1, 50);
    area.remove(key);
    area.owner(key);
}

#[test]
fn churn_in_a_full_area_adds_up() {
    let mut area = Buddies::new(16 << 20).unwrap();
    let figures = churn(&mut area, 4 << 20, 20_000, |random| 300 + random.below(2200));
    println!("buddies: {figures:?}");
    assert!(figures.stored.0 * 100 > figures.pool.0 * 60, "{figures:?}");
}
