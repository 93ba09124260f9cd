//! Codes of frequent bytes, 32 at once.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use super::super::VECTOR_BYTES;
use super::super::frequent::{BITS_MAX, Counts, Selection};
use super::super::shuffles::PACKS;
use super::{OVERS, entry, load_bytes, part, part_mut};

/// The bytes of a vector.
const LANES: usize = 32;

/// See [`frequent::Path::select`](super::frequent::Path::select).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn select(counts: &Counts, most: usize) -> Selection {
    let mut eighths = [_mm256_setzero_si256(); 8];
    for (eighth, counts) in eighths.iter_mut().zip(counts.0.as_chunks::<LANES>().0) {
        *eighth = load_bytes(counts);
    }
    // The least number that no more than `most` are above.
    let mut least = 0;
    for bit in (0..8).rev() {
        let above = count_above(&eighths, least + (1 << bit) - 1);
        least = if above > most { least + (1 << bit) } else { least };
    }
    let mut bytes = [0; 4];
    let mut as_often = [0; 4];
    let mut others = _mm256_setzero_si256();
    for (at, counts) in eighths.into_iter().enumerate() {
        let not_above = not_above(counts, least);
        let equal = _mm256_cmpeq_epi8(counts, _mm256_set1_epi8(least as i8));
        bytes[at / 2] |= u64::from(!_mm256_movemask_epi8(not_above).cast_unsigned()) << (32 * (at % 2));
        as_often[at / 2] |= u64::from(_mm256_movemask_epi8(equal).cast_unsigned()) << (32 * (at % 2));
        others = _mm256_add_epi64(others, sums(_mm256_and_si256(counts, not_above)));
    }
    let mut escapes = sum(others);
    let mut room = most - bytes.iter().map(|bits| bits.count_ones() as usize).sum::<usize>();
    if least > 0 {
        for (bytes, as_often) in bytes.iter_mut().zip(as_often) {
            // All but those that are left when as many as there is room for are taken away.
            let taken = room.min(as_often.count_ones() as usize);
            let left = (0..taken).fold(as_often, |left, _| left & left.wrapping_sub(1));
            *bytes |= as_often & !left;
            room -= taken;
            escapes -= taken * usize::from(least);
        }
    }
    Selection { bytes, escapes }
}

/// How many counts are above a number.
#[target_feature(enable = "avx2")]
#[inline]
fn count_above(eighths: &[__m256i; 8], least: u8) -> usize {
    let mut not = _mm256_setzero_si256();
    for counts in eighths {
        not = _mm256_sub_epi8(not, not_above(*counts, least));
    }
    256 - sum(sums(not))
}

/// All ones in each byte that is not above a number.
#[target_feature(enable = "avx2")]
#[inline]
fn not_above(counts: __m256i, least: u8) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_subs_epu8(counts, _mm256_set1_epi8(least as i8)), _mm256_setzero_si256())
}

/// The sum of each eight bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn sums(bytes: __m256i) -> __m256i {
    _mm256_sad_epu8(bytes, _mm256_setzero_si256())
}

#[target_feature(enable = "avx2")]
#[inline]
fn sum(numbers: __m256i) -> usize {
    let pair = _mm_add_epi64(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256::<1>(numbers));
    _mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair))) as usize
}

/// Bytes whose codes are looked up before they are packed: a load right behind narrower stores would wait for them.
const BLOCK: usize = 256;

/// See [`frequent::Path::write_codes`](super::frequent::Path::write_codes).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn write_codes(
    bytes: &[u8],
    count: usize,
    selection: &Selection,
    bits: usize,
    codes: &mut [u8],
    escapes: &mut [u8],
) -> usize {
    let mut code_of = [(1_u8 << bits) - 1; 256];
    let mut next = 0;
    for (quarter, mut left) in selection.bytes.into_iter().enumerate() {
        while left != 0 {
            code_of[quarter * 64 + left.trailing_zeros() as usize] = next;
            next += 1;
            left &= left - 1;
        }
    }
    let packing = Packing::new(bits);
    let mut escape_count = 0;
    let mut found = [0_u8; BLOCK];
    for at in (0..count).step_by(BLOCK) {
        let here = BLOCK.min(count - at);
        for (found, byte) in found.iter_mut().zip(&bytes[at..at + here]) {
            *found = code_of[usize::from(*byte)];
        }
        // What is behind the last has the first code, which is no escape.
        found[here..].fill(0);
        for (number, found) in found.as_chunks().0.iter().enumerate().take(here.div_ceil(LANES)) {
            let at = at + number * LANES;
            packing.write(found, part_mut(codes, at / 8 * bits));
            escape_count += write_escapes(found, packing.escape, part(bytes, at), part_mut(escapes, escape_count));
        }
    }
    escape_count
}

/// How to put codes of some bits together.
#[derive(Clone, Copy)]
struct Packing {
    bits: usize,
    escape: __m256i,
    two: __m256i,
    four: __m256i,
    shift: __m128i,
}

impl Packing {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new(bits: usize) -> Self {
        Self {
            bits,
            escape: _mm256_set1_epi8((1_i8 << bits) - 1),
            two: _mm256_set1_epi16(1 << (8 + bits) | 1),
            four: _mm256_set1_epi32(1 << (16 + 2 * bits) | 1),
            shift: _mm_cvtsi64_si128(32 - 4 * bits as i64),
        }
    }

    /// Writes 32 codes, and behind them anything.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn write(&self, codes: &[u8; LANES], to: &mut [u8; 3 * BITS_MAX + 8]) {
        let twos = _mm256_maddubs_epi16(load_bytes(codes), self.two);
        let fours = _mm256_madd_epi16(twos, self.four);
        let low = _mm256_and_si256(fours, _mm256_set1_epi64x(0xffff_ffff));
        let eights = _mm256_or_si256(low, _mm256_srl_epi64(_mm256_andnot_si256(low, fours), self.shift));
        let halves = [_mm256_castsi256_si128(eights), _mm256_extracti128_si256::<1>(eights)];
        for (at, half) in halves.into_iter().enumerate() {
            *part_mut(to, 2 * at * self.bits) = _mm_cvtsi128_si64(half).to_le_bytes();
            *part_mut(to, (2 * at + 1) * self.bits) = _mm_extract_epi64::<1>(half).to_le_bytes();
        }
    }
}

/// Writes those of 32 bytes that have no code, and behind them anything, and returns how many there are.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn write_escapes(codes: &[u8; LANES], escape: __m256i, bytes: &[u8; LANES], to: &mut [u8; LANES]) -> usize {
    let escaped = _mm256_movemask_epi8(_mm256_cmpeq_epi8(load_bytes(codes), escape)).cast_unsigned();
    let mut at = 0;
    for (eight, escaped) in bytes.as_chunks::<8>().0.iter().zip(escaped.to_le_bytes()) {
        let packed =
            _mm_shuffle_epi8(_mm_cvtsi64_si128(i64::from_le_bytes(*eight)), entry(&PACKS, usize::from(escaped)));
        // SAFETY: writes eight bytes, which there are: no eight before it took more.
        unsafe { _mm_storel_epi64(to.as_mut_ptr().wrapping_add(at).cast(), packed) };
        at += escaped.count_ones() as usize;
    }
    at
}

/// See [`frequent::Path::read_codes`](super::frequent::Path::read_codes).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn read_codes(
    codes: &[u8],
    bits: usize,
    table: &[u8; VECTOR_BYTES],
    escapes: &[u8],
    count: usize,
    out: &mut [u8],
) -> Option<usize> {
    let reader = Reader::new(bits, table);
    let mut from = Source { codes, escapes, at: 0, escape_count: 0 };
    reader.read(&mut from, count, out);
    // What is left of either from a copy with zeros behind it; first of the one that ends first.
    let (codes, more_escapes) = (from.last_codes(), from.last_escapes());
    from.go_on(&codes, &more_escapes);
    reader.read(&mut from, count, out);
    let (codes, more_escapes);
    if from.at < count {
        (codes, more_escapes) = (from.last_codes(), from.last_escapes());
        from.go_on(&codes, &more_escapes);
        reader.read(&mut from, count, out);
    }
    (from.at >= count && from.escape_count <= escapes.len()).then_some(from.escape_count)
}

/// What 32 codes may be read from, of which two loads take the first sixteen bytes and those of the codes behind the first 16.
const CODES: usize = 2 * BITS_MAX + 16;
/// Room for what is less than that, and as many zeros.
const LAST: usize = 64;

/// What is still to be read.
struct Source<'a> {
    codes: &'a [u8],
    escapes: &'a [u8],
    at: usize,
    escape_count: usize,
}

impl<'a> Source<'a> {
    fn last_codes(&self) -> [u8; LAST] {
        last(self.codes)
    }

    fn last_escapes(&self) -> [u8; LAST] {
        last(self.escapes)
    }

    /// Source these copies, where there is less than is read at once.
    fn go_on(&mut self, codes: &'a [u8; LAST], escapes: &'a [u8; LAST]) {
        if self.codes.len() < CODES {
            self.codes = codes;
        }
        if self.escapes.len() < LANES {
            self.escapes = escapes;
        }
    }
}

/// A copy, if it is less than is read at once.
fn last(bytes: &[u8]) -> [u8; LAST] {
    let mut last = [0; LAST];
    if bytes.len() < LANES {
        last[..bytes.len()].copy_from_slice(bytes);
    }
    last
}

/// How to read codes of some bits.
struct Reader {
    bits: usize,
    escape: __m256i,
    quarters: [__m256i; 4],
    unpacking: &'static Unpacking,
    shift: __m128i,
}

impl Reader {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new(bits: usize, table: &[u8; VECTOR_BYTES]) -> Self {
        let mut quarters = [_mm256_setzero_si256(); 4];
        for (quarter, table) in quarters.iter_mut().zip(table.as_chunks::<16>().0) {
            // SAFETY: reads 16 bytes, which there are.
            *quarter = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
        }
        Self {
            bits,
            escape: _mm256_set1_epi8((1_i8 << bits) - 1),
            quarters,
            unpacking: &UNPACKINGS[bits],
            shift: _mm_cvtsi64_si128(16 - bits as i64),
        }
    }

    /// As long as there is as much as is read at once.
    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn read(&self, from: &mut Source<'_>, count: usize, out: &mut [u8]) {
        while from.at < count
            && let (Some(codes), Some(escapes)) = (from.codes.first_chunk(), from.escapes.first_chunk())
        {
            let codes = self.unpack(codes);
            let found = if self.bits <= 4 { _mm256_shuffle_epi8(self.quarters[0], codes) } else { self.look_up(codes) };
            let escaped = _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, self.escape)).cast_unsigned();
            let real = u32::MAX >> LANES.saturating_sub(count - from.at);
            let used = put_escapes(found, escaped & real, escapes, part_mut(out, from.at));
            from.at += LANES;
            from.codes = &from.codes[LANES / 8 * self.bits..];
            from.escapes = &from.escapes[used..];
            from.escape_count += used;
        }
    }

    /// 32 codes, a byte each.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn unpack(&self, codes: &[u8; CODES]) -> __m256i {
        let (first, second) = (part::<u8, 16>(codes, 0), part::<u8, 16>(codes, 2 * self.bits));
        // SAFETY: reads 16 bytes, which there are.
        let first = unsafe { _mm_loadu_si128(first.as_ptr().cast()) };
        // SAFETY: reads 16 bytes, which there are.
        let second = unsafe { _mm_loadu_si128(second.as_ptr().cast()) };
        let packed = _mm256_set_m128i(second, first);
        let Unpacking { bytes, factors } = self.unpacking;
        let mut eights = [_mm256_setzero_si256(); 2];
        for (eights, bytes) in eights.iter_mut().zip(bytes) {
            // Each into the highest bits of the two bytes that it is in, and from there to the lowest.
            let pairs = _mm256_shuffle_epi8(packed, load_bytes(bytes));
            *eights = _mm256_srl_epi16(_mm256_mullo_epi16(pairs, load_bytes(factors)), self.shift);
        }
        _mm256_packus_epi16(eights[0], eights[1])
    }

    /// In the whole table.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn look_up(&self, codes: __m256i) -> __m256i {
        // A fifth and a sixth bit, where a blend looks for them.
        let (fifth, sixth) = (_mm256_slli_epi16::<3>(codes), _mm256_slli_epi16::<2>(codes));
        let [a, b, c, d] = self.quarters;
        let low = _mm256_blendv_epi8(_mm256_shuffle_epi8(a, codes), _mm256_shuffle_epi8(b, codes), fifth);
        let high = _mm256_blendv_epi8(_mm256_shuffle_epi8(c, codes), _mm256_shuffle_epi8(d, codes), fifth);
        _mm256_blendv_epi8(low, high, sixth)
    }
}

/// Writes the bytes that were found, and escapes in the place of some, and returns how many.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn put_escapes(found: __m256i, escaped: u32, escapes: &[u8; LANES], to: &mut [u8; LANES]) -> usize {
    // SAFETY: writes 32 bytes, which there are.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), found) };
    let mut at = 0;
    for (eight, escaped) in to.as_chunks_mut::<8>().0.iter_mut().zip(escaped.to_le_bytes()) {
        // SAFETY: reads eight bytes, which there are: no eight before it took more.
        let escapes = unsafe { _mm_loadl_epi64(escapes.as_ptr().wrapping_add(at).cast()) };
        // Not `_mm_loadh_pd`, which wants a number's alignment.
        let both = _mm_insert_epi64::<1>(escapes, i64::from_le_bytes(*eight));
        let bytes = _mm_shuffle_epi8(both, entry(&OVERS, usize::from(escaped)));
        // SAFETY: writes eight bytes, which there are.
        unsafe { _mm_storel_epi64(eight.as_mut_ptr().cast(), bytes) };
        at += escaped.count_ones() as usize;
    }
    at
}

/// Where eight codes of some bits are: the first eight of each half, and the second.
#[derive(Clone, Copy)]
struct Unpacking {
    bytes: [[u8; LANES]; 2],
    /// What to multiply two bytes by, so that the code is in the highest bits.
    factors: [u16; LANES / 2],
}

impl Unpacking {
    const fn of(bits: usize) -> Self {
        let mut unpacking = Self { bytes: [[0; LANES]; 2], factors: [0; LANES / 2] };
        let mut at = 0;
        while at < LANES {
            let bit = at % 16 / 2 * bits;
            unpacking.bytes[0][at] = (bit / 8 + at % 2) as u8;
            unpacking.bytes[1][at] = (bits + bit / 8 + at % 2) as u8;
            unpacking.factors[at / 2] = 1 << (16 - bits - bit % 8);
            at += 1;
        }
        unpacking
    }
}

/// For each number of bits.
static UNPACKINGS: [Unpacking; BITS_MAX + 1] = {
    let mut unpackings = [Unpacking::of(1); BITS_MAX + 1];
    let mut bits = 1;
    while bits < unpackings.len() {
        unpackings[bits] = Unpacking::of(bits);
        bits += 1;
    }
    unpackings
};
