//! A page as literals and matches, told in fewer bits than LZ4 takes, for text.
//!
//! LZ4 spends three bytes on a match and eight bits on a literal. In a page a match can be told in 20 bits, as no offset needs
//! more than twelve; and of the literals of a text most are among a few, as are tokens and offsets (`frequent`). And with tokens, offsets and literals
//! apart from each other, a decoder needs no branch by what they are ([`told`]). The matches are found as LZ4 does, by the last
//! place where five bytes had the same hash, but with fewer branches that nobody can foretell ([`seen`]). Those of four would gain less than they take to
//! decode. The format is in docs/format/sequences.md.

use core::hint::select_unpredictable;
use core::ops::Range;

use page::{PAGE_BYTES, PageBytes};

use crate::Corrupt;
use crate::fold::{VECTOR_BYTES, decode_bytes, encode_bytes, frequent};

#[cfg(test)]
mod tests;
mod told;

use told::{LITERALS_ROOM, PAGE_ROOM, Told};

/// Literals of a token, and the codes of its match.
const LITERALS_MAX: usize = 15;
/// A match is so much longer than its code; code 0 is none.
const MATCH_LESS: usize = 4;
/// The longest match of a token.
const MATCH_MAX: usize = MATCH_LESS + 15;
/// The most tokens of a page: each but the last has a match, or 15 literals.
const TOKENS_MAX: usize = PAGE_BYTES / (MATCH_LESS + 1) + 1;
const TOKENS_ROOM: usize = TOKENS_MAX + VECTOR_BYTES;
/// Bits of an offset that are packed as they are; the eight above them are coded.
const LOW_BITS: usize = 4;
const LOW_MASK: u8 = (1 << LOW_BITS) - 1;
/// Tokens, as a 16-bit number, then literals.
const HEADER_BYTES: usize = 4;

/// Working memory of the encoder, about 17 KiB.
pub(crate) struct Workspace {
    tokens: [u8; TOKENS_ROOM],
    offsets: [u16; TOKENS_ROOM],
    highs: [u8; TOKENS_ROOM],
    lows: [u8; TOKENS_ROOM],
    literals: [u8; PAGE_BYTES + VECTOR_BYTES],
    /// The last place of each hash.
    places: Places,
}

impl Workspace {
    pub(crate) const EMPTY: Self = Self {
        tokens: [0; TOKENS_ROOM],
        offsets: [0; TOKENS_ROOM],
        highs: [0; TOKENS_ROOM],
        lows: [0; TOKENS_ROOM],
        literals: [0; PAGE_BYTES + VECTOR_BYTES],
        places: [0; 1 << HASH_BITS],
    };

    /// Adds what is told before a match, and the match; of length 0, none.
    #[inline(always)]
    fn push(&mut self, written: &mut Written, bytes: &[u8; PAGE_BYTES], literals: Range<usize>, found: Match) {
        let Match { mut length, offset } = found;
        let mut count = literals.len();
        match bytes[literals.start..].first_chunk::<16>() {
            Some(sixteen) if count <= 16 => {
                *self.literals[written.literals..].first_chunk_mut().expect("there is room behind a page") = *sixteen;
            }
            _ => self.literals[written.literals..][..count].copy_from_slice(&bytes[literals]),
        }
        written.literals += count;
        while count > LITERALS_MAX {
            self.put(written, LITERALS_MAX, 0, 0);
            count -= LITERALS_MAX;
        }
        while length > MATCH_MAX {
            // Leaves nothing that is too short for a token.
            let here = MATCH_MAX.min(length - MATCH_LESS - 1);
            self.put(written, count, here, offset);
            count = 0;
            length -= here;
        }
        self.put(written, count, length, offset);
    }

    #[inline(always)]
    fn put(&mut self, written: &mut Written, literals: usize, length: usize, offset: usize) {
        self.tokens[written.tokens] = (literals | length.saturating_sub(MATCH_LESS) << 4) as u8;
        self.offsets[written.tokens] = offset as u16;
        written.tokens += 1;
    }

    /// Finds the matches of a page, or gives up when so many bytes are not made fewer.
    fn find(&mut self, page: &PageBytes) -> Written {
        let bytes = &page.0;
        let mut written = Written { tokens: 0, literals: 0 };
        self.places.fill(0);
        // The first byte can only be a literal, so that a place of 0 is as good as any: what is found there is compared.
        let (mut at, mut told) = (1, 0);
        while let Some((found, from)) = seen(&mut self.places, bytes, at) {
            let length = length(bytes, found, from);
            self.push(&mut written, bytes, told..found, Match { length, offset: found - from });
            at = found + length;
            told = at;
            // One of the places that were passed: what comes next often has been seen with what came before it.
            if at <= LAST_MATCH {
                self.places[hash(five(bytes, at - 2))] = (at - 2) as u16;
            }
        }
        self.end(written, bytes, told)
    }

    /// Adds what is left behind the last match.
    fn end(&mut self, mut written: Written, bytes: &[u8; PAGE_BYTES], told: usize) -> Written {
        if told < PAGE_BYTES {
            self.push(&mut written, bytes, told..PAGE_BYTES, Match { length: 0, offset: 0 });
        }
        written
    }
}

/// How many tokens and literals there are.
#[derive(Clone, Copy, Debug)]
struct Written {
    tokens: usize,
    literals: usize,
}

#[derive(Clone, Copy, Debug)]
struct Match {
    length: usize,
    offset: usize,
}

type Places = [u16; 1 << HASH_BITS];

/// The next place from `start` on whose five bytes were seen before, and where that was.
#[inline(always)]
fn seen(places: &mut Places, bytes: &[u8; PAGE_BYTES], start: usize) -> Option<(usize, usize)> {
    let mut look = |at: usize| {
        let here = five(bytes, at);
        let from = usize::from(core::mem::replace(&mut places[hash(here)], at as u16));
        (five(bytes, from) == here).then_some(from)
    };
    let mut at = start;
    // Apart, because a processor that does not know where it looks next waits for each place.
    let close = (start + MISSES).min(LAST_MATCH + 1);
    while at < close {
        if let Some(from) = look(at) {
            return Some((at, from));
        }
        at += 1;
    }
    // The longer nothing is found the less closely it looks.
    let mut misses = MISSES;
    at += misses / MISSES;
    while at <= LAST_MATCH {
        if let Some(from) = look(at) {
            return Some((at, from));
        }
        misses += 1;
        at += 1 + misses / MISSES;
    }
    None
}

/// Eight bytes are looked at from here on, and no more than there are.
const LAST_MATCH: usize = PAGE_BYTES - 8;
/// The shortest match.
const MATCH_MIN: usize = MATCH_LESS + 1;
/// After so many places without a match every second is looked at, and so on.
const MISSES: usize = 32;
/// Places by their hashes: as many as two pages have bytes take 8 KiB.
const HASH_BITS: u32 = 12;

#[inline(always)]
fn hash(five: u64) -> usize {
    (five.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS)) as usize
}

#[inline(always)]
fn eight(bytes: &[u8; PAGE_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("places end eight bytes before the end"))
}

/// The first bytes of a match, and nothing else.
#[inline(always)]
fn five(bytes: &[u8; PAGE_BYTES], at: usize) -> u64 {
    eight(bytes, at) << (u64::BITS as usize - 8 * MATCH_MIN)
}

/// How many bytes from two places on are the same; the first is at least eight before the end.
#[inline(always)]
fn length(bytes: &[u8; PAGE_BYTES], at: usize, from: usize) -> usize {
    // Sixteen without a branch: nobody can foretell where they differ.
    if at > PAGE_BYTES - 16 {
        return long_length(bytes, at, from, 0);
    }
    let differing = |more: usize| eight(bytes, at + more) ^ eight(bytes, from + more);
    let (first, second) = (differing(0), differing(8));
    let bits = select_unpredictable(first == 0, 64 + second.trailing_zeros(), first.trailing_zeros());
    let length = bits as usize / 8;
    if length < 16 { length } else { long_length(bytes, at, from, length) }
}

/// The same where so many are known to be.
#[inline(never)]
fn long_length(bytes: &[u8; PAGE_BYTES], at: usize, from: usize, mut length: usize) -> usize {
    while at + length <= LAST_MATCH {
        let differing = eight(bytes, at + length) ^ eight(bytes, from + length);
        if differing != 0 {
            return length + differing.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let (rest, others) = (&bytes[at + length..], &bytes[from + length..]);
    length + rest.iter().zip(others).take_while(|(one, other)| one == other).count()
}

/// Encodes a page; `None` if that takes as much as `out` has, or more.
pub(crate) fn encode(
    page: &PageBytes,
    workspace: &mut Workspace,
    bytes: &mut frequent::Workspace,
    out: &mut [u8],
) -> Option<usize> {
    let written = workspace.find(page);
    tell(written, workspace, bytes, out)
}

/// The same with matches that are known, each as where it begins, its length, and how far back it is: those that are long enough.
pub(crate) fn encode_matches(
    page: &PageBytes,
    matches: impl Iterator<Item = (usize, usize, usize)>,
    workspace: &mut Workspace,
    bytes: &mut frequent::Workspace,
    out: &mut [u8],
) -> Option<usize> {
    let mut written = Written { tokens: 0, literals: 0 };
    let mut told = 0;
    for (at, length, offset) in matches.filter(|(_, length, _)| *length >= MATCH_MIN) {
        workspace.push(&mut written, &page.0, told..at, Match { length, offset });
        told = at + length;
    }
    let written = workspace.end(written, &page.0, told);
    tell(written, workspace, bytes, out)
}

/// Writes what is in the workspace.
fn tell(
    Written { tokens: token_count, literals: literal_count }: Written,
    workspace: &mut Workspace,
    bytes: &mut frequent::Workspace,
    out: &mut [u8],
) -> Option<usize> {
    let Workspace { tokens, offsets, highs, lows, literals, .. } = workspace;
    // What fills up the last pair.
    offsets[token_count] = 0;
    for (high, offset) in highs.iter_mut().zip(&offsets[..token_count]) {
        *high = (offset >> LOW_BITS) as u8;
    }
    let pairs = offsets.as_chunks::<2>().0.iter().zip(lows.iter_mut());
    for ([first, second], low) in pairs.take(token_count.div_ceil(2)) {
        *low = *first as u8 & LOW_MASK | (*second as u8 & LOW_MASK) << LOW_BITS;
    }
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        let end = at + bytes.len();
        out.get_mut(at..end)?.copy_from_slice(bytes);
        at = end;
        Some(())
    };
    put(&(token_count as u16).to_le_bytes())?;
    put(&(literal_count as u16).to_le_bytes())?;
    put(encode_bytes(tokens, token_count, bytes))?;
    put(encode_bytes(highs, token_count, bytes))?;
    put(&lows[..token_count.div_ceil(2)])?;
    put(encode_bytes(literals, literal_count, bytes))?;
    (at < out.len()).then_some(at)
}

/// How many tokens an encoding has.
pub(crate) fn tokens(encoding: &[u8]) -> usize {
    encoding.first_chunk().map_or(0, |count| usize::from(u16::from_le_bytes(*count)))
}

/// Restores a page; see [`Codec::decode`](crate::Codec::decode).
pub(crate) fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    decode_by(told::put_together, encoding, page)
}

/// With one way to copy literals and matches to the first bytes of a page.
#[inline(always)]
fn decode_by(
    put_together: impl Fn(Told<'_>, &[u8; LITERALS_ROOM], &mut [u8; PAGE_ROOM]) -> Result<(), Corrupt>,
    encoding: &[u8],
    page: &mut PageBytes,
) -> Result<(), Corrupt> {
    let (&[tokens_low, tokens_high, literals_low, literals_high], rest) =
        encoding.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let token_count = usize::from(u16::from_le_bytes([tokens_low, tokens_high]));
    let literal_count = usize::from(u16::from_le_bytes([literals_low, literals_high]));
    if token_count > TOKENS_MAX || literal_count > PAGE_BYTES {
        return Err(Corrupt);
    }
    let (mut tokens, mut highs, mut literals) = ([0; TOKENS_ROOM], [0; TOKENS_ROOM], [0; LITERALS_ROOM]);
    let rest = decode_bytes(rest, token_count, &mut tokens)?;
    let rest = decode_bytes(rest, token_count, &mut highs)?;
    let (lows, rest) = rest.split_at_checked(token_count.div_ceil(2)).ok_or(Corrupt)?;
    let told = Told::check(&tokens, &highs, lows, token_count, literal_count)?;
    if !decode_bytes(rest, literal_count, &mut literals)?.is_empty() {
        return Err(Corrupt);
    }
    let mut out = [0; PAGE_ROOM];
    put_together(told, &literals, &mut out)?;
    page.0.copy_from_slice(&out[..PAGE_BYTES]);
    Ok(())
}
