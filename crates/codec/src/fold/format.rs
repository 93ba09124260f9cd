//! The head of an encoding: which words are listed, and where the areas are.

use super::places::Places;
use super::{GROUP, Path, WORDS};
use crate::Corrupt;

/// Listed words and literals, as 16-bit numbers, and five places.
pub(super) const HEADER_BYTES: usize = 9;
/// A bit for each byte of the bitmap: whether it is not zero. Left out where all words are listed.
pub(super) const BITMAP_HEAD_BYTES: usize = 8;
/// In the first number of the header: words that are not listed repeat the word before them.
pub(super) const REPEATS: u16 = 1 << 15;
/// In the first number of the header: codes and literals are coded, which is the deep level.
pub(super) const CODED: u16 = 1 << 14;
/// In the first number of the header: codes are coded, and literals, before them, as they are. Not with [`CODED`].
pub(super) const CODES_CODED: u16 = 1 << 12;
/// The first number where nothing is folded: the page follows as it is.
pub(super) const STORED: u16 = 1 << 13;
/// The bytes of that number.
pub(super) const STORED_BYTES: usize = 2;
/// With so many listed words the encoder lists all: the few others are told in as many bytes as the bitmap takes, records keep their distances, and there is
/// less to do for a decoder. Heaps of the corpus are as long by any number from 380 to 448 (0.1 %), and those of the deep level 1 % shorter by 400 than by 448.
const ALL_FROM: usize = 400;

/// What the words are that a page does not list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unlisted {
    Zeros,
    /// The same as the word before, which for the first word is zero.
    Repeats,
}

impl Unlisted {
    /// The rule that lists fewer words; of equals zeros, which are decoded faster. None where all are to be listed.
    #[inline]
    pub(super) fn shorter(not_zero: usize, not_repeated: usize) -> Option<Self> {
        if not_zero.min(not_repeated) >= ALL_FROM {
            None
        } else if not_repeated < not_zero {
            Some(Self::Repeats)
        } else {
            Some(Self::Zeros)
        }
    }
}

/// Which areas are told by codes of frequent bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coded {
    None,
    Codes,
    Both,
}

/// Which words of a page are listed, as the header has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) unlisted: Unlisted,
    pub(super) words: usize,
    /// A bit for each byte of the bitmap: whether it is not zero.
    pub(super) bitmap_bytes: u64,
}

impl List {
    /// Every word is listed, and there is no bitmap.
    pub(super) const ALL: Self = Self { unlisted: Unlisted::Zeros, words: WORDS, bitmap_bytes: 0 };

    pub(super) fn is_all(self) -> bool {
        self.words == WORDS
    }

    pub(super) fn groups(self) -> usize {
        self.words.div_ceil(GROUP)
    }

    /// The header.
    pub(super) fn header(self, literals: usize, places: Places, coded: Coded) -> [u8; HEADER_BYTES] {
        let repeats = if self.unlisted == Unlisted::Repeats { REPEATS } else { 0 };
        let coded = match coded {
            Coded::None => 0,
            Coded::Codes => CODES_CODED,
            Coded::Both => CODED,
        };
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&(self.words as u16 | repeats | coded).to_le_bytes());
        header[2..4].copy_from_slice(&(literals as u16).to_le_bytes());
        header[4..].copy_from_slice(&places.0);
        header
    }
}

/// An encoding up to its literals and codes.
pub(super) struct Head<'a> {
    pub(super) list: List,
    pub(super) coded: Coded,
    /// A bit for each word of the page: whether it is listed. Only the bytes that `list` names.
    pub(super) bitmap: &'a [u8],
    pub(super) literals: usize,
    pub(super) places: Places,
    /// The other areas.
    pub(super) rest: &'a [u8],
}

impl<'a> Head<'a> {
    #[inline]
    pub(super) fn parse(encoding: &'a [u8]) -> Result<Self, Corrupt> {
        let (header, rest) = encoding.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
        let &[words_low, words_high, literals_low, literals_high, ref places @ ..] = header;
        let words = u16::from_le_bytes([words_low, words_high]);
        let unlisted = if words & REPEATS == 0 { Unlisted::Zeros } else { Unlisted::Repeats };
        let coded = match words & (CODED | CODES_CODED) {
            0 => Coded::None,
            CODES_CODED => Coded::Codes,
            CODED => Coded::Both,
            _ => return Err(Corrupt),
        };
        let words = usize::from(words & !(REPEATS | CODED | CODES_CODED));
        let literals = usize::from(u16::from_le_bytes([literals_low, literals_high]));
        if words > WORDS || (words == WORDS && unlisted != Unlisted::Zeros) {
            return Err(Corrupt);
        }
        let (bitmap_bytes, rest) = if words == WORDS {
            (0, rest)
        } else {
            let (bytes, rest) = rest.split_first_chunk::<BITMAP_HEAD_BYTES>().ok_or(Corrupt)?;
            (u64::from_le_bytes(*bytes), rest)
        };
        let list = List { unlisted, words, bitmap_bytes };
        let places = Places::new(*places).ok_or(Corrupt)?;
        let (bitmap, rest) = rest.split_at_checked(list.bitmap_bytes.count_ones() as usize).ok_or(Corrupt)?;
        Ok(Self { list, coded, bitmap, literals, places, rest })
    }

    /// Whether as many bits are set as words are listed.
    #[inline(always)]
    pub(super) fn agrees(&self, path: impl Path) -> bool {
        self.list.is_all() || path.ones(self.bitmap) == self.list.words
    }
}

/// Bits that are set.
#[inline(always)]
pub(super) fn ones(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    let in_words: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    let in_tail: u32 = tail.iter().map(|byte| byte.count_ones()).sum();
    (in_words + in_tail) as usize
}
