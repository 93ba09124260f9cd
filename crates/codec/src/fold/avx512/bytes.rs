//! Codes of frequent bytes, 64 at once.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// The numbers of bytes.
static BYTES: [u8; VECTOR_BYTES] = {
    let mut bytes = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < VECTOR_BYTES {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

/// See [`frequent::Path::select`].
#[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
pub(super) fn select(counts: &Counts, most: usize) -> Selection {
    let mut quarters = [_mm512_setzero_si512(); 4];
    for (quarter, counts) in quarters.iter_mut().zip(counts.0.as_chunks().0) {
        *quarter = load_bytes(counts);
    }
    // The least number that no more than `most` are above.
    let mut least = 0;
    for bit in (0..8).rev() {
        least = if ones(&above(&quarters, least + (1 << bit) - 1)) > most { least + (1 << bit) } else { least };
    }
    let mut bytes = above(&quarters, least);
    let mut room = most - ones(&bytes);
    if least > 0 {
        for (bytes, counts) in bytes.iter_mut().zip(quarters) {
            let as_often = _mm512_cmpeq_epi8_mask(counts, _mm512_set1_epi8(least as i8));
            let taken = _pdep_u64(lowest(room), as_often);
            *bytes |= taken;
            room -= taken.count_ones() as usize;
        }
    }
    let mut escapes = _mm512_setzero_si512();
    for (bytes, counts) in bytes.into_iter().zip(quarters) {
        let others = _mm512_maskz_mov_epi8(!bytes, counts);
        escapes = _mm512_add_epi64(escapes, _mm512_sad_epu8(others, _mm512_setzero_si512()));
    }
    Selection { bytes, escapes: _mm512_reduce_add_epi64(escapes) as usize }
}

/// Which counts are above a number. Not a closure: those are not inlined.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn above(quarters: &[__m512i; 4], least: u8) -> [u64; 4] {
    let mut bits = [0; 4];
    for (bits, counts) in bits.iter_mut().zip(quarters) {
        *bits = _mm512_cmpgt_epu8_mask(*counts, _mm512_set1_epi8(least as i8));
    }
    bits
}

/// See [`frequent::Path::write_codes`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi2,popcnt")]
pub(super) fn write_codes(
    bytes: &[u8],
    count: usize,
    selection: &Selection,
    bits: usize,
    codes: &mut [u8],
    escapes: &mut [u8],
) -> usize {
    let escape = _mm512_set1_epi8((1_i8 << bits) - 1);
    let mut table = [escape; 4];
    let mut lower = 0;
    for (entries, selected) in table.iter_mut().zip(selection.bytes) {
        let numbers = _mm512_add_epi8(load_bytes(&BYTES), _mm512_set1_epi8(lower));
        *entries = _mm512_mask_expand_epi8(escape, selected, numbers);
        lower += selected.count_ones() as i8;
    }
    let packing = Packing::new(bits);
    let mut escape_count = 0;
    for at in (0..count).step_by(VECTOR_BYTES) {
        let here = lowest(count - at);
        let bytes = load_bytes(part(bytes, at));
        let low = _mm512_permutex2var_epi8(table[0], bytes, table[1]);
        let high = _mm512_permutex2var_epi8(table[2], bytes, table[3]);
        let found = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(bytes), high);
        let found = _mm512_maskz_mov_epi8(here, found);
        let escaped = _mm512_mask_cmpeq_epi8_mask(here, found, escape);
        store(part_mut(escapes, escape_count), _mm512_maskz_compress_epi8(escaped, bytes));
        escape_count += escaped.count_ones() as usize;
        // As many bytes as 64 codes take, and then any, which the next codes overwrite.
        store(part_mut(codes, at / 8 * bits), packing.pack(found));
    }
    escape_count
}

/// How to put codes of some bits together.
#[derive(Clone, Copy)]
struct Packing {
    two: __m512i,
    four: __m512i,
    eight: __m128i,
    bytes: __m512i,
}

impl Packing {
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn new(bits: usize) -> Self {
        Self {
            two: _mm512_set1_epi16(1 << (8 + bits) | 1),
            four: _mm512_set1_epi32(1 << (16 + 2 * bits) | 1),
            eight: _mm_cvtsi64_si128(32 - 4 * bits as i64),
            bytes: load_bytes(&FIRST_OF_EIGHT[bits]),
        }
    }

    /// 64 codes, and behind them anything.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    fn pack(&self, codes: __m512i) -> __m512i {
        let twos = _mm512_maddubs_epi16(codes, self.two);
        let fours = _mm512_madd_epi16(twos, self.four);
        let low = _mm512_and_si512(fours, _mm512_set1_epi64(0xffff_ffff));
        let eights = _mm512_or_si512(
            low,
            _mm512_srl_epi64(_mm512_andnot_si512(_mm512_set1_epi64(0xffff_ffff), fours), self.eight),
        );
        _mm512_permutexvar_epi8(self.bytes, eights)
    }
}

/// For each number of bits, so many bytes of each eight, then any.
static FIRST_OF_EIGHT: [[u8; VECTOR_BYTES]; frequent::BITS_MAX + 1] = {
    let mut places = [[0; VECTOR_BYTES]; frequent::BITS_MAX + 1];
    let mut bits = 1;
    while bits < places.len() {
        let mut at = 0;
        while at < 8 * bits {
            places[bits][at] = (at / bits * 8 + at % bits) as u8;
            at += 1;
        }
        bits += 1;
    }
    places
};

/// See [`frequent::Path::read_codes`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi2,popcnt")]
pub(super) fn read_codes(
    codes: &[u8],
    bits: usize,
    table: &[u8; VECTOR_BYTES],
    escapes: &[u8],
    count: usize,
    out: &mut [u8],
) -> Option<usize> {
    let (table, escape) = (load_bytes(table), _mm512_set1_epi8((1_i8 << bits) - 1));
    let mut escape_count = 0;
    for (number, codes) in codes.chunks(8 * bits).enumerate() {
        let at = number * VECTOR_BYTES;
        let codes = unpack_bits(load_first(codes), bits);
        let escaped = _mm512_mask_cmpeq_epi8_mask(lowest(count - at), codes, escape);
        let mine = escapes.get(escape_count..escape_count + escaped.count_ones() as usize)?;
        escape_count += mine.len();
        let bytes = _mm512_permutexvar_epi8(codes, table);
        // SAFETY: reads one byte for each bit of the mask, which is as many as the slice has.
        let bytes = unsafe { _mm512_mask_expandloadu_epi8(bytes, escaped, mine.as_ptr().cast()) };
        store(part_mut(out, at), bytes);
    }
    Some(escape_count)
}
