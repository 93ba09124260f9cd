//! `fold`: a page as words of 64 bits, each told by one of the 31 before it and the bytes in which it differs.
//!
//! Heaps are words: pointers into the same few places, small numbers, lengths. A word codec that decides word by word
//! (`WKdm` and its kin) spends its time on mispredicted branches. This one has none: it takes eight words at once, lets
//! each pick its predictor, and writes what it picked, which bytes differ, and those bytes into areas of their own.
//!
//! The format is in docs/format/fold.md. There is one format and two paths: [`scalar`], the plain twin, and `avx512`,
//! which writes the same bytes. Which one runs is found out at run time.

use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Scratch};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

/// Words of a page.
const WORDS: usize = PAGE_BYTES / 8;
/// Words that are encoded together.
const GROUP: usize = 8;
/// Choices of a word: zero, none, and the words that come this far before its group, less two.
const WINDOW: usize = 32;
/// The choice of a word that is told in full: it shares at most one byte with any other choice.
const WHOLE: usize = 1;
/// Bits that say which.
const INDEX_BITS: usize = 5;
/// Listed words and masks, as 16-bit numbers, and a bit for each byte of the bitmap: whether it is not zero.
const HEADER_BYTES: usize = 12;
/// In the first number of the header: words that are not listed repeat the word before them.
const REPEATS: u16 = 1 << 15;
/// A bit for each word of the page: whether it is listed.
const BITMAP_BYTES: usize = WORDS / 8;
/// The most that a page can take: every word differs from its predictor in every byte.
const ENCODING_BYTES_MAX: usize = HEADER_BYTES + BITMAP_BYTES + WORDS / GROUP * (1 + INDEX_BITS) + WORDS + PAGE_BYTES;
/// Areas are written in vectors and may be overrun by one.
const VECTOR_BYTES: usize = 64;

/// A word codec for heaps. Fast in both directions where there are vectors of 512 bits, see [`Fold::is_fast`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Fold;

/// Working memory of the encoder, about 28 KiB.
#[repr(C, align(64))]
pub(crate) struct Workspace {
    /// The listed words, behind as many zeros as the window reaches back.
    words: [u64; WINDOW + WORDS + GROUP],
    /// For each word of a group and each choice, the bytes that are equal: a group's eight bytes for one choice together.
    equal: [u64; WINDOW * WORDS / GROUP],
    masks: [u8; WORDS + VECTOR_BYTES],
    literals: [u8; PAGE_BYTES + VECTOR_BYTES],
    out: [u8; ENCODING_BYTES_MAX + VECTOR_BYTES],
}

impl Workspace {
    pub(crate) const EMPTY: Self = Self {
        words: [0; WINDOW + WORDS + GROUP],
        equal: [0; WINDOW * WORDS / GROUP],
        masks: [0; WORDS + VECTOR_BYTES],
        literals: [0; PAGE_BYTES + VECTOR_BYTES],
        out: [0; ENCODING_BYTES_MAX + VECTOR_BYTES],
    };

    /// Writes the header, puts masks and literals behind the other areas, and returns the encoding's length.
    fn finish(&mut self, list: List, masks: usize, literals: usize) -> usize {
        self.out[..2].copy_from_slice(&(list.words as u16 | list.unlisted.flag()).to_le_bytes());
        self.out[2..4].copy_from_slice(&(masks as u16).to_le_bytes());
        self.out[4..HEADER_BYTES].copy_from_slice(&list.bitmap_bytes.to_le_bytes());
        let at = list.masks_at();
        self.out[at..at + masks].copy_from_slice(&self.masks[..masks]);
        self.out[at + masks..at + masks + literals].copy_from_slice(&self.literals[..literals]);
        at + masks + literals
    }
}

/// What the words are that a page does not list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unlisted {
    Zeros,
    /// The same as the word before, which for the first word is zero.
    Repeats,
}

impl Unlisted {
    /// The rule that lists fewer words; of equals zeros, which are decoded faster.
    fn shorter(not_zero: usize, not_repeated: usize) -> Self {
        if not_repeated < not_zero { Self::Repeats } else { Self::Zeros }
    }

    fn flag(self) -> u16 {
        if self == Self::Repeats { REPEATS } else { 0 }
    }
}

/// Which words of a page are listed, as the header has it.
#[derive(Clone, Copy, Debug)]
struct List {
    unlisted: Unlisted,
    words: usize,
    /// A bit for each byte of the bitmap: whether it is not zero.
    bitmap_bytes: u64,
}

impl List {
    fn groups(self) -> usize {
        self.words.div_ceil(GROUP)
    }

    fn differs_at(self) -> usize {
        HEADER_BYTES + self.bitmap_bytes.count_ones() as usize
    }

    fn indices_at(self) -> usize {
        self.differs_at() + self.groups()
    }

    fn masks_at(self) -> usize {
        self.indices_at() + self.groups() * INDEX_BITS
    }
}

/// The areas of an encoding. That they are as long as they say of each other is checked, so no decoder needs to look
/// again, but at the end of the literals.
struct Areas<'a> {
    list: List,
    /// A bit for each word of the page: whether it is listed. Only the bytes that `list` names.
    bitmap: &'a [u8],
    /// A bit for each listed word: whether it differs from its predictor in some bytes.
    differs: &'a [u8],
    /// Five bytes for each group: its words' choices.
    indices: &'a [u8],
    /// A byte for each word that differs: which bytes do.
    masks: &'a [u8],
    /// These bytes, and those of the words that are told in full. How many they are only the choices say.
    literals: &'a [u8],
}

impl<'a> Areas<'a> {
    #[inline]
    fn parse(encoding: &'a [u8]) -> Result<Self, Corrupt> {
        let (header, rest) = encoding.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
        let &[words_low, words_high, masks_low, masks_high, ref bitmap_bytes @ ..] = header;
        let words = u16::from_le_bytes([words_low, words_high]);
        let unlisted = if words & REPEATS == 0 { Unlisted::Zeros } else { Unlisted::Repeats };
        let words = usize::from(words & !REPEATS);
        let masks = usize::from(u16::from_le_bytes([masks_low, masks_high]));
        if words > WORDS {
            return Err(Corrupt);
        }
        let list = List { unlisted, words, bitmap_bytes: u64::from_le_bytes(*bitmap_bytes) };
        let (bitmap, rest) = rest.split_at_checked(list.bitmap_bytes.count_ones() as usize).ok_or(Corrupt)?;
        let (differs, rest) = rest.split_at_checked(list.groups()).ok_or(Corrupt)?;
        let (indices, rest) = rest.split_at_checked(list.groups() * INDEX_BITS).ok_or(Corrupt)?;
        let (masks, literals) = rest.split_at_checked(masks).ok_or(Corrupt)?;
        let agree = ones(bitmap) == words && ones(differs) == masks.len();
        if agree { Ok(Self { list, bitmap, differs, indices, masks, literals }) } else { Err(Corrupt) }
    }
}

#[inline]
fn ones(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    let in_words: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    let in_tail: u32 = tail.iter().map(|byte| byte.count_ones()).sum();
    (in_words + in_tail) as usize
}

impl Fold {
    /// Whether this machine has the vectors that make it faster than an LZ codec.
    pub fn is_fast() -> bool {
        #[cfg(target_arch = "x86_64")]
        return avx512::is_available();
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Encodes into the workspace, and returns the length.
    pub(crate) fn encode_into<'a>(self, page: &PageBytes, workspace: &'a mut Workspace) -> &'a [u8] {
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            // SAFETY: the processor has what it needs.
            let length = unsafe { avx512::encode(page, workspace) };
            return &workspace.out[..length];
        }
        let length = scalar::encode(page, workspace);
        &workspace.out[..length]
    }
}

impl Codec for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let encoding = self.encode_into(page, &mut scratch.fold);
        if encoding.len() >= out.len() {
            return None;
        }
        out[..encoding.len()].copy_from_slice(encoding);
        Some(encoding.len())
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            // SAFETY: the processor has what it needs.
            return unsafe { avx512::decode(encoding, page) };
        }
        scalar::decode(&Areas::parse(encoding)?, page)
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    const CORPUS: &[u8] = include_bytes!("../testdata/corpus.pages");

    fn pages() -> impl Iterator<Item = PageBytes> {
        let real = CORPUS.as_chunks::<PAGE_BYTES>().0.iter().map(|&bytes| PageBytes(bytes));
        // Words drawn from few, words that differ in some bytes, and noise: what steers the choices.
        let drawn = (0..600_u64).map(|seed| {
            let mut state = seed;
            let mut draw = move || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                state >> 24
            };
            let mut page = PageBytes::ZERO;
            let spread = 1 + draw() % 40;
            for word in page.0.as_chunks_mut::<8>().0 {
                let base = (draw() % spread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let change = if draw() % 4 == 0 { draw() & draw() & 0xff00_ff00_ffff } else { 0 };
                *word = if draw() % 5 == 0 { 0 } else { base ^ change }.to_le_bytes();
            }
            // Half of the pages have runs of a word.
            for at in 1..WORDS {
                if seed % 2 == 1 && draw() % 8 < seed % 8 {
                    page.0.copy_within((at - 1) * 8..at * 8, at * 8);
                }
            }
            page
        });
        real.chain(drawn)
    }

    #[test]
    fn the_example_of_the_format_document() {
        let mut page = PageBytes::ZERO;
        page.0[..8].copy_from_slice(&0x7f00_1122_3344_5566_u64.to_le_bytes());
        page.0[128..136].copy_from_slice(&0x7f00_0022_3344_5577_u64.to_le_bytes());
        let mut workspace = Box::new(Workspace::EMPTY);
        let length = scalar::encode(&page, &mut workspace);
        let mut expected = std::vec![2, 0, 1, 0, 0b101, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([1, 1]);
        // The second word differs from zero in six bytes, the first in seven, which makes it whole; the others of the
        // group are zero. Without a word before the group all but the first take the nearest choice, which is zero too.
        expected.extend([0b10, 0xe1, 0xff, 0xff, 0xff, 0xff]);
        expected.extend([0b1001_1111]);
        expected.extend([0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00, 0x7f]);
        expected.extend([0x77, 0x55, 0x44, 0x33, 0x22, 0x7f]);
        assert_eq!(&workspace.out[..length], expected);
    }

    #[test]
    fn a_word_in_a_run_is_listed_once() {
        let mut page = PageBytes::ZERO;
        for word in page.0.as_chunks_mut::<8>().0.iter_mut().skip(40) {
            *word = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
        }
        let mut workspace = Box::new(Workspace::EMPTY);
        let length = scalar::encode(&page, &mut workspace);
        // A header, a byte of the bitmap, a group of its own and eight literals.
        assert_eq!(length, HEADER_BYTES + 1 + (1 + INDEX_BITS) + 8);
        assert_eq!(workspace.out[..2], (1 | REPEATS).to_le_bytes());
    }

    #[test]
    fn the_plain_twin_brings_pages_back() {
        let mut workspace = Box::new(Workspace::EMPTY);
        for page in pages() {
            let length = scalar::encode(&page, &mut workspace);
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            scalar::decode(&Areas::parse(&workspace.out[..length]).unwrap(), &mut decoded).unwrap();
            assert!(decoded.0 == page.0);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_write_and_read_what_the_plain_twin_does() {
        if !avx512::is_available() {
            std::println!("skipped: this processor has no AVX-512 with VBMI2 and BITALG");
            return;
        }
        let (mut plain, mut vector) = (Box::new(Workspace::EMPTY), Box::new(Workspace::EMPTY));
        for (number, page) in pages().enumerate() {
            let length = scalar::encode(&page, &mut plain);
            // SAFETY: the processor has what it needs.
            assert_eq!(unsafe { avx512::encode(&page, &mut vector) }, length, "page {number}");
            assert!(plain.out[..length] == vector.out[..length], "page {number}");
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            // SAFETY: the processor has what it needs. A copy, so that what lies behind its end is not ours.
            let result = unsafe { avx512::decode(&Box::<[u8]>::from(&plain.out[..length]), &mut decoded) };
            assert!(result.is_ok() && decoded.0 == page.0, "page {number}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vectors_and_the_plain_twin_take_the_same_garbage() {
        if !avx512::is_available() {
            std::println!("skipped: this processor has no AVX-512 with VBMI2 and BITALG");
            return;
        }
        let mut workspace = Box::new(Workspace::EMPTY);
        let mut taken = 0;
        for (number, page) in pages().enumerate() {
            let length = scalar::encode(&page, &mut workspace);
            for flip in 0..20 {
                // Two bits of the same area, so that some sums still agree.
                let mut garbage = Box::<[u8]>::from(&workspace.out[..length]);
                let at = (number * 7919 + flip * 104_729) % length;
                garbage[at] = garbage[at].rotate_left(1 + flip as u32 % 7);
                let (mut plain, mut vector) = (PageBytes::ZERO, PageBytes::ZERO);
                let areas = Areas::parse(&garbage).and_then(|areas| scalar::decode(&areas, &mut plain));
                // SAFETY: the processor has what it needs.
                assert_eq!(areas, unsafe { avx512::decode(&garbage, &mut vector) });
                taken += u32::from(areas.is_ok());
                assert!(areas.is_err() || plain.0 == vector.0, "page {number}");
            }
        }
        assert!(taken > 100, "only {taken} were taken for encodings");
    }
}
