//! The decoder: streams to symbols, four streams at a time, then the page.
//!
//! Nothing of an encoding is believed. Symbols are decoded from wherever the lengths point, inside the bytes that there
//! are; that each stream ends where it says is asked at its end, and each copy is looked at before it is made.

use page::{PAGE_BYTES, PageBytes};

use super::bits::Reader;
use super::code::{Kind, Table};
use super::distance::{MEANINGS, REPEAT};
use super::filled::{Filled, LITERALS_ROOM, Path, Plain, Step};
use super::fixed;
use super::{HEADER_BYTES, Header, LENGTH_MIN, LONG_BITS, NIBBLE_MAX, REST_BITS, REST_MAX, SEQUENCES_MAX, STREAMS};
use crate::Corrupt;
#[cfg(target_arch = "x86_64")]
use crate::copies;

/// What an encoder needs at most, generously.
pub(super) const ENCODING_BYTES_MAX: usize = PAGE_BYTES + 512;
/// The same with as many bytes behind as are read at a time.
pub(super) const PADDED_BYTES: usize = ENCODING_BYTES_MAX + 8;
/// Symbols that are decoded between two looks at the stream: 57 bits are enough for them.
const AT_ONCE: usize = 6;

/// Symbols of each kind, one stream behind the other, with room for a piece behind the literals.
struct Symbols {
    literals: [u8; LITERALS_ROOM],
    tokens: [u8; SEQUENCES_MAX],
    distances: [u8; SEQUENCES_MAX],
}

/// Restores a page.
pub(super) fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    #[cfg(target_arch = "x86_64")]
    if let Some(path) = copies::Avx2::new() {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn decode(path: copies::Avx2, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
            decode_by(path, encoding, page)
        }
        // SAFETY: the processor has what it needs, as there is a path.
        return unsafe { decode(path, encoding, page) };
    }
    decode_by(Plain, encoding, page)
}

/// All of it is inside one function, so that the compiler uses what the path's processor has.
#[inline(always)]
pub(super) fn decode_by(path: impl Path, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    if encoding.len() > ENCODING_BYTES_MAX {
        return Err(Corrupt);
    }
    let mut padded = [0; PADDED_BYTES];
    padded[..encoding.len()].copy_from_slice(encoding);
    let header = Header::parse(*encoding.first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?)?;
    let mut own = [const { Table::EMPTY }; 3];
    let mut tables = [&fixed::NO_TABLE; 3];
    let mut at = HEADER_BYTES;
    for (((own, table), kind), fixed) in own.iter_mut().zip(&mut tables).zip(header.kinds).zip(fixed::TABLES) {
        if kind == Kind::Fixed {
            *table = fixed.ok_or(Corrupt)?;
        } else {
            at = own.read(kind, &padded, at)?;
            *table = own;
        }
    }
    let (readers, rests) = readers(header, &padded, at, encoding.len())?;
    let mut symbols =
        Symbols { literals: [0; LITERALS_ROOM], tokens: [0; SEQUENCES_MAX], distances: [0; SEQUENCES_MAX] };
    decode_symbols(header, tables, readers, &padded, &mut symbols)?;
    put_together(path, header, &symbols, rests, &padded, page)
}

/// The streams that have codes, and the one that has none and ends the encoding.
fn readers(
    header: Header,
    padded: &[u8; PADDED_BYTES],
    at: usize,
    end: usize,
) -> Result<([Reader; STREAMS - 1], Reader), Corrupt> {
    let bytes_of_length = if header.is_wide { 2 } else { 1 };
    let mut start = at + (STREAMS - 1) * bytes_of_length;
    let told = padded.get(at..start).ok_or(Corrupt)?;
    let mut readers = [Reader::new(0, 0); STREAMS - 1];
    for (reader, told) in readers.iter_mut().zip(told.chunks_exact(bytes_of_length)) {
        let bytes = told.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
        *reader = Reader::new(start, bytes);
        start += bytes;
    }
    Ok((readers, Reader::new(start, end.checked_sub(start).ok_or(Corrupt)?)))
}

#[inline(always)]
fn decode_symbols(
    header: Header,
    tables: [&Table; 3],
    readers: [Reader; STREAMS - 1],
    padded: &[u8; PADDED_BYTES],
    symbols: &mut Symbols,
) -> Result<(), Corrupt> {
    let counts = header.counts();
    let (first, rest) = symbols.literals.split_at_mut(counts[0]);
    let (second, rest) = rest.split_at_mut(counts[1]);
    let (third, rest) = rest.split_at_mut(counts[2]);
    let (early, late) = symbols.tokens.split_at_mut(counts[4]);
    let (near, far) = symbols.distances.split_at_mut(counts[6]);
    let [literals, tokens, distances] = tables;
    let out = [first, second, third, &mut rest[..counts[3]]];
    let of_literals = decode_four(core::array::from_fn(|at| readers[at]), [literals; 4], out, padded);
    let out = [early, &mut late[..counts[5]], near, &mut far[..counts[7]]];
    let of_sequences =
        decode_four(core::array::from_fn(|at| readers[4 + at]), [tokens, tokens, distances, distances], out, padded);
    of_literals.into_iter().chain(of_sequences).try_for_each(Reader::finish)
}

/// Decodes four streams side by side: what one waits for takes as long as all four.
#[inline(always)]
fn decode_four(
    mut readers: [Reader; 4],
    tables: [&Table; 4],
    out: [&mut [u8]; 4],
    padded: &[u8; PADDED_BYTES],
) -> [Reader; 4] {
    let rounds = out.iter().map(|out| out.len() / AT_ONCE).min().expect("four");
    let [mut a, mut b, mut c, mut d] = out.map(|out| out.split_at_mut(rounds * AT_ONCE));
    let ahead = [&mut a.0, &mut b.0, &mut c.0, &mut d.0].map(|out| out.as_chunks_mut::<AT_ONCE>().0.iter_mut());
    let [a_ahead, b_ahead, c_ahead, d_ahead] = ahead;
    let [ta, tb, tc, td] = tables;
    let [ra, rb, rc, rd] = &mut readers;
    for (((a, b), c), d) in a_ahead.zip(b_ahead).zip(c_ahead).zip(d_ahead) {
        let mut bits = (ra.peek(padded), rb.peek(padded), rc.peek(padded), rd.peek(padded));
        for at in 0..AT_ONCE {
            step(ta, &mut bits.0, ra, &mut a[at]);
            step(tb, &mut bits.1, rb, &mut b[at]);
            step(tc, &mut bits.2, rc, &mut c[at]);
            step(td, &mut bits.3, rd, &mut d[at]);
        }
    }
    for (stream, out) in [a.1, b.1, c.1, d.1].into_iter().enumerate() {
        for out in out {
            let (symbol, length) = tables[stream].next(readers[stream].peek(padded));
            *out = symbol;
            readers[stream].skip(length);
        }
    }
    readers
}

/// One symbol.
#[inline(always)]
fn step(table: &Table, bits: &mut u64, reader: &mut Reader, out: &mut u8) {
    let (symbol, length) = table.next(*bits);
    *out = symbol;
    *bits <<= length;
    reader.skip(length);
}

#[inline(always)]
fn put_together(
    path: impl Path,
    header: Header,
    symbols: &Symbols,
    mut rests: Reader,
    padded: &[u8; PADDED_BYTES],
    page: &mut PageBytes,
) -> Result<(), Corrupt> {
    let mut filled = Filled::EMPTY;
    let (mut taken, mut last) = (0, 0);
    for (token, symbol) in symbols.tokens[..header.sequences].iter().zip(&symbols.distances) {
        let (mut literals, mut length) = (usize::from(token >> 4), usize::from(token & 0xf));
        let is_long = literals == NIBBLE_MAX || length == NIBBLE_MAX;
        if is_long {
            if literals == NIBBLE_MAX {
                literals += rest(&mut rests, padded);
            }
            if length == NIBBLE_MAX {
                length += rest(&mut rests, padded);
            }
        }
        let meaning = MEANINGS[usize::from(*symbol)];
        // In two steps, because there may be no bits to shift by.
        let value = rests.peek(padded) >> 1 >> (63 - meaning.bits);
        rests.skip(usize::from(meaning.bits));
        // Without a branch, which nobody could predict.
        let repeats = usize::from(*symbol != REPEAT).wrapping_sub(1);
        last = (last & repeats) | ((usize::from(meaning.base) + value as usize) << meaning.scale & !repeats);
        if literals > header.literals - taken {
            return Err(Corrupt);
        }
        let length = length + LENGTH_MIN;
        if is_long {
            filled.push(&symbols.literals, taken, literals)?;
            path.copy_long(&mut filled, last, length)?;
        } else {
            let step = Step { from: taken, count: literals, distance: last, length };
            path.copy_short(&mut filled, &symbols.literals, step)?;
        }
        taken += literals;
    }
    rests.finish()?;
    filled.push(&symbols.literals, taken, header.literals - taken)?;
    page.0 = *filled.page().ok_or(Corrupt)?;
    Ok(())
}

/// What a nibble leaves of a length.
#[cold]
fn rest(rests: &mut Reader, padded: &[u8; PADDED_BYTES]) -> usize {
    let mut take = |bits: u32| {
        let value = rests.peek(padded) >> (64 - bits);
        rests.skip(bits as usize);
        value as usize
    };
    match take(REST_BITS) {
        REST_MAX => take(LONG_BITS),
        rest => rest,
    }
}
