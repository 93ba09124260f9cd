//! `lzo1x-1`: literals and copies whose instructions have as few bytes as their lengths and distances allow.
//!
//! The codec that `crames` measures PBPM against ("Background (LZO)"), that `castro` section 4.3 compresses all pages
//! with, that `tuduce-gross` section 4 implements, and that is the default in `zswap`. Written from the description of
//! the stream in Linux's Documentation/staging/lzo.rst: liblzo2 reads what this writes, and this reads what liblzo2
//! writes, at every level of LZO1X.
//!
//! The format is in docs/format/lzo1x.md. The same search as the plain twin's, and so the same bytes: what is faster is how
//! bytes are compared and copied.

use core::hint::select_unpredictable;

use page::{PAGE_BYTES, PageBytes};

use super::lz::{self, Places};
use super::plain::lz::Filling;
use super::plain::lzo::{Decoder, END, FIRST_LITERALS, LENGTH_MIN, NEAR_DISTANCE_MAX, NEAR_LENGTH_MAX, RUN_MIN};
use crate::{Codec, Corrupt, Scratch};

/// Oberhumer's LZO1X-1, in streams that liblzo2 reads and writes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lzo1x1;

impl Codec for Lzo1x1 {
    fn name(&self) -> &'static str {
        "lzo1x-1"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode(encoding, page)
    }
}

fn encode(page: &PageBytes, out: &mut [u8]) -> Option<usize> {
    let mut places = Places::START;
    let mut out = Output { out, length: 0 };
    let mut copy = find(&mut places, page, 0);
    out.push_first_literals(page, copy.at)?;
    while copy.at < PAGE_BYTES {
        let start = copy.at + copy.length;
        let next = find(&mut places, page, start);
        if out.push_short(page, copy, next.at - start).is_none() {
            out.push_copy(copy, next.at - start)?;
            out.push_literals(page, start, next.at - start)?;
        }
        copy = next;
    }
    out.push(END)?;
    (out.length < out.out.len()).then_some(out.length)
}

/// The longest copy whose length is in its instruction.
const SHORT_COPY_MAX: usize = 33;

/// A copy that the encoder has found: `length` bytes at `at` are those `distance` before.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    distance: usize,
    /// None behind the last copy of a page; then `at` is the page's end.
    length: usize,
}

/// The next copy from `start` on, with which the page does not begin.
#[inline(always)]
fn find(places: &mut Places, page: &PageBytes, start: usize) -> Found {
    match seen(places, page, start) {
        Some((at, from)) => Found { at, distance: at - from, length: lz::match_length(page, from, at) },
        None => Found { at: PAGE_BYTES, distance: 0, length: 0 },
    }
}

/// So many bytes are looked at closely.
const STEP_BYTES: usize = 32;

/// Where the next bytes are that were seen before, and where that was.
#[inline(always)]
fn seen(places: &mut Places, page: &PageBytes, start: usize) -> Option<(usize, usize)> {
    // Of a page's first byte nothing was seen before.
    let mut at = start.max(1);
    // Apart, because a processor that does not know where it looks next waits for each place.
    let close = (start + STEP_BYTES).min(PAGE_BYTES - LENGTH_MIN + 1);
    while at < close {
        let next = lz::number_at::<LENGTH_MIN>(&page.0, at) as u32;
        let from = places.replace(next, at);
        if lz::number_at::<LENGTH_MIN>(&page.0, from) as u32 == next {
            return Some((at, from));
        }
        at += 1;
    }
    // The longer nothing is found the less closely it looks: what does not shrink should not take longest.
    while at <= PAGE_BYTES - LENGTH_MIN {
        let next = lz::number_at::<LENGTH_MIN>(&page.0, at) as u32;
        let from = places.replace(next, at);
        if lz::number_at::<LENGTH_MIN>(&page.0, from) as u32 == next {
            return Some((at, from));
        }
        at += 1 + (at - start) / STEP_BYTES;
    }
    None
}

/// An encoding while it is written. `None` is no room.
struct Output<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.out.get_mut(self.length..)?.first_chunk_mut()? = bytes;
        self.length += N;
        Some(())
    }

    /// The literals that a page begins with. There is at least one.
    fn push_first_literals(&mut self, page: &PageBytes, count: usize) -> Option<()> {
        let Ok(first) = u8::try_from(count + usize::from(FIRST_LITERALS)) else {
            return self.push_literals(page, 0, count);
        };
        self.push([first])?;
        lz::copy(&page.0, 0, self.out, self.length, count)?;
        self.length += count;
        Some(())
    }

    /// A copy and the literals behind it, if neither has a length of its own behind its instruction and there is room for more
    /// than they take. Most are such, and nobody can foretell more of them.
    #[inline(always)]
    fn push_short(&mut self, page: &PageBytes, copy: Found, literals: usize) -> Option<()> {
        if copy.length > SHORT_COPY_MAX || literals > lz::PIECE {
            return None;
        }
        let piece: &[u8; lz::PIECE] = page.0.get(copy.at + copy.length..)?.first_chunk()?;
        let room: &mut [u8; 4 + lz::PIECE] = self.out.get_mut(self.length..)?.first_chunk_mut()?;
        let is_near = copy.length <= NEAR_LENGTH_MAX && copy.distance <= NEAR_DISTANCE_MAX;
        let has_run = literals >= RUN_MIN;
        let (length, distance) = (copy.length as u32, (copy.distance - 1) as u32);
        let near = (length.wrapping_sub(1)) << 5 | (distance & 7) << 2 | (distance >> 3) << 8;
        let far = 0x20 | length.wrapping_sub(2) | distance << 10;
        let (instruction, bytes, shift) = select_unpredictable(is_near, (near, 2, 0), (far, 3, 8));
        let few = select_unpredictable(has_run, 0, literals as u32) << shift;
        // Behind it the instruction of a run, which the literals overwrite if there is none.
        let run = (literals as u32).wrapping_sub(3) << (8 * bytes);
        room[..4].copy_from_slice(&(instruction | few | run).to_le_bytes());
        let bytes = bytes + usize::from(has_run);
        room[bytes..][..lz::PIECE].copy_from_slice(piece);
        self.length += bytes + literals;
        Some(())
    }

    /// The literals behind a copy.
    #[inline(always)]
    fn push_literals(&mut self, page: &PageBytes, from: usize, count: usize) -> Option<()> {
        if count >= RUN_MIN {
            self.push_length(0, count - 3, 15)?;
        }
        lz::copy(&page.0, from, self.out, self.length, count)?;
        self.length += count;
        Some(())
    }

    /// A copy, with as many literals behind it as an instruction of their own would be too much for.
    #[inline(always)]
    fn push_copy(&mut self, copy: Found, literals: usize) -> Option<()> {
        let literals = if literals < RUN_MIN { literals as u8 } else { 0 };
        let distance = (copy.distance - 1) as u16;
        if copy.length <= NEAR_LENGTH_MAX && copy.distance <= NEAR_DISTANCE_MAX {
            let low = (distance & 7) as u8;
            return self.push([(copy.length as u8 - 1) << 5 | low << 2 | literals, (distance >> 3) as u8]);
        }
        self.push_length(0x20, copy.length - 2, 31)?;
        self.push((distance << 2 | u16::from(literals)).to_le_bytes())
    }

    /// An instruction and a length: in its low bits up to `field_max`, or else zero there and the rest behind it.
    #[inline(always)]
    fn push_length(&mut self, instruction: u8, length: usize, field_max: usize) -> Option<()> {
        if length <= field_max {
            return self.push([instruction | length as u8]);
        }
        self.push([instruction])?;
        let mut rest = length - field_max;
        while rest > 255 {
            self.push([0])?;
            rest -= 255;
        }
        self.push([rest as u8])
    }
}

fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    /// As many bytes as an instruction has without its literals and the zeros of its length, and a piece.
    const ENCODING_ROOM: usize = 4 + lz::PIECE;
    let mut input = Input { encoding, taken: 0, page, at: 0 };
    // How many literals the last instruction had, 4 for more: what the lowest instructions mean depends on it.
    let mut before = 0;
    if let Some((&first, _)) = encoding.split_first()
        && first > FIRST_LITERALS
    {
        input.taken = 1;
        before = input.literals(usize::from(first - FIRST_LITERALS))?;
    }
    while encoding.len() - input.taken >= ENCODING_ROOM && input.at <= PAGE_BYTES - lz::PIECE {
        before = input.instruction(before)?;
    }
    let Input { taken, page, at, .. } = input;
    Decoder { rest: &encoding[taken..], filling: Filling::resume(page, at) }.resume(before)
}

/// What is taken of an encoding and made of a page.
struct Input<'a> {
    encoding: &'a [u8],
    taken: usize,
    page: &'a mut PageBytes,
    at: usize,
}

impl Input<'_> {
    /// Does the next instruction, and returns how many literals it had, 4 for more.
    #[inline(always)]
    fn instruction(&mut self, before: usize) -> Result<usize, Corrupt> {
        let [first] = self.take()?;
        let field = usize::from(first);
        if first >= 0x40 {
            let [high] = self.take()?;
            let distance = (usize::from(high) << 3 | field >> 2 & 7) + 1;
            self.repeat(distance, (field >> 5) + 1)?;
            return self.few_literals(field & 3);
        }
        if first >= 0x20 {
            let length = 2 + self.length(field & 0x1f, 31)?;
            let far = usize::from(u16::from_le_bytes(self.take()?));
            self.repeat((far >> 2) + 1, length)?;
            return self.few_literals(far & 3);
        }
        if first >= 0x10 {
            // A distance of 16384 or more, or an end where none is.
            return Err(Corrupt);
        }
        if before == 0 {
            let length = 3 + self.length(field, 15)?;
            return self.literals(length);
        }
        let [high] = self.take()?;
        let distance = usize::from(high) << 2 | field >> 2 & 7;
        let (distance, length) = if before < RUN_MIN { (distance + 1, 2) } else { (distance + 2049, 3) };
        self.repeat(distance, length)?;
        self.few_literals(field & 3)
    }

    /// A length: `field`, or if that is zero `field_max` and what follows.
    #[inline(always)]
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

    #[inline(always)]
    fn repeat(&mut self, distance: usize, length: usize) -> Result<(), Corrupt> {
        lz::repeat(self.page, self.at, distance, length)?;
        self.at += length;
        Ok(())
    }

    /// Up to three literals: four bytes are copied where they are.
    #[inline(always)]
    fn few_literals(&mut self, count: usize) -> Result<usize, Corrupt> {
        let four = self.encoding.get(self.taken..).and_then(|rest| rest.first_chunk::<4>());
        let (Some(four), Some(to)) = (four, self.page.0[self.at..].first_chunk_mut()) else {
            return self.literals(count);
        };
        *to = *four;
        self.taken += count;
        self.at += count;
        Ok(count)
    }

    #[inline(always)]
    fn literals(&mut self, count: usize) -> Result<usize, Corrupt> {
        if count > self.encoding.len() - self.taken {
            return Err(Corrupt);
        }
        lz::copy(self.encoding, self.taken, &mut self.page.0, self.at, count).ok_or(Corrupt)?;
        self.taken += count;
        self.at += count;
        Ok(count.min(RUN_MIN))
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let bytes = self.encoding.get(self.taken..).and_then(|rest| rest.first_chunk()).ok_or(Corrupt)?;
        self.taken += N;
        Ok(*bytes)
    }
}
