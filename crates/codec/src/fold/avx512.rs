//! `fold` in vectors of 512 bits: eight words at once, no branch that depends on the page.

#[allow(clippy::wildcard_imports, reason = "forty intrinsics, whose names say where they are from")]
use core::arch::x86_64::*;

use page::PageBytes;

use super::format::{Head, List, Unlisted};
use super::frequent::{self, Counts, Selection};
use super::places::{LAST_PLACE, Places, SAMPLES, Scores, sampled};
use super::{BITMAP_BYTES, CHOICES, GROUP, GROUPS, LISTED, Path, TILE, Tile, VECTOR_BYTES, WINDOW, Workspace};

mod bytes;
mod decode;
mod encode;

cpufeatures::new!(
    needed,
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512bitalg",
    "avx512vpopcntdq",
    "bmi2",
    "popcnt"
);

/// A processor that has all that is used here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    #[inline]
    pub(super) fn new() -> Option<Self> {
        needed::get().then_some(Self(()))
    }
}

impl Path for Avx512 {
    type Steps = [decode::Steps];
    type Room = decode::Room;
    const ROOM: decode::Room = decode::EMPTY;

    fn ones(self, bytes: &[u8]) -> usize {
        // SAFETY: the processor has what it needs, as `self` proves.
        unsafe { decode::ones_of(bytes) }
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
        unsafe { super::avx2::encode::best(scores) }
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

impl frequent::Path for Avx512 {
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

/// A number with the lowest `count` bits set.
#[target_feature(enable = "bmi2")]
#[inline]
fn lowest(count: usize) -> u64 {
    _bzhi_u64(u64::MAX, count.min(VECTOR_BYTES) as u32)
}

#[inline]
fn part<T, const N: usize>(slice: &[T], at: usize) -> &[T; N] {
    slice[at..].first_chunk().expect("every area has room for one vector more")
}

#[inline]
fn part_mut<T, const N: usize>(slice: &mut [T], at: usize) -> &mut [T; N] {
    slice[at..].first_chunk_mut().expect("every area has room for one vector more")
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(words: &[u64; GROUP]) -> __m512i {
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_bytes(bytes: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: reads 64 bytes, which there are.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The first bytes of a slice, at most 64, and zeros.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn load_first(bytes: &[u8]) -> __m512i {
    let mask = lowest(bytes.len());
    // SAFETY: reads as many bytes as the mask has bits, which is no more than there are.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: &mut [u8; VECTOR_BYTES], vector: __m512i) {
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_words(words: &mut [u64; GROUP], vector: __m512i) {
    // SAFETY: writes 64 bytes, which there are.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
}

/// How far to rotate eight bytes so that each word of a vector has its own lowest, and the one before it highest.
static TO_LANES: [u64; GROUP] = [0, 8, 16, 24, 32, 40, 48, 56];

/// Eight bytes for each word of a vector: its own is the lowest. A load and a rotation, because of shuffles there is one at a time.
#[target_feature(enable = "avx512f")]
#[inline]
fn by_lanes(bytes: u64) -> __m512i {
    _mm512_rorv_epi64(_mm512_set1_epi64(bytes.cast_signed()), load(&TO_LANES))
}

/// Where in each eight bytes of a vector eight numbers of some bits start, which are packed into so many bytes for eight.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Unpacking {
    bytes: [u8; VECTOR_BYTES],
    shifts: [u8; VECTOR_BYTES],
}

impl Unpacking {
    const fn of(bits: usize) -> Self {
        let mut unpacking = Self { bytes: [0; VECTOR_BYTES], shifts: [0; VECTOR_BYTES] };
        let mut at = 0;
        while at < VECTOR_BYTES {
            // A number ends in the first six bytes. Those behind are from the next eight, or for the last eight any.
            unpacking.bytes[at] = ((at / 8 * bits + at % 8) % VECTOR_BYTES) as u8;
            unpacking.shifts[at] = (at % 8 * bits) as u8;
            at += 1;
        }
        unpacking
    }
}

/// For each number of bits.
static UNPACKINGS: [Unpacking; frequent::BITS_MAX + 1] = {
    let mut unpackings = [Unpacking::of(1); frequent::BITS_MAX + 1];
    let mut bits = 1;
    while bits < unpackings.len() {
        unpackings[bits] = Unpacking::of(bits);
        bits += 1;
    }
    unpackings
};

/// Unpacks 64 numbers of so many bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn unpack_bits(packed: __m512i, bits: usize) -> __m512i {
    let unpacking = &UNPACKINGS[bits];
    let eights = _mm512_permutexvar_epi8(load_bytes(&unpacking.bytes), packed);
    let numbers = _mm512_multishift_epi64_epi8(load_bytes(&unpacking.shifts), eights);
    _mm512_and_si512(numbers, _mm512_set1_epi8((1_i8 << bits) - 1))
}

/// Bits that are set.
#[target_feature(enable = "popcnt")]
#[inline]
fn ones<const N: usize>(bits: &[u64; N]) -> usize {
    let mut sum = 0;
    for bits in bits {
        sum += bits.count_ones() as usize;
    }
    sum
}
