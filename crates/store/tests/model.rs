//! The store against a plain twin, in small steps.

use std::collections::BTreeMap;

use page::{ByteCount, PAGE_BYTES, PageIndex};
use pleat_store::{Full, Slabs, Store, StoreKey};
use proptest::prelude::*;
use proptest::sample::Index;

/// The plain twin: what was put, by key.
type Model = BTreeMap<StoreKey, (PageIndex, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Put { owner: u64, length: usize },
    Remove(Index),
    SetOwner(Index, u64),
    Compact(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let owner = 0..(1_u64 << 36) - 1;
    // A few lengths often, so that slabs fill and empty; the two ends; and all others.
    let length = prop_oneof![
        6 => prop::sample::select(vec![300_usize, 2000, 2040, PAGE_BYTES]),
        1 => Just(1_usize),
        1 => PAGE_BYTES - 10..=PAGE_BYTES,
        2 => 1..=PAGE_BYTES,
    ];
    prop_oneof![
        6 => (owner.clone(), length).prop_map(|(owner, length)| Step::Put { owner, length }),
        4 => any::<Index>().prop_map(Step::Remove),
        1 => (any::<Index>(), owner).prop_map(|(at, owner)| Step::SetOwner(at, owner)),
        1 => (0..40_usize).prop_map(Step::Compact),
    ]
}

fn encoding(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (seed.wrapping_mul(31) + at * 7) as u8).collect()
}

fn compare(store: &Slabs, model: &Model) {
    store.check();
    for (&key, (owner, encoding)) in model {
        assert_eq!(store.owner(key), *owner, "{key:?}");
        assert!(store.get(key) == encoding, "{key:?}");
    }
    let figures = store.figures();
    assert_eq!(figures.encodings, model.len() as u64);
    assert_eq!(figures.stored.0, model.values().map(|(_, encoding)| encoding.len() as u64).sum::<u64>());
    let parts = figures.stored + figures.headers + figures.rounding + figures.free + figures.tail;
    assert_eq!(parts, figures.pool);
}

fn walk(store: &mut Slabs, model: &mut Model, step: &Step) {
    let key_at =
        |model: &Model, at: Index| (!model.is_empty()).then(|| *model.keys().nth(at.index(model.len())).unwrap());
    match *step {
        Step::Put { owner, length } => {
            let bytes = encoding(owner, length);
            match store.put(PageIndex(owner), &bytes) {
                Ok(key) => {
                    assert!(key.bits() >> StoreKey::BITS == 0);
                    assert_eq!(StoreKey::from_bits(key.bits()), key);
                    let before = model.insert(key, (PageIndex(owner), bytes));
                    assert!(before.is_none(), "{key:?} was given away twice");
                }
                Err(Full) => assert!(store.figures().pool.0 > 0, "full of nothing"),
            }
        }
        Step::Remove(at) => {
            if let Some(key) = key_at(model, at) {
                store.remove(key);
                model.remove(&key);
            }
        }
        Step::SetOwner(at, owner) => {
            if let Some(key) = key_at(model, at) {
                store.set_owner(key, PageIndex(owner));
                model.get_mut(&key).unwrap().0 = PageIndex(owner);
            }
        }
        Step::Compact(encodings_max) => {
            let pool_before = store.figures().pool;
            let mut moves = 0;
            let given_back = store.compact(encodings_max, &mut |owner, from, to| {
                let entry = model.remove(&from).expect("moved what was never put");
                assert_eq!(entry.0, owner);
                assert!(model.insert(to, entry).is_none(), "moved over another encoding");
                moves += 1;
            });
            assert!(moves <= encodings_max);
            assert_eq!(given_back, pool_before.saturating_sub(store.figures().pool));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_store_does_what_a_map_does(steps in prop::collection::vec(any_step(), 1..800), spans in 1_usize..20) {
        let mut store = Slabs::new(spans << 16).unwrap();
        let mut model = Model::new();
        for step in steps {
            walk(&mut store, &mut model, &step);
            compare(&store, &model);
        }
        for key in std::mem::take(&mut model).into_keys() {
            store.remove(key);
        }
        store.compact(0, &mut |_, _, _| ());
        compare(&store, &model);
        assert_eq!(store.figures().pool, ByteCount::ZERO);
    }
}

#[test]
fn an_exhausted_store_is_full_until_something_goes() {
    let mut store = Slabs::new(2 << 16).unwrap();
    let mut keys = Vec::new();
    while let Ok(key) = store.put(PageIndex(1), &[1; PAGE_BYTES]) {
        keys.push(key);
    }
    assert_eq!(keys.len(), 32);
    assert_eq!(store.put(PageIndex(1), &[1]), Err(Full));
    store.remove(keys.pop().unwrap());
    // The only free slot is far too long; it is taken all the same.
    let key = store.put(PageIndex(2), &[9]).unwrap();
    assert_eq!(store.get(key), [9]);
    assert_eq!(store.put(PageIndex(1), &[1]), Err(Full));
    store.check();
    let mut none = Slabs::new(1 << 12).unwrap();
    assert_eq!(none.put(PageIndex(1), &[1]), Err(Full));
}

#[test]
fn compaction_reports_the_owner_of_now() {
    let mut store = Slabs::new(64 << 20).unwrap();
    let keys: Vec<_> = (0..400).map(|at| store.put(PageIndex(at), &encoding(at, 1000)).unwrap()).collect();
    let mut model = Model::new();
    for (at, &key) in keys.iter().enumerate() {
        if at % 4 == 0 {
            let owner = PageIndex(1_000_000 + at as u64);
            store.set_owner(key, owner);
            model.insert(key, (owner, encoding(at as u64, 1000)));
        } else {
            store.remove(key);
        }
    }
    let before = store.figures();
    walk(&mut store, &mut model, &Step::Compact(usize::MAX));
    compare(&store, &model);
    assert!(store.figures().pool.0 * 2 < before.pool.0, "{before:?}");
}

#[test]
fn a_border_is_crossed_without_the_kernel() {
    let mut store = Slabs::new(64 << 20).unwrap();
    let full_slab: Vec<_> = (0..16).map(|at| store.put(PageIndex(at), &[1; PAGE_BYTES]).unwrap()).collect();
    let key = store.put(PageIndex(16), &[1; PAGE_BYTES]).unwrap();
    let pool = store.figures().pool;
    store.remove(key);
    assert_eq!(store.figures().pool, pool);
    assert_eq!(store.put(PageIndex(16), &[1; PAGE_BYTES]), Ok(key));
    assert_eq!(store.figures().pool, pool);
    for key in full_slab {
        store.remove(key);
    }
    assert_eq!(store.compact(0, &mut |_, _, _| ()), ByteCount(1 << 16));
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut store = Slabs::new(1 << 20).unwrap();
    let keys = [0, 1].map(|at| store.put(PageIndex(at), &[1; 50]).unwrap());
    store.remove(keys[0]);
    let _ = store.get(keys[0]);
}

#[test]
#[should_panic(expected = "more bits than a key has")]
fn a_key_of_37_bits_is_a_bug() {
    let _ = StoreKey::from_bits(1 << StoreKey::BITS);
}

/// Bytes resident in the mapping that holds `address`, by the kernel's count.
fn resident_bytes(address: usize) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&address);
        } else if inside && let Some(rss) = line.strip_prefix("Rss:") {
            return rss.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10;
        }
    }
    panic!("no mapping holds {address:#x}")
}

#[test]
fn the_pool_is_what_the_kernel_says() {
    let mut store = Slabs::new(1 << 30).unwrap();
    let lengths = [90, 700, 1500, 2900, PAGE_BYTES];
    let mut keys: Vec<_> =
        (0..20_000).map(|at| store.put(PageIndex(at), &vec![1; lengths[at as usize % 5]]).unwrap()).collect();
    let address = store.get(keys[0]).as_ptr() as usize;
    assert_eq!(resident_bytes(address), store.figures().pool.0);
    for key in keys.drain(1..).filter(|key| key.bits() % 7 != 0).collect::<Vec<_>>() {
        store.remove(key);
    }
    assert_eq!(resident_bytes(address), store.figures().pool.0);
    let before = store.figures();
    let given_back = store.compact(usize::MAX, &mut |_, _, _| ());
    let after = store.figures();
    assert_eq!(before.pool - after.pool, given_back);
    assert!(after.pool.0 * 4 < before.pool.0, "{before:?} {after:?}");
    // A slot's last frame counts as held even if the encoding ends before it.
    let resident = resident_bytes(address);
    assert!(resident <= after.pool.0 && resident + (64 << 10) >= after.pool.0, "{resident}: {after:?}");
}
