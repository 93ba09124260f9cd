//! What a page holds, as a function of one word.

use crate::random::mix;

pub(crate) const PAGE: usize = 4096;
pub(crate) const WORDS: usize = PAGE / 8;

/// A page's content: zeros, or what its key says. Four kinds, by how well they compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) fn new(word: u64) -> Self {
        Self(word | 1)
    }

    /// The word at `at`.
    pub(crate) fn word(self, at: usize) -> u64 {
        let (key, at) = (self.0, at as u64);
        match (key, (key >> 1) % 4) {
            (0, _) => 0,
            (_, 0) => key,
            (_, 1) => key.wrapping_add(at / 8),
            (_, 2) if at % 64 < 40 => key & 0xffff,
            _ => mix(key ^ at << 40),
        }
    }
}

/// A word that is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) found: u64,
    pub(crate) wanted: u64,
}

/// Fills the page at `address`.
pub(crate) fn write(address: usize, key: Key) {
    let words = address as *mut u64;
    for at in 0..WORDS {
        // SAFETY: the caller's page is mapped and writable, and no reference covers it.
        unsafe { words.wrapping_add(at).write_volatile(key.word(at)) };
    }
}

/// Compares the page at `address`.
pub(crate) fn check(address: usize, key: Key) -> Result<(), Wrong> {
    let words = address as *const u64;
    for at in 0..WORDS {
        // SAFETY: the caller's page is mapped and readable, and no reference covers it.
        let found = unsafe { words.wrapping_add(at).read_volatile() };
        if found != key.word(at) {
            return Err(Wrong { at, found, wanted: key.word(at) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_checked() {
        let mut page = Box::new([0_u64; WORDS]);
        let address = page.as_mut_ptr() as usize;
        for seed in 0..8 {
            let key = Key::new(mix(seed));
            write(address, key);
            assert_eq!(check(address, key), Ok(()));
            assert!(check(address, Key::ZERO).is_err());
            for at in 0..WORDS {
                page[at] ^= 1 << 17;
                assert_eq!(check(address, key).map_err(|wrong| wrong.at), Err(at));
                page[at] ^= 1 << 17;
            }
        }
        write(address, Key::ZERO);
        assert_eq!(check(address, Key::ZERO), Ok(()));
    }
}
