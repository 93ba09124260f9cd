//! A store that is chosen when the program starts.

use alloc::boxed::Box;

use page::{ByteCount, PAGE_BYTES, PageIndex};

use crate::{Full, Resize, Slabs, Store, StoreFigures, StoreKey};

/// The default layout, or one of the papers. The default is called directly: only the others pay for the choice.
pub enum AnyStore {
    /// It sizes itself.
    Slabs(Slabs),
    /// Somebody else sizes it.
    Area(Box<dyn Resize + Send>),
}

impl Store for AnyStore {
    #[inline]
    fn put(&mut self, owner: PageIndex, encoding: &[u8]) -> Result<StoreKey, Full> {
        match self {
            Self::Slabs(slabs) => slabs.put(owner, encoding),
            Self::Area(area) => area.put(owner, encoding),
        }
    }

    #[inline]
    fn read(&self, key: StoreKey, copy: &mut [u8; PAGE_BYTES]) -> usize {
        match self {
            Self::Slabs(slabs) => slabs.read(key, copy),
            Self::Area(area) => area.read(key, copy),
        }
    }

    #[inline]
    fn view<'a>(&'a self, key: StoreKey, room: &'a mut [u8; PAGE_BYTES]) -> &'a [u8] {
        match self {
            Self::Slabs(slabs) => slabs.view(key, room),
            Self::Area(area) => area.view(key, room),
        }
    }

    fn owner(&self, key: StoreKey) -> PageIndex {
        match self {
            Self::Slabs(slabs) => slabs.owner(key),
            Self::Area(area) => area.owner(key),
        }
    }

    fn set_owner(&mut self, key: StoreKey, owner: PageIndex) {
        match self {
            Self::Slabs(slabs) => slabs.set_owner(key, owner),
            Self::Area(area) => area.set_owner(key, owner),
        }
    }

    #[inline]
    fn remove(&mut self, key: StoreKey) {
        match self {
            Self::Slabs(slabs) => slabs.remove(key),
            Self::Area(area) => area.remove(key),
        }
    }

    fn compact(&mut self, encodings_max: usize, moved: &mut dyn FnMut(PageIndex, StoreKey, StoreKey)) -> ByteCount {
        match self {
            Self::Slabs(slabs) => slabs.compact(encodings_max, moved),
            Self::Area(area) => area.compact(encodings_max, moved),
        }
    }

    fn as_area(&mut self) -> Option<&mut dyn Resize> {
        match self {
            Self::Slabs(_) => None,
            Self::Area(area) => Some(&mut **area),
        }
    }

    #[inline]
    fn figures(&self) -> StoreFigures {
        match self {
            Self::Slabs(slabs) => slabs.figures(),
            Self::Area(area) => area.figures(),
        }
    }

    fn check(&self) {
        match self {
            Self::Slabs(slabs) => slabs.check(),
            Self::Area(area) => area.check(),
        }
    }
}
