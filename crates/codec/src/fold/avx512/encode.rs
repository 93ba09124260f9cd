//! The encoder. It goes over the page four times: it finds the words to list, packs them, compares each group with each
//! choice and stores which bytes differ, then lets each word choose, 64 words at once. Apart, because a load right
//! behind a store of another width waits for it.

use core::hint::black_box;

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

/// See [`Path::same_bytes`].
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
pub(super) fn same_bytes(page: &PageBytes) -> u32 {
    let mut same = 0;
    for sample in 0..SAMPLES {
        let at = sample_at(sample);
        let (words, before) = (load_bytes(part(&page.0, at.0)), load_bytes(part(&page.0, at.1)));
        same += _mm512_cmpeq_epi8_mask(words, before).count_ones();
    }
    same
}

/// See [`Path::encode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn encode(page: &PageBytes, reach: Reach, workspace: &mut Workspace) -> Written {
    let list = pack(page, workspace);
    match reach {
        Reach::Near => compare::<{ Reach::Near.first() }>(workspace, list.groups()),
        Reach::Far => compare::<{ Reach::Far.first() }>(workspace, list.groups()),
    }
    let first = reach.first();
    let mut masks = 0;
    for tile in 0..list.groups().div_ceil(TILE) {
        // Of the last, as many words as are in groups. The other groups hold what was compared on another page.
        let real = lowest((list.groups() - tile * TILE) * GROUP);
        let (choices, told, different) = choose(&workspace.different[tile], first, real);
        pack_choices(choices, part_mut(&mut workspace.indices, tile * TILE * INDEX_BITS));
        *part_mut(&mut workspace.differs, tile * TILE) = different.to_le_bytes();
        store(part_mut(&mut workspace.masks, masks), _mm512_maskz_compress_epi8(different, told));
        masks += different.count_ones() as usize;
        store_words(part_mut(&mut workspace.told, tile * TILE), told);
    }
    let mut literals = 0;
    let words = workspace.words[WINDOW..].as_chunks().0;
    for (words, &told) in words.iter().zip(&workspace.told).take(list.groups()) {
        store(part_mut(&mut workspace.literals, literals), _mm512_maskz_compress_epi8(told, load(words)));
        literals += told.count_ones() as usize;
    }
    Written { list, masks, literals }
}

/// Writes the bitmap, and the listed words one behind the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
#[inline]
fn pack(page: &PageBytes, workspace: &mut Workspace) -> List {
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

/// For each choice and each group, which bytes differ. The place before the first choice is for zero.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare<const FIRST: usize>(workspace: &mut Workspace, groups: usize) {
    let Workspace { words, different, .. } = workspace;
    for (tile, different) in different.iter_mut().enumerate().take(groups.div_ceil(TILE)) {
        let words: &[u64; WINDOW + TILE * GROUP] = part(words, tile * TILE * GROUP);
        match groups - tile * TILE {
            0..=4 => compare_groups::<FIRST, 4>(words, different),
            5..=6 => compare_groups::<FIRST, 6>(words, different),
            _ => compare_groups::<FIRST, TILE>(words, different),
        }
    }
}

/// The first groups of a tile, all with one choice after the other: what they store lies together then.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn compare_groups<const FIRST: usize, const N: usize>(words: &[u64; WINDOW + TILE * GROUP], different: &mut Tile) {
    let mut groups = [_mm512_setzero_si512(); N];
    for (at, group) in groups.iter_mut().enumerate() {
        *group = load(part(words, WINDOW + at * GROUP));
    }
    for at in 0..N {
        different[FIRST - 1][at] = _mm512_test_epi8_mask(groups[at], groups[at]);
    }
    // Nobody is to know what it is: else the compiler makes a comparison of what is not to be one.
    let high = black_box(_mm512_set1_epi8(0x7f));
    for choice in FIRST..WINDOW {
        for at in 0..N {
            let predictor = _mm512_set1_epi64(words[at * GROUP + choice].cast_signed());
            different[choice][at] = if at % 4 == 1 {
                // The same in another way: a processor has one unit for comparisons, and another that can do this.
                let difference = _mm512_xor_si512(groups[at], predictor);
                _mm512_movepi8_mask(_mm512_adds_epu8(difference, high))
            } else {
                _mm512_cmpneq_epi8_mask(groups[at], predictor)
            };
        }
    }
}

/// The choices of eight groups, a field each, which of their bytes are told then, and which of the words have a mask.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg")]
#[inline]
fn choose(different: &Tile, first: usize, real: u64) -> (__m512i, __m512i, u64) {
    let mut told = load(&different[first - 1]);
    let mut least = _mm512_popcnt_epi8(told);
    let mut choices = _mm512_setzero_si512();
    for (choice, different) in different.iter().enumerate().skip(first) {
        let different = load(different);
        let count = _mm512_popcnt_epi8(different);
        let better = _mm512_cmple_epu8_mask(count, least);
        least = _mm512_min_epu8(count, least);
        told = _mm512_mask_mov_epi8(told, better, different);
        choices = _mm512_mask_mov_epi8(choices, better, _mm512_set1_epi8(field(choice as u8) as i8));
    }
    let whole = _mm512_cmpge_epu8_mask(least, _mm512_set1_epi8(7));
    let choices = _mm512_mask_mov_epi8(choices, whole, _mm512_set1_epi8(field(WHOLE as u8) as i8));
    let has_mask = _mm512_test_epi8_mask(told, told) & !whole & real;
    (choices, _mm512_mask_mov_epi8(told, whole, _mm512_set1_epi8(-1)), has_mask)
}

/// Five bits for each of 64 fields.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn pack_choices(choices: __m512i, to: &mut [u8; VECTOR_BYTES]) {
    // Two into ten bits, those into twenty, and those into forty: five bytes of each eight.
    let tens = _mm512_maddubs_epi16(choices, _mm512_set1_epi16(32 << 8 | 1));
    let twenties = _mm512_madd_epi16(tens, _mm512_set1_epi32(1024 << 16 | 1));
    let high = _mm512_srli_epi64::<12>(twenties);
    let low = _mm512_and_si512(twenties, _mm512_set1_epi64(0xf_ffff));
    let forties = _mm512_ternarylogic_epi64::<0xf8>(low, high, _mm512_set1_epi64(0xf_ffff << 20));
    store(to, _mm512_permutexvar_epi8(load_bytes(&FIVE_OF_EIGHT), forties));
}

/// The first five of each eight bytes, then any.
static FIVE_OF_EIGHT: [u8; VECTOR_BYTES] = {
    let mut places = [0; VECTOR_BYTES];
    let mut at = 0;
    while at < GROUP * INDEX_BITS {
        places[at] = (at / INDEX_BITS * 8 + at % INDEX_BITS) as u8;
        at += 1;
    }
    places
};
