//! Same-filled pages: one word repeated. Most of them are zeros; they need a word in the page table and no encoding.

use page::{PAGE_BYTES, PageBytes};

const WORD_BYTES: usize = size_of::<u64>();

/// Compared without a branch, so that the compiler uses the widest vectors it may.
const BLOCK_BYTES: usize = 256;

/// The word (its first byte lowest) that `page` repeats from end to end, or `None` if it repeats none.
pub fn same_filled(page: &PageBytes) -> Option<u64> {
    let (words, _) = page.0.as_chunks::<WORD_BYTES>();
    let word = words[0];
    // Pages that are not same-filled mostly differ at once or at their end (a zeroed tail after a header, a header
    // after zeros).
    if words[1] != word || words[words.len() - 1] != word {
        return None;
    }
    let word = u64::from_le_bytes(word);
    let (blocks, _) = page.0.as_chunks::<BLOCK_BYTES>();
    blocks.iter().all(|block| block_repeats(block, word)).then_some(word)
}

/// Makes `page` repeat `word`: the inverse of [`same_filled`].
pub fn fill(page: &mut PageBytes, word: u64) {
    let (words, _) = page.0.as_chunks_mut::<WORD_BYTES>();
    words.fill(word.to_le_bytes());
}

fn block_repeats(block: &[u8; BLOCK_BYTES], word: u64) -> bool {
    let (words, _) = block.as_chunks::<WORD_BYTES>();
    let differing = words.iter().fold(0, |bits, &other| bits | (u64::from_le_bytes(other) ^ word));
    differing == 0
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(BLOCK_BYTES) && BLOCK_BYTES.is_multiple_of(WORD_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain twin: byte by byte.
    fn scalar(page: &PageBytes) -> Option<u64> {
        for at in WORD_BYTES..PAGE_BYTES {
            if page.0[at] != page.0[at - WORD_BYTES] {
                return None;
            }
        }
        Some((0..WORD_BYTES).rev().fold(0, |word, at| word << 8 | u64::from(page.0[at])))
    }

    #[test]
    fn repeated_words_are_found_and_filled() {
        for word in [0, u64::MAX, 1, 0x0123_4567_89ab_cdef, 0x5a5a_5a5a_5a5a_5a5a] {
            let mut page = PageBytes([0x33; PAGE_BYTES]);
            fill(&mut page, word);
            assert_eq!(same_filled(&page), Some(word));
            assert_eq!(scalar(&page), Some(word));
        }
    }

    #[test]
    fn one_spoiled_byte_is_seen_wherever_it_is() {
        for word in [0, 0x0123_4567_89ab_cdef] {
            for at in 0..PAGE_BYTES {
                let mut page = PageBytes::ZERO;
                fill(&mut page, word);
                page.0[at] ^= 0x10;
                assert_eq!(same_filled(&page), None, "spoiled at {at}");
                assert_eq!(scalar(&page), None, "spoiled at {at}");
            }
        }
    }

    #[test]
    fn the_example_of_the_format_document() {
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let page = PageBytes(core::array::from_fn(|at| bytes[at % 8]));
        assert_eq!(same_filled(&page), Some(0xefcd_ab89_6745_2301));
        let mut filled = PageBytes::ZERO;
        fill(&mut filled, 0xefcd_ab89_6745_2301);
        assert!(filled.0 == page.0);
        filled.0[4095] ^= 0x80;
        assert_eq!(same_filled(&filled), None);
    }

    #[test]
    fn a_longer_period_is_not_same_filled() {
        let mut page = PageBytes::ZERO;
        for (at, byte) in page.0.iter_mut().enumerate() {
            *byte = u8::from(at % 16 == 0);
        }
        assert_eq!(same_filled(&page), scalar(&page));
        assert_eq!(same_filled(&page), None);
    }
}
