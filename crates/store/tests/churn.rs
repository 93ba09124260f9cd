//! How much of the pool is encodings, after long use.

use page::PageIndex;
use pleat_store::{Slabs, Store, StoreFigures, StoreKey};

/// A small random number generator (xorshift64*); the tests need repeatable, not good, numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// Lengths of LZ4 encodings.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Heaps: broad around 1.3 kB, and one page in eight does not shrink.
    Heap,
    /// Sparse structures: short, few pages do not shrink.
    Sparse,
    /// Text: a narrow hump at 2.2 kB.
    Text,
}

impl Load {
    fn length(self, random: &mut Random) -> usize {
        let hump = |random: &mut Random, low: usize, high: usize| {
            (low * 3 + (0..3).map(|_| random.below(high - low)).sum::<usize>()) / 3
        };
        match (self, random.below(64)) {
            (Self::Heap, 0..8) | (Self::Sparse, 0) => 4096,
            (Self::Heap, 8..40) => hump(random, 100, 3000),
            (Self::Heap, _) => hump(random, 600, 1900),
            (Self::Sparse, _) => hump(random, 60, 900),
            (Self::Text, _) => hump(random, 1700, 2900),
        }
    }
}

struct Churn {
    store: Slabs,
    keys: Vec<StoreKey>,
    random: Random,
    moves: u64,
    puts: u64,
    pool_bytes_max: u64,
}

const ENCODING: [u8; 4096] = [0x5a; 4096];

impl Churn {
    fn new() -> Self {
        let store = Slabs::new(4 << 30).unwrap();
        Self { store, keys: Vec::new(), random: Random(0x9e37_79b9_7f4a_7c15), moves: 0, puts: 0, pool_bytes_max: 0 }
    }

    fn put(&mut self, load: Load) {
        let length = load.length(&mut self.random);
        let owner = PageIndex(self.keys.len() as u64);
        self.keys.push(self.store.put(owner, &ENCODING[..length]).unwrap());
        self.puts += 1;
    }

    fn remove(&mut self) {
        let at = self.random.below(self.keys.len());
        self.store.remove(self.keys.swap_remove(at));
        if let Some(&key) = self.keys.get(at) {
            self.store.set_owner(key, PageIndex(at as u64));
        }
    }

    /// Compacts where too much is free, as the pager does (`Reclaimer::compact`): step by step, until nothing comes of it.
    fn keep_compact(&mut self) {
        let mut before = self.store.figures();
        while before.is_sparse() {
            let given_back = self.compact(64);
            let after = self.store.figures();
            if given_back == 0 && after.free == before.free {
                return;
            }
            before = after;
        }
    }

    fn compact(&mut self, encodings_max: usize) -> u64 {
        let keys = &mut self.keys;
        let moves = &mut self.moves;
        let given_back = self.store.compact(encodings_max, &mut |owner, from, to| {
            let key = &mut keys[owner.0 as usize];
            assert_eq!(*key, from);
            *key = to;
            *moves += 1;
        });
        given_back.0
    }

    fn run(&mut self, load: Load, stored_bytes: u64, puts: usize) {
        for at in 0..puts {
            self.put(load);
            while self.store.figures().stored.0 > stored_bytes {
                self.remove();
            }
            if at % 64 == 0 {
                self.keep_compact();
            }
        }
    }

    #[track_caller]
    fn assert_utilisation(&mut self, stage: &str) {
        let figures = self.store.figures();
        // Of a few MiB, slabs that are not full are one part more in a hundred.
        let percent = if figures.pool.0 > 8 << 20 { 90 } else { 89 };
        let StoreFigures { encodings, stored, headers, rounding, free, tail, pool, metadata, .. } = figures;
        assert_eq!(stored + headers + rounding + free + tail, pool);
        let share = |bytes: u64| bytes as f64 * 100.0 / pool.0 as f64;
        println!(
            "{stage}: {encodings} encodings, pool {} KiB: stored {:.1} %, headers {:.1}, rounding {:.1}, free {:.1}, \
             tail {:.1}; {:.2} bytes of heads and tables an encoding, {:.3} moves a put",
            pool.0 >> 10,
            share(stored.0),
            share(headers.0),
            share(rounding.0),
            share(free.0),
            share(tail.0),
            (metadata.0 + headers.0) as f64 / encodings as f64,
            self.moves as f64 / self.puts as f64,
        );
        (self.moves, self.puts) = (0, 0);
        assert!(stored.0 * 100 >= pool.0 * percent, "{stage}: {figures:?}");
        // The tables stay as long as they ever were, so later stages compare them with the largest pool.
        self.pool_bytes_max = self.pool_bytes_max.max(pool.0);
        assert!(metadata.0 * 500 <= self.pool_bytes_max, "{stage}: {figures:?}");
        assert!(stage != "churned" || metadata.0 + headers.0 <= encodings * 8, "{stage}: {figures:?}");
        self.store.check();
    }
}

/// Fills, churns, shifts to another load twice, shrinks to 30 %, grows again.
fn live(stored_bytes: u64) {
    let mut churn = Churn::new();
    let puts = (stored_bytes / 1000) as usize;
    churn.run(Load::Heap, stored_bytes, puts);
    churn.assert_utilisation("filled");
    churn.run(Load::Heap, stored_bytes, 4 * puts);
    churn.assert_utilisation("churned");
    for load in [Load::Sparse, Load::Text, Load::Heap] {
        churn.run(load, stored_bytes, puts);
        churn.assert_utilisation(&format!("shifting to {load:?}"));
        churn.run(load, stored_bytes, 4 * puts);
        churn.assert_utilisation(&format!("shifted to {load:?}"));
    }
    let mut at = 0;
    while churn.store.figures().stored.0 > stored_bytes * 3 / 10 {
        churn.remove();
        at += 1;
        if at % 64 == 0 {
            churn.keep_compact();
        }
    }
    churn.puts = at;
    churn.assert_utilisation("shrunk");
    churn.run(Load::Heap, stored_bytes, 2 * puts);
    churn.assert_utilisation("grown");
}

#[test]
fn a_pool_of_64_mib_stays_nine_tenths_encodings() {
    live(64 << 20);
}

#[test]
#[ignore = "takes ten seconds; for tuning"]
fn a_pool_of_256_mib_stays_nine_tenths_encodings() {
    live(256 << 20);
}

/// With ten encodings a class the slabs are mostly half full; what compaction can do then is to fill longer slots.
#[test]
fn a_pool_of_16_mib_stays_nine_tenths_encodings() {
    live(16 << 20);
}

#[test]
fn pages_that_do_not_shrink_waste_nothing() {
    let mut churn = Churn::new();
    for _ in 0..16_000 {
        let owner = PageIndex(churn.keys.len() as u64);
        churn.keys.push(churn.store.put(owner, &ENCODING).unwrap());
    }
    let figures = churn.store.figures();
    assert_eq!(figures.stored, figures.pool);
    assert!(figures.metadata.0 < 8 * figures.encodings, "{figures:?}");
}

/// Compaction must not shovel encodings to and fro for ever.
#[test]
fn compaction_comes_to_rest() {
    let mut churn = Churn::new();
    churn.run(Load::Heap, 16 << 20, 20_000);
    while churn.keys.len() > 2_000 {
        churn.remove();
    }
    let pool_before = churn.store.figures().pool.0;
    churn.moves = 0;
    let mut calls = 0;
    let mut given_back = 0;
    loop {
        let moves_before = churn.moves;
        given_back += churn.compact(10);
        churn.store.check();
        assert!(churn.moves - moves_before <= 10);
        if churn.moves == moves_before {
            break;
        }
        calls += 1;
    }
    println!("{calls} calls, {} moves, {} KiB given back", churn.moves, given_back >> 10);
    assert!(churn.moves <= 2 * 2_000);
    assert!(pool_before - given_back >= churn.store.figures().pool.0);
    for (at, &key) in churn.keys.iter().enumerate() {
        assert_eq!(churn.store.owner(key), PageIndex(at as u64));
        assert!(churn.store.get(key).iter().all(|&byte| byte == 0x5a));
    }
}
