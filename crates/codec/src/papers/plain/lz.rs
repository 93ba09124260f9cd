//! What LZ codecs share: output that may come to its end, a page that is filled from itself, and the length of a match.

use page::{PAGE_BYTES, PageBytes};

use crate::Corrupt;

/// An encoding while it is written.
pub(in crate::papers) struct Output<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl<'a> Output<'a> {
    /// The encoding must be shorter than `out`; where `out` is empty, none is.
    pub(in crate::papers) fn new(out: &'a mut [u8]) -> Option<Self> {
        let shorter = out.len().checked_sub(1)?;
        Some(Self { out: &mut out[..shorter], length: 0 })
    }

    /// `None` if there is no room.
    pub(in crate::papers) fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length + bytes.len();
        self.out.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }

    pub(in crate::papers) const fn len(&self) -> usize {
        self.length
    }
}

/// A page while it is decoded.
pub(in crate::papers) struct Filling<'a> {
    page: &'a mut [u8; PAGE_BYTES],
    at: usize,
}

impl<'a> Filling<'a> {
    pub(in crate::papers) fn new(page: &'a mut PageBytes) -> Self {
        Self { page: &mut page.0, at: 0 }
    }

    /// A page of which `at` bytes have been filled.
    pub(in crate::papers) fn resume(page: &'a mut PageBytes, at: usize) -> Self {
        Self { page: &mut page.0, at }
    }

    pub(in crate::papers) fn is_full(&self) -> bool {
        self.at == PAGE_BYTES
    }

    #[inline]
    pub(in crate::papers) fn push(&mut self, bytes: &[u8]) -> Result<(), Corrupt> {
        let end = self.at + bytes.len();
        self.page.get_mut(self.at..end).ok_or(Corrupt)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Goes on with `length` bytes from `distance` before. Bytes that are only just written can be among them: then the
    /// last `distance` bytes repeat.
    pub(in crate::papers) fn copy(&mut self, distance: usize, length: usize) -> Result<(), Corrupt> {
        if distance == 0 || distance > self.at || length > PAGE_BYTES - self.at {
            return Err(Corrupt);
        }
        let end = self.at + length;
        let mut period = distance;
        while self.at < end {
            // What is written so far repeats too: so each pass can copy twice what the one before could.
            let bytes = period.min(end - self.at);
            self.page.copy_within(self.at - period..self.at - period + bytes, self.at);
            self.at += bytes;
            period *= 2;
        }
        Ok(())
    }
}

/// How many bytes from `at` on are those from `from` on, `max` at most.
pub(in crate::papers) fn match_length(page: &PageBytes, from: usize, at: usize, max: usize) -> usize {
    let max = max.min(PAGE_BYTES - at);
    let pairs = page.0[from..from + max].iter().zip(&page.0[at..at + max]);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_as_byte_by_byte() {
        for distance in 1..40 {
            for length in (0..200).step_by(if cfg!(miri) { 61 } else { 1 }) {
                let mut page = PageBytes::ZERO;
                let mut filling = Filling::new(&mut page);
                let start: [u8; 40] = core::array::from_fn(|at| at as u8 + 1);
                filling.push(&start).unwrap();
                filling.copy(distance, length).unwrap();
                let mut expected = start.to_vec();
                for at in 40..40 + length {
                    expected.push(expected[at - distance]);
                }
                expected.resize(PAGE_BYTES, 0);
                assert!(page.0[..] == expected, "{distance} {length}");
            }
        }
    }

    #[test]
    fn copies_and_literals_stay_inside_the_page() {
        let mut page = PageBytes::ZERO;
        let mut filling = Filling::new(&mut page);
        assert_eq!(filling.copy(1, 1), Err(Corrupt));
        filling.push(&[1, 2, 3]).unwrap();
        for (distance, length) in [(0, 1), (4, 1), (1, PAGE_BYTES - 2), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(filling.copy(distance, length), Err(Corrupt));
        }
        assert_eq!(filling.push(&[0; PAGE_BYTES - 2]), Err(Corrupt));
        assert_eq!(filling.copy(3, PAGE_BYTES - 3), Ok(()));
        assert!(filling.is_full());
        assert_eq!(filling.push(&[0]), Err(Corrupt));
    }

    #[test]
    fn an_encoding_stays_shorter_than_its_room() {
        let mut room = [9; 4];
        let mut output = Output::new(&mut room).unwrap();
        assert_eq!(output.push(&[1, 2]), Some(()));
        assert_eq!(output.push(&[3, 4]), None);
        assert_eq!(output.push(&[3]), Some(()));
        assert_eq!(output.len(), 3);
        assert_eq!(room, [1, 2, 3, 9]);
        assert!(Output::new(&mut []).is_none());
    }
}
