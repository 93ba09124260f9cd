//! `lzrw1` and `lzrw1-a`: literals and copies in groups of sixteen, one probe of a hash table for each.
//!
//! The codecs of Ross Williams (1991): `tuduce-gross` section 4 implements LZRW1 beside `WKdm`, and `crames` compares
//! PBPM with LZRW1-A, "among the fastest of the available LZRW algorithms". A control word of 16 bits says of each item
//! of its group whether it is a literal byte or a copy of two bytes: four bits of length, twelve of offset. They differ
//! in the lengths alone: LZRW1-A does without two that never occur, and copies up to 18 bytes where LZRW1 copies 16.
//!
//! The format is in docs/format/lzrw.md. The same search as the plain twin's, and so the same bytes: what is faster is how
//! bytes are compared and copied.

use page::{PAGE_BYTES, PageBytes};

use super::lz::{self, Places};
use super::plain::lz::Filling;
use super::plain::lzrw::{
    CONTROL_BYTES, COPY_BYTES, FIELD_MAX, ITEMS, LENGTH_MIN, SHORT_BY_1, SHORT_BY_3, decode_groups,
};
use crate::{Codec, Corrupt, ENCODING_BYTES_MAX, Scratch};

/// Ross Williams' LZRW1.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lzrw1;

/// Ross Williams' LZRW1-A.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lzrw1a;

impl Codec for Lzrw1 {
    fn name(&self) -> &'static str {
        "lzrw1"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<SHORT_BY_1>(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<SHORT_BY_1>(encoding, page)
    }
}

impl Codec for Lzrw1a {
    fn name(&self) -> &'static str {
        "lzrw1-a"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::<SHORT_BY_3>(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode::<SHORT_BY_3>(encoding, page)
    }
}

fn encode<const SHORT_BY: usize>(page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
    let mut places = Places::START;
    let mut items = Items { bytes: &mut scratch.out, copies: [0; PAGE_BYTES / 32 + 1] };
    // Of a page's first byte nothing was seen before.
    items.bytes[0] = page.0[0];
    let mut told = Told { items: 1, bytes: 1 };
    let mut at = 1;
    while at <= PAGE_BYTES - COPY_BYTES_MAX {
        let next = lz::number_at::<8>(&page.0, at);
        let from = places.replace(next as u32 & 0x00ff_ffff, at);
        if ((lz::number_at::<8>(&page.0, from) ^ next) as u32) << 8 != 0 {
            items.put_literal(&mut told, next as u8);
            at += 1;
            continue;
        }
        let mut length = lz::first_length(page, from, at);
        if SHORT_BY > SHORT_BY_1 && length == lz::PIECE {
            // Two more, and not all that there are: a run would be compared to its end for each copy.
            let pair = |at: usize| lz::number_at::<2>(&page.0, at);
            length += (1 << 16 | pair(from + lz::PIECE) ^ pair(at + lz::PIECE)).trailing_zeros() as usize / 8;
        }
        items.put_copy(&mut told, at - from, length - SHORT_BY);
        at += length;
    }
    while at <= PAGE_BYTES - LENGTH_MIN {
        let next = lz::number_at::<LENGTH_MIN>(&page.0, at);
        let from = places.replace(next as u32, at);
        if lz::number_at::<LENGTH_MIN>(&page.0, from) == next {
            let length = lz::match_length(page, from, at).min(FIELD_MAX + SHORT_BY);
            items.put_copy(&mut told, at - from, length - SHORT_BY);
            at += length;
        } else {
            items.put_literal(&mut told, next as u8);
            at += 1;
        }
    }
    for byte in &page.0[at..] {
        items.put_literal(&mut told, *byte);
    }
    items.write(told.items, out)
}

/// The longest copy there is.
const COPY_BYTES_MAX: usize = FIELD_MAX + LENGTH_MIN;

/// The items of an encoding, before they are put in groups.
struct Items<'a> {
    /// Literals and copies behind each other.
    bytes: &'a mut [u8; ENCODING_BYTES_MAX],
    /// A bit for each item: whether it is a copy.
    copies: [u32; PAGE_BYTES / 32 + 1],
}

/// How many items there are, and their bytes.
#[derive(Clone, Copy)]
struct Told {
    items: usize,
    bytes: usize,
}

impl Items<'_> {
    #[inline(always)]
    fn put_literal(&mut self, told: &mut Told, byte: u8) {
        self.bytes[told.bytes] = byte;
        told.bytes += 1;
        told.items += 1;
    }

    #[inline(always)]
    fn put_copy(&mut self, told: &mut Told, offset: usize, field: usize) {
        let item = [(offset >> 8 << 4 | field) as u8, offset as u8];
        *self.bytes[told.bytes..].first_chunk_mut().expect("an item has no more bytes than it makes") = item;
        self.copies[told.items / 32] |= 1 << (told.items % 32);
        told.bytes += COPY_BYTES;
        told.items += 1;
    }

    /// Writes them in groups, each behind its control word.
    fn write(&self, items: usize, out: &mut [u8]) -> Option<usize> {
        let (mut taken, mut written) = (0, 0);
        for (group, start) in (0..items).step_by(ITEMS).enumerate() {
            let control = (self.copies[group / 2] >> (group % 2 * ITEMS)) as u16;
            let items = ITEMS.min(items - start);
            let length = items + control.count_ones() as usize;
            *out.get_mut(written..)?.first_chunk_mut()? = control.to_le_bytes();
            lz::copy(self.bytes, taken, out, written + CONTROL_BYTES, length)?;
            taken += length;
            written += CONTROL_BYTES + length;
        }
        (written < out.len()).then_some(written)
    }
}

fn decode<const SHORT_BY: usize>(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    /// As many bytes as a group makes at most, and a piece too much.
    const PAGE_ROOM: usize = ITEMS * (FIELD_MAX + LENGTH_MIN) + lz::PIECE;
    /// As many as it takes at most, and a piece too much.
    const ENCODING_ROOM: usize = CONTROL_BYTES + ITEMS * COPY_BYTES + lz::PIECE;
    let (mut rest, mut at) = (encoding, 0);
    while at <= PAGE_BYTES - PAGE_ROOM && rest.len() >= ENCODING_ROOM {
        let (control, items) = rest.split_first_chunk::<CONTROL_BYTES>().expect("there are more");
        // The bit above the items ends them.
        let mut control = u32::from(u16::from_le_bytes(*control)) | 1 << ITEMS;
        let mut taken = 0;
        loop {
            let literals = control.trailing_zeros() as usize;
            lz::copy_piece(items, taken, &mut page.0, at).ok_or(Corrupt)?;
            taken += literals;
            at += literals;
            control >>= literals;
            if control == 1 {
                break;
            }
            let [first, low] = *items[taken..].first_chunk().ok_or(Corrupt)?;
            let offset = usize::from(first >> 4) << 8 | usize::from(low);
            let length = usize::from(first & 0xf) + SHORT_BY;
            lz::repeat(page, at, offset, length)?;
            at += length;
            taken += COPY_BYTES;
            control >>= 1;
        }
        rest = &items[taken..];
    }
    decode_groups::<SHORT_BY>(rest, Filling::resume(page, at))
}
