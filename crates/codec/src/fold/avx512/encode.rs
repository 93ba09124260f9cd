//! The encoder. It goes over the page four times: it finds the words to list, packs them, compares each group with each
//! choice and stores which bytes differ, then lets each word choose, 64 words at once. Apart, because a load right
//! behind a store of another width waits for it.

use core::hint::black_box;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// See [`Path::encode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn encode(groups: usize, places: Places, workspace: &mut Workspace) -> Written {
    compare(workspace, groups, places);
    let mut masks = 0;
    for tile in 0..groups.div_ceil(TILE) {
        // Of the last, as many words as are in groups. The other groups hold what was compared on another page.
        let real = lowest((groups - tile * TILE) * GROUP);
        let (choices, told, different) = choose(&workspace.different[tile], real);
        pack_choices(choices, part_mut(&mut workspace.indices, tile * TILE * INDEX_BYTES));
        *part_mut(&mut workspace.differs, tile * TILE) = different.to_le_bytes();
        store(part_mut(&mut workspace.masks, masks), _mm512_maskz_compress_epi8(different, told));
        masks += different.count_ones() as usize;
        store_words(part_mut(&mut workspace.told, tile * TILE), told);
    }
    let mut literals = 0;
    let words = workspace.words[WINDOW..].as_chunks().0;
    for (words, &told) in words.iter().zip(&workspace.told).take(groups) {
        store(part_mut(&mut workspace.literals, literals), _mm512_maskz_compress_epi8(told, load(words)));
        literals += told.count_ones() as usize;
    }
    Written { masks, literals }
}

/// See [`Path::list`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
pub(super) fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
    let (not_zero, not_repeated) = listed_words(page);
    let unlisted = Unlisted::shorter(ones(&not_zero), ones(&not_repeated));
    let Some(unlisted) = unlisted else {
        let to = workspace.words[WINDOW..].as_chunks_mut().0;
        for (to, words) in to.iter_mut().zip(page.0.as_chunks().0) {
            store_words(to, load_bytes(words));
        }
        return List::ALL;
    };
    let bitmap = if unlisted == Unlisted::Zeros { not_zero } else { not_repeated };
    let bits = load(&bitmap);
    let bitmap_bytes = _mm512_test_epi8_mask(bits, bits);
    store(part_mut(&mut workspace.bitmap, 0), _mm512_maskz_compress_epi8(bitmap_bytes, bits));
    let mut words = 0;
    for (blocks, bits) in page.0.as_chunks::<{ 8 * VECTOR_BYTES }>().0.iter().zip(bitmap) {
        for (bytes, listed) in blocks.as_chunks().0.iter().zip(bits.to_le_bytes()) {
            let packed = _mm512_maskz_compress_epi64(listed, load_bytes(bytes));
            store_words(part_mut(&mut workspace.words, WINDOW + words), packed);
            words += listed.count_ones() as usize;
        }
    }
    *part_mut(&mut workspace.words, WINDOW + words) = [0; GROUP];
    List { unlisted, words, bitmap_bytes }
}

/// A bit for each word that is not zero, and for each that is not the same as the one before.
#[target_feature(enable = "avx512f")]
#[inline]
fn listed_words(page: &PageBytes) -> ([u64; GROUP], [u64; GROUP]) {
    let (mut not_zero, mut not_repeated) = ([0; BITMAP_BYTES], [0; BITMAP_BYTES]);
    for block in 0..BITMAP_BYTES {
        let at = block * VECTOR_BYTES;
        let words = load_bytes(part(&page.0, at));
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
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn scores(groups: usize, workspace: &Workspace) -> Scores {
    let samples = groups.min(SAMPLES);
    // How often each byte of a group was the same: a vector for each place, all in registers.
    let mut same = [_mm512_setzero_si512(); PLACES];
    for sample in 0..samples {
        let words: &[u64; WINDOW + GROUP] = part(&workspace.words, sampled(sample, samples, groups) * GROUP);
        let group = load(part(words, WINDOW));
        let not_zero = _mm512_test_epi8_mask(group, group);
        for (place, same) in same.iter_mut().enumerate() {
            let here = _mm512_mask_cmpeq_epi8_mask(not_zero, group, load(part(words, place)));
            *same = _mm512_mask_sub_epi8(*same, here, *same, _mm512_set1_epi8(-1));
        }
    }
    const { assert!(SAMPLES * 8 <= 255, "the sum of a word fits a byte") };
    let mut scores = Scores([0; WINDOW]);
    for (same, scores) in same.chunks(8).zip(scores.0.as_chunks_mut::<8>().0) {
        let mut sums = _mm512_setzero_si512();
        for (place, same) in same.iter().enumerate() {
            let sum = _mm512_sad_epu8(*same, _mm512_setzero_si512());
            sums = _mm512_or_si512(sums, _mm512_sllv_epi64(sum, _mm512_set1_epi64(8 * place as i64)));
        }
        let by_place = _mm512_permutexvar_epi8(load_bytes(&EVERY_EIGHTH), sums);
        let sums = _mm512_cvtepi64_epi16(_mm512_sad_epu8(by_place, _mm512_setzero_si512()));
        // SAFETY: writes 16 bytes, which there are.
        unsafe { _mm_storeu_si128(scores.as_mut_ptr().cast(), sums) };
    }
    scores
}

/// The first bytes of eight words, then the second ones, …
static EVERY_EIGHTH: [u8; VECTOR_BYTES] = {
    let mut places = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < VECTOR_BYTES {
        places[at] = (at % 8 * 8 + at / 8) as u8;
        at += 1;
    }
    places
};

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

/// The first groups of a tile.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare_groups<const N: usize>(words: &[u64; WINDOW + TILE * GROUP], places: Places, different: &mut Tile) {
    // Nobody is to know what it is: else the compiler makes a comparison of what is not to be one.
    let high = black_box(_mm512_set1_epi8(0x7f));
    for at in 0..N {
        let (window, group) = (&words[at * GROUP..][..WINDOW], load(part(words, WINDOW + at * GROUP)));
        different[0][at] = _mm512_test_epi8_mask(group, group);
        for (choice, near) in [(2, 1), (3, 2)] {
            let predictor = _mm512_set1_epi64(window[WINDOW - near].cast_signed());
            // The same in another way: a processor has one unit for comparisons, and another that can do this.
            let difference = _mm512_xor_si512(group, predictor);
            different[choice][at] = _mm512_movepi8_mask(_mm512_adds_epu8(difference, high));
        }
        for (choice, place) in (LISTED..).zip(places.0) {
            let predictors = load(part(window, usize::from(place).min(WINDOW - GROUP)));
            different[choice][at] = _mm512_cmpneq_epi8_mask(group, predictors);
        }
    }
}

/// The choices of eight groups, a byte each, which of their bytes are told then, and which of the words have a mask.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg")]
#[inline]
fn choose(different: &Tile, real: u64) -> (__m512i, __m512i, u64) {
    let mut told = load(&different[0]);
    let mut least = _mm512_popcnt_epi8(told);
    let mut choices = _mm512_setzero_si512();
    for (choice, different) in different.iter().enumerate().skip(WHOLE + 1) {
        let different = load(different);
        let count = _mm512_popcnt_epi8(different);
        let better = _mm512_cmplt_epu8_mask(count, least);
        least = _mm512_min_epu8(count, least);
        told = _mm512_mask_mov_epi8(told, better, different);
        choices = _mm512_mask_mov_epi8(choices, better, _mm512_set1_epi8(choice as i8));
    }
    let whole = _mm512_cmpge_epu8_mask(least, _mm512_set1_epi8(7));
    let choices = _mm512_mask_mov_epi8(choices, whole, _mm512_set1_epi8(WHOLE as i8));
    let has_mask = _mm512_test_epi8_mask(told, told) & !whole & real;
    (choices, _mm512_mask_mov_epi8(told, whole, _mm512_set1_epi8(-1)), has_mask)
}

/// Three bits for each of 64 choices.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn pack_choices(choices: __m512i, to: &mut [u8; VECTOR_BYTES]) {
    // Two into six bits, those into twelve, and those into 24: three bytes of each eight.
    let sixes = _mm512_maddubs_epi16(choices, _mm512_set1_epi16(8 << 8 | 1));
    let twelves = _mm512_madd_epi16(sixes, _mm512_set1_epi32(64 << 16 | 1));
    let all = _mm512_or_si512(_mm512_srli_epi64::<20>(twelves), twelves);
    store(to, _mm512_permutexvar_epi8(load_bytes(&THREE_OF_EIGHT), all));
}

/// The first three of each eight bytes, then any.
static THREE_OF_EIGHT: [u8; VECTOR_BYTES] = {
    let mut places = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < TILE * INDEX_BYTES {
        places[at] = (at / INDEX_BYTES * 8 + at % INDEX_BYTES) as u8;
        at += 1;
    }
    places
};
