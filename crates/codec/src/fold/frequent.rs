//! Bytes told by codes of a few bits for those that are frequent among them.
//!
//! An entropy coder would save more, but takes the bytes one after the other. Codes of one length can be packed, unpacked and
//! looked up 64 at a time. The bytes come in any number that the reader knows; the format is in docs/format/fold.md.

use page::PAGE_BYTES;

use super::VECTOR_BYTES;
use crate::Corrupt;

/// The bits of a code that are tried for the codes of words.
pub(super) const WORD_BITS: &[usize] = &[4];
/// For their literals: to try four and six, too, would take a tenth of the time of an encoder, and gain 0.4 %.
pub(super) const LITERAL_BITS: &[usize] = &[5];
/// For bytes that do not come from words, of which more are frequent: literals of text, tokens and offsets of matches.
pub(super) const TEXT_BITS: &[usize] = &[4, 5, 6];
/// The most bits that a decoder takes: what one vector can hold a table of.
pub(super) const BITS_MAX: usize = 6;
/// Bytes that are counted, and up to twice as many: those of more are like them.
const COUNTED: usize = 512;
/// The most bytes that can be encoded.
const COUNT_MAX: usize = PAGE_BYTES;

/// Working memory of the encoder, about 5 KiB.
#[repr(C, align(64))]
pub(crate) struct Workspace {
    codes: [u8; COUNT_MAX * BITS_MAX / 8 + VECTOR_BYTES],
    escapes: [u8; COUNT_MAX + VECTOR_BYTES],
    out: [u8; 1 + COUNT_MAX + VECTOR_BYTES],
}

impl Workspace {
    pub(crate) const EMPTY: Self = Self {
        codes: [0; COUNT_MAX * BITS_MAX / 8 + VECTOR_BYTES],
        escapes: [0; COUNT_MAX + VECTOR_BYTES],
        out: [0; 1 + COUNT_MAX + VECTOR_BYTES],
    };
}

/// How often each byte occurs; 255 if more often.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(super) struct Counts(pub(super) [u8; 256]);

/// A bit for each byte that has a code, the code being how many of them are lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Selection {
    pub(super) bytes: [u64; 4],
    /// How often others occur, were there no 255.
    pub(super) escapes: usize,
}

impl Selection {
    fn len(&self) -> usize {
        self.bytes.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

/// The parts that there are vectors for. `bytes` and `out` have room for a vector behind what counts.
pub(super) trait Path: Copy {
    /// The `most` bytes that occur most often, of equals the lowest; fewer if so few occur.
    fn select(self, counts: &Counts, most: usize) -> Selection;

    /// Writes the codes of `bytes[..count]`, and those that have none to `escapes`, of which it returns the number.
    fn write_codes(
        self,
        bytes: &[u8],
        count: usize,
        selection: &Selection,
        bits: usize,
        codes: &mut [u8],
        escapes: &mut [u8],
    ) -> usize;

    /// Looks up `count` codes, for which `codes` is as long as it takes, and returns how many bytes of `escapes` they took, if
    /// there were enough.
    fn read_codes(
        self,
        codes: &[u8],
        bits: usize,
        table: &[u8; VECTOR_BYTES],
        escapes: &[u8],
        count: usize,
        out: &mut [u8],
    ) -> Option<usize>;
}

/// Which bytes have codes, of how many bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    bits: usize,
    selection: Selection,
    /// How long it makes the area, by what has been counted.
    pub(super) length: usize,
}

/// The codes for `bytes[..count]` of as many of these bits as make it shortest, if any do.
pub(super) fn plan(path: impl Path, bytes: &[u8], count: usize, bits: &[usize]) -> Option<Plan> {
    let one_in = (count / COUNTED).max(1);
    let counts = self::counts(&bytes[..count], one_in);
    let mut best: Option<Plan> = None;
    for &bits in bits {
        let selection = path.select(&counts, (1 << bits) - 1);
        let length = 2 + selection.len() + (count * bits).div_ceil(8) + one_in * selection.escapes;
        if length < best.map_or(1 + count, |best| best.length) {
            best = Some(Plan { bits, selection, length });
        }
    }
    best
}

/// Encodes `bytes[..count]`, with codes of as many of these bits as make it shortest, or none.
pub(super) fn encode<'a>(
    path: impl Path,
    bytes: &[u8],
    count: usize,
    bits: &[usize],
    workspace: &'a mut Workspace,
) -> &'a [u8] {
    encode_by(path, plan(path, bytes, count, bits), bytes, count, workspace)
}

/// Encodes `bytes[..count]` as planned.
pub(super) fn encode_by<'a>(
    path: impl Path,
    plan: Option<Plan>,
    bytes: &[u8],
    count: usize,
    workspace: &'a mut Workspace,
) -> &'a [u8] {
    let Workspace { codes, escapes, out } = workspace;
    let Some(Plan { bits, selection, .. }) = plan else {
        return as_they_are(&bytes[..count], out);
    };
    let escape_count = path.write_codes(bytes, count, &selection, bits, codes, escapes);
    let code_bytes = (count * bits).div_ceil(8);
    // What was not counted can be of another kind.
    if 1 + selection.len() + code_bytes + escape_count >= count {
        return as_they_are(&bytes[..count], out);
    }
    out[0] = bits as u8;
    out[1] = selection.len() as u8;
    let mut at = 2;
    for (quarter, mut left) in selection.bytes.into_iter().enumerate() {
        while left != 0 {
            out[at] = (quarter * 64) as u8 + left.trailing_zeros() as u8;
            at += 1;
            left &= left - 1;
        }
    }
    out[at..at + code_bytes].copy_from_slice(&codes[..code_bytes]);
    at += code_bytes;
    out[at..at + escape_count].copy_from_slice(&escapes[..escape_count]);
    &out[..at + escape_count]
}

/// Without a code.
fn as_they_are<'a>(bytes: &[u8], out: &'a mut [u8]) -> &'a [u8] {
    out[0] = 0;
    out[1..=bytes.len()].copy_from_slice(bytes);
    &out[..=bytes.len()]
}

/// Restores `count` bytes, at most a page of them, and returns what is left of the input.
pub(super) fn decode<'a>(path: impl Path, input: &'a [u8], count: usize, out: &mut [u8]) -> Result<&'a [u8], Corrupt> {
    let (&bits, input) = input.split_first().ok_or(Corrupt)?;
    let bits = usize::from(bits);
    if bits == 0 {
        let (bytes, rest) = input.split_at_checked(count).ok_or(Corrupt)?;
        out[..count].copy_from_slice(bytes);
        return Ok(rest);
    }
    let (&length, input) = input.split_first().ok_or(Corrupt)?;
    let length = usize::from(length);
    if bits > BITS_MAX || length >= 1 << bits {
        return Err(Corrupt);
    }
    let (entries, input) = input.split_at_checked(length).ok_or(Corrupt)?;
    let (codes, escapes) = input.split_at_checked((count * bits).div_ceil(8)).ok_or(Corrupt)?;
    let mut table = [0; VECTOR_BYTES];
    table[..length].copy_from_slice(entries);
    let escape_count = path.read_codes(codes, bits, &table, escapes, count, out).ok_or(Corrupt)?;
    Ok(&escapes[escape_count..])
}

/// Counts one of so many eights, and the rest. In a table for each of the eight, because an increment waits for the one before it
/// if that was of the same byte; none has more than a byte can count.
fn counts(bytes: &[u8], one_in: usize) -> Counts {
    const { assert!(2 * COUNTED / 8 + 7 <= u8::MAX as usize) };
    let mut tables = [[0_u8; 256]; 8];
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights.iter().step_by(one_in) {
        for (table, byte) in tables.iter_mut().zip(eight) {
            table[usize::from(*byte)] += 1;
        }
    }
    for byte in rest {
        tables[0][usize::from(*byte)] += 1;
    }
    let mut counts = Counts([0; 256]);
    for table in &tables {
        for (sum, count) in counts.0.iter_mut().zip(table) {
            *sum = sum.saturating_add(*count);
        }
    }
    counts
}

/// The bit-packed codes, lowest bit first: what each path writes, and reads, for eight codes.
pub(super) fn spread(packed: u64, bits: usize) -> [u8; 8] {
    core::array::from_fn(|at| (packed >> (at * bits)) as u8 & ((1 << bits) - 1))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::scalar::Scalar;
    use super::*;

    #[test]
    fn bytes_of_another_kind_between_those_that_are_counted_are_not_coded() {
        // Every fourth eight is of one byte, and all others are of all bytes.
        let mut bytes: Vec<u8> =
            (0..2048_u32).map(|at| if at / 8 % 4 == 0 { 7 } else { (at * 89 / 7) as u8 }).collect();
        bytes.resize(2048 + VECTOR_BYTES, 0);
        let mut workspace = Workspace::EMPTY;
        let encoding = encode(Scalar, &bytes, 2048, LITERAL_BITS, &mut workspace);
        assert_eq!((encoding.len(), encoding[0]), (2049, 0));
    }

    #[test]
    fn bytes_that_are_frequent_have_short_codes() {
        let mut workspace = Workspace::EMPTY;
        let mut bytes = [[7; 16], [9; 16]].concat();
        bytes.extend([1, 7, 255]);
        let count = bytes.len();
        bytes.resize(count + VECTOR_BYTES, 0);
        let encoding = encode(Scalar, &bytes, count, &[3], &mut workspace);
        // Three bits, a table of four, 35 codes of which the first sixteen are 1 and the next 2; none has no code.
        let mut expected = std::vec![3, 4, 1, 7, 9, 255];
        expected.extend([0b0100_1001, 0b1001_0010, 0b0010_0100].repeat(2));
        expected.extend([0b1001_0010, 0b0010_0100, 0b0100_1001].repeat(2));
        expected.extend([0b1100_1000, 0]);
        assert_eq!(encoding, expected);
    }
}
