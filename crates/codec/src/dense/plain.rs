//! The plain twin of the decoder: what the format document says, bit by bit and byte by byte.

use std::vec;
use std::vec::Vec;

use page::{PAGE_BYTES, PageBytes};

use super::fixed;
use crate::Corrupt;

/// Codes of one to nine bits, and what they stand for.
type Code = Vec<(u32, usize, u8)>;

pub(super) fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let mut rest = encoding;
    let head = take(&mut rest, 5)?.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let (literals, sequences) = ((head >> 10 & 0x1fff) as usize, (head >> 23 & 0x7ff) as usize);
    if head >> 34 != 0 || literals > PAGE_BYTES || sequences > PAGE_BYTES / 3 {
        return Err(Corrupt);
    }
    let mut codes = Vec::new();
    for kind in 0..3 {
        codes.push(code(head >> (3 * kind) & 7, fixed::LENGTHS[kind], &mut rest)?);
    }
    let lengths: Vec<usize> = if head >> 9 & 1 == 1 {
        take(&mut rest, 16)?.chunks(2).map(|told| usize::from(told[0]) | usize::from(told[1]) << 8).collect()
    } else {
        take(&mut rest, 8)?.iter().map(|told| usize::from(*told)).collect()
    };
    let mut symbols = [const { Vec::new() }; 3];
    for (stream, length) in lengths.into_iter().enumerate() {
        let (kind, parts, part) =
            [(0, 4, 0), (0, 4, 1), (0, 4, 2), (0, 4, 3), (1, 2, 0), (1, 2, 1), (2, 2, 0), (2, 2, 1)][stream];
        let all = if kind == 0 { literals } else { sequences };
        let each = all.div_ceil(parts);
        let end = (each * (part + 1)).min(all);
        let mut bits = Bits { bytes: take(&mut rest, length)?, at: 0 };
        for _ in (each * part).min(all)..end {
            symbols[kind].push(bits.symbol(&codes[kind])?);
        }
        bits.end()?;
    }
    let [literals, tokens, distances] = symbols;
    let page_bytes = restore(&literals, &tokens, &distances, Bits { bytes: rest, at: 0 })?;
    page.0 = page_bytes.try_into().map_err(|_| Corrupt)?;
    Ok(())
}

fn restore(literals: &[u8], tokens: &[u8], distances: &[u8], mut rests: Bits<'_>) -> Result<Vec<u8>, Corrupt> {
    let mut page: Vec<u8> = Vec::new();
    let mut literals = literals.iter();
    let mut distance = 0;
    for (token, symbol) in tokens.iter().zip(distances) {
        let mut halves = [token >> 4, token & 15].map(usize::from);
        for half in halves.iter_mut().filter(|half| **half == 15) {
            let more = rests.number(8)?;
            *half += if more == 255 { rests.number(12)? } else { more };
        }
        distance = match usize::from(*symbol) {
            0 => distance,
            words @ 1..=127 => 8 * words,
            far @ 128..=175 => 8 * (128 + 8 * (far - 128) + rests.number(3)?),
            other @ 176..=239 => 64 * (other - 176) + rests.number(6)?,
            _ => 0,
        };
        for _ in 0..halves[0] {
            page.push(*literals.next().ok_or(Corrupt)?);
        }
        for _ in 0..halves[1] + 3 {
            let from = page.len().checked_sub(distance).filter(|_| distance > 0).ok_or(Corrupt)?;
            page.push(page[from]);
        }
        if page.len() > PAGE_BYTES {
            return Err(Corrupt);
        }
    }
    rests.end()?;
    page.extend(literals);
    Ok(page)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Corrupt> {
    let (taken, behind) = rest.split_at_checked(count).ok_or(Corrupt)?;
    *rest = behind;
    Ok(taken)
}

fn code(kind: u64, fixed: Option<&[u8; 256]>, rest: &mut &[u8]) -> Result<Code, Corrupt> {
    let mut lengths = [0; 256];
    match kind {
        0 => lengths = [8; 256],
        1 => return Ok(vec![(0, 0, take(rest, 1)?[0])]),
        2 | 3 => {
            let groups = take(rest, 4)?;
            let mut listed = Vec::new();
            for group in (0..32).filter(|group| groups[group / 8] >> (group % 8) & 1 == 1) {
                let present = take(rest, 1)?[0];
                listed.extend((0..8).filter(|at| present >> at & 1 == 1).map(|at| 8 * group + at));
            }
            let told = take(rest, (3 * listed.len()).div_ceil(8))?;
            for (at, symbol) in listed.into_iter().enumerate() {
                let bit = |bit: usize| told[bit / 8] >> (bit % 8) & 1;
                let value = bit(3 * at) | bit(3 * at + 1) << 1 | bit(3 * at + 2) << 2;
                lengths[symbol] = value + kind as u8 - 1;
            }
        }
        4 => lengths = *fixed.ok_or(Corrupt)?,
        _ => return Err(Corrupt),
    }
    let mut code = Code::new();
    let mut next = 0;
    for length in 1..=9 {
        next *= 2;
        for symbol in (0..256).filter(|symbol| usize::from(lengths[*symbol]) == length) {
            code.push((next, length, symbol as u8));
            next += 1;
        }
    }
    // All nine bits taken, neither fewer nor more.
    if next == 512 { Ok(code) } else { Err(Corrupt) }
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn number(&mut self, count: usize) -> Result<usize, Corrupt> {
        let mut number = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.at / 8).ok_or(Corrupt)?;
            number = number << 1 | usize::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(number)
    }

    fn symbol(&mut self, code: &Code) -> Result<u8, Corrupt> {
        let (mut bits, mut length) = (0, 0);
        loop {
            if let Some((_, _, symbol)) = code.iter().find(|(value, bits_of, _)| (*value, *bits_of) == (bits, length)) {
                return Ok(*symbol);
            }
            bits = bits << 1 | self.number(1)? as u32;
            length += 1;
        }
    }

    fn end(&self) -> Result<(), Corrupt> {
        if self.at.div_ceil(8) == self.bytes.len() { Ok(()) } else { Err(Corrupt) }
    }
}
