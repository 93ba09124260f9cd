//! The plain twin of [`Lzo1x1`](crate::papers::Lzo1x1): docs/format/lzo1x.md as it is told.

use page::{PAGE_BYTES, PageBytes};

use super::lz::{Filling, Output, match_length};
use crate::{Codec, Corrupt, Scratch};

/// The shortest copy that the encoder looks for.
pub(in crate::papers) const LENGTH_MIN: usize = 4;
/// Copies up to this distance and length take two bytes.
pub(in crate::papers) const NEAR_DISTANCE_MAX: usize = 2048;
pub(in crate::papers) const NEAR_LENGTH_MAX: usize = 8;
/// Entries of the encoder's hash table.
pub(in crate::papers) const PLACES: usize = 4096;
/// The last instruction: a copy of three bytes from distance 16384, which stands for zero.
pub(in crate::papers) const END: [u8; 3] = [0x11, 0, 0];
/// A first byte above this is the number of literals that follow, and this.
pub(in crate::papers) const FIRST_LITERALS: u8 = 17;
/// So many literals need an instruction of their own; fewer go with the copy before.
pub(in crate::papers) const RUN_MIN: usize = 4;

// Copies from farther away have instructions that no page needs.
const _: () = assert!(PAGE_BYTES <= 16384);

/// Oberhumer's LZO1X-1, in streams that liblzo2 reads and writes.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct Lzo1x1;

impl Codec for Lzo1x1 {
    fn name(&self) -> &'static str {
        "lzo1x-1@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let mut out = Output::new(out)?;
        let mut finder = Finder::START;
        let mut next = finder.find(page, 0);
        push_first_literals(&page.0[..next.at], &mut out)?;
        while next.length > 0 {
            let copy = next;
            next = finder.find(page, copy.at + copy.length);
            let literals = &page.0[copy.at + copy.length..next.at];
            push_copy(copy, literals.len(), &mut out)?;
            push_literals(literals, &mut out)?;
        }
        out.push(&END)?;
        Some(out.len())
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        Decoder { rest: encoding, filling: Filling::new(page) }.run()
    }
}

/// A copy that the encoder has found: `length` bytes at `at` are those `distance` before.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    distance: usize,
    /// None behind the last copy of a page; then `at` is the page's end.
    length: usize,
}

/// Where four bytes of some hash were last looked for.
struct Finder([u16; PLACES]);

impl Finder {
    /// All zero: before it knows better, it looks at the start of the page, and compares like everywhere.
    const START: Self = Self([0; PLACES]);

    /// The next copy from `start` on.
    fn find(&mut self, page: &PageBytes, start: usize) -> Found {
        let mut at = start;
        while let Some(next) = page.0.get(at..).and_then(|rest| rest.first_chunk::<LENGTH_MIN>()) {
            let place = &mut self.0[hash(*next)];
            let from = usize::from(core::mem::replace(place, at as u16));
            let length = match_length(page, from, at, PAGE_BYTES);
            if from < at && length >= LENGTH_MIN {
                return Found { at, distance: at - from, length };
            }
            // The longer nothing is found the less closely it looks: what does not shrink should not take longest.
            at += 1 + ((at - start) >> 5);
        }
        Found { at: PAGE_BYTES, distance: 0, length: 0 }
    }
}

/// The highest twelve bits of a product with 2^32 divided by the golden ratio.
fn hash(bytes: [u8; LENGTH_MIN]) -> usize {
    (u32::from_le_bytes(bytes).wrapping_mul(0x9e37_79b1) >> 20) as usize % PLACES
}

/// The literals that a page begins with. There is at least one.
fn push_first_literals(literals: &[u8], out: &mut Output<'_>) -> Option<()> {
    match u8::try_from(literals.len() + usize::from(FIRST_LITERALS)) {
        Ok(first) => {
            out.push(&[first])?;
            out.push(literals)
        }
        Err(_) => push_literals(literals, out),
    }
}

/// The literals behind a copy.
fn push_literals(literals: &[u8], out: &mut Output<'_>) -> Option<()> {
    if literals.len() >= RUN_MIN {
        push_length(0, literals.len() - 3, 15, out)?;
    }
    out.push(literals)
}

/// A copy, with as many literals behind it as an instruction of their own would be too much for.
fn push_copy(copy: Found, literals: usize, out: &mut Output<'_>) -> Option<()> {
    let literals = if literals < RUN_MIN { literals as u8 } else { 0 };
    let distance = (copy.distance - 1) as u16;
    if copy.length <= NEAR_LENGTH_MAX && copy.distance <= NEAR_DISTANCE_MAX {
        let low = (distance & 7) as u8;
        return out.push(&[(copy.length as u8 - 1) << 5 | low << 2 | literals, (distance >> 3) as u8]);
    }
    push_length(0x20, copy.length - 2, 31, out)?;
    out.push(&(distance << 2 | u16::from(literals)).to_le_bytes())
}

/// An instruction and a length: in its low bits up to `field_max`, or else zero there and the rest behind it.
fn push_length(instruction: u8, length: usize, field_max: usize, out: &mut Output<'_>) -> Option<()> {
    if length <= field_max {
        return out.push(&[instruction | length as u8]);
    }
    out.push(&[instruction])?;
    let mut rest = length - field_max;
    while rest > 255 {
        out.push(&[0])?;
        rest -= 255;
    }
    out.push(&[rest as u8])
}

pub(in crate::papers) struct Decoder<'a> {
    pub(in crate::papers) rest: &'a [u8],
    pub(in crate::papers) filling: Filling<'a>,
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<(), Corrupt> {
        // How many literals the last instruction had, 4 for more: what the lowest instructions mean depends on it.
        let mut before = 0;
        if let Some((&first, rest)) = self.rest.split_first()
            && first > FIRST_LITERALS
        {
            self.rest = rest;
            before = self.literals(usize::from(first - FIRST_LITERALS))?;
        }
        self.resume(before)
    }

    /// The instructions that are left, behind one with so many literals, 4 for more.
    pub(in crate::papers) fn resume(&mut self, mut before: usize) -> Result<(), Corrupt> {
        while self.rest != END {
            before = self.instruction(before)?;
        }
        if self.filling.is_full() { Ok(()) } else { Err(Corrupt) }
    }

    /// Does the next instruction, and returns how many literals it had, 4 for more.
    fn instruction(&mut self, before: usize) -> Result<usize, Corrupt> {
        let [first] = self.take()?;
        let field = usize::from(first);
        // All but two kinds have a distance in these bits and in the byte behind, and a number of literals below.
        let (near, literals) = (field >> 2 & 7, field & 3);
        match first {
            0x00..=0x0f if before == 0 => {
                let length = 3 + self.length(field, 15)?;
                return self.literals(length);
            }
            0x00..=0x0f => {
                let [high] = self.take()?;
                let distance = usize::from(high) << 2 | near;
                let (distance, length) = if before < RUN_MIN { (distance + 1, 2) } else { (distance + 2049, 3) };
                self.filling.copy(distance, length)?;
            }
            // A distance of 16384 or more, or an end where none is.
            0x10..=0x1f => return Err(Corrupt),
            0x20..=0x3f => {
                let length = 2 + self.length(field & 0x1f, 31)?;
                let far = usize::from(u16::from_le_bytes(self.take()?));
                self.filling.copy((far >> 2) + 1, length)?;
                return self.literals(far & 3);
            }
            0x40..=0xff => {
                let [high] = self.take()?;
                self.filling.copy((usize::from(high) << 3 | near) + 1, (field >> 5) + 1)?;
            }
        }
        self.literals(literals)
    }

    /// A length: `field`, or if that is zero `field_max` and what follows.
    fn length(&mut self, field: usize, field_max: usize) -> Result<usize, Corrupt> {
        if field != 0 {
            return Ok(field);
        }
        let mut length = field_max;
        loop {
            match self.take()? {
                [0] => length += 255,
                [last] => return Ok(length + usize::from(last)),
            }
        }
    }

    fn literals(&mut self, count: usize) -> Result<usize, Corrupt> {
        let (literals, rest) = self.rest.split_at_checked(count).ok_or(Corrupt)?;
        self.rest = rest;
        self.filling.push(literals)?;
        Ok(count.min(RUN_MIN))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Corrupt)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::papers::tests::{draws, encoding};

    fn decode(encoding: &[u8]) -> Result<PageBytes, Corrupt> {
        let mut page = PageBytes([0xee; PAGE_BYTES]);
        Lzo1x1.decode(encoding, &mut page).map(|()| page)
    }

    #[test]
    fn the_example_of_the_format_document() {
        let mut page = PageBytes::ZERO;
        page.0[..12].copy_from_slice(b"abcdabcdabxy");
        let mut expected = std::vec![0x15];
        expected.extend(b"abcd");
        expected.extend([5 << 5 | 3 << 2 | 3, 0x00]);
        expected.extend([b'x', b'y', 0x00]);
        // 4083 zeros: 4083 - 2 - 31 = 15 × 255 + 225.
        expected.push(0x20);
        expected.extend([0; 15]);
        expected.extend([225, 0x00, 0x00]);
        expected.extend(END);
        assert_eq!(encoding(&Lzo1x1, &page), expected);
    }

    /// An encoding that begins with `start`, which fills the page up to `filled`, and goes on with noise: that comes, too.
    fn with_noise(start: &[u8], filled: usize) -> (Vec<u8>, Vec<u8>) {
        let mut draw = draws(5);
        let noise: Vec<u8> = (filled..PAGE_BYTES).map(|_| draw() as u8).collect();
        let mut encoding = start.to_vec();
        // A run's length in the fewest bytes.
        let mut rest = noise.len() - 18;
        encoding.push(0);
        while rest > 255 {
            encoding.push(0);
            rest -= 255;
        }
        encoding.push(rest as u8);
        encoding.extend(&noise);
        encoding.extend(END);
        (encoding, noise)
    }

    /// Which the encoder does not write, but liblzo2 does at higher levels.
    #[test]
    fn copies_of_two_bytes_behind_one_to_three_literals() {
        // Three literals at once, then two bytes from distance 3 without literals.
        let (encoding, noise) = with_noise(&[0x14, b'a', b'b', b'c', 0b0000_1000, 0], 5);
        let page = decode(&encoding).unwrap();
        assert_eq!(page.0[..5], *b"abcab");
        assert_eq!(page.0[5..], noise);
    }

    #[test]
    fn copies_of_three_bytes_from_beyond_2048_behind_a_run() {
        let run: Vec<u8> = (0..2100).map(|at| (at % 251) as u8).collect();
        let mut start = std::vec![0];
        start.extend([0; 8]);
        start.push((2100 - 18 - 8 * 255) as u8);
        start.extend(&run);
        // Distance 2049 + 2, which is 2051.
        start.extend([0b0000_1000, 0]);
        let (encoding, noise) = with_noise(&start, 2103);
        let page = decode(&encoding).unwrap();
        assert_eq!(page.0[..2100], run);
        assert_eq!(page.0[2100..2103], run[49..52]);
        assert_eq!(page.0[2103..], noise);
    }

    #[test]
    fn what_is_no_page_is_corrupt() {
        let (whole, _) = with_noise(&[0x15, 1, 2, 3, 4, 0x40 | 3 << 2, 0], 7);
        assert!(decode(&whole).is_ok());
        let (body, _) = whole.split_at(whole.len() - END.len());
        let long = [&whole, &[0][..]].concat();
        let twice = [&whole[..], &END].concat();
        // No end; an end of the wrong length; bytes behind the end; nothing but an end; a stream of LZO-RLE.
        for garbage in [body, &[body, &[0x12, 0, 0]].concat(), &long, &twice, &END, &[&[17, 1], &whole[..]].concat()] {
            assert!(decode(garbage).is_err());
        }
        let (too_far, _) = with_noise(&[0x15, 1, 2, 3, 4, 0x40 | 4 << 2, 0], 7);
        assert!(decode(&too_far).is_err());
        let (too_long, _) = with_noise(&[0x15, 1, 2, 3, 4, 0x60 | 3 << 2, 0], 7);
        assert!(decode(&too_long).is_err());
    }
}
