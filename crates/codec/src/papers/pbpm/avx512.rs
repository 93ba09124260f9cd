//! All three codecs in vectors. Words that zeros do not tell make a list, of which only the dictionary is asked word by word.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::super::pack::{self, CODES_MAX};
use super::super::vectors::{self, Avx512, BYTE_LANES, Bytes, LANES, Mask, NO_BYTES, NO_WORDS, Words};
use super::dictionary::{self, Found};
use super::tape::{Alignment, NO_DATA, NO_TAPE, Sizes};
use crate::Corrupt;

const WORDS: usize = CODES_MAX;
const WORD_BYTES: usize = 4;
/// The first two bits of codes, and the other two of those that begin with the last.
const XXXX: u8 = 0b01;
const MMMM: u8 = 0b10;
const LONG: u8 = 0b11;
const ZZZX: u8 = 0b00;
const MMXX: u8 = 0b01;
const MMMX: u8 = 0b10;
const ZXZX: u8 = 0b11;
/// The first codes of a page.
const FIRST_BYTES: usize = pack::bytes_of_twos(WORDS);

/// See [`Codec::encode`](crate::Codec::encode).
pub(super) fn encode<A: Alignment>(_: Avx512, page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    // SAFETY: the processor has what it needs, as the first argument proves.
    unsafe { encode_here::<A>(page, out) }
}

/// See [`Codec::decode`](crate::Codec::decode).
pub(super) fn decode<A: Alignment>(_: Avx512, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    // SAFETY: the processor has what it needs, as the first argument proves.
    unsafe { decode_here::<A>(encoding, page) }
}

/// Where the words of each pattern are, in a page or a list.
#[derive(Default)]
struct Patterns {
    /// Words that zeros alone do not tell: those of the next four.
    asked: Mask,
    xxxx: Mask,
    mmmm: Mask,
    mmxx: Mask,
    mmmx: Mask,
    zzzx: Mask,
    zxzx: Mask,
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
fn encode_here<A: Alignment>(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let (mut patterns, mut list) = (Patterns::default(), NO_WORDS);
    let count = list_words(page, &mut patterns, &mut list);
    let (mut indices, mut found) = (NO_BYTES, Found::NONE);
    dictionary::tell(&list[..count], &mut indices[..count], &mut found);
    let listed = compare(&list, &found, count, &mut indices);

    let asked = patterns.asked;
    patterns.xxxx = vectors::spread_mask(&listed.xxxx, &asked);
    patterns.mmmm = vectors::spread_mask(&listed.mmmm, &asked);
    patterns.mmxx = vectors::spread_mask(&listed.mmxx, &asked);
    patterns.mmmx = vectors::spread_mask(&listed.mmmx, &asked);
    let (sizes, long) = (patterns.sizes(), patterns.long());
    let matches = join([&listed.mmmm, &listed.mmxx, &listed.mmmx]);
    let bytes = [
        FIRST_BYTES,
        pack::bytes_of_twos(vectors::ones(&long)),
        pack::bytes_of_fours(vectors::ones(&matches)),
        A::tape_bytes(&sizes),
    ];
    let length = bytes.iter().sum::<usize>();
    if length >= out.len() {
        return None;
    }
    let (out_first, rest) = out[..length].split_at_mut(bytes[0]);
    let (out_second, rest) = rest.split_at_mut(bytes[1]);
    let (out_indices, out_tape) = rest.split_at_mut(bytes[2]);
    let mut codes = NO_BYTES;
    vectors::twos_of(&join([&patterns.xxxx, &long]), &join([&patterns.mmmm, &long]), &mut codes);
    pack::pack_twos(vectors::codes(&codes), out_first);
    let lows = vectors::gather_mask(&join([&patterns.mmxx, &patterns.zxzx]), &long);
    let highs = vectors::gather_mask(&join([&patterns.mmmx, &patterns.zxzx]), &long);
    vectors::twos_of(&lows, &highs, &mut codes);
    pack::pack_twos(vectors::codes(&codes), out_second);
    let mut told = NO_BYTES;
    vectors::compress_bytes(&indices, count, &matches, &mut told);
    pack::pack_fours(vectors::codes(&told), out_indices);
    let mut tape = NO_TAPE;
    // SAFETY: the processor has what this function needs, which is more.
    unsafe { A::write(page, &sizes, &mut tape) };
    out_tape.copy_from_slice(&tape[..bytes[3]]);
    Some(length)
}

/// All places of several masks.
fn join<const N: usize>(masks: [&Mask; N]) -> Mask {
    core::array::from_fn(|at| masks.iter().fold(0, |bits, mask| bits | mask[at]))
}

impl Patterns {
    /// Words with codes of four bits.
    fn long(&self) -> Mask {
        join([&self.mmxx, &self.mmmx, &self.zzzx, &self.zxzx])
    }

    fn sizes(&self) -> Sizes {
        Sizes { words: self.xxxx, halves: self.mmxx, spread: self.zxzx, bytes: join([&self.mmmx, &self.zzzx]) }
    }
}

/// Finds the words that zeros tell, and lists the others; how many those are.
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn list_words(page: &PageBytes, patterns: &mut Patterns, list: &mut Words) -> usize {
    let mut count = 0;
    let (above_byte, between) = (_mm512_set1_epi32(!0xff), _mm512_set1_epi32(!0x00ff_00ff));
    for (at, bytes) in page.0.as_chunks::<{ BYTE_LANES * WORD_BYTES }>().0.iter().enumerate() {
        for lane in 0..4 {
            let words = vectors::load_bytes(bytes, lane * BYTE_LANES);
            let zzzz = _mm512_testn_epi32_mask(words, words);
            let small = _mm512_testn_epi32_mask(words, above_byte);
            let spread = _mm512_testn_epi32_mask(words, between);
            let asked = !(small | spread);
            vectors::store(list, count, _mm512_maskz_compress_epi32(asked, words));
            count += asked.count_ones() as usize;
            let put = |mask: &mut Mask, bits: __mmask16| mask[at] |= u64::from(bits) << (lane * LANES);
            put(&mut patterns.zzzx, small & !zzzz);
            put(&mut patterns.zxzx, spread & !small);
            put(&mut patterns.asked, asked);
        }
    }
    count
}

/// Which pattern each listed word has, by the two entries of its set; `indices` are sets, and then entries.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn compare(list: &Words, found: &Found, count: usize, indices: &mut Bytes) -> Patterns {
    let mut patterns = Patterns::default();
    let open = [0, 0xff, 0xffff].map(|open: i32| _mm512_set1_epi32(!open));
    for (word, start) in (0..count).step_by(BYTE_LANES).enumerate() {
        // For no open byte, one and two: like the newer entry, like the older.
        let (mut newer, mut older) = ([0; 3], [0; 3]);
        for lane in 0..4 {
            let at = start + lane * LANES;
            let words = vectors::load(list, at);
            let from_newer = _mm512_xor_si512(words, vectors::load(&found.newer, at));
            let from_older = _mm512_xor_si512(words, vectors::load(&found.older, at));
            for way in 0..3 {
                newer[way] |= u64::from(_mm512_testn_epi32_mask(from_newer, open[way])) << (lane * LANES);
                older[way] |= u64::from(_mm512_testn_epi32_mask(from_older, open[way])) << (lane * LANES);
            }
        }
        let used = vectors::lowest(count - start);
        let [full, three, two] = [0, 1, 2].map(|way| (newer[way] | older[way]) & used);
        patterns.mmmm[word] = full;
        patterns.mmmx[word] = three & !full;
        patterns.mmxx[word] = two & !three;
        patterns.xxxx[word] = used & !two;
        let is_older = full & !newer[0] | three & !full & !newer[1] | two & !three & !newer[2];
        let sets = vectors::load_bytes(indices, start);
        let entries = _mm512_add_epi8(sets, sets);
        let entries = _mm512_mask_add_epi8(entries, is_older, entries, _mm512_set1_epi8(1));
        vectors::store_bytes(indices, start, entries);
    }
    patterns
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
fn decode_here<A: Alignment>(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let (first, rest) = encoding.split_at_checked(FIRST_BYTES).ok_or(Corrupt)?;
    let mut codes = NO_BYTES;
    pack::unpack_twos(first, vectors::codes_mut(&mut codes));
    let long = vectors::places_of(&codes, WORDS, 3, LONG);
    let mut patterns = Patterns {
        xxxx: vectors::places_of(&codes, WORDS, 3, XXXX),
        mmmm: vectors::places_of(&codes, WORDS, 3, MMMM),
        ..Patterns::default()
    };
    let count = vectors::ones(&long);
    let (second, rest) = rest.split_at_checked(pack::bytes_of_twos(count)).ok_or(Corrupt)?;
    pack::unpack_twos(second, vectors::codes_mut(&mut codes));
    let place = |code| vectors::spread_mask(&vectors::places_of(&codes, count, 3, code), &long);
    (patterns.zzzx, patterns.zxzx) = (place(ZZZX), place(ZXZX));
    (patterns.mmxx, patterns.mmmx) = (place(MMXX), place(MMMX));
    let matches = join([&patterns.mmmm, &patterns.mmxx, &patterns.mmmx]);
    patterns.asked = join([&patterns.xxxx, &matches]);
    let packed_bytes = pack::bytes_of_fours(vectors::ones(&matches));
    let (packed_indices, data) = rest.split_at_checked(packed_bytes).ok_or(Corrupt)?;
    let sizes = patterns.sizes();
    if data.len() != A::tape_bytes(&sizes) {
        return Err(Corrupt);
    }
    let (mut tape, mut words) = (NO_TAPE, NO_DATA);
    tape[..data.len()].copy_from_slice(data);
    // SAFETY: the processor has what this function needs, which is more.
    unsafe { A::read(&tape, &sizes, &mut words) };
    if restore(&patterns, &matches, packed_indices, &words, page) {
        return Ok(());
    }
    // What no encoder writes the plain twin can tell.
    A::PLAIN.decode(encoding, page)
}

/// Asks the dictionary for the words that need it, and puts all where they belong. `false` if that cannot be done here.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,bmi2,popcnt")]
#[inline]
fn restore(patterns: &Patterns, matches: &Mask, packed: &[u8], data: &Words, page: &mut PageBytes) -> bool {
    let asked = &patterns.asked;
    let (mut told, mut open, mut indices) = (NO_WORDS, NO_WORDS, NO_BYTES);
    let count = vectors::compress(data, WORDS, asked, &mut told);
    pack::unpack_fours(packed, vectors::codes_mut(&mut indices));
    let mut places = NO_BYTES;
    for (place, told) in places.iter_mut().zip(&told[..count]) {
        *place = dictionary::set_of(*told) << 1;
    }
    vectors::expand_bytes_over(&indices, count, &vectors::gather_mask(matches, asked), &mut places);
    let [xxxx, mmxx, mmmx] =
        [&patterns.xxxx, &patterns.mmxx, &patterns.mmmx].map(|mask| vectors::gather_mask(mask, asked));
    for (at, start) in (0..count).step_by(BYTE_LANES).enumerate() {
        for lane in 0..4 {
            let bits = _mm512_maskz_set1_epi32(vectors::sixteen(xxxx[at], lane), -1);
            let bits = _mm512_mask_set1_epi32(bits, vectors::sixteen(mmxx[at], lane), 0xffff);
            let bits = _mm512_mask_set1_epi32(bits, vectors::sixteen(mmmx[at], lane), 0xff);
            vectors::store(&mut open, start + lane * LANES, bits);
        }
    }
    let mut restored = NO_WORDS;
    if !dictionary::restore(&told[..count], &open[..count], &places[..count], &mut restored[..count]) {
        return false;
    }
    let mut taken = 0;
    for (at, bytes) in page.0.as_chunks_mut::<{ BYTE_LANES * WORD_BYTES }>().0.iter_mut().enumerate() {
        for lane in 0..4 {
            let some = vectors::sixteen(asked[at], lane);
            let own = vectors::load(data, at * BYTE_LANES + lane * LANES);
            let words = _mm512_mask_expand_epi32(own, some, vectors::load(&restored, taken));
            vectors::store_bytes(bytes, lane * BYTE_LANES, words);
            taken += some.count_ones() as usize;
        }
    }
    true
}
