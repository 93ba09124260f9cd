//! With vectors, and without asking what else there is to copy.

use page::PAGE_BYTES;

use super::{LITERALS_ROOM, PAGE_ROOM, Told, length};
use crate::Corrupt;
use crate::copies::{self, Avx2, PIECE, copy_match, copy_piece};
use crate::sequences::MATCH_MAX;

/// In the place of the offset of what is no match: far enough back to be copied like most, whatever it is.
const NO_MATCH: usize = PIECE;

// Every match is copied as if it were of the longest.
const _: () = assert!(MATCH_MAX <= copies::MATCH_MAX && PAGE_ROOM >= PAGE_BYTES + copies::MATCH_MAX);

/// See [`super::put_together`].
pub(super) fn put_together(
    _: Avx2,
    told: Told<'_>,
    literals: &[u8; LITERALS_ROOM],
    out: &mut [u8; PAGE_ROOM],
) -> Result<(), Corrupt> {
    // SAFETY: the processor has what it needs, as there is an `Avx2`.
    unsafe { copy(told, literals, out) }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
fn copy(told: Told<'_>, literals: &[u8; LITERALS_ROOM], out: &mut [u8; PAGE_ROOM]) -> Result<(), Corrupt> {
    let mut copying = Copying { literals: literals.as_ptr(), out: out.as_mut_ptr(), at: 0, bad: 0 };
    for [first, second] in told.pairs() {
        // SAFETY: `Told` has as many literals as its tokens say, and no more bytes in all than a page.
        unsafe { copying.copy(first) };
        // SAFETY: as above.
        unsafe { copying.copy(second) };
    }
    if let Some(last) = told.last() {
        // SAFETY: as above.
        unsafe { copying.copy(last) };
    }
    if copying.bad == 0 { Ok(()) } else { Err(Corrupt) }
}

struct Copying {
    /// The next of them, at most a page behind the first.
    literals: *const u8,
    out: *mut u8,
    /// At most a page.
    at: usize,
    /// Whether an offset was 0, or reached to before the page; a number, for that is what the compiler keeps in a register.
    bad: usize,
}

impl Copying {
    /// # Safety
    /// No more literals than there are, and no more bytes in all than a page.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    unsafe fn copy(&mut self, (token, offset): (u8, usize)) {
        let length = usize::from(length(token));
        // SAFETY: of both there is a vector behind a page.
        unsafe { copy_piece(self.literals, self.out.wrapping_add(self.at)) };
        self.literals = self.literals.wrapping_add(usize::from(token & 15));
        self.at += usize::from(token & 15);
        self.bad |= usize::from(offset.wrapping_sub(1) >= self.at && length != 0);
        let offset = if length == 0 { NO_MATCH } else { offset };
        // SAFETY: there is a vector behind a page.
        unsafe { copy_match(self.out, self.at, offset) };
        self.at += length;
    }
}
