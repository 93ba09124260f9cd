//! The plain twin, for processors that have no better.

use page::PAGE_BYTES;

use super::{LITERALS_ROOM, PAGE_ROOM, Told, length};
use crate::Corrupt;

/// See [`super::put_together`]. The sums of the lengths are right, so no position passes the end. What is behind a literal or a match is written
/// anew.
pub(in crate::sequences) fn put_together(
    told: Told<'_>,
    literals: &[u8; LITERALS_ROOM],
    out: &mut [u8; PAGE_ROOM],
) -> Result<(), Corrupt> {
    let mut copying = Copying { literals, out, at: 0 };
    for [first, second] in told.pairs() {
        copying.copy(first)?;
        copying.copy(second)?;
    }
    if let Some(last) = told.last() {
        copying.copy(last)?;
    }
    debug_assert_eq!(copying.at, PAGE_BYTES);
    Ok(())
}

struct Copying<'a> {
    literals: &'a [u8],
    out: &'a mut [u8; PAGE_ROOM],
    at: usize,
}

impl Copying<'_> {
    #[inline(always)]
    fn copy(&mut self, (token, offset): (u8, usize)) -> Result<(), Corrupt> {
        let (literal, length) = (usize::from(token & 15), usize::from(length(token)));
        let sixteen: [u8; 16] = *self.literals.first_chunk().expect("there is room for a vector behind the literals");
        self.put(self.at, sixteen);
        self.literals = &self.literals[literal..];
        self.at += literal;
        if length == 0 {
            return Ok(());
        }
        let from = self.at.checked_sub(offset).ok_or(Corrupt)?;
        if offset >= 16 {
            self.put(self.at, self.get(from));
            self.put(self.at + 16, self.get(from + 16));
        } else if offset == 0 {
            return Err(Corrupt);
        } else {
            for next in 0..length {
                self.out[self.at + next] = self.out[from + next];
            }
        }
        self.at += length;
        Ok(())
    }

    #[inline(always)]
    fn get(&self, at: usize) -> [u8; 16] {
        *self.out[at..].first_chunk().expect("there is room behind the page")
    }

    #[inline(always)]
    fn put(&mut self, at: usize, bytes: [u8; 16]) {
        *self.out[at..].first_chunk_mut().expect("there is room behind the page") = bytes;
    }
}
