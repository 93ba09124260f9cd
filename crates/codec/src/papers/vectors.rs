//! What word codecs do to whole pages, sixteen words or 64 codes at once: lists of those that a mask names, and back.
//!
//! With AVX-512 alone, whose compress and expand are what makes it worth while. Elsewhere the plain twins do the work:
//! code without branches was tried and was no faster.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use super::pack::CODES_MAX;

cpufeatures::new!(needed, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi2", "bmi2", "popcnt");

/// Words of a page.
const WORDS: usize = CODES_MAX;
pub(super) const LANES: usize = 16;
pub(super) const BYTE_LANES: usize = 64;

/// A bit for each word of a page, or of a list of them.
pub(super) type Mask = [u64; WORDS / BYTE_LANES];
/// Words behind each other, with room for what a vector is too long.
pub(super) type Words = [u32; WORDS + LANES];
/// The same of codes, one a byte.
pub(super) type Bytes = [u8; WORDS + BYTE_LANES];

pub(super) const NO_WORDS: Words = [0; WORDS + LANES];
pub(super) const NO_BYTES: Bytes = [0; WORDS + BYTE_LANES];

/// A processor that has all that is used here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    #[inline]
    pub(super) fn new() -> Option<Self> {
        needed::get().then_some(Self(()))
    }
}

/// The sixteen words from `at` on.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load(words: &[u32], at: usize) -> __m512i {
    let words: &[u32; LANES] = words[at..].first_chunk().expect("a vector more than there are words");
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store(words: &mut [u32], at: usize, vector: __m512i) {
    let words: &mut [u32; LANES] = words[at..].first_chunk_mut().expect("a vector more than there are words");
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
}

/// The 64 bytes from `at` on.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load_bytes(bytes: &[u8], at: usize) -> __m512i {
    let bytes: &[u8; BYTE_LANES] = bytes[at..].first_chunk().expect("a vector more than there are codes");
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store_bytes(bytes: &mut [u8], at: usize, vector: __m512i) {
    let bytes: &mut [u8; BYTE_LANES] = bytes[at..].first_chunk_mut().expect("a vector more than there are codes");
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

/// Writes sixteen bytes: the lowest of each word.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store_lowest(bytes: &mut Bytes, at: usize, words: __m512i) {
    let bytes: &mut [u8; LANES] = bytes[at..].first_chunk_mut().expect("a vector more than there are codes");
    let lowest = _mm512_cvtepi32_epi8(words);
    // SAFETY: writes 16 bytes, which there are.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), lowest) };
}

/// Writes the lowest byte of each word that `which` names, of sixteen.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
pub(super) fn replace_lowest(bytes: &mut Bytes, at: usize, which: __mmask16, words: __m512i) {
    let bytes: &mut [u8; LANES] = bytes[at..].first_chunk_mut().expect("a vector more than there are codes");
    let lowest = _mm512_cvtepi32_epi8(words);
    // SAFETY: writes no more than 16 bytes, which there are.
    unsafe { _mm_mask_storeu_epi8(bytes.as_mut_ptr().cast(), which, lowest) };
}

/// A number with the lowest `count` bits set, at most 64.
#[target_feature(enable = "bmi2")]
#[inline]
pub(super) fn lowest(count: usize) -> u64 {
    _bzhi_u64(u64::MAX, count.min(BYTE_LANES) as u32)
}

pub(super) fn ones(mask: &Mask) -> usize {
    mask.iter().map(|bits| bits.count_ones() as usize).sum()
}

/// The `lane`-th sixteen bits of a mask's word.
#[inline(always)]
pub(super) const fn sixteen(bits: u64, lane: usize) -> __mmask16 {
    (bits >> (lane * LANES)) as __mmask16
}

/// Lists the words that `mask` names, of `count`; how many there are.
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
pub(super) fn compress(words: &[u32], count: usize, mask: &Mask, list: &mut Words) -> usize {
    let mut listed = 0;
    for (bits, at) in mask.iter().zip((0..count).step_by(BYTE_LANES)) {
        for lane in 0..4 {
            let bits = sixteen(*bits, lane);
            // In two steps, because in one it takes many times as long on Zen 4.
            store(list, listed, _mm512_maskz_compress_epi32(bits, load(words, at + lane * LANES)));
            listed += bits.count_ones() as usize;
        }
    }
    listed
}

/// [`compress`] of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
#[inline]
pub(super) fn compress_bytes(bytes: &[u8], count: usize, mask: &Mask, list: &mut Bytes) -> usize {
    let mut listed = 0;
    for (bits, at) in mask.iter().zip((0..count).step_by(BYTE_LANES)) {
        store_bytes(list, listed, _mm512_maskz_compress_epi8(*bits, load_bytes(bytes, at)));
        listed += bits.count_ones() as usize;
    }
    listed
}

/// [`expand`] of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
#[inline]
pub(super) fn expand_bytes(list: &Bytes, count: usize, mask: &Mask, bytes: &mut [u8]) {
    let mut listed = 0;
    for (bits, at) in mask.iter().zip((0..count).step_by(BYTE_LANES)) {
        store_bytes(bytes, at, _mm512_maskz_expand_epi8(*bits, load_bytes(list, listed)));
        listed += bits.count_ones() as usize;
    }
}

/// [`expand_bytes`] that leaves what lies in between as it is.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
#[inline]
pub(super) fn expand_bytes_over(list: &Bytes, count: usize, mask: &Mask, bytes: &mut [u8]) {
    let mut listed = 0;
    for (bits, at) in mask.iter().zip((0..count).step_by(BYTE_LANES)) {
        let here = load_bytes(bytes, at);
        store_bytes(bytes, at, _mm512_mask_expand_epi8(here, *bits, load_bytes(list, listed)));
        listed += bits.count_ones() as usize;
    }
}

/// Puts halves that lie at `at` into the words that `mask` names, zero-extended.
#[target_feature(enable = "avx512f,avx512vl,avx512vbmi2")]
#[inline]
pub(super) fn expand_halves(halves: &[u8], at: usize, mask: __mmask16, words: __m512i) -> __m512i {
    let halves: &[u8; BYTE_LANES / 2] = halves[at..].first_chunk().expect("a vector more than there are halves");
    // SAFETY: reads 32 bytes, which there are.
    let halves = unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) };
    _mm512_mask_cvtepu16_epi32(words, mask, _mm256_maskz_expand_epi16(mask, halves))
}

/// Writes the lower halves of the words that `mask` names behind each other.
#[target_feature(enable = "avx512f,avx512vl,avx512vbmi2")]
#[inline]
pub(super) fn compress_halves(words: __m512i, mask: __mmask16, halves: &mut [u8], at: usize) {
    let halves: &mut [u8; BYTE_LANES / 2] =
        halves[at..].first_chunk_mut().expect("a vector more than there are halves");
    let listed = _mm256_maskz_compress_epi16(mask, _mm512_cvtepi32_epi16(words));
    // SAFETY: writes 32 bytes, which there are.
    unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), listed) };
}

/// What a mask of the listed words is for the page, of whose words `of` were listed.
#[target_feature(enable = "bmi2,popcnt")]
#[inline]
pub(super) fn spread_mask(listed: &Mask, of: &Mask) -> Mask {
    let mut taken = 0;
    of.map(|of| {
        let (word, shift) = (taken / BYTE_LANES, taken % BYTE_LANES);
        // In two steps, because there may be no bits to shift by.
        let behind = listed.get(word + 1).map_or(0, |bits| bits << 1 << (63 - shift));
        let here = listed.get(word).map_or(0, |bits| bits >> shift) | behind;
        taken += of.count_ones() as usize;
        _pdep_u64(here, of)
    })
}

/// The other way round.
#[target_feature(enable = "bmi2,popcnt")]
#[inline]
pub(super) fn gather_mask(mask: &Mask, of: &Mask) -> Mask {
    let (mut listed, mut taken) = (Mask::default(), 0);
    for (bits, of) in mask.iter().zip(of) {
        let (word, shift) = (taken / BYTE_LANES, taken % BYTE_LANES);
        let bits = _pext_u64(*bits, *of);
        // Of the last there is nothing to put behind it.
        if let Some(here) = listed.get_mut(word) {
            *here |= bits << shift;
        }
        if let Some(behind) = listed.get_mut(word + 1) {
            *behind |= bits >> 1 >> (63 - shift);
        }
        taken += of.count_ones() as usize;
    }
    listed
}

/// The places at which `bytes` have `bits`, of those in `of`; up to `count`.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
pub(super) fn places_of(bytes: &[u8], count: usize, of: u8, bits: u8) -> Mask {
    let mut mask = [0; WORDS / BYTE_LANES];
    let (of, bits) = (_mm512_set1_epi8(of as i8), _mm512_set1_epi8(bits as i8));
    for (mask, at) in mask.iter_mut().zip((0..count).step_by(BYTE_LANES)) {
        let masked = _mm512_and_si512(load_bytes(bytes, at), of);
        *mask = _mm512_cmpeq_epi8_mask(masked, bits) & lowest(count - at);
    }
    mask
}

/// Codes of two bits: where `lows` and `highs` have their bits.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(super) fn twos_of(lows: &Mask, highs: &Mask, codes: &mut Bytes) {
    for ((low, high), at) in lows.iter().zip(highs).zip((0..WORDS).step_by(BYTE_LANES)) {
        let low = _mm512_maskz_set1_epi8(*low, 1);
        store_bytes(codes, at, _mm512_mask_add_epi8(low, *high, low, _mm512_set1_epi8(2)));
    }
}

/// The words of a slice of bytes, which has no more than a page has; zeros behind.
#[inline]
pub(super) fn words_from(bytes: &[u8]) -> Words {
    let mut words = NO_WORDS;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// The codes of a list, for which no vector needs room any more.
pub(super) fn codes(bytes: &Bytes) -> &[u8; CODES_MAX] {
    bytes.first_chunk().expect("there is a vector more")
}

/// The same to write to.
pub(super) fn codes_mut(bytes: &mut Bytes) -> &mut [u8; CODES_MAX] {
    bytes.first_chunk_mut().expect("there is a vector more")
}
