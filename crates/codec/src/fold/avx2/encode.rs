//! The encoder. It goes over the page four times: it finds the words to list and packs them, compares each group with each choice and
//! stores which bytes are equal, lets 32 words at once choose, and packs their literals. Apart, because a load right behind a
//! narrower store waits for it.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::covers::{CHOICE_BITS, COVER_OF, COVERS, LITERALS, WHOLE};
use super::super::format::{List, Unlisted, ones};
use super::super::places::{LAST_PLACE, Places, SAMPLES, Scores, sampled};
use super::super::shuffles::PACKS;
use super::super::{BITMAP_BYTES, CHOICES, GROUP, GROUPS, LISTED, TILE, WINDOW, Workspace};
use super::{entry, load, load_bytes, part, part_mut};

/// Groups that choose together.
const CHOOSING: usize = 4;

/// See [`Path::encode`](super::Path::encode).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn encode(groups: usize, places: Places, workspace: &mut Workspace) -> usize {
    compare(workspace, groups, places);
    for first in (0..groups).step_by(CHOOSING) {
        let (choices, different) = choose(&workspace.different[first / TILE], first % TILE);
        let told: &mut [u64; CHOOSING] = part_mut(&mut workspace.told, first);
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(told.as_mut_ptr().cast(), different) };
        store_codes(part_mut(&mut workspace.codes, first * GROUP), choices);
    }
    let Workspace { words, told, codes, literals, .. } = workspace;
    let mut numbers = [[0; GROUP]; GROUPS];
    let mut count = 0;
    let words = words[WINDOW..].as_chunks::<GROUP>().0;
    for ((words, &different), numbers) in words.iter().zip(&*told).zip(&mut numbers).take(groups) {
        count += pack_literals(words, different, numbers, part_mut(literals, count));
    }
    // The choices are there.
    let numbers = numbers.as_flattened().as_chunks::<32>().0;
    for (codes, numbers) in codes.as_chunks_mut().0.iter_mut().zip(numbers).take(groups.div_ceil(CHOOSING)) {
        let numbers = load_bytes(numbers);
        let whole = _mm256_cmpeq_epi8(numbers, _mm256_set1_epi8(WHOLE as i8));
        let choices = _mm256_andnot_si256(whole, load_bytes(codes));
        store_codes(codes, _mm256_or_si256(_mm256_slli_epi16::<{ CHOICE_BITS as i32 }>(numbers), choices));
    }
    count
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_codes(to: &mut [u8; 32], codes: __m256i) {
    // SAFETY: writes 32 bytes, which there are.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), codes) };
}

/// For each choice and each group, which bytes are equal.
#[target_feature(enable = "avx2,bmi1,popcnt")]
#[inline]
fn compare(workspace: &mut Workspace, groups: usize, places: Places) {
    let Workspace { words, different: equal, .. } = workspace;
    let places = places.0.map(|place| usize::from(place).min(LAST_PLACE));
    for group in 0..groups {
        let window: &[u64; WINDOW + GROUP] = part(words, group * GROUP);
        let equal = &mut equal[group / TILE];
        let at = group % TILE;
        let words = [load(part(window, WINDOW)), load(part(window, WINDOW + 4))];
        let zero = _mm256_setzero_si256();
        equal[0][at] = equal_bytes(words, [zero; 2]);
        for (choice, near) in [(1, 1), (2, 2)] {
            equal[choice][at] = equal_bytes(words, [_mm256_set1_epi64x(window[WINDOW - near].cast_signed()); 2]);
        }
        for (choice, place) in (LISTED..CHOICES).zip(places) {
            equal[choice][at] = equal_bytes(words, [load(part(window, place)), load(part(window, place + 4))]);
        }
    }
}

/// A bit for each byte of eight words.
#[target_feature(enable = "avx2")]
#[inline]
fn equal_bytes(words: [__m256i; 2], others: [__m256i; 2]) -> u64 {
    let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(words[0], others[0])).cast_unsigned();
    let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(words[1], others[1])).cast_unsigned();
    u64::from(high) << 32 | u64::from(low)
}

/// The choices of four groups, a byte each, and which of their bytes differ then.
#[target_feature(enable = "avx2")]
#[inline]
fn choose(equal: &[[u64; TILE]; CHOICES], first: usize) -> (__m256i, __m256i) {
    let mut kept = load(part(&equal[0], first));
    let mut most = ones_of_bytes(kept);
    let mut choices = _mm256_setzero_si256();
    for (choice, equal) in equal.iter().enumerate().skip(1) {
        let equal = load(part(equal, first));
        let count = ones_of_bytes(equal);
        let better = _mm256_cmpgt_epi8(count, most);
        most = _mm256_max_epu8(count, most);
        kept = _mm256_blendv_epi8(kept, equal, better);
        choices = _mm256_blendv_epi8(choices, _mm256_set1_epi8(choice as i8), better);
    }
    (choices, _mm256_xor_si256(kept, _mm256_set1_epi8(-1)))
}

/// How many bits are set in each byte.
#[target_feature(enable = "avx2")]
#[inline]
fn ones_of_bytes(bytes: __m256i) -> __m256i {
    let nibble = _mm256_set1_epi8(15);
    let table = load_bytes(&ONES);
    let low = _mm256_shuffle_epi8(table, _mm256_and_si256(bytes, nibble));
    let high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble));
    _mm256_add_epi8(low, high)
}

/// Writes the bytes of the masks that hold those that differ, and the numbers of these masks, and returns how many bytes they are.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn pack_literals(
    words: &[u64; GROUP],
    mut different: u64,
    numbers: &mut [u8; GROUP],
    to: &mut [u8; GROUP * 8],
) -> usize {
    let mut at = 0;
    for (word, number) in words.iter().zip(numbers) {
        *number = COVER_OF.0[usize::from(different as u8)];
        different >>= 8;
        let cover = usize::from(*number) % COVERS.len();
        let packed = _mm_shuffle_epi8(_mm_cvtsi64_si128(word.cast_signed()), entry(&COVER_PACKS, cover));
        // SAFETY: writes eight bytes, which there are: no word before it took more.
        unsafe { _mm_storel_epi64(to.as_mut_ptr().wrapping_add(at).cast(), packed) };
        at += LITERALS[cover << CHOICE_BITS];
    }
    at
}

/// For each mask, how to put its bytes together.
static COVER_PACKS: [u64; COVERS.len() + 1] = {
    let mut packs = [0; COVERS.len() + 1];
    let mut number = 0;
    while number < COVERS.len() {
        packs[number] = PACKS[COVERS[number] as usize];
        number += 1;
    }
    packs
};

/// See [`Path::list`](super::Path::list).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn list(page: &PageBytes, workspace: &mut Workspace) -> List {
    let (not_zero, not_repeated) = listed_words(page);
    let Some(unlisted) = Unlisted::shorter(ones(&not_zero), ones(&not_repeated)) else {
        let to = workspace.words[WINDOW..].as_chunks_mut::<4>().0;
        for (to, words) in to.iter_mut().zip(page.0.as_chunks::<32>().0) {
            let words = load_bytes(words);
            // SAFETY: writes 32 bytes, which there are.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) };
        }
        return List::ALL;
    };
    let bitmap = if unlisted == Unlisted::Zeros { not_zero } else { not_repeated };
    let mut words = 0;
    for (block, bits) in page.0.as_chunks::<{ 8 * GROUP }>().0.iter().zip(bitmap) {
        for (half, bytes) in block.as_chunks::<32>().0.iter().enumerate() {
            let bits = usize::from(bits >> (4 * half)) % 16;
            let packed = _mm256_permutevar8x32_epi32(load_bytes(bytes), load_bytes(&LISTED_OF_FOUR[bits]));
            let to: &mut [u64; 4] = part_mut(&mut workspace.words, WINDOW + words);
            // SAFETY: writes 32 bytes, which there are.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), packed) };
            words += bits.count_ones() as usize;
        }
    }
    *part_mut(&mut workspace.words, WINDOW + words) = [0; GROUP];
    let (mut bytes, mut bitmap_bytes) = (0, [0; BITMAP_BYTES / 8]);
    for (eight, are_there) in bitmap.as_chunks::<8>().0.iter().zip(&mut bitmap_bytes) {
        let eight = _mm_cvtsi64_si128(i64::from_le_bytes(*eight));
        *are_there = !_mm_movemask_epi8(_mm_cmpeq_epi8(eight, _mm_setzero_si128())) as u8;
        let packed = _mm_shuffle_epi8(eight, entry(&PACKS, usize::from(*are_there)));
        *part_mut(&mut workspace.bitmap, bytes) = _mm_cvtsi128_si64(packed).to_le_bytes();
        bytes += are_there.count_ones() as usize;
    }
    List { unlisted, words, bitmap_bytes: u64::from_le_bytes(bitmap_bytes) }
}

/// A bit for each word that is not zero, and for each that is not the same as the one before.
#[target_feature(enable = "avx2")]
#[inline]
fn listed_words(page: &PageBytes) -> ([u8; BITMAP_BYTES], [u8; BITMAP_BYTES]) {
    let (mut not_zero, mut not_repeated) = ([0; BITMAP_BYTES], [0; BITMAP_BYTES]);
    let zero = _mm256_setzero_si256();
    for block in 0..BITMAP_BYTES {
        let at = block * 8 * GROUP;
        let words = [load_bytes(part::<u8, 32>(&page.0, at)), load_bytes(part::<u8, 32>(&page.0, at + 32))];
        let before = if at == 0 {
            // Its lowest word from nowhere.
            _mm256_blend_epi32::<3>(_mm256_permute4x64_epi64::<0b1001_0000>(words[0]), zero)
        } else {
            load_bytes(part::<u8, 32>(&page.0, at - 8))
        };
        let before = [before, load_bytes(part::<u8, 32>(&page.0, at + 24))];
        not_zero[block] = !equal_words(words, [zero; 2]);
        not_repeated[block] = !equal_words(words, before);
    }
    (not_zero, not_repeated)
}

/// A bit for each of eight words.
#[target_feature(enable = "avx2")]
#[inline]
fn equal_words(words: [__m256i; 2], others: [__m256i; 2]) -> u8 {
    let low = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(words[0], others[0])));
    let high = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(words[1], others[1])));
    (high << 4 | low) as u8
}

/// See [`Path::scores`](super::Path::scores).
#[target_feature(enable = "avx2")]
pub(super) fn scores(groups: usize, workspace: &Workspace) -> Scores {
    // So many places that their sums stay in registers.
    const HALF: usize = LAST_PLACE / 2;
    let mut scores = Scores([0; WINDOW]);
    scores_of(groups, workspace, 1, part_mut::<u16, HALF>(&mut scores.0, 1));
    scores_of(groups, workspace, 1 + HALF, part_mut::<u16, HALF>(&mut scores.0, 1 + HALF));
    scores
}

/// See [`Path::best`](super::Path::best). There is an instruction that finds the least of eight numbers.
#[target_feature(enable = "sse4.1")]
pub(in crate::fold) fn best(scores: &Scores) -> Places {
    // What is least is to be the best: all bits the other way round.
    let mut keys = [_mm_set1_epi16(-1); WINDOW / 8];
    let mut places = _mm_set_epi16(7, 6, 5, 4, 3, 2, 1, 0);
    for (keys, scores) in keys.iter_mut().zip(scores.0.as_chunks::<8>().0) {
        // SAFETY: reads 16 bytes, which there are.
        let scores = unsafe { _mm_loadu_si128(scores.as_ptr().cast()) };
        *keys = _mm_xor_si128(*keys, _mm_or_si128(_mm_slli_epi16::<5>(scores), places));
        places = _mm_add_epi16(places, _mm_set1_epi16(8));
    }
    // Behind the last place.
    const { assert!(LAST_PLACE == 3 * 8) };
    keys[3] = _mm_or_si128(keys[3], _mm_set_epi16(-1, -1, -1, -1, -1, -1, -1, 0));
    let mut best = [0; CHOICES - LISTED];
    for best in &mut best {
        let halves = [_mm_min_epu16(keys[0], keys[1]), _mm_min_epu16(keys[2], keys[3])];
        let least = _mm_extract_epi16::<0>(_mm_minpos_epu16(_mm_min_epu16(halves[0], halves[1])));
        let taken = _mm_set1_epi16(least as i16);
        for keys in &mut keys {
            *keys = _mm_or_si128(*keys, _mm_cmpeq_epi16(*keys, taken));
        }
        *best = !least as u8 % WINDOW as u8;
    }
    Places(best)
}

/// Those of some places.
#[target_feature(enable = "avx2")]
#[inline]
fn scores_of<const N: usize>(groups: usize, workspace: &Workspace, first: usize, scores: &mut [u16; N]) {
    const { assert!(SAMPLES * 2 <= 255, "what is counted in a byte fits it") };
    let samples = groups.min(SAMPLES);
    // Less one for each byte that was the same.
    let mut same = [_mm256_setzero_si256(); N];
    for sample in 0..samples {
        let words: &[u64; WINDOW + GROUP] = part(&workspace.words, sampled(sample, groups) * GROUP);
        for half in [0, 4] {
            let group = load(part(words, WINDOW + half));
            let zero = _mm256_cmpeq_epi8(group, _mm256_setzero_si256());
            for (place, same) in same.iter_mut().enumerate() {
                let here = _mm256_cmpeq_epi8(group, load(part(words, first + place + half)));
                *same = _mm256_add_epi8(*same, _mm256_andnot_si256(zero, here));
            }
        }
    }
    for (same, score) in same.into_iter().zip(scores) {
        let sums = _mm256_sad_epu8(_mm256_sub_epi8(_mm256_setzero_si256(), same), _mm256_setzero_si256());
        let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        *score = _mm_cvtsi128_si64(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums))) as u16;
    }
}

/// The bits that are set in each number of four, for both halves of a vector.
static ONES: [u8; 32] = {
    let mut ones = [0; 32];
    let mut at = 0_u8;
    while at < 32 {
        ones[at as usize] = (at % 16).count_ones() as u8;
        at += 1;
    }
    ones
};

/// The words of four that are listed, told as halves, for the bits that say which; behind them any.
static LISTED_OF_FOUR: [[u32; 8]; 16] = {
    let mut orders = [[0; 8]; 16];
    let mut bits = 0;
    while bits < 16 {
        let (mut word, mut count) = (0, 0);
        while word < 4 {
            if bits >> word & 1 == 1 {
                orders[bits][2 * count] = 2 * word as u32;
                orders[bits][2 * count + 1] = 2 * word as u32 + 1;
                count += 1;
            }
            word += 1;
        }
        bits += 1;
    }
    orders
};
