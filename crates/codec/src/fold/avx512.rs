//! Fold in vectors of 512 bits: eight words at once, no branch that depends on the page.
//!
//! The encoder goes over the page three times: it packs the words that are not zero, compares each group with each
//! choice and stores which bytes are equal, then lets each word choose. Apart, because a load right behind a store of
//! another width waits for it.

use core::arch::x86_64::*;

use page::PageBytes;

use super::{Areas, BITMAP_BYTES, GROUP, HEADER_BYTES, INDEX_BITS, WINDOW, WORDS, Workspace};
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
static CHOICES: Aligned<[u8; WINDOW * GROUP]> = Aligned({
    let mut choices = [0; WINDOW * GROUP];
    let mut at = 0;
    while at < choices.len() {
        choices[at] = (at / GROUP) as u8;
        at += 1;
    }
    choices
});
/// How far to shift packed indices for each word.
static SHIFTS: Aligned<[u64; GROUP]> = Aligned([0, 5, 10, 15, 20, 25, 30, 35]);

#[repr(C, align(64))]
struct Aligned<T>(T);

/// Whether this processor can run what is here.
#[inline]
pub(super) fn is_available() -> bool {
    needed::get()
}

/// Encodes into `workspace.out` and returns the length.
///
/// # Safety
/// [`is_available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) unsafe fn encode(page: &PageBytes, workspace: &mut Workspace) -> usize {
    workspace.words[..WINDOW].fill(0);
    // SAFETY: all pointers stay inside the arrays of the workspace and the page, as said at each.
    unsafe {
        let count = pack(page, workspace);
        let groups = count.div_ceil(GROUP);
        compare(workspace, groups);
        let differs = workspace.out.as_mut_ptr().add(HEADER_BYTES + BITMAP_BYTES);
        let indices = differs.add(groups);
        let (mut masks, mut literals) = (0, 0);
        for group in 0..groups {
            let (index_bytes, mask_bytes) = choose(workspace.equal.as_ptr().add(group * WINDOW));
            // Eight bytes, of which the next group, or what is put behind, overwrites three.
            indices.add(group * INDEX_BITS).cast::<u64>().write_unaligned(_pext_u64(index_bytes, INDICES));
            let bytes = _mm_cvtsi64_si128(mask_bytes as i64);
            let different = _mm_test_epi8_mask(bytes, bytes) as u8;
            differs.add(group).write(different);
            // At most 8 a group: at most 512, and 64 behind.
            let packed = _pext_u64(mask_bytes, _pdep_u64(u64::from(different), BYTES) * 255);
            workspace.masks.as_mut_ptr().add(masks).cast::<u64>().write_unaligned(packed);
            masks += different.count_ones() as usize;
            let words = _mm512_loadu_si512(workspace.words.as_ptr().add(WINDOW + group * GROUP).cast());
            // At most 64 a group: at most 4096, and 64 behind.
            let kept = _mm512_maskz_compress_epi8(mask_bytes, words);
            _mm512_storeu_si512(workspace.literals.as_mut_ptr().add(literals).cast(), kept);
            literals += mask_bytes.count_ones() as usize;
        }
        workspace.finish(count, masks, literals)
    }
}

/// Writes the bitmap, and the words that are not zero one behind the other. Returns how many they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
#[inline]
unsafe fn pack(page: &PageBytes, workspace: &mut Workspace) -> usize {
    let mut count = 0;
    for block in 0..WORDS / GROUP {
        // SAFETY: 64 blocks of 64 bytes are a page; before the n-th block at most 8 n words are packed, and behind the
        // last there is room for a group.
        unsafe {
            let words = _mm512_loadu_si512(page.0.as_ptr().add(block * 64).cast());
            let present = _mm512_test_epi64_mask(words, words);
            workspace.out[HEADER_BYTES + block] = present;
            let packed = _mm512_maskz_compress_epi64(present, words);
            _mm512_storeu_si512(workspace.words.as_mut_ptr().add(WINDOW + count).cast(), packed);
            count += present.count_ones() as usize;
        }
    }
    // SAFETY: as above.
    unsafe { _mm512_storeu_si512(workspace.words.as_mut_ptr().add(WINDOW + count).cast(), _mm512_setzero_si512()) };
    count
}

/// For each group and each choice, which bytes are equal.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn compare(workspace: &mut Workspace, groups: usize) {
    for group in 0..groups {
        // SAFETY: at most 64 groups of 8 words, behind the window, and 32 choices for each.
        unsafe {
            let first = workspace.words.as_ptr().add(WINDOW + group * GROUP);
            let words = _mm512_loadu_si512(first.cast());
            let equal = workspace.equal.as_mut_ptr().add(group * WINDOW);
            equal.write(_mm512_testn_epi8_mask(words, words));
            for choice in 1..WINDOW {
                let other = _mm512_set1_epi64(first.sub(WINDOW).add(choice).read() as i64);
                equal.add(choice).write(_mm512_cmpeq_epi8_mask(words, other));
            }
        }
    }
}

/// The choices of a group, a byte each, and the bytes that differ then.
///
/// A choice is worth its equal bytes, above its number; one equal byte is worth as little as none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512bitalg")]
#[inline]
unsafe fn choose(equal: *const u64) -> (u64, u64) {
    // SAFETY: there are 32 words of equal bytes, and as many bytes of choices.
    let (equal, choices): ([__m512i; 4], [__m512i; 4]) = unsafe {
        let load = |at: *const u8, part: usize| _mm512_loadu_si512(at.add(part * 64).cast());
        let choices = CHOICES.0.as_ptr();
        let equal = equal.cast::<u8>();
        (
            [load(equal, 0), load(equal, 1), load(equal, 2), load(equal, 3)],
            [load(choices, 0), load(choices, 1), load(choices, 2), load(choices, 3)],
        )
    };
    let one = _mm512_set1_epi8(1);
    let worth = |part: usize| {
        let shared = _mm512_subs_epu8(_mm512_popcnt_epi8(equal[part]), one);
        _mm512_or_si512(_mm512_slli_epi16::<5>(shared), choices[part])
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

/// Decodes; see [`crate::Codec::decode`].
///
/// # Safety
/// [`is_available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) unsafe fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let areas = Areas::parse(encoding)?;
    let mut words = Aligned([0_u64; WORDS + GROUP]);
    // The last four groups, the newest first: choices 1 to 31, and zero in place of the farthest.
    let mut last = [_mm512_setzero_si512(); 4];
    let (mut masks, mut literals) = (areas.masks, areas.literals);
    // SAFETY: a static of 64 bytes.
    let shifts = unsafe { _mm512_load_si512(SHIFTS.0.as_ptr().cast()) };
    for (group, &different) in areas.differs.iter().enumerate() {
        let mask_count = different.count_ones() as usize;
        let packed = first_eight(masks);
        masks = &masks[mask_count..];
        let mask = _pdep_u64(packed, _pdep_u64(u64::from(different), BYTES) * 255);
        // SAFETY: reads one byte for each bit of the mask, and the sums agree.
        let literal = unsafe { _mm512_maskz_expandloadu_epi8(mask, literals.as_ptr().cast()) };
        literals = &literals[mask.count_ones() as usize..];
        let indices =
            _mm512_srlv_epi64(_mm512_set1_epi64(first_eight(&areas.indices[group * INDEX_BITS..]) as i64), shifts);
        let far = _mm512_permutex2var_epi64(_mm512_maskz_mov_epi64(0xfe, last[3]), indices, last[2]);
        let near = _mm512_permutex2var_epi64(last[1], indices, last[0]);
        let is_near = _mm512_test_epi64_mask(indices, _mm512_set1_epi64(16));
        let predicted = _mm512_mask_mov_epi64(far, is_near, near);
        let new = _mm512_mask_mov_epi8(predicted, mask, literal);
        last = [new, last[0], last[1], last[2]];
        // SAFETY: at most 64 groups of 8 words.
        unsafe { _mm512_store_si512(words.0.as_mut_ptr().add(group * GROUP).cast(), new) };
    }
    let mut next = words.0.as_ptr();
    for (block, &present) in areas.bitmap.iter().enumerate() {
        // SAFETY: before the last block at most 504 words are taken, and 520 are there; 64 blocks of 64 bytes are a page.
        unsafe {
            let packed = _mm512_loadu_si512(next.cast());
            let spread = _mm512_maskz_expand_epi64(present, packed);
            _mm512_storeu_si512(page.0.as_mut_ptr().add(block * 64).cast(), spread);
            next = next.add(present.count_ones() as usize);
        }
    }
    Ok(())
}

/// Eight bytes as a number; zeros for those that are not there.
#[inline]
fn first_eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
