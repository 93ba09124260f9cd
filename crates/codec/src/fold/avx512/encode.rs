//! The encoder. It goes over the page four times: it finds the words to list, packs them, compares each group with each
//! choice and stores which bytes are equal, then lets each word choose. Apart, because a load right behind a store of
//! another width waits for it.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use super::*;

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

/// See [`Path::encode`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,bmi2,popcnt")]
pub(super) fn encode(page: &PageBytes, workspace: &mut Workspace) -> Written {
    let list = pack(page, workspace);
    compare(workspace, list.groups());
    let (mut masks, mut literals) = (0, 0);
    for group in 0..list.groups() {
        let (index_bytes, mask_bytes, whole) = choose(part(&workspace.equal, group * WINDOW));
        // Eight bytes, of which the next group, or what is put behind, overwrites three.
        *part_mut(&mut workspace.indices, group * INDEX_BITS) = _pext_u64(index_bytes, INDICES).to_le_bytes();
        let bytes = _mm_cvtsi64_si128(mask_bytes as i64);
        let different = _mm_test_epi8_mask(bytes, bytes) as u8 & !whole;
        workspace.differs[group] = different;
        let packed = _pext_u64(mask_bytes, bytes_of(different));
        *part_mut(&mut workspace.masks, masks) = packed.to_le_bytes();
        masks += different.count_ones() as usize;
        let words = load(part(&workspace.words, WINDOW + group * GROUP));
        store(part_mut(&mut workspace.literals, literals), _mm512_maskz_compress_epi8(mask_bytes, words));
        literals += mask_bytes.count_ones() as usize;
    }
    Written { list, masks, literals }
}
/// Writes the bitmap, and the listed words one behind the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
#[inline]
fn pack(page: &PageBytes, workspace: &mut Workspace) -> List {
    let (unlisted, bitmap) = choose_list(page);
    let bits = load_bytes(&bitmap);
    let bitmap_bytes = _mm512_test_epi8_mask(bits, bits);
    store(&mut workspace.bitmap, _mm512_maskz_compress_epi8(bitmap_bytes, bits));
    workspace.words[..WINDOW].fill(0);
    let mut words = 0;
    for (bytes, listed) in page.0.as_chunks::<VECTOR_BYTES>().0.iter().zip(bitmap) {
        let packed = _mm512_maskz_compress_epi64(listed, load_bytes(bytes));
        store_words(part_mut(&mut workspace.words, WINDOW + words), packed);
        words += listed.count_ones() as usize;
    }
    *part_mut(&mut workspace.words, WINDOW + words) = [0; GROUP];
    List { unlisted, words, bitmap_bytes }
}

/// What is not listed, and a bit for each word that is.
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn choose_list(page: &PageBytes) -> (Unlisted, [u8; BITMAP_BYTES]) {
    let (mut not_zero, mut not_repeated) = ([0; BITMAP_BYTES], [0; BITMAP_BYTES]);
    let mut last = _mm512_setzero_si512();
    for (block, bytes) in page.0.as_chunks().0.iter().enumerate() {
        let words = load_bytes(bytes);
        not_zero[block] = _mm512_test_epi64_mask(words, words);
        not_repeated[block] = _mm512_cmpneq_epi64_mask(words, _mm512_alignr_epi64::<7>(words, last));
        last = words;
    }
    match Unlisted::shorter(ones(&not_zero), ones(&not_repeated)) {
        Unlisted::Zeros => (Unlisted::Zeros, not_zero),
        Unlisted::Repeats => (Unlisted::Repeats, not_repeated),
    }
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
        equal[WHOLE] = 0;
        for choice in WHOLE + 1..WINDOW {
            equal[choice] = _mm512_cmpeq_epi8_mask(words, _mm512_set1_epi64(window[choice] as i64));
        }
    }
}

/// The choices of a group, a byte each, the bytes that differ then, and which words are told in full.
///
/// A choice is worth its equal bytes, above its number; one equal byte is worth as little as none.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512bitalg")]
#[inline]
fn choose(equal: &[u64; WINDOW]) -> (u64, u64, u8) {
    let equal = [load(part(equal, 0)), load(part(equal, 8)), load(part(equal, 16)), load(part(equal, 24))];
    let worth = |quarter: usize| {
        let shared = _mm512_subs_epu8(_mm512_popcnt_epi8(equal[quarter]), _mm512_set1_epi8(1));
        _mm512_or_si512(_mm512_slli_epi16::<5>(shared), load_bytes(part(&CHOICES, quarter * 64)))
    };
    let best = _mm512_max_epu8(_mm512_max_epu8(worth(0), worth(1)), _mm512_max_epu8(worth(2), worth(3)));
    let best = _mm256_max_epu8(_mm512_castsi512_si256(best), _mm512_extracti64x4_epi64::<1>(best));
    let best = _mm_max_epu8(_mm256_castsi256_si128(best), _mm256_extracti128_si256::<1>(best));
    let best = _mm_max_epu8(best, _mm_srli_si128::<8>(best));
    // Not worth anything: below all numbers that have a worth above theirs.
    let whole = _mm_cmplt_epu8_mask(best, _mm_set1_epi8(WINDOW as i8)) as u8;
    let index = _mm_and_si128(best, _mm_set1_epi8(WINDOW as i8 - 1));
    let index = _mm_mask_mov_epi8(index, u16::from(whole), _mm_set1_epi8(WHOLE as i8));
    // Byte `lane` of word `index`: 256 bytes, of which an instruction reaches 128. The highest bit says which half.
    let lanes = _mm_cvtsi64_si128(0x0706_0504_0302_0100);
    let at = _mm_or_si128(_mm_slli_epi16::<3>(index), lanes);
    let wide = _mm512_castsi128_si512(at);
    let low = _mm512_castsi512_si128(_mm512_permutex2var_epi8(equal[0], wide, equal[1]));
    let high = _mm512_castsi512_si128(_mm512_permutex2var_epi8(equal[2], wide, equal[3]));
    let chosen = _mm_blendv_epi8(low, high, at);
    (_mm_cvtsi128_si64(index) as u64, !(_mm_cvtsi128_si64(chosen) as u64), whole)
}

/// The bytes of a number whose bits are set in `bits`, all ones.
#[target_feature(enable = "bmi2")]
#[inline]
fn bytes_of(bits: u8) -> u64 {
    _pdep_u64(u64::from(bits), BYTES) * 255
}
