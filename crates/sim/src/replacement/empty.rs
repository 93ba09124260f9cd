//! A store for caches whose pages all count as one repeated word, which takes no room.

use page::{PAGE_BYTES, PageIndex};
use store::{Full, Store, StoreFigures, StoreKey};

/// A store that takes nothing. So it costs no addresses, however many sizes of memory are played at a time.
pub(super) struct Empty;

impl Store for Empty {
    fn put(&mut self, _: PageIndex, _: &[u8]) -> Result<StoreKey, Full> {
        Err(Full)
    }

    fn read(&self, key: StoreKey, _: &mut [u8; PAGE_BYTES]) -> usize {
        unreachable!("{key:?} is nothing's key")
    }

    fn owner(&self, key: StoreKey) -> PageIndex {
        unreachable!("{key:?} is nothing's key")
    }

    fn set_owner(&mut self, key: StoreKey, _: PageIndex) {
        unreachable!("{key:?} is nothing's key")
    }

    fn remove(&mut self, key: StoreKey) {
        unreachable!("{key:?} is nothing's key")
    }

    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }

    fn check(&self) {}
}
