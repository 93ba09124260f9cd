//! The plain twins of [`Pbpm`](crate::papers::Pbpm) and its two other forms: docs/format/pbpm.md as it is told.

use page::{PAGE_BYTES, PageBytes};

use super::pack::{CODES_MAX, Codes};
use crate::{Codec, Corrupt, Scratch};

mod alignment;
pub(in crate::papers) mod dictionary;

use alignment::{Alignment, Counts, NonAligned, Separate, Single};
use dictionary::Dictionary;

pub(in crate::papers) const WORD_BYTES: usize = 4;

const _: () = assert!(PAGE_BYTES / WORD_BYTES == CODES_MAX);

/// PBPM whose data lie behind each other.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Pbpm;

/// PBPM with a tape for data of each size: "separate aligned tapes".
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct PbpmSeparate;

/// PBPM with data of all sizes on a "single aligned tape".
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct PbpmSingle;

impl Codec for Pbpm {
    fn name(&self) -> &'static str {
        "pbpm@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<NonAligned>(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<NonAligned>(encoding, page)
    }
}

impl Codec for PbpmSeparate {
    fn name(&self) -> &'static str {
        "pbpm-separate@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<Separate>(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<Separate>(encoding, page)
    }
}

impl Codec for PbpmSingle {
    fn name(&self) -> &'static str {
        "pbpm-single@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<Single>(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<Single>(encoding, page)
    }
}

/// The patterns of the paper's Table I, with their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    /// 00
    Zzzz,
    /// 01
    Xxxx,
    /// 10
    Mmmm,
    /// 1100
    Zzzx,
    /// 1101
    Mmxx,
    /// 1110
    Mmmx,
    /// 1111
    Zxzx,
}

impl Pattern {
    /// The first two bits of a code of four.
    const LONG: u8 = 0b11;

    /// The code: two bits, and two more where those are [`LONG`](Self::LONG).
    const fn code(self) -> (u8, Option<u8>) {
        match self {
            Self::Zzzz => (0b00, None),
            Self::Xxxx => (0b01, None),
            Self::Mmmm => (0b10, None),
            Self::Zzzx => (Self::LONG, Some(0b00)),
            Self::Mmxx => (Self::LONG, Some(0b01)),
            Self::Mmmx => (Self::LONG, Some(0b10)),
            Self::Zxzx => (Self::LONG, Some(0b11)),
        }
    }

    const fn of_long(second: u8) -> Self {
        match second {
            0b00 => Self::Zzzx,
            0b01 => Self::Mmxx,
            0b10 => Self::Mmmx,
            _ => Self::Zxzx,
        }
    }

    /// Whether an index follows.
    const fn is_match(self) -> bool {
        matches!(self, Self::Mmmm | Self::Mmmx | Self::Mmxx)
    }

    /// Whether the dictionary takes the word in.
    const fn is_inserted(self) -> bool {
        matches!(self, Self::Xxxx | Self::Mmmx | Self::Mmxx)
    }

    const fn data_bytes(self) -> usize {
        match self {
            Self::Zzzz | Self::Mmmm => 0,
            Self::Zzzx | Self::Mmmx => 1,
            Self::Mmxx | Self::Zxzx => 2,
            Self::Xxxx => WORD_BYTES,
        }
    }

    /// The bytes of `word` that the pattern leaves open, together and lowest.
    const fn pick(self, word: u32) -> u32 {
        match self {
            Self::Zxzx => word & 0xff | word >> 8 & 0xff00,
            _ => word,
        }
    }

    /// The word of which `data` was picked, where `entry` matches.
    const fn join(self, data: u32, entry: u32) -> u32 {
        match self {
            Self::Zzzz => 0,
            Self::Xxxx | Self::Zzzx => data,
            Self::Mmmm => entry,
            Self::Mmmx => entry & !0xff | data,
            Self::Mmxx => entry & !0xffff | data,
            Self::Zxzx => data & 0xff | (data & 0xff00) << 8,
        }
    }
}

/// The tapes of codes and indices; they say where on the tape of data each word's lie.
struct Tapes {
    /// The first two bits of each word's code.
    first: Codes<2>,
    /// The other two bits of the codes that have four.
    second: Codes<2>,
    /// Entries of the dictionary.
    indices: Codes<4>,
}

impl Tapes {
    const EMPTY: Self = Self { first: Codes::EMPTY, second: Codes::EMPTY, indices: Codes::EMPTY };

    /// The encoder's scan, in the order of the paper's listing.
    fn scan(page: &PageBytes) -> Self {
        let mut tapes = Self::EMPTY;
        let mut dictionary = Dictionary::START;
        for word in words(page) {
            let pattern = if word == 0 {
                Pattern::Zzzz
            } else if word & !0xff == 0 {
                Pattern::Zzzx
            } else if word & !0x00ff_00ff == 0 {
                Pattern::Zxzx
            } else if let Some((index, pattern)) = dictionary.find(word) {
                tapes.indices.push(index as u8);
                dictionary.note(index, pattern, word);
                pattern
            } else {
                dictionary.insert(word);
                Pattern::Xxxx
            };
            let (first, second) = pattern.code();
            tapes.first.push(first);
            if let Some(second) = second {
                tapes.second.push(second);
            }
        }
        tapes
    }

    fn patterns(&self) -> impl Iterator<Item = Pattern> {
        let mut second = self.second.iter();
        self.first.iter().map(move |code| match code {
            0b00 => Pattern::Zzzz,
            0b01 => Pattern::Xxxx,
            0b10 => Pattern::Mmmm,
            _ => Pattern::of_long(second.next().expect("the sums agree")),
        })
    }

    /// How many words have this pattern.
    fn count(&self, pattern: Pattern) -> usize {
        match pattern.code() {
            (first, None) => self.first.count_of(first),
            (_, Some(second)) => self.second.count_of(second),
        }
    }

    /// How many data of each size there are.
    fn counts(&self) -> Counts {
        Counts {
            words: self.count(Pattern::Xxxx),
            halves: self.count(Pattern::Mmxx) + self.count(Pattern::Zxzx),
            bytes: self.count(Pattern::Zzzx) + self.count(Pattern::Mmmx),
        }
    }

    /// Where each word's data lie on their tape.
    fn places<A: Alignment>(&self) -> impl Iterator<Item = (Pattern, usize)> {
        let mut alignment = A::start(&self.counts());
        self.patterns().map(move |pattern| (pattern, alignment.place(pattern.data_bytes())))
    }

    /// Takes the tapes from the start of an encoding, and returns the tape of data behind them, of the right length.
    fn parse<A: Alignment>(encoding: &[u8]) -> Result<(Self, &[u8]), Corrupt> {
        let (first, rest) = Codes::unpack(encoding, CODES_MAX)?;
        let (second, rest) = Codes::unpack(rest, first.count_of(Pattern::LONG))?;
        let mut tapes = Self { first, second, indices: Codes::EMPTY };
        let matches = [Pattern::Mmmm, Pattern::Mmmx, Pattern::Mmxx].into_iter().map(|pattern| tapes.count(pattern));
        let (indices, data) = Codes::unpack(rest, matches.sum())?;
        tapes.indices = indices;
        if data.len() == A::tape_bytes(&tapes.counts()) { Ok((tapes, data)) } else { Err(Corrupt) }
    }
}

fn words(page: &PageBytes) -> impl Iterator<Item = u32> {
    page.0.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

fn encode<A: Alignment>(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let tapes = Tapes::scan(page);
    let sizes = [tapes.first.packed_bytes(), tapes.second.packed_bytes(), tapes.indices.packed_bytes()];
    let data_bytes = A::tape_bytes(&tapes.counts());
    let length = sizes.iter().sum::<usize>() + data_bytes;
    if length >= out.len() {
        return None;
    }
    let (first, rest) = out.split_at_mut(sizes[0]);
    let (second, rest) = rest.split_at_mut(sizes[1]);
    let (indices, data) = rest.split_at_mut(sizes[2]);
    tapes.first.pack(first);
    tapes.second.pack(second);
    tapes.indices.pack(indices);
    // Gaps that alignment leaves must not keep what `out` held before.
    data[..data_bytes].fill(0);
    for (word, (pattern, at)) in words(page).zip(tapes.places::<A>()) {
        write(pattern.pick(word), &mut data[at..at + pattern.data_bytes()]);
    }
    Some(length)
}

fn decode<A: Alignment>(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let (tapes, data) = Tapes::parse::<A>(encoding)?;
    let mut indices = tapes.indices.iter().map(usize::from);
    let mut dictionary = Dictionary::START;
    for (out, (pattern, at)) in page.0.as_chunks_mut().0.iter_mut().zip(tapes.places::<A>()) {
        let open = read(&data[at..at + pattern.data_bytes()]);
        let word = if pattern.is_match() {
            let index = indices.next().expect("the sums agree");
            let word = pattern.join(open, dictionary.read(index));
            dictionary.note(index, pattern, word);
            word
        } else {
            pattern.join(open, 0)
        };
        if pattern == Pattern::Xxxx {
            dictionary.insert(word);
        }
        *out = word.to_le_bytes();
    }
    Ok(())
}

// By size, because the compiler calls for a copy of any size, which takes longer than all else about a word.

fn read(data: &[u8]) -> u32 {
    match *data {
        [byte] => u32::from(byte),
        [low, high] => u32::from(u16::from_le_bytes([low, high])),
        [first, second, third, fourth] => u32::from_le_bytes([first, second, third, fourth]),
        _ => 0,
    }
}

fn write(bits: u32, data: &mut [u8]) {
    let bytes = bits.to_le_bytes();
    match data {
        [byte] => *byte = bytes[0],
        [low, high] => [*low, *high] = [bytes[0], bytes[1]],
        [first, second, third, fourth] => [*first, *second, *third, *fourth] = bytes,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::papers::tests::{encoding, page_of_words};

    /// One word of each pattern, in the table's order.
    const EACH: [u32; 7] = [0, 0x1234_5678, 0x1234_5678, 0x0000_00ab, 0x1234_cdef, 0x1234_cd55, 0x0056_0078];

    fn patterns(words: &[u32]) -> Vec<Pattern> {
        Tapes::scan(&page_of_words(words)).patterns().take(words.len()).collect()
    }

    #[test]
    fn the_example_of_the_format_document() {
        let mut tapes = std::vec![0; 256];
        tapes[..4].copy_from_slice(&[0b11_00, 0b11_01, 0b11_10, 0b11]);
        tapes.extend([0b00, 0b01, 0b10, 0b11]);
        tapes.extend([10, 10, 10, 0]);
        let page = page_of_words(&EACH);
        let expect = |codec: &dyn Codec, data: &[u8]| {
            assert_eq!(encoding(codec, &page), [&tapes, data].concat(), "{}", codec.name());
        };
        expect(&Pbpm, &[0x78, 0x56, 0x34, 0x12, 0xab, 0xef, 0xcd, 0x55, 0x78, 0x56]);
        expect(&PbpmSeparate, &[0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0x78, 0x56, 0xab, 0x55]);
        expect(&PbpmSingle, &[0x78, 0x56, 0x34, 0x12, 0xab, 0x55, 0xef, 0xcd, 0x78, 0x56, 0, 0]);
    }

    #[test]
    fn sizes_are_those_of_table_1() {
        let bits = patterns(&EACH).into_iter().map(|pattern| {
            let code = if pattern.code().1.is_some() { 4 } else { 2 };
            code + if pattern.is_match() { 4 } else { 0 } + 8 * pattern.data_bytes()
        });
        // In the table's order, which is that of the codes: 00, 01, 10, 1100, 1101, 1110, 1111.
        assert_eq!(bits.collect::<Vec<_>>(), [2, 34, 6, 12, 24, 16, 20]);
    }

    /// The table has `zxzx` where the listing has `zxxx`.
    #[test]
    fn code_1111_is_zxzx() {
        assert_eq!(patterns(&[0x00ff_00ff]), [Pattern::Zxzx]);
        assert_eq!(patterns(&[0x0001_0000]), [Pattern::Zxzx]);
        assert_eq!(patterns(&[0x00ff_ffff, 0x00ff_01ff]), [Pattern::Xxxx, Pattern::Mmxx]);
    }

    #[test]
    fn the_dictionary_is_two_way_and_replaces_the_oldest() {
        let base = 0x1255_0000;
        // Words whose upper two bytes differ, with one third byte, share a set of two.
        let word = |high: u32| base + (high << 24) + 0x0101;
        let words = [word(1), word(2), word(1), word(3), word(1), word(2)];
        let [miss, full] = [Pattern::Xxxx, Pattern::Mmmm];
        assert_eq!(patterns(&words), [miss, miss, full, miss, full, miss]);
    }

    #[test]
    fn partial_matches_are_inserted_and_full_ones_are_not() {
        let words = [0x1234_5678, 0x1234_5699, 0x1234_5678, 0x1234_9999, 0x1234_9999, 0x1234_5699];
        let expected = [Pattern::Xxxx, Pattern::Mmmx, Pattern::Mmmm, Pattern::Mmxx, Pattern::Mmmm, Pattern::Mmmx];
        assert_eq!(patterns(&words), expected);
    }

    /// What both alignments are for: data of a size lie at multiples of it, each in a place of its own.
    #[test]
    fn aligned_tapes_are_aligned() {
        fn check<A: Alignment>(tapes: &Tapes) {
            let mut taken = std::vec![false; A::tape_bytes(&tapes.counts())];
            for (pattern, at) in tapes.places::<A>().filter(|(pattern, _)| pattern.data_bytes() > 0) {
                assert!(at.is_multiple_of(pattern.data_bytes()), "{pattern:?} at {at}");
                let place = &mut taken[at..at + pattern.data_bytes()];
                assert!(place.iter().all(|taken| !taken), "{pattern:?} at {at}");
                place.fill(true);
            }
        }
        for page in crate::papers::tests::pages().step_by(9) {
            let tapes = Tapes::scan(&page);
            check::<Separate>(&tapes);
            check::<Single>(&tapes);
        }
    }
}
