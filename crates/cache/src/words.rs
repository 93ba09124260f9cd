//! The words of same-filled pages: each distinct one is kept once, with the number of pages that repeat it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Which word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WordIndex(pub u16);

/// Distinct words kept; a page with yet another word is encoded like any page, which costs some twenty bytes.
const WORDS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Entry {
    word: u64,
    pages: u64,
}

/// All words in use.
#[derive(Debug, Default)]
pub(crate) struct Words {
    entries: Vec<Entry>,
    free: Vec<u16>,
    by_word: BTreeMap<u64, u16>,
}

impl Words {
    /// Counts one more page of `word`; `None` if there are too many distinct ones.
    pub(crate) fn take(&mut self, word: u64) -> Option<WordIndex> {
        if let Some(index) = self.by_word.get(&word) {
            self.entries[usize::from(*index)].pages += 1;
            return Some(WordIndex(*index));
        }
        let entry = Entry { word, pages: 1 };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[usize::from(index)] = entry;
                index
            }
            None if self.entries.len() < WORDS_MAX => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u16
            }
            None => return None,
        };
        self.by_word.insert(word, index);
        Some(WordIndex(index))
    }

    /// The word itself.
    pub(crate) fn get(&self, index: WordIndex) -> u64 {
        self.entries[usize::from(index.0)].word
    }

    /// One page of it less.
    pub(crate) fn release(&mut self, index: WordIndex) {
        let entry = &mut self.entries[usize::from(index.0)];
        entry.pages = entry.pages.checked_sub(1).expect("a word released more often than taken");
        if entry.pages == 0 {
            self.by_word.remove(&entry.word);
            self.free.push(index.0);
        }
    }

    /// What the table takes.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        // A B-tree of u64 to u16 has nodes of eleven entries; 20 bytes an entry covers them at their emptiest.
        (self.entries.capacity() * size_of::<Entry>() + self.free.capacity() * 2 + self.by_word.len() * 20) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shared_and_come_back() {
        let mut words = Words::default();
        let zero = words.take(0).unwrap();
        assert_eq!(words.take(0), Some(zero));
        let ones = words.take(u64::MAX).unwrap();
        assert_ne!(zero, ones);
        words.release(zero);
        assert_eq!(words.get(zero), 0);
        words.release(zero);
        assert_eq!(words.take(7), Some(zero), "a free entry is used again");
        assert_eq!((words.get(zero), words.get(ones)), (7, u64::MAX));
    }

    #[test]
    fn too_many_words_are_refused() {
        let mut words = Words::default();
        for word in 0..WORDS_MAX as u64 {
            assert!(words.take(word).is_some());
        }
        assert_eq!(words.take(u64::MAX), None);
        assert!(words.take(5).is_some());
    }
}
