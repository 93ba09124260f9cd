//! `fold` in vectors of 512 bits: eight words at once, no branch that depends on the page.
//!
//! The encoder goes over the page three times: it packs the words that are not zero, compares each group with each
//! choice and stores which bytes are equal, then lets each word choose. Apart, because a load right behind a store of
//! another width waits for it.

#[allow(clippy::wildcard_imports, reason = "forty intrinsics, whose names say where they are from")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::{Areas, BITMAP_BYTES, GROUP, HEADER_BYTES, INDEX_BITS, VECTOR_BYTES, WINDOW, WORDS, Workspace};
use crate::Corrupt;

cpufeatures::new!(
    needed,
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512bitalg",
    "bmi2",
    "popcnt"
);

/// Eight times the lowest bit of a byte.
const BYTES: u64 = 0x0101_0101_0101_0101;
/// Eight times the bits of an index.
const INDICES: u64 = 0x1f * BYTES;
/// The number of each choice, once for each word of a group.
static CHOICES: [u8; WINDOW * GROUP] = {
    let mut choices = [0; WINDOW * GROUP];
    let mut at = 0;
    while at < choices.len() {
        choices[at] = (at / GROUP) as u8;
        at += 1;
    }
    choices
};
/// How far to shift packed indices for each word.
static SHIFTS: [u64; GROUP] = [0, 5, 10, 15, 20, 25, 30, 35];

/// Whether this processor can run what is here.
#[inline]
pub(super) fn is_available() -> bool {
    needed::get()
}

/// Encodes into `workspace.out` and returns the length. Needs [`is_available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn encode(page: &PageBytes, workspace: &mut Workspace) -> usize {
    let count = pack(page, workspace);
    let groups = count.div_ceil(GROUP);
    compare(workspace, groups);
    let differs = HEADER_BYTES + BITMAP_BYTES;
    let indices = differs + groups;
    let (mut masks, mut literals) = (0, 0);
    for group in 0..groups {
        let (index_bytes, mask_bytes) = choose(part(&workspace.equal, group * WINDOW));
        // Eight bytes, of which the next group, or what is put behind, overwrites three.
        *part_mut(&mut workspace.out, indices + group * INDEX_BITS) = _pext_u64(index_bytes, INDICES).to_le_bytes();
        let bytes = _mm_cvtsi64_si128(mask_bytes as i64);
        let different = _mm_test_epi8_mask(bytes, bytes) as u8;
        workspace.out[differs + group] = different;
        let packed = _pext_u64(mask_bytes, bytes_of(different));
        *part_mut(&mut workspace.masks, masks) = packed.to_le_bytes();
        masks += different.count_ones() as usize;
        let words = load(part(&workspace.words, WINDOW + group * GROUP));
        store(part_mut(&mut workspace.literals, literals), _mm512_maskz_compress_epi8(mask_bytes, words));
        literals += mask_bytes.count_ones() as usize;
    }
    workspace.finish(count, masks, literals)
}

/// Writes the bitmap, and the words that are not zero one behind the other. Returns how many they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
#[inline]
fn pack(page: &PageBytes, workspace: &mut Workspace) -> usize {
    workspace.words[..WINDOW].fill(0);
    let mut count = 0;
    for (block, bytes) in page.0.as_chunks::<64>().0.iter().enumerate() {
        let words = load_bytes(bytes);
        let present = _mm512_test_epi64_mask(words, words);
        workspace.out[HEADER_BYTES + block] = present;
        let packed = _mm512_maskz_compress_epi64(present, words);
        store_words(part_mut(&mut workspace.words, WINDOW + count), packed);
        count += present.count_ones() as usize;
    }
    *part_mut(&mut workspace.words, WINDOW + count) = [0; GROUP];
    count
}

/// For each group and each choice, which bytes are equal.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare(workspace: &mut Workspace, groups: usize) {
    for group in 0..groups {
        let window: &[u64; WINDOW] = part(&workspace.words, group * GROUP);
        let words = load(part(&workspace.words, WINDOW + group * GROUP));
        let equal: &mut [u64; WINDOW] = part_mut(&mut workspace.equal, group * WINDOW);
        equal[0] = _mm512_testn_epi8_mask(words, words);
        for choice in 1..WINDOW {
            equal[choice] = _mm512_cmpeq_epi8_mask(words, _mm512_set1_epi64(window[choice] as i64));
        }
    }
}

/// The choices of a group, a byte each, and the bytes that differ then.
///
/// A choice is worth its equal bytes, above its number; one equal byte is worth as little as none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512bitalg")]
#[inline]
fn choose(equal: &[u64; WINDOW]) -> (u64, u64) {
    let equal = [load(part(equal, 0)), load(part(equal, 8)), load(part(equal, 16)), load(part(equal, 24))];
    let worth = |quarter: usize| {
        let shared = _mm512_subs_epu8(_mm512_popcnt_epi8(equal[quarter]), _mm512_set1_epi8(1));
        _mm512_or_si512(_mm512_slli_epi16::<5>(shared), load_bytes(part(&CHOICES, quarter * 64)))
    };
    let best = _mm512_max_epu8(_mm512_max_epu8(worth(0), worth(1)), _mm512_max_epu8(worth(2), worth(3)));
    let best = _mm256_max_epu8(_mm512_castsi512_si256(best), _mm512_extracti64x4_epi64::<1>(best));
    let best = _mm_max_epu8(_mm256_castsi256_si128(best), _mm256_extracti128_si256::<1>(best));
    let best = _mm_max_epu8(best, _mm_srli_si128::<8>(best));
    let index = _mm_and_si128(best, _mm_set1_epi8(WINDOW as i8 - 1));
    // Byte `lane` of word `index`: 256 bytes, of which an instruction reaches 128. The highest bit says which half.
    let lanes = _mm_cvtsi64_si128(0x0706_0504_0302_0100);
    let at = _mm_or_si128(_mm_slli_epi16::<3>(index), lanes);
    let wide = _mm512_castsi128_si512(at);
    let low = _mm512_castsi512_si128(_mm512_permutex2var_epi8(equal[0], wide, equal[1]));
    let high = _mm512_castsi512_si128(_mm512_permutex2var_epi8(equal[2], wide, equal[3]));
    let chosen = _mm_blendv_epi8(low, high, at);
    (_mm_cvtsi128_si64(index) as u64, !(_mm_cvtsi128_si64(chosen) as u64))
}

/// Decodes; see [`crate::Codec::decode`]. Needs [`is_available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let areas = Areas::parse(encoding)?;
    // Behind the last group there is room for the last block's load.
    let mut words = [0_u64; WORDS + GROUP];
    // The last four groups, the newest first: choices 1 to 31, and zero in place of the farthest.
    let mut last = [_mm512_setzero_si512(); 4];
    let (mut masks, mut literals) = (areas.masks, areas.literals);
    for (group, &different) in areas.differs.iter().enumerate() {
        let mask = _pdep_u64(first_eight(masks), bytes_of(different));
        masks = &masks[different.count_ones() as usize..];
        let (mine, others) = literals.split_at(mask.count_ones() as usize);
        // SAFETY: reads one byte for each bit of the mask, which is as many as were split off.
        let literal = unsafe { _mm512_maskz_expandloadu_epi8(mask, mine.as_ptr().cast()) };
        literals = others;
        let packed = _mm512_set1_epi64(first_eight(&areas.indices[group * INDEX_BITS..]) as i64);
        let indices = _mm512_srlv_epi64(packed, load(&SHIFTS));
        let far = _mm512_permutex2var_epi64(_mm512_maskz_mov_epi64(0xfe, last[3]), indices, last[2]);
        let near = _mm512_permutex2var_epi64(last[1], indices, last[0]);
        let is_near = _mm512_test_epi64_mask(indices, _mm512_set1_epi64(16));
        let new = _mm512_mask_mov_epi8(_mm512_mask_mov_epi64(far, is_near, near), mask, literal);
        last = [new, last[0], last[1], last[2]];
        store_words(part_mut(&mut words, group * GROUP), new);
    }
    let mut next = 0;
    for (bytes, &present) in page.0.as_chunks_mut().0.iter_mut().zip(areas.bitmap) {
        store(bytes, _mm512_maskz_expand_epi64(present, load(part(&words, next))));
        next += present.count_ones() as usize;
    }
    Ok(())
}

/// The bytes of a number whose bits are set in `bits`, all ones.
#[target_feature(enable = "bmi2")]
#[inline]
fn bytes_of(bits: u8) -> u64 {
    _pdep_u64(u64::from(bits), BYTES) * 255
}

/// Eight bytes as a number; zeros for those that are not there.
#[inline]
fn first_eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[inline]
fn part<T, const N: usize>(slice: &[T], at: usize) -> &[T; N] {
    slice[at..].first_chunk().expect("every area has room for one vector more")
}

#[inline]
fn part_mut<T, const N: usize>(slice: &mut [T], at: usize) -> &mut [T; N] {
    slice[at..].first_chunk_mut().expect("every area has room for one vector more")
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(words: &[u64; GROUP]) -> __m512i {
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_bytes(bytes: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: &mut [u8; VECTOR_BYTES], vector: __m512i) {
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_words(words: &mut [u64; GROUP], vector: __m512i) {
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
}
