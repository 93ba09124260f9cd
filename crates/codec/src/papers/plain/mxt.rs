//! The plain twin of [`MxtLz1`](crate::papers::MxtLz1): docs/format/mxt-lz1.md as it is told.

use page::{PAGE_BYTES, PageBytes};

use super::lz::Output;
use crate::{Codec, Corrupt, Scratch};

mod bits;
mod finder;

use bits::{Reader, Writer};
use finder::Finder;

pub(in crate::papers) const LINE_BYTES: usize = 1024;
pub(in crate::papers) const LINES: usize = PAGE_BYTES / LINE_BYTES;
pub(in crate::papers) const PARTS: usize = 4;
/// Log2 of `PARTS`.
pub(in crate::papers) const PART_BITS: u32 = 2;
/// Bytes of a part, which is as many steps.
pub(in crate::papers) const STEPS: usize = LINE_BYTES / PARTS;
/// A zero and a byte.
pub(in crate::papers) const LITERAL_BITS: u32 = 9;
/// A shorter copy would take more bits than its bytes.
pub(in crate::papers) const LENGTH_MIN: usize = 2;

/// IBM MXT's parallel LZ1.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::papers) struct MxtLz1;

pub(in crate::papers) type Line = [u8; LINE_BYTES];

#[cfg(test)]
impl MxtLz1 {
    /// How many bytes of an encoding each line takes, behind the first byte; `None` if it is not one.
    pub(in crate::papers) fn line_lengths(encoding: &[u8]) -> Option<[usize; LINES]> {
        let (&plain, mut rest) = encoding.split_first()?;
        let mut lengths = [0; LINES];
        for (at, length) in lengths.iter_mut().enumerate() {
            let behind = if plain >> at & 1 == 1 {
                rest.get(LINE_BYTES..)?
            } else {
                decode_line(rest, &mut [0; LINE_BYTES]).ok()?
            };
            *length = rest.len() - behind.len();
            rest = behind;
        }
        (plain >> LINES == 0 && rest.is_empty()).then_some(lengths)
    }
}

impl Codec for MxtLz1 {
    fn name(&self) -> &'static str {
        "mxt-lz1@plain"
    }

    fn encode(&self, page: &PageBytes, _: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let mut room = [[0; LINE_BYTES]; LINES];
        let mut lengths = [0; LINES];
        let mut plain = 0;
        for (at, line) in lines(page).iter().enumerate() {
            // Room for anything shorter than the line.
            let shorter = encode_line(line, &mut room[at][..LINE_BYTES - 1]);
            lengths[at] = shorter.unwrap_or(LINE_BYTES);
            if shorter.is_none() {
                room[at] = *line;
                plain |= 1 << at;
            }
        }
        let mut out = Output::new(out)?;
        out.push(&[plain])?;
        for (line, length) in room.iter().zip(lengths) {
            out.push(&line[..length])?;
        }
        Some(out.len())
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        let (&plain, mut rest) = encoding.split_first().ok_or(Corrupt)?;
        if plain >> LINES != 0 {
            return Err(Corrupt);
        }
        for (at, line) in page.0.as_chunks_mut::<LINE_BYTES>().0.iter_mut().enumerate() {
            rest = if plain >> at & 1 == 1 {
                let (bytes, behind) = rest.split_first_chunk().ok_or(Corrupt)?;
                *line = *bytes;
                behind
            } else {
                decode_line(rest, line)?
            };
        }
        if rest.is_empty() { Ok(()) } else { Err(Corrupt) }
    }
}

pub(in crate::papers) fn lines(page: &PageBytes) -> &[Line] {
    page.0.as_chunks().0
}

/// Encodes a line and returns how many bytes that takes, or `None` if `out` is too short.
fn encode_line(line: &Line, out: &mut [u8]) -> Option<usize> {
    let mut bits = Writer::new(out);
    let mut finder = Finder::START;
    // How much of its copy each part still has before it.
    let mut copying = [0; PARTS];
    for step in 0..STEPS {
        for (part, left) in copying.iter_mut().enumerate() {
            if *left == 0 {
                let at = part * STEPS + step;
                if let Some((from, length)) = finder.longest(line, at) {
                    push_copy(step, from, length, &mut bits)?;
                    *left = length;
                } else {
                    bits.push(u32::from(line[at]) << 1, LITERAL_BITS)?;
                    *left = 1;
                }
            }
            *left -= 1;
        }
        finder.note(line, step);
    }
    bits.finish()
}

/// A one, the place that is copied from, and the length.
fn push_copy(step: usize, from: usize, length: usize, bits: &mut Writer<'_>) -> Option<()> {
    bits.push(1, 1)?;
    bits.push((from / STEPS) as u32, PART_BITS)?;
    bits.push((from % STEPS) as u32, place_bits(step))?;
    let number = (length - 1) as u32;
    let more = number.ilog2();
    bits.push(1 << more, more + 1)?;
    bits.push(number - (1 << more), more)
}

/// How many bits a place takes in a part of which `step` bytes were seen.
pub(in crate::papers) fn place_bits(step: usize) -> u32 {
    step.next_power_of_two().ilog2()
}

/// What a part still copies.
#[derive(Clone, Copy)]
struct Source {
    from: usize,
    left: usize,
}

/// Decodes a line from the start of `encoding`, and returns what lies behind.
fn decode_line<'a>(encoding: &'a [u8], line: &mut Line) -> Result<&'a [u8], Corrupt> {
    let mut bits = Reader::new(encoding);
    let mut copies = [Source { from: 0, left: 0 }; PARTS];
    for step in 0..STEPS {
        for (part, copy) in copies.iter_mut().enumerate() {
            let at = part * STEPS + step;
            if copy.left == 0 {
                if bits.take(1)? == 0 {
                    line[at] = bits.take(8)? as u8;
                    continue;
                }
                *copy = take_copy(step, &mut bits)?;
            }
            line[at] = line[copy.from];
            copy.from += 1;
            copy.left -= 1;
        }
    }
    Ok(bits.behind())
}

/// A copy, behind its one. It starts before `step` and ends inside its part, so that it copies only what is there.
fn take_copy(step: usize, bits: &mut Reader<'_>) -> Result<Source, Corrupt> {
    let part = bits.take(PART_BITS)? as usize;
    let place = bits.take(place_bits(step))? as usize;
    let mut more = 0;
    while bits.take(1)? == 0 {
        more += 1;
        if 1 << more >= STEPS {
            return Err(Corrupt);
        }
    }
    let length = (1 << more) + bits.take(more)? as usize + 1;
    if place >= step || length > STEPS - step {
        return Err(Corrupt);
    }
    Ok(Source { from: part * STEPS + place, left: length })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::papers::tests::{draws, encoding, pages};

    fn noise(seed: u64) -> [u8; STEPS] {
        let mut draw = draws(seed);
        core::array::from_fn(|_| draw() as u8)
    }

    fn line_of(parts: &[[u8; STEPS]; PARTS]) -> Line {
        parts.concat().try_into().unwrap()
    }

    /// The length of an encoded line, which for noise is more than that of the line.
    fn bytes_of(line: &Line) -> usize {
        encode_line(line, &mut [0; 2 * LINE_BYTES]).unwrap()
    }

    #[test]
    fn lines_of_an_encoding_are_told_apart() {
        for page in pages() {
            let encoding = encoding(&MxtLz1, &page);
            let expected = lines(&page)
                .iter()
                .map(|line| encode_line(line, &mut [0; LINE_BYTES - 1]).unwrap_or(LINE_BYTES))
                .collect::<Vec<_>>();
            assert_eq!(MxtLz1::line_lengths(&encoding).unwrap(), expected[..]);
            assert_eq!(MxtLz1::line_lengths(&encoding[..encoding.len() - 1]), None);
            assert_eq!(MxtLz1::line_lengths(&[encoding, [0].into()].concat()), None);
        }
        assert_eq!(MxtLz1::line_lengths(&[]), None);
    }

    #[test]
    fn the_example_of_the_format_document() {
        let line = [0, 0, 0, 0, 0x70, 0x40, 0xff, 0x01, 0xfd, 0x07, 0xf4, 0x1f, 0xd0, 0x0f];
        assert_eq!(encoding(&MxtLz1, &PageBytes::ZERO), [&[0], line.repeat(LINES).as_slice()].concat());
    }

    /// "For cache lines that compress to less than 120 bits, for example a cache line full of zeros".
    #[test]
    fn a_line_of_zeros_is_trivial() {
        assert!(bytes_of(&[0; LINE_BYTES]) * 8 < 120);
        assert!(bytes_of(&[0xa5; LINE_BYTES]) * 8 < 120);
    }

    #[test]
    fn parts_copy_from_each_other() {
        // Each part is the one behind it, a byte later: it copies all but its first byte, from the first step on.
        let mut parts = [noise(1); PARTS];
        for part in (0..PARTS - 1).rev() {
            let (before, behind) = parts.split_at_mut(part + 1);
            before[part][0] = part as u8;
            before[part][1..].copy_from_slice(&behind[0][..STEPS - 1]);
        }
        // In each of three parts a literal, then a one, a part, and a length of 15 bits.
        let bits = STEPS as u32 * LITERAL_BITS + 3 * (LITERAL_BITS + 1 + PART_BITS + 15);
        assert!(bytes_of(&line_of(&parts)) <= bits.div_ceil(8) as usize);
    }

    #[test]
    fn parts_do_not_see_what_others_take_in_the_same_step() {
        // Pairs that repeat by chance are copied.
        let alone = line_of(&[1, 2, 3, 4].map(noise));
        let same = line_of(&[1; PARTS].map(noise));
        let bytes = LINE_BYTES * LITERAL_BITS as usize / 8;
        assert!(bytes_of(&alone) > bytes * 95 / 100);
        assert!(bytes_of(&same) > bytes * 95 / 100);
    }

    #[test]
    fn the_finder_finds_the_longest_copies() {
        for page in pages().step_by(13) {
            for line in lines(&page) {
                let mut finder = Finder::START;
                for step in 0..STEPS {
                    for part in 0..PARTS {
                        let at = part * STEPS + step;
                        let seen = (0..PARTS).flat_map(|part| part * STEPS..part * STEPS + step);
                        let longest = seen.map(|from| finder::match_length(line, from, at)).max().unwrap_or(0);
                        let found = finder.longest(line, at).map_or(0, |(_, length)| length);
                        assert_eq!(found, if longest < LENGTH_MIN { 0 } else { longest }, "step {step} part {part}");
                    }
                    finder.note(line, step);
                }
            }
        }
    }

    #[test]
    fn lines_that_do_not_shrink_stay_plain() {
        let mut page = PageBytes::ZERO;
        for (at, part) in page.0[LINE_BYTES..2 * LINE_BYTES].as_chunks_mut().0.iter_mut().enumerate() {
            *part = noise(at as u64);
        }
        let encoding = encoding(&MxtLz1, &page);
        assert_eq!(encoding[0], 0b0010);
        let zeros = bytes_of(&[0; LINE_BYTES]);
        assert_eq!(encoding.len(), 1 + 3 * zeros + LINE_BYTES);
        assert!(encoding[1 + zeros..][..LINE_BYTES] == page.0[LINE_BYTES..2 * LINE_BYTES]);
    }

    #[test]
    fn copies_that_leave_what_was_seen_are_corrupt() {
        // At the first step nothing was seen. At the second a place has no bits; at the fourth it has two, for three places.
        let garbage = |bits: &[(u32, u32)]| {
            let mut out = [0; LINE_BYTES];
            let mut writer = Writer::new(&mut out);
            for &(value, count) in bits {
                writer.push(value, count).unwrap();
            }
            let length = writer.finish().unwrap();
            decode_line(&out[..length], &mut [0; LINE_BYTES]).map(<[u8]>::len)
        };
        assert_eq!(garbage(&[(1, 1), (0, 2), (1, 1), (0, 32)]), Err(Corrupt));
        let literals: Vec<(u32, u32)> = [(7 << 1, 9)].repeat(3 * PARTS);
        let with = |copy: &[(u32, u32)]| garbage(&[&literals, copy].concat());
        assert_eq!(with(&[(1, 1), (0, 2), (3, 2), (1, 1)]), Err(Corrupt));
        // Eight zeros begin a length of more than a part has.
        assert_eq!(with(&[(1, 1), (0, 2), (0, 2), (0, 8)]), Err(Corrupt));
        // 253 bytes are left in a part, not 254: the number 253 in seven bits and a length of 254.
        let copies = |number: u32| [(1, 1), (0, 2), (2, 2), (1 << 7, 8), (number - 128, 7)].repeat(PARTS);
        assert_eq!(with(&copies(253)), Err(Corrupt));
        assert_eq!(with(&copies(252)), Ok(0));
    }
}
