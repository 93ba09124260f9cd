//! Literals and matches copied by vectors, whatever their lengths are up to a piece: what is copied too much, what comes next overwrites.

#[allow(clippy::wildcard_imports, reason = "the intrinsics")]
use core::arch::x86_64::*;

cpufeatures::new!(needed, "avx2", "bmi1", "bmi2");

/// A processor that has all that is used here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(crate) fn new() -> Option<Self> {
        needed::get().then_some(Self(()))
    }
}

/// What is copied at once.
pub(crate) const PIECE: usize = 16;
/// A match may have so many bytes more.
const MORE: usize = 4;
/// The longest match that can be copied.
pub(crate) const MATCH_MAX: usize = PIECE + MORE;

/// For each offset below a piece, how to repeat that many bytes.
static REPEATS: [[u8; PIECE]; PIECE] = repeats();
/// A multiple of the offset, from 9 to 16: so far back in what repeats is what comes behind the piece.
static PERIODS: [u8; PIECE] = periods();

const fn repeats() -> [[u8; PIECE]; PIECE] {
    let mut repeats = [[0; PIECE]; PIECE];
    let mut offset = 1;
    while offset < PIECE {
        let mut at = 0;
        while at < PIECE {
            repeats[offset][at] = (at % offset) as u8;
            at += 1;
        }
        offset += 1;
    }
    repeats
}

const fn periods() -> [u8; PIECE] {
    let mut periods = [PIECE as u8; PIECE];
    let mut offset = 1;
    while offset < PIECE {
        periods[offset] = (PIECE / offset * offset) as u8;
        offset += 1;
    }
    periods
}

/// The lowest multiple of an offset that is a piece or more. What repeats has as many bytes once [`MATCH_MAX`] are copied.
static FAR_PERIODS: [u8; PIECE] = far_periods();

const fn far_periods() -> [u8; PIECE] {
    let mut periods = [PIECE as u8; PIECE];
    let mut offset = 1;
    while offset < PIECE {
        periods[offset] = (PIECE.div_ceil(offset) * offset) as u8;
        assert!(periods[offset] as usize <= offset + MATCH_MAX);
        offset += 1;
    }
    periods
}

/// Copies a piece.
///
/// # Safety
/// There is a piece at both.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(crate) unsafe fn copy_piece(from: *const u8, to: *mut u8) {
    // SAFETY: the caller says so.
    let piece = unsafe { _mm_loadu_si128(from.cast()) };
    // SAFETY: as above.
    unsafe { _mm_storeu_si128(to.cast(), piece) };
}

/// Copies [`MATCH_MAX`] bytes to `at` from `offset` bytes before, or from the first on if there are not as many. With an offset of 0 they mean nothing.
///
/// # Safety
/// There are so many bytes at `at` of `bytes`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(crate) unsafe fn copy_match(bytes: *mut u8, at: usize, offset: usize) {
    let from = at.saturating_sub(offset);
    // SAFETY: there is a piece at `at`, and so at `from`.
    let piece = unsafe { _mm_loadu_si128(bytes.wrapping_add(from).cast()) };
    let (piece, from_more) = if offset >= PIECE {
        (piece, from + PIECE)
    } else {
        // SAFETY: it is a piece.
        let repeat = unsafe { _mm_loadu_si128(REPEATS[offset].as_ptr().cast()) };
        (_mm_shuffle_epi8(piece, repeat), at + PIECE - usize::from(PERIODS[offset]))
    };
    let [from_more, to, to_more] = [from_more, at, at + PIECE].map(|place| bytes.wrapping_add(place));
    // SAFETY: the caller says so.
    unsafe { _mm_storeu_si128(to.cast(), piece) };
    // SAFETY: behind the pieces that were loaded and stored there are as many.
    let more = unsafe { from_more.cast::<[u8; MORE]>().read() };
    // SAFETY: as above.
    unsafe { to_more.cast::<[u8; MORE]>().write(more) };
}

/// The same with so many bytes, and at most [`MATCH_MAX`] more.
///
/// # Safety
/// There are so many bytes and [`MATCH_MAX`] at `at` of `bytes`, and `offset` before.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(crate) unsafe fn copy_long_match(bytes: *mut u8, at: usize, offset: usize, length: usize) {
    let (mut done, mut period) = (0, offset);
    if offset < PIECE {
        // SAFETY: the caller says so.
        unsafe { copy_match(bytes, at, offset) };
        (done, period) = (MATCH_MAX, usize::from(FAR_PERIODS[offset]));
    }
    while done < length {
        let [from, to] = [at + done - period, at + done].map(|place| bytes.wrapping_add(place));
        // SAFETY: the caller says so, and less than a piece is too much.
        unsafe { copy_piece(from, to) };
        done += PIECE;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const BEFORE: usize = 60;

    /// What a match makes, byte by byte, behind so many others.
    fn expected(offset: usize, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..BEFORE as u8).collect();
        for at in BEFORE..BEFORE + length {
            bytes.push(bytes[at - offset]);
        }
        bytes
    }

    fn room(length: usize) -> Vec<u8> {
        let mut bytes = expected(1, 0);
        bytes.resize(BEFORE + length + MATCH_MAX, 0xee);
        bytes
    }

    #[test]
    fn matches_of_any_offset_and_length_are_those_of_single_bytes() {
        if Avx2::new().is_none() {
            std::println!("skipped: no AVX2");
            return;
        }
        for offset in 1..=BEFORE {
            let mut bytes = room(0);
            // SAFETY: there is room for the longest match, and the processor has what it needs.
            unsafe { copy_match(bytes.as_mut_ptr(), BEFORE, offset) };
            assert_eq!(bytes, expected(offset, MATCH_MAX), "{offset} back");
            for length in 0..150 {
                let mut bytes = room(length);
                // SAFETY: as above, with so many bytes before.
                unsafe { copy_long_match(bytes.as_mut_ptr(), BEFORE, offset, length) };
                assert_eq!(bytes[..BEFORE + length], expected(offset, length), "{offset} back, {length}");
            }
        }
    }
}
