//! Whose encoding it is and how long, in one word.

use page::{PAGE_BYTES, PageIndex};

const LENGTH_BITS: u32 = 13;
const OWNER_BITS: u32 = 36;

/// A bit of the word that is the order's, see `aged.rs`.
pub(crate) const YOUNG: u64 = 1 << 63;

/// What every layout remembers of an encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) owner: PageIndex,
    pub(crate) length: usize,
}

impl Handle {
    /// Never zero: that is the word of no encoding. Not marked.
    pub(crate) fn word(self) -> u64 {
        assert!(self.owner.0 >> OWNER_BITS == 0, "page beyond 48-bit addresses: {:?}", self.owner);
        assert!((1..=PAGE_BYTES).contains(&self.length), "an encoding of {} bytes", self.length);
        self.owner.0 << LENGTH_BITS | self.length as u64
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let length = (word & ((1 << LENGTH_BITS) - 1)) as usize;
        (length > 0).then_some(Self { owner: PageIndex((word & !YOUNG) >> LENGTH_BITS), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back() {
        for owner in [0, 1, (1 << OWNER_BITS) - 1] {
            for length in [1, 100, PAGE_BYTES] {
                let handle = Handle { owner: PageIndex(owner), length };
                assert_eq!(Handle::from_word(handle.word()), Some(handle));
                assert_eq!(Handle::from_word(handle.word() | YOUNG), Some(handle));
            }
        }
        assert_eq!(Handle::from_word(0), None);
    }
}
