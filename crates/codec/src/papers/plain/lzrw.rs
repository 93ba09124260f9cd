//! The plain twins of [`Lzrw1`](crate::papers::Lzrw1) and [`Lzrw1a`](crate::papers::Lzrw1a): docs/format/lzrw.md as it is
//! told.

use page::{PAGE_BYTES, PageBytes};

use super::lz::{Filling, Output, match_length};
use crate::{Codec, Corrupt, Scratch};

/// Items of a group: the bits of its control word.
pub(in crate::papers) const ITEMS: usize = 16;
pub(in crate::papers) const CONTROL_BYTES: usize = 2;
pub(in crate::papers) const COPY_BYTES: usize = 2;
/// The shortest copy: one byte more than it takes.
pub(in crate::papers) const LENGTH_MIN: usize = 3;
/// The highest length field, of four bits.
pub(in crate::papers) const FIELD_MAX: usize = 15;
/// Entries of the hash table.
pub(in crate::papers) const PLACES: usize = 4096;

/// What the length field is short of, in LZRW1 …
pub(in crate::papers) const SHORT_BY_1: usize = 1;
/// … and in LZRW1-A.
pub(in crate::papers) const SHORT_BY_3: usize = LENGTH_MIN;

// An offset of twelve bits reaches every byte of a page.
const _: () = assert!(PAGE_BYTES <= 1 << 12);

/// Ross Williams' LZRW1.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Lzrw1;

/// Ross Williams' LZRW1-A.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Lzrw1a;

impl Codec for Lzrw1 {
    fn name(&self) -> &'static str {
        "lzrw1@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<SHORT_BY_1>(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<SHORT_BY_1>(encoding, page)
    }
}

impl Codec for Lzrw1a {
    fn name(&self) -> &'static str {
        "lzrw1-a@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<SHORT_BY_3>(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<SHORT_BY_3>(encoding, page)
    }
}

fn encode<const SHORT_BY: usize>(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let mut out = Output::new(out)?;
    let mut finder = Finder::START;
    let mut at = 0;
    while at < PAGE_BYTES {
        let mut group = [0; CONTROL_BYTES + ITEMS * COPY_BYTES];
        let (mut control, mut length) = (0_u16, CONTROL_BYTES);
        for item in 0..ITEMS {
            if at == PAGE_BYTES {
                break;
            }
            if let Some((offset, matched)) = finder.find(page, at, FIELD_MAX + SHORT_BY) {
                control |= 1 << item;
                let [low, high] = (offset as u16).to_le_bytes();
                group[length..length + COPY_BYTES].copy_from_slice(&[high << 4 | (matched - SHORT_BY) as u8, low]);
                length += COPY_BYTES;
                at += matched;
            } else {
                group[length] = page.0[at];
                length += 1;
                at += 1;
            }
        }
        group[..CONTROL_BYTES].copy_from_slice(&control.to_le_bytes());
        out.push(&group[..length])?;
    }
    Some(out.len())
}

/// The only place where the encoder looks for three bytes: the last item that began with them, or with others of their
/// hash.
struct Finder([u16; PLACES]);

impl Finder {
    /// All zero: before it knows better, it looks at the start of the page, and compares like everywhere.
    const START: Self = Self([0; PLACES]);

    /// Offset and length of a copy for what comes at `at`, and notes `at`.
    fn find(&mut self, page: &PageBytes, at: usize, length_max: usize) -> Option<(usize, usize)> {
        let next = page.0[at..].first_chunk::<LENGTH_MIN>()?;
        let place = &mut self.0[hash(*next)];
        let from = usize::from(core::mem::replace(place, at as u16));
        let length = match_length(page, from, at, length_max);
        (from < at && length >= LENGTH_MIN).then_some((at - from, length))
    }
}

/// The highest twelve bits of a product with 2^32 divided by the golden ratio.
fn hash([first, second, third]: [u8; LENGTH_MIN]) -> usize {
    (u32::from_le_bytes([first, second, third, 0]).wrapping_mul(0x9e37_79b1) >> 20) as usize % PLACES
}

fn decode<const SHORT_BY: usize>(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    decode_groups::<SHORT_BY>(encoding, Filling::new(page))
}

/// The groups of an encoding that are left.
pub(in crate::papers) fn decode_groups<const SHORT_BY: usize>(
    mut rest: &[u8],
    mut filling: Filling<'_>,
) -> Result<(), Corrupt> {
    while !filling.is_full() {
        let (control, items) = rest.split_first_chunk::<CONTROL_BYTES>().ok_or(Corrupt)?;
        let control = u16::from_le_bytes(*control);
        rest = items;
        for item in 0..ITEMS {
            if filling.is_full() {
                break;
            }
            if control >> item & 1 == 1 {
                let (copy, behind) = rest.split_first_chunk::<COPY_BYTES>().ok_or(Corrupt)?;
                let offset = usize::from(copy[0] >> 4) << 8 | usize::from(copy[1]);
                filling.copy(offset, usize::from(copy[0] & 0xf) + SHORT_BY)?;
                rest = behind;
            } else {
                let (literal, behind) = rest.split_first_chunk::<1>().ok_or(Corrupt)?;
                filling.push(literal)?;
                rest = behind;
            }
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::papers::tests::{draws, encoding};

    #[test]
    fn the_example_of_the_format_document() {
        // After the first copy the last item that began with zeros is a whole copy before.
        let example = |whole: [u8; 2], groups: usize, last: &[u8]| {
            let group = [&[0xff, 0xff], whole.repeat(16).as_slice()].concat();
            let first = [&[0xfe, 0xff, 0x00, 0x0f, 0x01], whole.repeat(14).as_slice()].concat();
            [first, group.repeat(groups), last.to_vec()].concat()
        };
        assert_eq!(encoding(&Lzrw1, &PageBytes::ZERO), example([0x0f, 16], 15, &[0x01, 0x00, 0x0e, 16]));
        let last = [0x1f, 0x00, 0x0f, 18, 0x0f, 18, 0x0f, 18, 0x0f, 18, 0x06, 18];
        assert_eq!(encoding(&Lzrw1a, &PageBytes::ZERO), example([0x0f, 18], 13, &last));
    }

    /// What the items of an encoding are: the length of a copy, and none for a literal.
    fn items<const SHORT_BY: usize>(encoding: &[u8]) -> Vec<Option<usize>> {
        let mut items = Vec::new();
        let mut rest = encoding;
        while let Some((control, behind)) = rest.split_first_chunk() {
            rest = behind;
            for item in 0..ITEMS {
                let is_copy = u16::from_le_bytes(*control) >> item & 1 == 1;
                let Some(first) = rest.first() else { break };
                items.push(is_copy.then(|| usize::from(first & 0xf) + SHORT_BY));
                rest = &rest[if is_copy { 2 } else { 1 }..];
            }
        }
        items
    }

    /// Noise whose last `length` bytes are also a few bytes before.
    fn page_that_ends_in_a_copy(length: usize) -> PageBytes {
        let mut draw = draws(3);
        let mut page = PageBytes(core::array::from_fn(|_| draw() as u8));
        page.0.copy_within(PAGE_BYTES - 40..PAGE_BYTES - 40 + length, PAGE_BYTES - length);
        page
    }

    /// LZRW1-A's published source carries its author's warning about a last copy item of 17 or 18 bytes.
    #[test]
    fn the_last_item_can_be_a_copy_of_any_length() {
        for length in 3..=18 {
            let page = page_that_ends_in_a_copy(length);
            for codec in [&Lzrw1 as &dyn Codec, &Lzrw1a] {
                let encoding = encoding(codec, &page);
                let mut decoded = PageBytes::ZERO;
                assert_eq!(codec.decode(&encoding, &mut decoded), Ok(()));
                assert!(decoded.0 == page.0, "{} {length}", codec.name());
            }
            let encoding = encoding(&Lzrw1a, &page);
            assert_eq!(items::<SHORT_BY_3>(&encoding).last(), Some(&Some(length)));
        }
        for length in 3..=16 {
            let encoding = encoding(&Lzrw1, &page_that_ends_in_a_copy(length));
            assert_eq!(items::<SHORT_BY_1>(&encoding).last(), Some(&Some(length)));
        }
    }

    #[test]
    fn a_last_copy_that_leaves_the_page_is_corrupt() {
        for length in 3..=18 {
            let mut encoding = encoding(&Lzrw1a, &page_that_ends_in_a_copy(length));
            let copy = encoding.len() - COPY_BYTES;
            let field = encoding[copy] & 0xf;
            for longer in field + 1..=FIELD_MAX as u8 {
                encoding[copy] = encoding[copy] & 0xf0 | longer;
                assert_eq!(Lzrw1a.decode(&encoding, &mut PageBytes::ZERO.clone()), Err(Corrupt), "{length} {longer}");
            }
        }
    }

    #[test]
    fn an_offset_reaches_the_start_of_the_page() {
        let mut page = PageBytes::ZERO;
        page.0[..4].copy_from_slice(b"page");
        page.0[PAGE_BYTES - 4..].copy_from_slice(b"page");
        for codec in [&Lzrw1 as &dyn Codec, &Lzrw1a] {
            let encoding = encoding(codec, &page);
            let [field, low] = *encoding.last_chunk::<2>().unwrap();
            assert_eq!(usize::from(field >> 4) << 8 | usize::from(low), PAGE_BYTES - 4, "{}", codec.name());
            assert!(field & 0xf == 4 - if codec.name() == "lzrw1@plain" { 1 } else { 3 });
        }
    }

    #[test]
    fn offset_zero_is_corrupt() {
        for codec in [&Lzrw1 as &dyn Codec, &Lzrw1a] {
            let mut encoding = encoding(codec, &PageBytes::ZERO);
            encoding[4] = 0;
            assert_eq!(codec.decode(&encoding, &mut PageBytes::ZERO.clone()), Err(Corrupt), "{}", codec.name());
        }
    }
}
