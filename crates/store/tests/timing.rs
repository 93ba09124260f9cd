//! How long the operations take. Run with `cargo test --release -p pleat-store --test timing -- --ignored --nocapture`.

use std::time::Instant;

use page::PageIndex;
use pleat_store::{Slabs, Store};

#[test]
#[ignore = "measures; asserts nothing about time"]
fn put_get_remove() {
    const COUNT: usize = 200_000;
    let mut seed = 1_u64;
    let mut random = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as usize) % end
    };
    let encoding = [0x5a; 4096];
    let mut store = Slabs::new(4 << 30).unwrap();
    let mut keys: Vec<_> =
        (0..COUNT as u64).map(|at| store.put(PageIndex(at), &encoding[..100 + random(2900)]).unwrap()).collect();
    let places: Vec<_> = (0..COUNT).map(|_| (random(COUNT), 100 + random(2900))).collect();
    let mut per_operation = |name: &str, operation: &mut dyn FnMut(&mut Slabs, usize, usize)| {
        let start = Instant::now();
        for &(at, length) in &places {
            operation(&mut store, at, length);
        }
        println!("{name}: {} ns", start.elapsed().as_nanos() / COUNT as u128);
    };
    let mut sum = 0;
    per_operation("owner (head only)", &mut |store, at, _| sum += store.owner(keys[at]).0);
    let mut copy = [0; 4096];
    per_operation("get and copy", &mut |store, at, _| {
        let encoding = store.get(keys[at]);
        copy[..encoding.len()].copy_from_slice(encoding);
    });
    per_operation("remove and put", &mut |store, at, length| {
        store.remove(keys[at]);
        keys[at] = store.put(PageIndex(at as u64), &encoding[..length]).unwrap();
    });
    let start = Instant::now();
    let mut fresh = Slabs::new(4 << 30).unwrap();
    let fresh_keys: Vec<_> =
        places.iter().map(|&(at, length)| fresh.put(PageIndex(at as u64), &encoding[..length]).unwrap()).collect();
    println!("put into new frames: {} ns", start.elapsed().as_nanos() / COUNT as u128);
    let start = Instant::now();
    for key in fresh_keys {
        fresh.remove(key);
    }
    println!("remove, in order: {} ns", start.elapsed().as_nanos() / COUNT as u128);
    for &key in keys.iter().step_by(2) {
        store.remove(key);
    }
    let start = Instant::now();
    let mut moves = 0_u64;
    let given_back = store.compact(usize::MAX, &mut |_, _, _| moves += 1);
    println!(
        "compact: {} ns a move, {} bytes back a move",
        start.elapsed().as_nanos() as u64 / moves.max(1),
        given_back.0 / moves.max(1)
    );
    assert!(sum > 0);
}
