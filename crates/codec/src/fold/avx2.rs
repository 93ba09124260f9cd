//! `fold` with vectors of 256 bits: four words at once to choose, and bytes moved by shuffles.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::format::{self, Head, List};
use super::frequent::{self, Counts, Selection};
use super::places::{Places, Scores};
use super::shuffles::Table;
use super::{Path, VECTOR_BYTES, Workspace};

mod bytes;
mod decode;
pub(super) mod encode;

cpufeatures::new!(needed, "avx2", "bmi1", "popcnt");

/// A processor that has all that is used here. Not the bit scatter of BMI2, which takes some processors 18 cycles and more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(super) fn new() -> Option<Self> {
        needed::get().then_some(Self(()))
    }
}

impl Path for Avx2 {
    type Steps = [decode::Step];
    type Room = decode::Room;
    const ROOM: decode::Room = decode::EMPTY;

    fn ones(self, bytes: &[u8]) -> usize {
        #[target_feature(enable = "popcnt")]
        fn ones(bytes: &[u8]) -> usize {
            format::ones(bytes)
        }
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { ones(bytes) }
    }

    fn list(self, page: &PageBytes, workspace: &mut Workspace) -> List {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { encode::list(page, workspace) }
    }

    fn scores(self, groups: usize, workspace: &mut Workspace) -> Scores {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { encode::scores(groups, workspace) }
    }

    fn best(self, scores: &Scores) -> Places {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { encode::best(scores) }
    }

    fn encode(self, groups: usize, places: Places, workspace: &mut Workspace) -> usize {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { encode::encode(groups, places, workspace) }
    }

    fn prepare<'a>(self, head: &Head<'_>, codes: &[u8], room: &'a mut Self::Room) -> (usize, &'a Self::Steps) {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { decode::prepare(head, codes, room) }
    }

    fn rebuild(self, head: &Head<'_>, steps: &Self::Steps, literals: &[u8], page: &mut PageBytes) {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { decode::rebuild(head, steps, literals, page) }
    }
}

impl frequent::Path for Avx2 {
    fn select(self, counts: &Counts, most: usize) -> Selection {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { bytes::select(counts, most) }
    }

    fn write_codes(
        self,
        bytes: &[u8],
        count: usize,
        selection: &Selection,
        bits: usize,
        codes: &mut [u8],
        escapes: &mut [u8],
    ) -> usize {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { bytes::write_codes(bytes, count, selection, bits, codes, escapes) }
    }

    fn read_codes(
        self,
        codes: &[u8],
        bits: usize,
        table: &[u8; VECTOR_BYTES],
        escapes: &[u8],
        count: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { bytes::read_codes(codes, bits, table, escapes, count, out) }
    }
}

#[inline(always)]
fn part<T, const N: usize>(slice: &[T], at: usize) -> &[T; N] {
    slice[at..].first_chunk().expect("every area has room for one vector more")
}

#[inline(always)]
fn part_mut<T, const N: usize>(slice: &mut [T], at: usize) -> &mut [T; N] {
    slice[at..].first_chunk_mut().expect("every area has room for one vector more")
}

/// Bytes of a word by their places; zero for places of which the highest bit is set.
#[target_feature(enable = "avx2")]
#[inline]
fn shuffle(word: u64, places: u64) -> u64 {
    let (word, places) = (_mm_cvtsi64_si128(word.cast_signed()), _mm_cvtsi64_si128(places.cast_signed()));
    _mm_cvtsi128_si64(_mm_shuffle_epi8(word, places)).cast_unsigned()
}

/// What a table has at a place; in the upper half anything. The table has one entry more than can be asked for.
#[target_feature(enable = "avx2")]
#[inline]
fn entry<const N: usize>(table: &[u64; N], at: usize) -> __m128i {
    assert!(at < N - 1);
    // SAFETY: reads 16 bytes, which there are: there is one entry more.
    unsafe { _mm_loadu_si128(table.as_ptr().wrapping_add(at).cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(words: &[u64; 4]) -> __m256i {
    // SAFETY: reads 32 bytes, which there are.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_bytes<T>(bytes: &[T]) -> __m256i {
    const { assert!(size_of::<T>() > 0) };
    assert!(size_of_val(bytes) == 32);
    // SAFETY: reads 32 bytes, which there are.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// For each mask, which of sixteen bytes a word takes: of the first eight the lowest ones where the mask has bits, elsewhere its own of
/// the other eight.
static OVERS: Table = {
    let mut overs = [0; 257];
    let mut mask = 0;
    while mask < 256 {
        let (mut at, mut count) = (0, 0);
        while at < 8 {
            let is_told = mask >> at & 1;
            overs[mask] |= (if is_told == 1 { count } else { 8 + at }) << (8 * at);
            count += is_told as u64;
            at += 1;
        }
        mask += 1;
    }
    overs
};
