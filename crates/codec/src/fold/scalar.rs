//! The plain twin: what the format document says, without vectors.

use super::covers::COVERS;
use super::frequent::{self, Counts, Selection, spread};
use super::places::Places;
use super::words::{Words, first_eight};
use super::{GROUP, VECTOR_BYTES, WINDOW};

/// Any processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar;

impl Words for Scalar {
    #[inline(always)]
    fn same_bytes(self, words: &[u64; GROUP], others: &[u64; GROUP]) -> u32 {
        let pairs = words.iter().zip(others);
        pairs.map(|(&word, &other)| sum_of_bytes(!differing(word, other) & differing(word, 0))).sum()
    }

    #[inline(always)]
    fn choose(self, words: &[u64; GROUP], window: &[u64; WINDOW], places: Places) -> [u8; GROUP] {
        let table = places.table();
        core::array::from_fn(|lane| {
            let word = words[lane];
            let mut best = (sum_of_bytes(differing(word, 0)), 0);
            for (choice, &place) in table[lane].iter().enumerate().skip(1) {
                let different = sum_of_bytes(differing(word, window[usize::from(place) % WINDOW]));
                best = if different < best.0 { (different, choice) } else { best };
            }
            best.1 as u8
        })
    }

    #[inline(always)]
    fn differing(self, words: &[u64; GROUP], predictors: &[u64; GROUP]) -> [u8; GROUP] {
        core::array::from_fn(|lane| differing_bytes(words[lane], predictors[lane]))
    }

    #[inline(always)]
    fn pack(self, word: u64, mask: u8) -> u64 {
        PACKINGS[usize::from(mask)].apply(word)
    }

    #[inline(always)]
    fn unpack(self, bytes: u64, cover: usize, predictor: u64) -> u64 {
        let Unpacking { low, by, high, kept } = UNPACKINGS[cover % COVERS.len()];
        bytes & low | bytes.wrapping_mul(by) & high | predictor & kept
    }
}

/// How to put bytes where a mask has bits: those of a run from the lowest byte on lie there, and those of the one other run it may have behind
/// them. Each of these is all ones in its bytes.
#[derive(Clone, Copy)]
struct Unpacking {
    /// The run from the lowest byte on.
    low: u64,
    /// What moves the other run to its place: a multiplication, as a shift by a variable takes three steps.
    by: u64,
    /// The other run.
    high: u64,
    /// The bytes that are not told.
    kept: u64,
}

impl Unpacking {
    const fn new(mask: u8) -> Self {
        let mask = mask as u64;
        let first = mask.trailing_ones();
        let other = mask >> first << first;
        if other == 0 {
            return Self { low: bytes_of(mask), by: 0, high: 0, kept: !bytes_of(mask) };
        }
        let start = other.trailing_zeros();
        assert!((other >> start).trailing_ones() == other.count_ones(), "a mask has one run more at most");
        Self {
            low: bytes_of(mask ^ other),
            by: 1 << (8 * (start - first)),
            high: bytes_of(other),
            kept: !bytes_of(mask),
        }
    }
}

/// All ones in the bytes of a mask.
const fn bytes_of(mask: u64) -> u64 {
    let (mut bytes, mut at) = (0, 0);
    while at < 8 {
        bytes |= ((mask >> at & 1) * 0xff) << (8 * at);
        at += 1;
    }
    bytes
}

/// For each mask.
static UNPACKINGS: [Unpacking; COVERS.len()] = {
    let mut unpackings = [Unpacking::new(0); COVERS.len()];
    let mut number = 0;
    while number < COVERS.len() {
        unpackings[number] = Unpacking::new(COVERS[number]);
        number += 1;
    }
    unpackings
};

impl frequent::Path for Scalar {
    fn select(self, counts: &Counts, most: usize) -> Selection {
        let mut bytes_of_count = [0_usize; 256];
        for count in counts.0 {
            bytes_of_count[usize::from(count)] += 1;
        }
        // All that occur more often than `least`, and of those that occur so often as many as there is room for.
        let (mut room, mut least) = (most, 255);
        while least > 0 && bytes_of_count[least] <= room {
            room -= bytes_of_count[least];
            least -= 1;
        }
        let mut selection = Selection { bytes: [0; 4], escapes: 0 };
        for (byte, count) in counts.0.into_iter().map(usize::from).enumerate() {
            let is_last = count == least && least > 0 && room > 0;
            if count > least || is_last {
                selection.bytes[byte / 64] |= 1 << (byte % 64);
                room -= usize::from(is_last);
            } else {
                selection.escapes += count;
            }
        }
        selection
    }

    fn write_codes(
        self,
        bytes: &[u8],
        count: usize,
        selection: &Selection,
        bits: usize,
        codes: &mut [u8],
        escapes: &mut [u8],
    ) -> usize {
        let escape = (1_u8 << bits) - 1;
        let mut code_of = [escape; 256];
        let mut next = 0;
        for (byte, code) in code_of.iter_mut().enumerate() {
            if selection.bytes[byte / 64] >> (byte % 64) & 1 == 1 {
                *code = next;
                next += 1;
            }
        }
        let mut escape_count = 0;
        for (at, eight) in bytes[..count].chunks(8).enumerate() {
            let mut packed = 0_u64;
            for (lane, byte) in eight.iter().enumerate() {
                let code = code_of[usize::from(*byte)];
                packed |= u64::from(code) << (lane * bits);
                escapes[escape_count] = *byte;
                escape_count += usize::from(code == escape);
            }
            codes[at * bits..][..8].copy_from_slice(&packed.to_le_bytes());
        }
        escape_count
    }

    fn read_codes(
        self,
        codes: &[u8],
        bits: usize,
        table: &[u8; VECTOR_BYTES],
        escapes: &[u8],
        count: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        let escape = (1_u8 << bits) - 1;
        let mut escape_count = 0;
        for (eight, codes) in out[..count].chunks_mut(8).zip(codes.chunks(bits)) {
            for (byte, code) in eight.iter_mut().zip(spread(first_eight(codes), bits)) {
                // Both are read, so that nothing is jumped over: which it is, nobody can foretell.
                let escaped = escapes.get(escape_count).copied().unwrap_or_default();
                let found = table[usize::from(code) % VECTOR_BYTES];
                *byte = if code == escape { escaped } else { found };
                escape_count += usize::from(code == escape);
            }
        }
        (escape_count <= escapes.len()).then_some(escape_count)
    }
}

/// The bytes in which two words differ, a bit each.
#[inline]
fn differing_bytes(word: u64, predictor: u64) -> u8 {
    // All bits together in the highest byte.
    (differing(word, predictor).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The lowest bit of each byte in which two words differ.
#[inline]
fn differing(word: u64, predictor: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let bits = word ^ predictor;
    // The highest bit of each byte that is not zero.
    let high = (((bits & LOW) + LOW) | bits) & !LOW;
    high >> 7
}

/// How many bytes have their lowest bit set.
#[inline]
fn sum_of_bytes(bits: u64) -> u32 {
    const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
    ((bits & EACH_BYTE).wrapping_mul(EACH_BYTE) >> 56) as u32
}

/// How to put the bytes of a mask together, without a branch for each: those that have to go by one go by one, then by two, then by
/// four.
#[derive(Clone, Copy)]
struct Packing {
    /// The bytes that go, by four, two and one.
    moved: [u64; 3],
    /// The bytes of the mask.
    bytes: u64,
}

impl Packing {
    const fn new(mask: usize) -> Self {
        let mut packing = Self { moved: [0; 3], bytes: 0 };
        let (mut at, mut count) = (0, 0);
        while at < 8 {
            if mask >> at & 1 == 1 {
                let by = at - count;
                packing.bytes |= 0xff << (8 * at);
                packing.moved[0] |= if by & 4 != 0 { 0xff << (8 * (count + 4)) } else { 0 };
                packing.moved[1] |= if by & 2 != 0 { 0xff << (8 * (count + (by & 6))) } else { 0 };
                packing.moved[2] |= if by & 1 != 0 { 0xff << (8 * at) } else { 0 };
                count += 1;
            }
            at += 1;
        }
        packing
    }

    #[inline]
    fn apply(&self, word: u64) -> u64 {
        let [four, two, one] = self.moved;
        let bytes = word & self.bytes;
        let bytes = bytes & !one | (bytes & one) >> 8;
        let bytes = bytes & !two | (bytes & two) >> 16;
        bytes & !four | (bytes & four) >> 32
    }
}

/// For each mask.
static PACKINGS: [Packing; 256] = {
    let mut packings = [Packing::new(0); 256];
    let mut mask = 0;
    while mask < 256 {
        packings[mask] = Packing::new(mask);
        mask += 1;
    }
    packings
};

#[cfg(test)]
mod tests {
    use super::*;

    fn lowest_bytes(count: u32) -> u64 {
        u64::MAX.checked_shr(64 - 8 * count).unwrap_or_default()
    }

    #[test]
    fn bytes_go_where_the_mask_has_bits_and_back() {
        for (number, mask) in COVERS.into_iter().enumerate() {
            let mut from = 0x1122_3344_5566_7788_u64.to_le_bytes().into_iter();
            let expected: [u8; 8] =
                core::array::from_fn(|at| if mask >> at & 1 == 1 { from.next().expect("eight") } else { 0xee });
            let word = Scalar.unpack(0x1122_3344_5566_7788, number, 0xeeee_eeee_eeee_eeee);
            assert_eq!(word.to_le_bytes(), expected, "{mask:08b}");
            assert_eq!(Scalar.pack(word, mask), 0x1122_3344_5566_7788 & lowest_bytes(mask.count_ones()));
        }
    }

    #[test]
    fn bytes_that_differ_are_found() {
        for mask in 0..=u8::MAX {
            let changes: [u8; 8] = core::array::from_fn(|at| if mask >> at & 1 == 1 { 1 << (at % 8) } else { 0 });
            let word = 0x8000_7fff_0100_ff80;
            assert_eq!(differing_bytes(word, word ^ u64::from_le_bytes(changes)), mask);
        }
    }
}
