//! Heads: what a store remembers beside each encoding, in six bytes.
//!
//! 36 bits for the owner (addresses have 48) and 12 for the length less one. The owner 2^36 - 1, which no user address
//! reaches, marks a free slot; the 12 bits then name the next one.

use page::{PAGE_BYTES, PageIndex};

/// Bytes of one head.
pub(crate) const HEAD_BYTES: usize = 6;

const OWNER_BITS: u32 = 36;
const NOBODY: u64 = (1 << OWNER_BITS) - 1;

/// The end of a list of free slots.
pub(crate) const NO_SLOT: u16 = 0xfff;

/// The head of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// There is an encoding in the slot.
    Used { owner: PageIndex, length: usize },
    /// There is none. `next` is another free slot of the slab, or [`NO_SLOT`].
    Free { next: u16 },
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let (owner, low) = match self {
            Self::Used { owner, length } => {
                assert!(owner.0 < NOBODY, "page beyond 48-bit addresses: {owner:?}");
                assert!((1..=PAGE_BYTES).contains(&length), "an encoding of {length} bytes");
                (owner.0, length as u64 - 1)
            }
            Self::Free { next } => (NOBODY, u64::from(next)),
        };
        let word = (owner << 12 | low).to_le_bytes();
        [word[0], word[1], word[2], word[3], word[4], word[5]]
    }

    pub(crate) fn from_bytes(bytes: [u8; HEAD_BYTES]) -> Self {
        let mut word = [0; 8];
        word[..HEAD_BYTES].copy_from_slice(&bytes);
        let word = u64::from_le_bytes(word);
        let low = (word & 0xfff) as u16;
        match word >> 12 {
            NOBODY => Self::Free { next: low },
            owner => Self::Used { owner: PageIndex(owner), length: usize::from(low) + 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for owner in [0, 1, 0x7_ffff_ffff, NOBODY - 1] {
            for length in 1..=PAGE_BYTES {
                let head = Head::Used { owner: PageIndex(owner), length };
                assert_eq!(Head::from_bytes(head.to_bytes()), head);
            }
        }
        for next in 0..=NO_SLOT {
            assert_eq!(Head::from_bytes(Head::Free { next }.to_bytes()), Head::Free { next });
        }
    }

    #[test]
    #[should_panic(expected = "beyond 48-bit addresses")]
    fn an_owner_that_would_mean_free_is_a_bug() {
        let _ = Head::Used { owner: PageIndex(NOBODY), length: 1 }.to_bytes();
    }
}
