//! Both codecs in vectors. Words that are not zero make a list, of which only the dictionary is asked word by word: without
//! branches, and with nothing else in that loop. All else is done to sixteen words or 64 codes at once.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::pack;
use super::super::plain::wk::{LOW_BITS, LOW_MASK, LOWS_IN_WORD, WORD_BYTES, WORDS};
use super::super::vectors::{self, Avx512, BYTE_LANES, Bytes, LANES, Mask, NO_BYTES, NO_WORDS, Words};
use super::{dictionary, sets};
use crate::Corrupt;

const PARTIAL: u8 = 1;
const MISS: u8 = 2;
const EXACT: u8 = 3;
/// Tags of two bits.
const TAGS_BYTES: usize = pack::bytes_of_twos(WORDS);

/// See [`Codec::encode`](crate::Codec::encode).
pub(super) fn encode<const WAYS: usize>(_: Avx512, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    // SAFETY: the processor has what it needs, as the first argument proves.
    unsafe { encode_here::<WAYS>(page, out) }
}

/// See [`Codec::decode`](crate::Codec::decode).
pub(super) fn decode<const WAYS: usize>(_: Avx512, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    // SAFETY: the processor has what it needs, as the first argument proves.
    unsafe { decode_here::<WAYS>(encoding, page) }
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
fn encode_here<const WAYS: usize>(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let mut list = NO_WORDS;
    let (used, count) = list_words(page, &mut list);
    let mut indices = NO_BYTES;
    for at in (0..count).step_by(LANES) {
        vectors::store_lowest(&mut indices, at, sets_of::<WAYS>(vectors::load(&list, at)));
    }
    let (like, exact) = if WAYS == 1 {
        let mut found = NO_WORDS;
        dictionary::tell(&list[..count], &indices[..count], &mut found[..count]);
        compare(&list, &found, count)
    } else {
        sets::tell(&list, count, &mut indices)
    };

    let mut partial = like;
    let mut miss = used_up_to(count);
    let mut high = miss;
    for (at, like) in like.iter().enumerate() {
        partial[at] &= !exact[at];
        miss[at] &= !like;
        high[at] = miss[at] | exact[at];
    }
    let (mut words, mut lows, mut codes) = (NO_WORDS, NO_WORDS, NO_BYTES);
    let words_count = vectors::compress(&list, count, &miss, &mut words);
    let lows_count = vectors::compress(&list, count, &partial, &mut lows);
    let codes_count = vectors::compress_bytes(&indices, count, &like, &mut codes);
    let sizes = sizes(words_count, codes_count, lows_count);
    let length = TAGS_BYTES + sizes.iter().sum::<usize>();
    if length >= out.len() {
        return None;
    }
    let (out_tags, rest) = out.split_at_mut(TAGS_BYTES);
    let (out_words, rest) = rest.split_at_mut(sizes[0]);
    let (out_indices, out_lows) = rest[..sizes[1] + sizes[2]].split_at_mut(sizes[1]);
    let (mut listed, mut tags) = (NO_BYTES, NO_BYTES);
    vectors::twos_of(&like, &high, &mut listed);
    vectors::expand_bytes(&listed, WORDS, &used, &mut tags);
    pack::pack_twos(vectors::codes(&tags), out_tags);
    for (out, word) in out_words.as_chunks_mut().0.iter_mut().zip(&words) {
        *out = word.to_le_bytes();
    }
    pack::pack_fours(vectors::codes(&codes), out_indices);
    for (out, lows) in out_lows.as_chunks_mut().0.iter_mut().zip(lows.as_chunks::<LOWS_IN_WORD>().0) {
        let [first, second, third] = lows.map(|word| word & LOW_MASK);
        *out = (first | second << LOW_BITS | third << (2 * LOW_BITS)).to_le_bytes();
    }
    Some(length)
}

/// Lists the words that are not zero. Where they are, and how many.
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn list_words(page: &PageBytes, list: &mut Words) -> (Mask, usize) {
    let (mut used, mut count) = (Mask::default(), 0);
    for (bits, bytes) in used.iter_mut().zip(page.0.as_chunks::<{ BYTE_LANES * WORD_BYTES }>().0) {
        for lane in 0..4 {
            let words = vectors::load_bytes(bytes, lane * LANES * WORD_BYTES);
            let some = _mm512_test_epi32_mask(words, words);
            vectors::store(list, count, _mm512_maskz_compress_epi32(some, words));
            count += some.count_ones() as usize;
            *bits |= u64::from(some) << (lane * LANES);
        }
    }
    (used, count)
}

/// The sets of words: see `set_of` in `plain::wk::dictionary`.
#[target_feature(enable = "avx512f")]
#[inline]
fn sets_of<const WAYS: usize>(words: __m512i) -> __m512i {
    let upper = _mm512_srli_epi32::<{ LOW_BITS as u32 }>(words);
    let product = _mm512_mullo_epi32(upper, _mm512_set1_epi32(0x9e37_79b1_u32 as i32));
    _mm512_and_si512(_mm512_srli_epi32::<28>(product), _mm512_set1_epi32((16 / WAYS) as i32 - 1))
}

/// The places of the last entries of sets.
#[target_feature(enable = "avx512f")]
#[inline]
fn last_of<const WAYS: usize>(sets: __m512i) -> __m512i {
    let first = _mm512_mullo_epi32(sets, _mm512_set1_epi32(WAYS as i32));
    _mm512_add_epi32(first, _mm512_set1_epi32(WAYS as i32 - 1))
}

/// Which words have the upper bits of the entries that were found, and which are those entries.
#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn compare(list: &Words, found: &Words, count: usize) -> (Mask, Mask) {
    let (mut like, mut exact) = (Mask::default(), Mask::default());
    let upper = _mm512_set1_epi32(!LOW_MASK as i32);
    for (word, at) in (0..count).step_by(BYTE_LANES).enumerate() {
        for lane in 0..4 {
            let at = at + lane * LANES;
            let differing = _mm512_xor_si512(vectors::load(list, at), vectors::load(found, at));
            like[word] |= u64::from(_mm512_testn_epi32_mask(differing, upper)) << (lane * LANES);
            exact[word] |= u64::from(_mm512_testn_epi32_mask(differing, differing)) << (lane * LANES);
        }
        let used = vectors::lowest(count - at);
        like[word] &= used;
        exact[word] &= used;
    }
    (like, exact)
}

/// The places of a list.
#[target_feature(enable = "bmi2")]
#[inline]
fn used_up_to(count: usize) -> Mask {
    core::array::from_fn(|word| vectors::lowest(count.saturating_sub(word * BYTE_LANES)))
}

/// What so many words, indices and low bits take.
const fn sizes(words: usize, indices: usize, lows: usize) -> [usize; 3] {
    [words * WORD_BYTES, pack::bytes_of_fours(indices), lows.div_ceil(LOWS_IN_WORD) * WORD_BYTES]
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
fn decode_here<const WAYS: usize>(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let (tags, rest) = encoding.split_at_checked(TAGS_BYTES).ok_or(Corrupt)?;
    let [partial, miss, exact] = pack::count_twos(tags);
    let sizes = sizes(miss, partial + exact, partial);
    if rest.len() != sizes.iter().sum() {
        return Err(Corrupt);
    }
    let (words, rest) = rest.split_at(sizes[0]);
    let (packed_indices, packed_lows) = rest.split_at(sizes[1]);
    let (mut codes, mut listed, mut indices) = (NO_BYTES, NO_BYTES, NO_BYTES);
    pack::unpack_twos(tags, vectors::codes_mut(&mut codes));
    let used = vectors::places_of(&codes, WORDS, 3, 0).map(|zeros| !zeros);
    let count = vectors::compress_bytes(&codes, WORDS, &used, &mut listed);
    pack::unpack_fours(packed_indices, vectors::codes_mut(&mut indices));
    let mut lows = NO_WORDS;
    for (lows, packed) in lows.as_chunks_mut::<LOWS_IN_WORD>().0.iter_mut().zip(packed_lows.as_chunks().0) {
        let packed = u32::from_le_bytes(*packed);
        *lows = [0, LOW_BITS, 2 * LOW_BITS].map(|shift| packed >> shift & LOW_MASK);
    }

    let mut steps = Steps { told: NO_WORDS, open: NO_WORDS, places: NO_BYTES };
    steps.fill::<WAYS>(&listed, count, &vectors::words_from(words), &indices, &lows);
    let mut restored = NO_WORDS;
    dictionary::restore::<WAYS>(
        &steps.told[..count],
        &steps.open[..count],
        &steps.places[..count],
        &mut restored[..count],
    );
    let mut taken = 0;
    for (bits, bytes) in used.iter().zip(page.0.as_chunks_mut::<{ BYTE_LANES * WORD_BYTES }>().0) {
        for lane in 0..4 {
            let some = vectors::sixteen(*bits, lane);
            let words = _mm512_maskz_expand_epi32(some, vectors::load(&restored, taken));
            vectors::store_bytes(bytes, lane * LANES * WORD_BYTES, words);
            taken += some.count_ones() as usize;
        }
    }
    Ok(())
}

/// What is done for each word that is not zero.
struct Steps {
    /// What is told of it.
    told: Words,
    /// Which of its bits are told; the others are those of the entry.
    open: Words,
    /// Which entry it takes the place of.
    places: Bytes,
}

impl Steps {
    #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
    #[inline]
    fn fill<const WAYS: usize>(&mut self, tags: &Bytes, count: usize, words: &Words, indices: &Bytes, lows: &Words) {
        let misses = vectors::places_of(tags, count, 3, MISS);
        let partials = vectors::places_of(tags, count, 3, PARTIAL);
        let matches = vectors::places_of(tags, count, PARTIAL & EXACT, 1);
        vectors::expand_bytes(indices, count, &matches, &mut self.places);
        let (mut word, mut low) = (0, 0);
        for (at, start) in (0..count).step_by(BYTE_LANES).enumerate() {
            for lane in 0..4 {
                let here = start + lane * LANES;
                let (miss, partial) = (vectors::sixteen(misses[at], lane), vectors::sixteen(partials[at], lane));
                let whole = _mm512_maskz_expand_epi32(miss, vectors::load(words, word));
                let part = _mm512_maskz_expand_epi32(partial, vectors::load(lows, low));
                vectors::store(&mut self.told, here, _mm512_or_si512(whole, part));
                let open = _mm512_maskz_set1_epi32(miss, -1);
                let open = _mm512_mask_set1_epi32(open, partial, LOW_MASK as i32);
                vectors::store(&mut self.open, here, open);
                vectors::replace_lowest(&mut self.places, here, miss, last_of::<WAYS>(sets_of::<WAYS>(whole)));
                word += miss.count_ones() as usize;
                low += partial.count_ones() as usize;
            }
        }
    }
}
