//! `mxt-lz1`: lines of 1 KiB, each in four parts that are compressed side by side and share what they have seen.
//!
//! The compression of IBM's MXT (`mxt` section 2, "a parallelized variation of the Lempel-Ziv algorithm known as LZ1",
//! after Franaszek, Robinson and Thomas, "Parallel Compression with Cooperative Dictionary Construction"). Hardware
//! takes a byte of each part in each step. A part that looks for bytes seen before looks in all four parts, as far as
//! those were before this step: so nobody waits for another, and the dictionary grows as fast as if there were one part.
//! What `mxt` does with lines (sectors, trivial lines, cohorts) is the store's business; this codec takes a page, which is
//! four lines, and keeps nothing between them.
//!
//! The format is in docs/format/mxt-lz1.md. The papers leave the bits of a copy open; the document says what they are here.

//!
//! The same search as the plain twin's, and so the same bits: what is faster is how bytes are compared, and bits read. Where there is
//! AVX-512 what comes next is compared with all that was seen, as the hardware does.

use page::{PAGE_BYTES, PageBytes};

use super::plain::mxt::{self as plain, LINE_BYTES, LINES, Line, PART_BITS, PARTS, STEPS, place_bits};
use crate::{Codec, Corrupt, Scratch};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod bits;
mod encode;

use bits::{PADDED_BYTES, Reader};

/// IBM MXT's parallel LZ1.
#[derive(Clone, Copy, Default, Debug)]
pub struct MxtLz1;

impl MxtLz1 {
    /// How many bytes of an encoding each line takes, behind the first byte; `None` if it is not one.
    pub fn line_lengths(encoding: &[u8]) -> Option<[usize; LINES]> {
        let mut lengths = [0; LINES];
        decode(encoding, &mut PageBytes::ZERO.clone(), &mut lengths).ok()?;
        Some(lengths)
    }
}

impl Codec for MxtLz1 {
    fn name(&self) -> &'static str {
        "mxt-lz1"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        encode::encode(page, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        decode(encoding, page, &mut [0; LINES])
    }
}

/// Decodes a page, and says how long its lines were.
fn decode(encoding: &[u8], page: &mut PageBytes, lengths: &mut [usize; LINES]) -> Result<(), Corrupt> {
    let (&plain, _) = encoding.split_first().ok_or(Corrupt)?;
    if plain >> LINES != 0 || encoding.len() > bits::ENCODING_BYTES_MAX {
        return Err(Corrupt);
    }
    let mut padded = [0; PADDED_BYTES];
    padded[..encoding.len()].copy_from_slice(encoding);
    let mut start = 1;
    let lines = page.0.as_chunks_mut::<LINE_BYTES>().0.iter_mut().zip(lengths);
    for (number, (line, length)) in lines.enumerate() {
        let end = if plain >> number & 1 == 1 {
            *line = *padded[start..].first_chunk().expect("more than a line is behind");
            start + LINE_BYTES
        } else {
            decode_line(&padded, start, line)?
        };
        if end > encoding.len() {
            return Err(Corrupt);
        }
        *length = end - start;
        start = end;
    }
    if start == encoding.len() { Ok(()) } else { Err(Corrupt) }
}

/// What a part still copies.
#[derive(Clone, Copy)]
struct Source {
    from: usize,
    left: usize,
}

/// Decodes a line from the bits that begin at byte `start`, and returns where they end. That can be behind the encoding:
/// then the line means nothing.
fn decode_line(padded: &[u8; PADDED_BYTES], start: usize, line: &mut Line) -> Result<usize, Corrupt> {
    let mut bits = Reader::new(start);
    let mut copies = [Source { from: 0, left: 0 }; PARTS];
    let mut step = 0;
    while step < STEPS {
        let place_bits = place_bits(step);
        for (part, copy) in copies.iter_mut().enumerate() {
            let at = part * STEPS + step;
            if copy.left == 0 {
                let next = bits.peek(padded);
                if next & 1 == 0 {
                    line[at % LINE_BYTES] = (next >> 1) as u8;
                    bits.skip(plain::LITERAL_BITS);
                    continue;
                }
                *copy = take_copy(next, step, place_bits, &mut bits)?;
            }
            line[at % LINE_BYTES] = line[copy.from % LINE_BYTES];
            copy.from += 1;
            copy.left -= 1;
        }
        step += 1;
        let steps = copies.iter().map(|copy| copy.left).min().expect("there are parts");
        go_on(line, &mut copies, step, steps);
        step += steps;
    }
    Ok(bits.end())
}

/// So many steps in which all parts copy.
#[inline(always)]
fn go_on(line: &mut Line, copies: &mut [Source; PARTS], step: usize, steps: usize) {
    for more in 0..steps {
        for (part, copy) in copies.iter().enumerate() {
            // The remainders are for the compiler.
            line[(part * STEPS + step + more) % LINE_BYTES] = line[(copy.from + more) % LINE_BYTES];
        }
    }
    for copy in copies {
        copy.from += steps;
        copy.left -= steps;
    }
}

/// The copy that `next` begins with. It starts before `step` and ends inside its part, so that it copies only what is there.
#[inline(always)]
fn take_copy(next: u64, step: usize, place_bits: u32, bits: &mut Reader) -> Result<Source, Corrupt> {
    const MORE_MAX: u32 = STEPS.ilog2() - 1;
    let part = (next >> 1) as usize % PARTS;
    let place = (next >> (1 + PART_BITS)) as usize & ((1 << place_bits) - 1);
    let number = next >> (1 + PART_BITS + place_bits);
    let more = number.trailing_zeros();
    if more > MORE_MAX {
        return Err(Corrupt);
    }
    let length = (1 << more) + ((number >> (more + 1)) as usize & ((1 << more) - 1)) + 1;
    if place >= step || length > STEPS - step {
        return Err(Corrupt);
    }
    bits.skip(1 + PART_BITS + place_bits + 2 * more + 1);
    Ok(Source { from: part * STEPS + place, left: length })
}

const _: () = assert!(PAGE_BYTES == LINES * LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::tests::{draws, encoding, pages};

    #[test]
    fn lines_are_as_long_as_the_plain_twin_says() {
        let mut draw = draws(17);
        for page in pages().step_by(4) {
            let mut bytes = encoding(&MxtLz1, &page);
            assert!(MxtLz1::line_lengths(&bytes).is_some());
            for _ in 0..8 {
                assert_eq!(MxtLz1::line_lengths(&bytes), plain::MxtLz1::line_lengths(&bytes));
                let at = draw() as usize % bytes.len();
                bytes[at] ^= 1 << (draw() % 8);
            }
        }
    }
}
