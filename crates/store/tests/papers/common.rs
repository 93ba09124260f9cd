//! What the tests of the papers' stores share: a plain twin, random steps, and a churn.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use page::{PAGE_BYTES, PageIndex};
use pleat_store::{Blocked, Full, Resize, StoreFigures, StoreKey};
use proptest::prelude::*;
use proptest::sample::Index;

/// The plain twin: what was put, by key, and the keys in the order of age.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) pages: BTreeMap<StoreKey, (PageIndex, Vec<u8>)>,
    pub(crate) order: Vec<StoreKey>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put { owner: u64, length: usize },
    Remove(Index),
    SetOwner(Index, u64),
    Grow,
    Shrink,
    Compact(usize),
}

/// Steps with lengths of at most `bytes_max`.
pub(crate) fn any_step(bytes_max: usize) -> impl Strategy<Value = Step> {
    let owner = 0..(1_u64 << 36) - 1;
    let length = prop_oneof![
        4 => prop::sample::select(vec![60_usize, 300, 1000, 2000, 2040, bytes_max]),
        1 => Just(1_usize),
        1 => bytes_max - 10..=bytes_max,
        2 => 1..=bytes_max,
    ];
    prop_oneof![
        8 => (owner.clone(), length).prop_map(|(owner, length)| Step::Put { owner, length }),
        4 => any::<Index>().prop_map(Step::Remove),
        1 => (any::<Index>(), owner).prop_map(|(at, owner)| Step::SetOwner(at, owner)),
        1 => Just(Step::Grow),
        1 => Just(Step::Shrink),
        1 => (0..40_usize).prop_map(Step::Compact),
    ]
}

pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (seed.wrapping_mul(31) + at * 7) as u8).collect()
}

/// The encoding under `key`.
pub(crate) fn read(store: &impl Resize, key: StoreKey) -> Vec<u8> {
    let mut copy = [0; PAGE_BYTES];
    let length = store.read(key, &mut copy);
    copy[..length].to_vec()
}

/// Everything in the pool is accounted for.
pub(crate) fn assert_adds_up(figures: &StoreFigures) {
    let parts = figures.stored + figures.headers + figures.rounding + figures.free + figures.tail;
    assert_eq!(parts, figures.pool + figures.in_tables, "{figures:?}");
    let in_pool = figures.stored - figures.in_tables;
    assert_eq!(in_pool + figures.internal_waste() + figures.external_waste(), figures.pool);
}

impl Model {
    pub(crate) fn compare(&self, store: &impl Resize, oldest_is_exact: bool) {
        store.check();
        for (&key, (owner, encoding)) in &self.pages {
            assert_eq!(store.owner(key), *owner, "{key:?}");
            assert!(&read(store, key) == encoding, "{key:?}");
        }
        let figures = store.figures();
        assert_eq!(figures.encodings, self.pages.len() as u64);
        assert_eq!(figures.stored.0, self.pages.values().map(|(_, encoding)| encoding.len() as u64).sum::<u64>());
        assert_adds_up(&figures);
        if oldest_is_exact {
            assert_eq!(store.oldest(), self.order.first().copied());
        } else {
            assert!(store.oldest().map_or(self.pages.is_empty(), |key| self.pages.contains_key(&key)));
        }
    }

    pub(crate) fn put(
        &mut self,
        store: &mut impl Resize,
        owner: PageIndex,
        encoding: Vec<u8>,
    ) -> Result<StoreKey, Full> {
        let key = store.put(owner, &encoding)?;
        assert_eq!(StoreKey::from_bits(key.bits()), key);
        assert!(self.pages.insert(key, (owner, encoding)).is_none(), "{key:?} was given away twice");
        self.order.push(key);
        Ok(key)
    }

    pub(crate) fn remove(&mut self, store: &mut impl Resize, key: StoreKey) {
        store.remove(key);
        self.pages.remove(&key).unwrap();
        self.order.retain(|&other| other != key);
    }

    pub(crate) fn shrink(&mut self, store: &mut impl Resize) -> Result<(), Blocked> {
        store.shrink(&mut |owner, from, to| {
            let entry = self.pages.remove(&from).expect("moved what was never put");
            assert_eq!(entry.0, owner);
            assert!(self.pages.insert(to, entry).is_none(), "moved over another encoding");
            *self.order.iter_mut().find(|key| **key == from).unwrap() = to;
        })
    }

    /// "The expense list stores the compressed pages which would be in the memory if compressed caching were not used in the
    /// system." (castro, section 3) As many pages as there are frames would be.
    fn compare_expense(&self, store: &mut impl Resize) {
        let frames = store.figures().pool.0 as usize / PAGE_BYTES;
        for (rank, &key) in self.order.iter().rev().enumerate() {
            assert_eq!(store.would_be_resident(key), rank < frames, "{key:?}, {rank} are younger");
        }
    }

    fn walk(&mut self, store: &mut impl Resize, step: &Step) {
        let key_at = |model: &Self, at: Index| {
            (!model.pages.is_empty()).then(|| *model.pages.keys().nth(at.index(model.pages.len())).unwrap())
        };
        match *step {
            Step::Put { owner, length } => {
                let pool = store.figures().pool;
                let _ = self.put(store, PageIndex(owner), bytes(owner, length));
                assert_eq!(store.figures().pool, pool, "put has changed the size");
            }
            Step::Remove(at) => {
                if let Some(key) = key_at(self, at) {
                    self.remove(store, key);
                }
            }
            Step::SetOwner(at, owner) => {
                if let Some(key) = key_at(self, at) {
                    store.set_owner(key, PageIndex(owner));
                    self.pages.get_mut(&key).unwrap().0 = PageIndex(owner);
                }
            }
            Step::Grow => {
                let pool = store.figures().pool;
                let grown = store.grow().is_ok();
                assert_eq!(store.figures().pool - pool, if grown { store.unit() } else { page::ByteCount::ZERO });
            }
            Step::Shrink => {
                let pool = store.figures().pool;
                let shrunk = self.shrink(store).is_ok();
                let after = store.figures().pool;
                if shrunk {
                    assert!(after + store.unit() <= pool, "nothing was given back");
                }
            }
            Step::Compact(encodings_max) => {
                let given_back = store.compact(encodings_max, &mut |_, _, _| panic!("the size is not its business"));
                assert_eq!(given_back.0, 0);
            }
        }
    }
}

/// Walks the steps in store and twin, comparing all after each; then empties the store.
pub(crate) fn walk_all(store: &mut impl Resize, steps: &[Step], oldest_is_exact: bool) {
    let mut model = Model::default();
    store.grow().unwrap();
    for step in steps {
        model.walk(store, step);
        model.compare(store, oldest_is_exact);
        if oldest_is_exact {
            model.compare_expense(store);
        }
    }
    // To nothing, the oldest first, as who has to shrink it does.
    while store.figures().pool.0 > 0 {
        if model.shrink(store).is_err() {
            let oldest = store.oldest().expect("blocked by nothing");
            model.remove(store, oldest);
        }
        model.compare(store, oldest_is_exact);
    }
    // What is in tables alone needs no unit.
    while let Some(oldest) = store.oldest() {
        model.remove(store, oldest);
    }
    model.compare(store, oldest_is_exact);
}

/// A small random number generator (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// Keeps an area of `bytes` full for `puts` puts of encodings of `length`; what does not fit drives out the oldest, and
/// now and then a page is asked for and leaves. Returns the figures at the end.
pub(crate) fn churn(
    store: &mut impl Resize,
    bytes: u64,
    puts: u64,
    mut length: impl FnMut(&mut Random) -> usize,
) -> StoreFigures {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut keys: BTreeMap<PageIndex, StoreKey> = BTreeMap::new();
    for at in 0..puts {
        let owner = PageIndex(at);
        let encoding = self::bytes(at, length(&mut random));
        let key = loop {
            match store.put(owner, &encoding) {
                Ok(key) => break key,
                Err(Full) if store.figures().pool.0 + store.unit().0 <= bytes => store.grow().unwrap(),
                Err(Full) => {
                    let oldest = store.oldest().expect("full of nothing");
                    keys.remove(&store.owner(oldest)).unwrap();
                    store.remove(oldest);
                }
            }
        };
        keys.insert(owner, key);
        if at % 3 == 0 {
            let from = PageIndex(random.below(at as usize + 1) as u64);
            if let Some((&asked, &key)) = keys.range(from..).next() {
                assert!(read(store, key) == self::bytes(asked.0, read(store, key).len()));
                store.remove(key);
                keys.remove(&asked);
            }
        }
    }
    store.check();
    let figures = store.figures();
    assert_adds_up(&figures);
    assert_eq!(figures.encodings, keys.len() as u64);
    figures
}
