//! `dense`: for pages that stay cold. Single pages in fewer bytes than zstd's level 1 needs, in less than half of its time to decode.
//!
//! Matches are found by dynamic programming over what each way to tell a page is likely to cost, as in zstd's highest
//! levels. What that leaves goes to streams by kind: literals, tokens (lengths), distances; each with a Huffman code of its
//! own. A page is short, so what takes time in zstd is made small: codes have at most nine bits, so that a table is 512
//! entries; their lengths take three bits; and tokens and distances, which are much the same everywhere, can do with a
//! code that is fixed. Eight streams of bits are decoded four at a time, and only then the page is put together.
//!
//! That takes twenty times as long to decode as [`Fold`], and four times as long as [`sequences`]. So a page has Huffman codes only where they gain
//! enough over both: half of a heap's pages.
//!
//! The format is in docs/format/dense.md.

use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Fold, Scratch, fold, sequences};

mod bits;
mod code;
mod decode;
mod distance;
mod encode;
mod filled;
mod fixed;
mod parse;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use decode::ENCODING_BYTES_MAX;

/// The shortest match.
const LENGTH_MIN: usize = 3;
/// The highest value of either half of a token; the rest of the length is told apart.
const NIBBLE_MAX: usize = 15;
/// No page has more matches.
const SEQUENCES_MAX: usize = PAGE_BYTES / LENGTH_MIN;
/// Bits of the rest of a length, and of one that this is too short for.
const REST_BITS: u32 = 8;
const REST_MAX: usize = 255;
const LONG_BITS: u32 = 12;
/// Literals go to four streams, tokens and distances to two each; what they do not tell is in a ninth.
const STREAMS: usize = 9;
/// Kinds of codes (three of three bits), how the lengths of streams are told, literals and sequences.
const HEADER_BYTES: usize = 5;

/// The first byte of an encoding that is one of fold's or of sequences behind it: kinds of code that literals never have.
const FOLD: u8 = 5;
const SEQUENCES: u8 = 6;
/// What sequences and Huffman codes have to gain over fold, in bytes, for the time that they take to decode: some 25 ns a byte.
const SEQUENCES_PRICE: usize = 40;
const CODES_PRICE: usize = 176;

/// The smallest encodings that a page has by itself, or nearly so where that is much faster to decode.
#[derive(Clone, Copy, Default, Debug)]
pub struct Dense;

impl Codec for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let Scratch { folded, matched, fold, sequences, .. } = scratch;
        let parsed = parse::parse(page);
        let mut room = [0; ENCODING_BYTES_MAX];
        let coded = encode::encode(page, &parsed, &mut room).map(|bytes| &room[..bytes]);
        let told = sequences::encode_matches(page, parsed.matches(), sequences, &mut fold.frequent, &mut matched[..])
            .map(|bytes| &matched[..bytes]);
        let folded = fold::Level::Shortest.encode(page, fold, &mut folded[..]).map(|bytes| &folded[..bytes]);
        let ways = [(&[][..], coded, CODES_PRICE), (&[SEQUENCES], told, SEQUENCES_PRICE), (&[FOLD], folded, 0)];
        let (kind, rest, _) = ways
            .into_iter()
            .filter_map(|(kind, encoding, price)| Some((kind, encoding?, price)))
            .min_by_key(|(_, encoding, price)| encoding.len() + price)?;
        let length = kind.len() + rest.len();
        if length >= out.len() {
            return None;
        }
        let (head, room) = out[..length].split_at_mut(kind.len());
        head.copy_from_slice(kind);
        room.copy_from_slice(rest);
        Some(length)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match encoding.split_first() {
            Some((&FOLD, rest)) => Fold.decode(rest, page),
            Some((&SEQUENCES, rest)) => sequences::decode(rest, page),
            _ => decode::decode(encoding, page),
        }
    }
}

/// What an encoding says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    /// Of literals, tokens and distances.
    kinds: [code::Kind; 3],
    /// Whether the lengths of the streams take two bytes each.
    is_wide: bool,
    literals: usize,
    sequences: usize,
}

impl Header {
    /// 40 bits, lowest byte first: three kinds, a bit for wide, literals in 13 bits, sequences in 11; the rest is zero.
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let kinds = self.kinds.iter().rev().fold(0, |bits, kind| bits << 3 | *kind as u64);
        let bits = kinds | u64::from(self.is_wide) << 9 | (self.literals as u64) << 10 | (self.sequences as u64) << 23;
        *bits.to_le_bytes().first_chunk().expect("a word has more")
    }

    fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, Corrupt> {
        let bits = bytes.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let field = |at: u32, count: u32| (bits >> at & ((1 << count) - 1)) as usize;
        let mut kinds = [code::Kind::Plain; 3];
        for (at, kind) in kinds.iter_mut().enumerate() {
            *kind = code::Kind::from_bits(field(3 * at as u32, 3)).ok_or(Corrupt)?;
        }
        let header = Self { kinds, is_wide: field(9, 1) == 1, literals: field(10, 13), sequences: field(23, 11) };
        let is_possible = bits >> 34 == 0 && header.literals <= PAGE_BYTES && header.sequences <= SEQUENCES_MAX;
        if is_possible { Ok(header) } else { Err(Corrupt) }
    }

    /// Symbols of each of the eight streams that have codes: quarters of the literals, halves of tokens and distances. The
    /// first of them are the longest.
    fn counts(self) -> [usize; STREAMS - 1] {
        let part = |count: usize, parts: usize, at: usize| {
            let whole = count.div_ceil(parts);
            count.saturating_sub(whole * at).min(whole)
        };
        let (literals, sequences) = (self.literals, self.sequences);
        let quarter = |at| part(literals, 4, at);
        let half = |at| part(sequences, 2, at);
        [quarter(0), quarter(1), quarter(2), quarter(3), half(0), half(1), half(0), half(1)]
    }
}

/// Which of the three kinds of symbols a stream has.
const fn kind_of(stream: usize) -> usize {
    [0, 0, 0, 0, 1, 1, 2, 2][stream]
}
