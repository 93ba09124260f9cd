//! A page while literals and matches fill it.

use page::PAGE_BYTES;

#[cfg(target_arch = "x86_64")]
use super::{LENGTH_MIN, NIBBLE_MAX};
use crate::Corrupt;
#[cfg(target_arch = "x86_64")]
use crate::copies;

/// Copies are made in pieces of so many bytes, the last of which may be too long.
const PIECE: usize = 16;
const WORD_BYTES: usize = 8;
/// Literals of a page, and what is read behind the last.
pub(super) const LITERALS_ROOM: usize = PAGE_BYTES + PIECE;
/// A page, and what is written behind its end.
const PAGE_ROOM: usize = PAGE_BYTES + 2 * PIECE;

/// The bytes that there are so far, with room for what is copied too much.
pub(super) struct Filled {
    bytes: [u8; PAGE_ROOM],
    at: usize,
}

impl Filled {
    pub(super) const EMPTY: Self = Self { bytes: [0; PAGE_ROOM], at: 0 };

    /// All of it, if no more is missing.
    pub(super) fn page(&self) -> Option<&[u8; PAGE_BYTES]> {
        if self.at == PAGE_BYTES { self.bytes.first_chunk() } else { None }
    }

    /// Literals from `from` on.
    #[inline]
    pub(super) fn push(&mut self, literals: &[u8; LITERALS_ROOM], from: usize, count: usize) -> Result<(), Corrupt> {
        if count > PAGE_BYTES - self.at {
            return Err(Corrupt);
        }
        let mut done = 0;
        loop {
            // Sixteen bytes at once, whatever the count: most are few. What is too much is overwritten.
            let piece: [u8; PIECE] = *literals[from + done..].first_chunk().ok_or(Corrupt)?;
            *self.bytes[self.at + done..].first_chunk_mut().ok_or(Corrupt)? = piece;
            done += PIECE;
            if done >= count {
                break;
            }
        }
        self.at += count;
        Ok(())
    }

    /// A match. Bytes that it makes itself may be among those it copies.
    #[inline]
    fn copy(&mut self, distance: usize, length: usize) -> Result<(), Corrupt> {
        if distance == 0 || distance > self.at || length > PAGE_BYTES - self.at {
            return Err(Corrupt);
        }
        if distance >= WORD_BYTES && length <= PIECE {
            // Both words at once, whatever the length: most matches have no more.
            self.copy_word(distance, 0);
            self.copy_word(distance, WORD_BYTES);
            self.at += length;
            return Ok(());
        }
        self.repeat(distance, length);
        Ok(())
    }

    #[inline(always)]
    fn copy_word(&mut self, distance: usize, offset: usize) {
        let to = self.at + offset;
        let word: [u8; WORD_BYTES] = *self.bytes[to - distance..].first_chunk().expect("there is room for a piece");
        *self.bytes[to..].first_chunk_mut().expect("there is room for a piece") = word;
    }

    /// The same for short distances and long matches: what is written so far repeats, too, so that each piece can be twice
    /// as long as the one before.
    fn repeat(&mut self, distance: usize, length: usize) {
        let end = self.at + length;
        if distance >= WORD_BYTES && length <= 4 * PIECE {
            while self.at < end {
                self.copy_word(distance, 0);
                self.copy_word(distance, WORD_BYTES);
                self.at += PIECE;
            }
            self.at = end;
            return;
        }
        let mut period = distance;
        while self.at < end {
            let piece = period.min(end - self.at);
            self.bytes.copy_within(self.at - period..self.at - period + piece, self.at);
            self.at += piece;
            period *= 2;
        }
    }
}

/// Literals, and the match behind them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The first of the literals.
    pub(super) from: usize,
    pub(super) count: usize,
    pub(super) distance: usize,
    pub(super) length: usize,
}

/// How sequences are copied.
pub(super) trait Path: Copy {
    /// A match of any length.
    fn copy_long(self, page: &mut Filled, distance: usize, length: usize) -> Result<(), Corrupt>;

    /// Literals, fewer than a piece, and then a match of a piece and four bytes at the most.
    fn copy_short(self, page: &mut Filled, literals: &[u8; LITERALS_ROOM], step: Step) -> Result<(), Corrupt>;
}

#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Path for Plain {
    #[inline(always)]
    fn copy_long(self, page: &mut Filled, distance: usize, length: usize) -> Result<(), Corrupt> {
        page.copy(distance, length)
    }

    #[inline(always)]
    fn copy_short(self, page: &mut Filled, literals: &[u8; LITERALS_ROOM], step: Step) -> Result<(), Corrupt> {
        let Step { from, count, distance, length } = step;
        page.push(literals, from, count)?;
        page.copy(distance, length)
    }
}

// Short matches, and what is copied of any too much.
#[cfg(target_arch = "x86_64")]
const _: () = assert!(LENGTH_MIN + NIBBLE_MAX - 1 <= copies::MATCH_MAX && PAGE_ROOM >= PAGE_BYTES + copies::MATCH_MAX);

#[cfg(target_arch = "x86_64")]
impl Path for copies::Avx2 {
    #[inline(always)]
    fn copy_long(self, page: &mut Filled, distance: usize, length: usize) -> Result<(), Corrupt> {
        if page.at + length > PAGE_BYTES || distance.wrapping_sub(1) >= page.at {
            return Err(Corrupt);
        }
        // SAFETY: behind a page there is room for the longest match, and the processor has what it needs.
        unsafe { copies::copy_long_match(page.bytes.as_mut_ptr(), page.at, distance, length) };
        page.at += length;
        Ok(())
    }

    #[inline(always)]
    fn copy_short(self, page: &mut Filled, literals: &[u8; LITERALS_ROOM], step: Step) -> Result<(), Corrupt> {
        let Step { from, count, distance, length } = step;
        let at = page.at + count;
        if at + length > PAGE_BYTES || distance.wrapping_sub(1) >= at || from > PAGE_BYTES {
            return Err(Corrupt);
        }
        let bytes = page.bytes.as_mut_ptr();
        // SAFETY: behind a page of both there is a piece, and the processor has what it needs.
        unsafe { copies::copy_piece(literals.as_ptr().wrapping_add(from), bytes.wrapping_add(page.at)) };
        // SAFETY: as above; there is room for what a match may be longer.
        unsafe { copies::copy_match(bytes, at, distance) };
        page.at = at + length;
        Ok(())
    }
}
