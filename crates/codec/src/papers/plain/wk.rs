//! The plain twins of [`Wkdm`](crate::papers::Wkdm) and [`Wk4x4`](crate::papers::Wk4x4): docs/format/wk.md as it is told.

use page::{PAGE_BYTES, PageBytes};

use super::pack::{CODES_MAX, Codes};
use crate::{Codec, Corrupt, Scratch};

pub(in crate::papers) mod dictionary;

use dictionary::Dictionary;

/// Words of a page.
pub(in crate::papers) const WORDS: usize = PAGE_BYTES / WORD_BYTES;
pub(in crate::papers) const WORD_BYTES: usize = 4;
/// A partial match differs in these bits at most.
pub(in crate::papers) const LOW_BITS: usize = 10;
pub(in crate::papers) const LOW_MASK: u32 = (1 << LOW_BITS) - 1;
/// So many low bits go into a word; two of its bits stay free.
pub(in crate::papers) const LOWS_IN_WORD: usize = 3;

const ZERO: u8 = 0;
const PARTIAL: u8 = 1;
const MISS: u8 = 2;
const EXACT: u8 = 3;

/// Wilson and Kaplan's direct-mapped codec.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Wkdm;

/// Wilson and Kaplan's codec with four sets of four words.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Wk4x4;

impl Codec for Wkdm {
    fn name(&self) -> &'static str {
        "wkdm@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        Areas::scan::<1>(page).write(out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        Areas::parse(encoding)?.restore::<1>(page);
        Ok(())
    }
}

impl Codec for Wk4x4 {
    fn name(&self) -> &'static str {
        "wk4x4@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        Areas::scan::<4>(page).write(out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        Areas::parse(encoding)?.restore::<4>(page);
        Ok(())
    }
}

/// The four areas of an encoding, unpacked. They are as long as the tags say.
struct Areas {
    /// What each word of the page is.
    tags: Codes<2>,
    /// Words that the dictionary did not have.
    words: Words<WORDS>,
    /// Entries of the dictionary: for partial and exact matches.
    indices: Codes<4>,
    /// For partial matches, three in a word.
    lows: Words<{ WORDS.div_ceil(LOWS_IN_WORD) }>,
    low_count: usize,
}

const _: () = assert!(WORDS == CODES_MAX);

/// Words of an area.
struct Words<const MAX: usize> {
    words: [u32; MAX],
    count: usize,
}

impl<const MAX: usize> Words<MAX> {
    const EMPTY: Self = Self { words: [0; MAX], count: 0 };

    fn push(&mut self, word: u32) {
        self.words[self.count] = word;
        self.count += 1;
    }

    const fn bytes(&self) -> usize {
        self.count * WORD_BYTES
    }

    fn pack(&self, out: &mut [u8]) {
        for (packed, word) in out.as_chunks_mut().0.iter_mut().zip(&self.words) {
            *packed = word.to_le_bytes();
        }
    }

    /// Takes `count` words, `MAX` at most, from the start of `packed`, and returns what lies behind them.
    fn unpack(packed: &[u8], count: usize) -> Result<(Self, &[u8]), Corrupt> {
        let (packed, rest) = packed.split_at_checked(count * WORD_BYTES).ok_or(Corrupt)?;
        let mut unpacked = Self::EMPTY;
        packed.as_chunks().0.iter().for_each(|word| unpacked.push(u32::from_le_bytes(*word)));
        Ok((unpacked, rest))
    }
}

impl Areas {
    const EMPTY: Self =
        Self { tags: Codes::EMPTY, words: Words::EMPTY, indices: Codes::EMPTY, lows: Words::EMPTY, low_count: 0 };

    /// The encoder's scan.
    fn scan<const WAYS: usize>(page: &PageBytes) -> Self {
        let mut areas = Self::EMPTY;
        let mut dictionary = Dictionary::<WAYS>::START;
        for word in page.0.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)) {
            if word == 0 {
                areas.tags.push(ZERO);
                continue;
            }
            let Some(index) = dictionary.find(word) else {
                areas.tags.push(MISS);
                areas.words.push(word);
                dictionary.insert(word);
                continue;
            };
            areas.indices.push(index as u8);
            if dictionary.read(index) == word {
                areas.tags.push(EXACT);
            } else {
                areas.tags.push(PARTIAL);
                areas.push_low(word & LOW_MASK);
            }
            dictionary.renew(index, word);
        }
        areas
    }

    fn push_low(&mut self, low: u32) {
        let place = self.low_count % LOWS_IN_WORD;
        if place == 0 {
            self.lows.push(low);
        } else {
            self.lows.words[self.lows.count - 1] |= low << (place * LOW_BITS);
        }
        self.low_count += 1;
    }

    fn low(&self, at: usize) -> u32 {
        self.lows.words[at / LOWS_IN_WORD] >> (at % LOWS_IN_WORD * LOW_BITS) & LOW_MASK
    }

    /// Packs the areas behind each other, if that is shorter than `out`.
    fn write(&self, out: &mut [u8]) -> Option<usize> {
        let sizes = [self.tags.packed_bytes(), self.words.bytes(), self.indices.packed_bytes(), self.lows.bytes()];
        let length = sizes.iter().sum();
        if length >= out.len() {
            return None;
        }
        let (tags, rest) = out.split_at_mut(sizes[0]);
        let (words, rest) = rest.split_at_mut(sizes[1]);
        let (indices, rest) = rest.split_at_mut(sizes[2]);
        self.tags.pack(tags);
        self.words.pack(words);
        self.indices.pack(indices);
        self.lows.pack(&mut rest[..sizes[3]]);
        Some(length)
    }

    /// Takes an encoding apart. The tags say how long the other areas are, and nothing may be left.
    fn parse(encoding: &[u8]) -> Result<Self, Corrupt> {
        let (tags, rest) = Codes::<2>::unpack(encoding, WORDS)?;
        let low_count = tags.count_of(PARTIAL);
        let (words, rest) = Words::unpack(rest, tags.count_of(MISS))?;
        let (indices, rest) = Codes::unpack(rest, low_count + tags.count_of(EXACT))?;
        let (lows, rest) = Words::unpack(rest, low_count.div_ceil(LOWS_IN_WORD))?;
        if rest.is_empty() { Ok(Self { tags, words, indices, lows, low_count }) } else { Err(Corrupt) }
    }

    /// The decoder: does with the dictionary what the scan did.
    fn restore<const WAYS: usize>(&self, page: &mut PageBytes) {
        let mut dictionary = Dictionary::<WAYS>::START;
        let mut words = self.words.words.iter();
        let mut indices = self.indices.iter().map(usize::from);
        let mut lows = (0..self.low_count).map(|at| self.low(at));
        for (out, tag) in page.0.as_chunks_mut().0.iter_mut().zip(self.tags.iter()) {
            let word = match tag {
                ZERO => 0,
                MISS => {
                    let word = *words.next().expect("the sums agree");
                    dictionary.insert(word);
                    word
                }
                _ => {
                    let index = indices.next().expect("the sums agree");
                    let mut word = dictionary.read(index);
                    if tag == PARTIAL {
                        word = word & !LOW_MASK | lows.next().expect("the sums agree");
                    }
                    dictionary.renew(index, word);
                    word
                }
            };
            *out = word.to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::tests::{encoding, page_of_words};

    #[test]
    fn the_example_of_the_format_document() {
        let page = page_of_words(&[0, 0x1234_5678, 0x1234_5679, 0x1234_5678, 0x1234_5678]);
        for codec in [&Wkdm as &dyn Codec, &Wk4x4] {
            let mut expected = std::vec![0; 256];
            // Words 0 to 3 are the lowest codes of bytes 0 to 3, word 4 is the second of byte 0.
            expected[..4].copy_from_slice(&[ZERO | EXACT << 2, MISS, PARTIAL, PARTIAL]);
            expected.extend([0x78, 0x56, 0x34, 0x12]);
            let index = if codec.name() == "wkdm@plain" { 6 } else { 8 };
            expected.extend([index, index, index, 0]);
            // Ten bits each: 0x279, then 0x278.
            expected.extend((0x279_u32 | 0x278 << 10).to_le_bytes());
            assert_eq!(encoding(codec, &page), expected, "{}", codec.name());
        }
    }

    /// The tags of a page that starts with `words`.
    fn tags<const WAYS: usize>(words: &[u32]) -> std::vec::Vec<u8> {
        Areas::scan::<WAYS>(&page_of_words(words)).tags.iter().take(words.len()).collect()
    }

    #[test]
    fn a_match_in_the_upper_22_bits_is_partial() {
        let word = 0xabcd_ef00;
        assert_eq!(tags::<1>(&[word, word ^ 0x3ff, word ^ 0x3ff, word ^ 0x400]), [MISS, PARTIAL, EXACT, MISS]);
        assert_eq!(tags::<4>(&[word, word ^ 0x3ff, word ^ 0x3ff, word ^ 0x400]), [MISS, PARTIAL, EXACT, MISS]);
    }

    #[test]
    fn small_numbers_match_the_dictionary_that_nothing_has_entered_yet() {
        assert_eq!(tags::<1>(&[1, 2, 0x3ff, 0x3ff]), [EXACT, PARTIAL, PARTIAL, EXACT]);
    }

    #[test]
    fn wkdm_has_one_entry_for_a_word() {
        let set = |word: &u32| dictionary::set_of::<1>(*word);
        let first = 1 << LOW_BITS;
        let mut others = (2..).map(|high| high << LOW_BITS);
        let elsewhere = others.find(|word| set(word) != set(&first)).unwrap();
        let same = others.find(|word| set(word) == set(&first)).unwrap();
        assert_eq!(tags::<1>(&[first, elsewhere, first]), [MISS, MISS, EXACT]);
        assert_eq!(tags::<1>(&[first, same, first]), [MISS, MISS, MISS]);
    }

    #[test]
    fn wk4x4_has_four_entries_for_a_word_and_forgets_the_one_unused_longest() {
        let mut same = (1..).map(|high| high << LOW_BITS).filter(|&word| dictionary::set_of::<4>(word) == 0);
        let words: [u32; 5] = core::array::from_fn(|_| same.next().unwrap());
        let uses = [0, 1, 2, 3, 0, 4, 0, 1].map(|at| words[at]);
        // The fifth word takes the place of the second, as the first was used since.
        assert_eq!(tags::<4>(&uses), [MISS, MISS, MISS, MISS, EXACT, MISS, EXACT, MISS]);
    }
}
