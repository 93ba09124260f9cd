//! What fast LZ codecs share: copies in pieces, whose last may be too long, and matches compared by words.

use core::hint::select_unpredictable;

use page::{PAGE_BYTES, PageBytes};

use crate::Corrupt;

/// Copies are made in pieces of so many bytes where there is room for a piece too much.
pub(super) const PIECE: usize = 16;
const WORD_BYTES: usize = 8;

/// Copies sixteen bytes. `None` if there are not so many on both sides.
#[inline(always)]
pub(super) fn copy_piece(from: &[u8], from_at: usize, to: &mut [u8], to_at: usize) -> Option<()> {
    let piece: [u8; PIECE] = *from.get(from_at..)?.first_chunk()?;
    *to.get_mut(to_at..)?.first_chunk_mut()? = piece;
    Some(())
}

/// Copies `count` bytes that are there, in pieces where there is room. `None` if there is none for the bytes.
#[inline(always)]
pub(super) fn copy(from: &[u8], from_at: usize, to: &mut [u8], to_at: usize, count: usize) -> Option<()> {
    let mut done = 0;
    loop {
        if copy_piece(from, from_at + done, to, to_at + done).is_none() {
            let rest = done.min(count)..count;
            let from = &from[from_at..][rest.clone()];
            to.get_mut(to_at..)?.get_mut(rest)?.copy_from_slice(from);
            return Some(());
        }
        done += PIECE;
        if done >= count {
            return Some(());
        }
    }
}

/// Repeats what lies `distance` before `at`. Bytes that are only just written can be among them.
#[inline(always)]
pub(super) fn repeat(page: &mut PageBytes, at: usize, distance: usize, length: usize) -> Result<(), Corrupt> {
    if distance == 0 || distance > at || length > PAGE_BYTES - at {
        return Err(Corrupt);
    }
    if distance >= PIECE && at + length <= PAGE_BYTES - PIECE {
        let mut done = 0;
        while done < length {
            let piece: [u8; PIECE] = *page.0[at + done - distance..].first_chunk().expect("there is room");
            *page.0[at + done..].first_chunk_mut().expect("there is room") = piece;
            done += PIECE;
        }
        return Ok(());
    }
    repeat_near(page, at, distance, length);
    Ok(())
}

/// The same for short distances and the end of the page.
fn repeat_near(page: &mut PageBytes, at: usize, distance: usize, length: usize) {
    let end = at + length;
    if end > PAGE_BYTES - PIECE {
        // What is written so far repeats too: so each pass can copy twice what the one before could.
        let (mut at, mut period) = (at, distance);
        while at < end {
            let bytes = period.min(end - at);
            page.0.copy_within(at - period..at - period + bytes, at);
            at += bytes;
            period *= 2;
        }
        return;
    }
    // One word by bytes, then words from a multiple of the distance that is a word and more.
    for to in at..at + WORD_BYTES {
        page.0[to] = page.0[to - distance];
    }
    let distance = distance * WORD_BYTES.div_ceil(distance);
    let mut at = at + WORD_BYTES;
    while at < end {
        let word: [u8; WORD_BYTES] = *page.0[at - distance..].first_chunk().expect("there is room");
        *page.0[at..].first_chunk_mut().expect("there is room") = word;
        at += WORD_BYTES;
    }
}

/// The `BYTES` bytes at `at`, no more than eight, as a number.
#[inline(always)]
pub(super) fn number_at<const BYTES: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; WORD_BYTES];
    number[..BYTES].copy_from_slice(&bytes[at..at + BYTES]);
    u64::from_le_bytes(number)
}

/// Entries of an encoder's hash table.
const PLACES: usize = 4096;

/// For each hash of three or four bytes where they were last looked for.
pub(super) struct Places([u16; PLACES]);

impl Places {
    /// All zero: before it knows better, an encoder looks at the start of the page, and compares like everywhere.
    pub(super) const START: Self = Self([0; PLACES]);

    /// Where bytes of this hash were last looked for; from now on at `at`. The hash is the highest twelve bits of a product
    /// with 2^32 divided by the golden ratio.
    #[inline(always)]
    pub(super) fn replace(&mut self, bytes: u32, at: usize) -> usize {
        let hash = (bytes.wrapping_mul(0x9e37_79b1) >> 20) as usize;
        // The remainder is for the compiler.
        usize::from(core::mem::replace(&mut self.0[hash % PLACES], at as u16))
    }
}

/// How many bytes from `at` on are those from `from` on, of which `from` is less; up to the end of the page.
#[inline(always)]
pub(super) fn match_length(page: &PageBytes, from: usize, at: usize) -> usize {
    // No minimum, which the next search would wait for.
    if at > PAGE_BYTES - PIECE {
        return long_length(page, from, at, 0);
    }
    let length = first_length(page, from, at);
    if length < PIECE { length } else { long_length(page, from, at, length) }
}

/// The same up to [`PIECE`], which is not behind the end of the page.
#[inline(always)]
pub(super) fn first_length(page: &PageBytes, from: usize, at: usize) -> usize {
    let differing = |at_word: usize| {
        number_at::<WORD_BYTES>(&page.0, from + at_word) ^ number_at::<WORD_BYTES>(&page.0, at + at_word)
    };
    let (first, second) = (differing(0), differing(WORD_BYTES));
    let in_second = 8 * WORD_BYTES + second.trailing_zeros() as usize;
    select_unpredictable(first == 0, in_second, first.trailing_zeros() as usize) / 8
}

/// The same where so many are known to be.
#[inline(never)]
fn long_length(page: &PageBytes, from: usize, at: usize, mut length: usize) -> usize {
    while at + length <= PAGE_BYTES - WORD_BYTES {
        let differing = number_at::<WORD_BYTES>(&page.0, from + length) ^ number_at::<WORD_BYTES>(&page.0, at + length);
        if differing != 0 {
            return length + differing.trailing_zeros() as usize / 8;
        }
        length += WORD_BYTES;
    }
    let pairs = page.0[from + length..].iter().zip(&page.0[at + length..]);
    length + pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::plain::lz;
    use super::*;
    use crate::papers::tests::{draws, few};

    #[test]
    fn repeats_are_as_the_plain_twin_copies() {
        let start: Vec<u8> = (0..40).map(|at| at as u8 + 1).collect();
        for before in [40, PAGE_BYTES - 300, PAGE_BYTES - 60, PAGE_BYTES - 20, PAGE_BYTES] {
            for distance in 0..42 {
                for length in (0..300).step_by(if cfg!(miri) { 61 } else { 1 }).chain([usize::MAX]) {
                    let mut page = PageBytes::ZERO;
                    page.0[before - 40..before].copy_from_slice(&start);
                    let mut expected = page.clone();
                    let plain = lz::Filling::resume(&mut expected, before).copy(distance, length);
                    assert_eq!(repeat(&mut page, before, distance, length), plain);
                    let end = before + if plain.is_ok() { length } else { 0 };
                    assert!(page.0[..end] == expected.0[..end], "{length} from {distance} at {before}");
                }
            }
        }
    }

    #[test]
    fn copies_stay_inside_and_are_complete() {
        let from: Vec<u8> = (0..60).collect();
        for (from_at, to_at, count) in (0..60).flat_map(|from| (0..50).map(move |to| (from, to, (from * 7 + to) % 50)))
        {
            if from_at + count > from.len() {
                continue;
            }
            let mut to = [0xee; 50];
            let done = copy(&from, from_at, &mut to, to_at, count);
            assert_eq!(done.is_some(), to_at + count <= to.len(), "{from_at} {to_at} {count}");
            if done.is_some() {
                assert_eq!(to[to_at..to_at + count], from[from_at..from_at + count]);
                assert!(to[..to_at].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn matches_are_as_long_as_the_plain_twin_says() {
        let mut draw = draws(1);
        let page = PageBytes(core::array::from_fn(|at| if at % 600 < 500 { at as u8 % 3 } else { draw() as u8 }));
        for _ in 0..few(3000) {
            let at = 1 + draw() as usize % (PAGE_BYTES - 1);
            let from = draw() as usize % at;
            let length = lz::match_length(&page, from, at, PAGE_BYTES);
            assert_eq!(match_length(&page, from, at), length, "{from} {at}");
        }
    }
}
