//! The encoder. It goes over the page four times: it finds the words to list, packs them, compares each group with each
//! choice and stores which bytes differ, then lets each word choose, 64 words at once. Apart, because a load right
//! behind a store of another width waits for it.

use super::super::covers::{CHOICE_BITS, COVER_OF, COVERS, WHOLE};
#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// See [`Path::encode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn encode(groups: usize, places: Places, workspace: &mut Workspace) -> usize {
    compare(workspace, groups, places);
    for tile in 0..groups.div_ceil(TILE) {
        let (choices, different) = choose(&workspace.different[tile]);
        let numbers = cover_of(different);
        store_words(
            part_mut(&mut workspace.told, tile * TILE),
            _mm512_permutexvar_epi8(numbers, load_bytes(&COVERS_FIRST)),
        );
        let whole = _mm512_cmpeq_epi8_mask(numbers, _mm512_set1_epi8(WHOLE as i8));
        let codes = _mm512_or_si512(
            _mm512_slli_epi16::<{ CHOICE_BITS as u32 }>(numbers),
            _mm512_mask_mov_epi8(choices, whole, _mm512_setzero_si512()),
        );
        store(part_mut(&mut workspace.codes, tile * VECTOR_BYTES), codes);
    }
    let mut literals = 0;
    let words = workspace.words[WINDOW..].as_chunks().0;
    for (words, &told) in words.iter().zip(&workspace.told).take(groups) {
        store(part_mut(&mut workspace.literals, literals), _mm512_maskz_compress_epi8(told, load(words)));
        literals += told.count_ones() as usize;
    }
    literals
}

/// The masks, and anything behind them.
static COVERS_FIRST: [u8; VECTOR_BYTES] = {
    let mut covers = [0; VECTOR_BYTES];
    covers.split_at_mut(COVERS.len()).0.copy_from_slice(&COVERS);
    covers
};

/// The numbers of the masks of 64 words.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn cover_of(different: __m512i) -> __m512i {
    let quarters = COVER_OF.0.as_chunks().0;
    let low = _mm512_permutex2var_epi8(load_bytes(&quarters[0]), different, load_bytes(&quarters[1]));
    let high = _mm512_permutex2var_epi8(load_bytes(&quarters[2]), different, load_bytes(&quarters[3]));
    _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(different), high)
}

/// See [`Path::list`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
pub(super) fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
    let (not_zero, not_repeated) = listed_words(page, workspace.words[WINDOW..].as_chunks_mut().0);
    let unlisted = Unlisted::shorter(ones(&not_zero), ones(&not_repeated));
    let Some(unlisted) = unlisted else { return List::ALL };
    let bitmap = if unlisted == Unlisted::Zeros { not_zero } else { not_repeated };
    let bits = load(&bitmap);
    let bitmap_bytes = _mm512_test_epi8_mask(bits, bits);
    store(part_mut(&mut workspace.bitmap, 0), _mm512_maskz_compress_epi8(bitmap_bytes, bits));
    let mut words = 0;
    for (blocks, bits) in page.0.as_chunks::<{ 8 * VECTOR_BYTES }>().0.iter().zip(bitmap) {
        for (bytes, listed) in blocks.as_chunks().0.iter().zip(bits.to_le_bytes()) {
            let order = by_lanes(ORDERS[usize::from(listed)]);
            let packed = _mm512_permutexvar_epi64(order, load_bytes(bytes));
            store_words(part_mut(&mut workspace.words, WINDOW + words), packed);
            words += listed.count_ones() as usize;
        }
    }
    *part_mut(&mut workspace.words, WINDOW + words) = [0; GROUP];
    List { unlisted, words, bitmap_bytes }
}

/// For each byte of the bitmap, which of its words are listed, a byte each, and behind them any.
static ORDERS: [u64; 256] = {
    let mut orders = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut at, mut count) = (0, 0);
        while at < 8 {
            if bits >> at & 1 == 1 {
                orders[bits] |= (at as u64) << (8 * count);
                count += 1;
            }
            at += 1;
        }
        bits += 1;
    }
    orders
};

/// A bit for each word that is not zero, and for each that is not the same as the one before. All words are copied, for a page that lists them.
#[target_feature(enable = "avx512f")]
#[inline]
fn listed_words(page: &PageBytes, all: &mut [[u64; GROUP]]) -> ([u64; GROUP], [u64; GROUP]) {
    let (mut not_zero, mut not_repeated) = ([0; BITMAP_BYTES], [0; BITMAP_BYTES]);
    for (block, all) in all.iter_mut().enumerate().take(BITMAP_BYTES) {
        let at = block * VECTOR_BYTES;
        let words = load_bytes(part(&page.0, at));
        store_words(all, words);
        let before = if at == 0 {
            _mm512_alignr_epi64::<7>(words, _mm512_setzero_si512())
        } else {
            load_bytes(part(&page.0, at - 8))
        };
        not_zero[block] = _mm512_test_epi64_mask(words, words);
        not_repeated[block] = _mm512_cmpneq_epi64_mask(words, before);
    }
    (eights(&not_zero), eights(&not_repeated))
}

/// Bytes as numbers.
#[target_feature(enable = "avx512f")]
#[inline]
fn eights(bytes: &[u8; VECTOR_BYTES]) -> [u64; GROUP] {
    let mut numbers = [0; GROUP];
    store_words(&mut numbers, load_bytes(bytes));
    numbers
}

/// See [`Path::scores`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg,avx512vpopcntdq")]
pub(super) fn scores(groups: usize, workspace: &mut Workspace) -> Scores {
    const { assert!(SAMPLES == GROUPS / TILE && LAST_PLACE / 8 <= CHOICES) };
    let samples = groups.min(SAMPLES);
    let Workspace { words, different: same, .. } = workspace;
    // The bytes that are the same, apart from counting them: there are more ways to a store than to where numbers are added.
    for (sample, same) in same.iter_mut().enumerate() {
        let same = same.first_chunk_mut::<{ LAST_PLACE / 8 }>().expect("a row for each choice");
        if sample >= samples {
            *same = [[0; 8]; LAST_PLACE / 8];
            continue;
        }
        let words: &[u64; WINDOW + GROUP] = part(words, sampled(sample, groups) * GROUP);
        let group = load(part(words, WINDOW));
        let not_zero = _mm512_test_epi8_mask(group, group);
        for (place, same) in (1..).zip(same.as_flattened_mut()) {
            *same = _mm512_mask_cmpeq_epi8_mask(not_zero, group, load(part(words, place)));
        }
    }
    let mut scores = Scores([0; WINDOW]);
    for at in 0..LAST_PLACE / 8 {
        let mut sums = _mm512_setzero_si512();
        for same in &*same {
            sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(load(&same[at])));
        }
        let to: &mut [u16; 8] = part_mut(&mut scores.0, 1 + 8 * at);
        let sums = _mm512_cvtepi64_epi16(sums);
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), sums) };
    }
    scores
}

/// For each choice and each group, which bytes differ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare(workspace: &mut Workspace, groups: usize, places: Places) {
    let Workspace { words, different, .. } = workspace;
    for (tile, different) in different.iter_mut().enumerate().take(groups.div_ceil(TILE)) {
        let words: &[u64; WINDOW + TILE * GROUP] = part(words, tile * TILE * GROUP);
        match groups - tile * TILE {
            0..=4 => compare_groups::<4>(words, places, different),
            5..=6 => compare_groups::<6>(words, places, different),
            _ => compare_groups::<TILE>(words, places, different),
        }
    }
}

/// The first groups of a tile, choice by choice: two stores take as long as one if they are to the same 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare_groups<const N: usize>(words: &[u64; WINDOW + TILE * GROUP], places: Places, different: &mut Tile) {
    let groups: [__m512i; N] = core::array::from_fn(|at| load(part(words, WINDOW + at * GROUP)));
    for (different, group) in different[0].iter_mut().zip(groups) {
        *different = _mm512_test_epi8_mask(group, group);
    }
    for (choice, near) in [(1, 1), (2, 2)] {
        for (at, (different, group)) in different[choice].iter_mut().zip(groups).enumerate() {
            let predictor = _mm512_set1_epi64(words[WINDOW + at * GROUP - near].cast_signed());
            *different = _mm512_cmpneq_epi8_mask(group, predictor);
        }
    }
    for (different, place) in different[LISTED..].iter_mut().zip(places.0) {
        let predictors = words[usize::from(place).min(WINDOW - GROUP)..].as_chunks().0;
        for ((different, group), predictors) in different.iter_mut().zip(groups).zip(predictors) {
            *different = _mm512_cmpneq_epi8_mask(group, load(predictors));
        }
    }
}

/// The choices of eight groups, a byte each, and which of their bytes differ then.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg")]
#[inline]
fn choose(different: &Tile) -> (__m512i, __m512i) {
    let mut least_different = load(&different[0]);
    let mut least = _mm512_popcnt_epi8(least_different);
    let mut choices = _mm512_setzero_si512();
    for (choice, different) in different.iter().enumerate().skip(1) {
        let different = load(different);
        let count = _mm512_popcnt_epi8(different);
        let better = _mm512_cmplt_epu8_mask(count, least);
        least = _mm512_min_epu8(count, least);
        least_different = _mm512_mask_mov_epi8(least_different, better, different);
        choices = _mm512_mask_mov_epi8(choices, better, _mm512_set1_epi8(choice as i8));
    }
    (choices, least_different)
}
