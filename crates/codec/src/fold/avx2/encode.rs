//! The encoder. It goes over the page four times: it finds the words to list and packs them, compares each group with each choice and
//! stores which bytes are equal, lets 32 words at once choose, and packs their literals. Apart, because a load right behind a
//! narrower store waits for it.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::format::{List, Unlisted, ones};
use super::super::places::{PLACES, Places, SAMPLES, Scores, sampled};
use super::super::shuffles::PACKS;
use super::super::{
    BITMAP_BYTES, CHOICES, GROUP, INDEX_BITS, INDEX_BYTES, LISTED, TILE, WHOLE, WINDOW, Workspace, Written,
};
use super::{entry, load, load_bytes, part, part_mut};

/// Groups that choose together.
const CHOOSING: usize = 4;

/// See [`Path::encode`](super::Path::encode).
#[target_feature(enable = "avx2,bmi1,popcnt")]
pub(super) fn encode(groups: usize, places: Places, workspace: &mut Workspace) -> Written {
    compare(workspace, groups, places);
    let mut masks = 0;
    for four in 0..groups.div_ceil(CHOOSING) {
        let first = four * CHOOSING;
        // Of the last, as many words as are in groups. The other groups hold what was compared on another page.
        let real = u32::MAX >> (GROUP * CHOOSING.saturating_sub(groups - first));
        let equal = &workspace.different[first / TILE];
        let (choices, told, differ) = choose(equal, first % TILE, real);
        pack_choices(choices, part_mut(&mut workspace.indices, first * INDEX_BYTES));
        *part_mut(&mut workspace.differs, first) = differ.to_le_bytes();
        let told_words: &mut [u64; CHOOSING] = part_mut(&mut workspace.told, first);
        // SAFETY: writes 32 bytes, which there are.
        unsafe { _mm256_storeu_si256(told_words.as_mut_ptr().cast(), told) };
        for (&told, differ) in told_words.iter().zip(differ.to_le_bytes()) {
            let packed = _mm_shuffle_epi8(_mm_cvtsi64_si128(told.cast_signed()), entry(&PACKS, differ));
            *part_mut(&mut workspace.masks, masks) = _mm_cvtsi128_si64(packed).to_le_bytes();
            masks += differ.count_ones() as usize;
        }
    }
    let mut literals = 0;
    let words = workspace.words[WINDOW..].as_chunks::<GROUP>().0;
    for (words, &told) in words.iter().zip(&workspace.told).take(groups) {
        literals += pack_literals(words, told, part_mut(&mut workspace.literals, literals));
    }
    Written { masks, literals }
}

/// For each choice and each group, which bytes are equal.
#[target_feature(enable = "avx2,bmi1,popcnt")]
#[inline]
fn compare(workspace: &mut Workspace, groups: usize, places: Places) {
    let Workspace { words, different: equal, .. } = workspace;
    let [four, five, six, seven] = places.0.map(|place| usize::from(place).min(WINDOW - GROUP));
    for group in 0..groups {
        let window: &[u64; WINDOW + GROUP] = part(words, group * GROUP);
        let equal = &mut equal[group / TILE];
        let at = group % TILE;
        let words = [load(part(window, WINDOW)), load(part(window, WINDOW + 4))];
        let zero = _mm256_setzero_si256();
        equal[0][at] = equal_bytes(words, [zero; 2]);
        for (choice, near) in [(2, 1), (3, 2)] {
            equal[choice][at] = equal_bytes(words, [_mm256_set1_epi64x(window[WINDOW - near].cast_signed()); 2]);
        }
        for (choice, place) in (LISTED..CHOICES).zip([four, five, six, seven]) {
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

/// The choices of four groups, a byte each, which of their bytes are told then, and which of the words have a mask.
#[target_feature(enable = "avx2")]
#[inline]
fn choose(equal: &[[u64; TILE]; CHOICES], first: usize, real: u32) -> (__m256i, __m256i, u32) {
    let mut kept = load(part(&equal[0], first));
    let mut most = ones_of_bytes(kept);
    let mut choices = _mm256_setzero_si256();
    for (choice, equal) in equal.iter().enumerate().skip(WHOLE + 1) {
        let equal = load(part(equal, first));
        let count = ones_of_bytes(equal);
        let better = _mm256_cmpgt_epi8(count, most);
        most = _mm256_max_epu8(count, most);
        kept = _mm256_blendv_epi8(kept, equal, better);
        choices = _mm256_blendv_epi8(choices, _mm256_set1_epi8(choice as i8), better);
    }
    let all = _mm256_set1_epi8(-1);
    let whole = _mm256_cmpgt_epi8(_mm256_set1_epi8(2), most);
    let choices = _mm256_blendv_epi8(choices, _mm256_set1_epi8(WHOLE as i8), whole);
    let has_none = _mm256_or_si256(whole, _mm256_cmpeq_epi8(kept, all));
    let told = _mm256_or_si256(_mm256_xor_si256(kept, all), whole);
    (choices, told, !_mm256_movemask_epi8(has_none).cast_unsigned() & real)
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

/// Three bits for each of 32 choices.
#[target_feature(enable = "avx2")]
#[inline]
fn pack_choices(choices: __m256i, to: &mut [u8; 2 * INDEX_BYTES + 8]) {
    const { assert!(INDEX_BITS == 3 && INDEX_BYTES == 3) };
    // Two into six bits, those into twelve, and those into 24: three bytes of each eight.
    let sixes = _mm256_maddubs_epi16(choices, _mm256_set1_epi16(8 << 8 | 1));
    let twelves = _mm256_madd_epi16(sixes, _mm256_set1_epi32(64 << 16 | 1));
    let all = _mm256_or_si256(_mm256_srli_epi64::<20>(twelves), twelves);
    let packed = _mm256_shuffle_epi8(all, load_bytes(&THREE_OF_EIGHT));
    let halves = [_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed)];
    for (at, half) in halves.into_iter().enumerate() {
        *part_mut(to, at * 2 * INDEX_BYTES) = _mm_cvtsi128_si64(half).to_le_bytes();
    }
}

/// Writes the bytes that are told, and returns how many they are.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn pack_literals(words: &[u64; GROUP], told: u64, to: &mut [u8; GROUP * 8]) -> usize {
    let mut at = 0;
    for (word, told) in words.iter().zip(told.to_le_bytes()) {
        let packed = _mm_shuffle_epi8(_mm_cvtsi64_si128(word.cast_signed()), entry(&PACKS, told));
        // SAFETY: writes eight bytes, which there are: no word before it took more.
        unsafe { _mm_storel_epi64(to.as_mut_ptr().wrapping_add(at).cast(), packed) };
        at += told.count_ones() as usize;
    }
    at
}

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
        let packed = _mm_shuffle_epi8(eight, entry(&PACKS, *are_there));
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
    const FIRST: usize = 13;
    let mut scores = Scores([0; WINDOW]);
    scores_of(groups, workspace, 0, part_mut::<u16, FIRST>(&mut scores.0, 0));
    scores_of(groups, workspace, FIRST, part_mut::<u16, { PLACES - FIRST }>(&mut scores.0, FIRST));
    scores
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
        let words: &[u64; WINDOW + GROUP] = part(&workspace.words, sampled(sample, samples, groups) * GROUP);
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

/// The first three of each eight bytes, for both halves of a vector.
static THREE_OF_EIGHT: [u8; 32] = {
    let mut places = [0x80; 32];
    let mut at = 0;
    while at < 4 * INDEX_BYTES {
        let (half, byte) = (at / (2 * INDEX_BYTES), at % (2 * INDEX_BYTES));
        places[half * 16 + byte] = (byte / INDEX_BYTES * 8 + byte % INDEX_BYTES) as u8;
        at += 1;
    }
    places
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
