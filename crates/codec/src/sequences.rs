//! A page as literals and matches, told in fewer bits than LZ4 takes, for text.
//!
//! LZ4 spends three bytes on a match and eight bits on a literal. In a page a match can be told in 20 bits, as no offset needs
//! more than twelve; and of the literals of a text most are among a few (`frequent`). And with tokens, offsets and literals
//! apart from each other, all of one length, a decoder needs no branch by what they are. The matches are found as LZ4 does, by the last
//! place where four bytes had the same hash, but with fewer branches that nobody can foretell ([`matches`]). The format is in
//! docs/format/sequences.md.

use core::hint::select_unpredictable;
use core::ops::Range;

use page::{PAGE_BYTES, PageBytes};

use crate::Corrupt;
use crate::fold::{VECTOR_BYTES, decode_bytes, encode_bytes, frequent};

/// Literals of a token, and the codes of its match.
const LITERALS_MAX: usize = 15;
/// A match is so much longer than its code; code 0 is none.
const MATCH_LESS: usize = 3;
/// The longest match of a token.
const MATCH_MAX: usize = MATCH_LESS + 15;
/// More than the tokens of any page: one for at least four bytes, but where one has only literals, and then it has 15.
const TOKENS_MAX: usize = PAGE_BYTES;
/// Tokens, as a 16-bit number, then literals.
const HEADER_BYTES: usize = 4;
/// What a decoder writes behind the end: a match in pieces of sixteen bytes.
const OVERRUN_BYTES: usize = 64;

/// Working memory of the encoder, about 31 KiB.
pub(crate) struct Workspace {
    tokens: [u8; TOKENS_MAX],
    offsets: [u16; TOKENS_MAX],
    packed: [u8; TOKENS_MAX / 2 * 3],
    literals: [u8; PAGE_BYTES + VECTOR_BYTES],
    /// The last place of each hash.
    places: Places,
}

impl Workspace {
    pub(crate) const EMPTY: Self = Self {
        tokens: [0; TOKENS_MAX],
        offsets: [0; TOKENS_MAX],
        packed: [0; TOKENS_MAX / 2 * 3],
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
            // Two of the places that were passed: what comes next often has been seen with what came before it.
            if at <= LAST_MATCH {
                self.places[hash(four(bytes, at - 2))] = (at - 2) as u16;
            }
        }
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

/// The next place from `start` on whose four bytes were seen before, and where that was.
#[inline(always)]
fn seen(places: &mut Places, bytes: &[u8; PAGE_BYTES], start: usize) -> Option<(usize, usize)> {
    let mut look = |at: usize| {
        let here = four(bytes, at);
        let from = usize::from(core::mem::replace(&mut places[hash(here)], at as u16));
        (four(bytes, from) == here).then_some(from)
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
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

#[inline(always)]
fn eight(bytes: &[u8; PAGE_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("places end eight bytes before the end"))
}

#[inline(always)]
fn four(bytes: &[u8; PAGE_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk::<MATCH_MIN>().expect("places end eight bytes before the end"))
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
    let Written { tokens: token_count, literals: literal_count } = workspace.find(page);
    // What fills up the last pair.
    workspace.offsets[token_count] = 0;
    let Workspace { tokens, offsets, packed, literals, .. } = workspace;
    let pairs = offsets.as_chunks::<2>().0.iter().zip(packed.as_chunks_mut::<3>().0);
    for ([first, second], packed) in pairs.take(token_count.div_ceil(2)) {
        let pair = u32::from(*first) | u32::from(*second) << 12;
        packed.copy_from_slice(&pair.to_le_bytes()[..3]);
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
    put(&tokens[..token_count])?;
    put(&packed[..offset_bytes(token_count)])?;
    put(encode_bytes(literals, literal_count, bytes))?;
    (at < out.len()).then_some(at)
}

fn offset_bytes(tokens: usize) -> usize {
    (tokens * 3).div_ceil(2)
}

/// Restores a page; see [`Codec::decode`](crate::Codec::decode).
pub(crate) fn decode(encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
    let (&[tokens_low, tokens_high, literals_low, literals_high], rest) =
        encoding.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let token_count = usize::from(u16::from_le_bytes([tokens_low, tokens_high]));
    let literal_count = usize::from(u16::from_le_bytes([literals_low, literals_high]));
    let (tokens, rest) = rest.split_at_checked(token_count).ok_or(Corrupt)?;
    let (offsets, rest) = rest.split_at_checked(offset_bytes(token_count)).ok_or(Corrupt)?;
    let (mut literal_sum, mut match_sum) = (0, 0);
    for token in tokens {
        literal_sum += u32::from(token & 15);
        match_sum += u32::from(LENGTHS[usize::from(token >> 4)]);
    }
    if literal_sum as usize != literal_count || (literal_sum + match_sum) as usize != PAGE_BYTES {
        return Err(Corrupt);
    }
    let mut literals = [0; PAGE_BYTES + VECTOR_BYTES];
    if !decode_bytes(rest, literal_count, &mut literals)?.is_empty() {
        return Err(Corrupt);
    }
    let mut out = [0; PAGE_BYTES + OVERRUN_BYTES];
    copy_sequences(tokens, offsets, &literals, &mut out)?;
    page.0.copy_from_slice(&out[..PAGE_BYTES]);
    Ok(())
}

/// The length of a match by its code.
static LENGTHS: [u8; 16] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];

/// The sums of the lengths are right, so no position passes the end. What is behind a literal or a match is written anew.
fn copy_sequences(
    tokens: &[u8],
    offsets: &[u8],
    literals: &[u8],
    out: &mut [u8; PAGE_BYTES + OVERRUN_BYTES],
) -> Result<(), Corrupt> {
    let mut copying = Copying { literals, out, at: 0 };
    let ((pairs, last_token), (packed, last_offset)) = (tokens.as_chunks::<2>(), offsets.as_chunks::<3>());
    for ([first, second], [low, middle, high]) in pairs.iter().zip(packed) {
        let packed = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
        copying.copy(*first, packed & 0xfff)?;
        copying.copy(*second, packed >> 12)?;
    }
    if let (&[token], &[low, high]) = (last_token, last_offset) {
        copying.copy(token, usize::from(u16::from_le_bytes([low, high]) & 0xfff))?;
    }
    Ok(())
}

struct Copying<'a> {
    literals: &'a [u8],
    out: &'a mut [u8; PAGE_BYTES + OVERRUN_BYTES],
    at: usize,
}

impl Copying<'_> {
    #[inline(always)]
    fn copy(&mut self, token: u8, offset: usize) -> Result<(), Corrupt> {
        let (literal, length) = (usize::from(token & 15), usize::from(LENGTHS[usize::from(token >> 4)]));
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const CORPUS: &[u8] = include_bytes!("../testdata/corpus.pages");

    fn encoding(page: &[u8; PAGE_BYTES]) -> Vec<u8> {
        let mut out = [0; 2 * PAGE_BYTES];
        let (mut workspace, mut bytes) = (Workspace::EMPTY, frequent::Workspace::EMPTY);
        let length =
            encode(&PageBytes(*page), &mut workspace, &mut bytes, &mut out).expect("there is room for any page");
        out[..length].to_vec()
    }

    /// Under Miri, which takes some thousand times as long, one page in so many does.
    const EVERY: usize = if cfg!(miri) { 60 } else { 1 };

    fn pages() -> impl Iterator<Item = [u8; PAGE_BYTES]> {
        // Periods around the lengths of a literal run, of a match, and of what is copied at once.
        let periods = (1..70).step_by(EVERY).chain([255, 256, 1000, 2047, 4000]);
        let periodic = periods.map(|period| {
            core::array::from_fn(|at| ((at % period) as u32 * 7).wrapping_mul(0x9e37_79b9).to_le_bytes()[3])
        });
        CORPUS.as_chunks().0.iter().step_by(EVERY).copied().chain(periodic)
    }

    #[test]
    fn pages_come_back() {
        for (number, page) in pages().enumerate() {
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            assert_eq!(decode(&encoding(&page), &mut decoded), Ok(()), "page {number}");
            assert!(decoded.0 == page, "page {number}");
        }
    }

    #[test]
    fn the_example_of_the_format_document() {
        let mut page = [b'a'; PAGE_BYTES];
        page[..3].copy_from_slice(b"xyz");
        // Four literals, 227 matches of 18, all one byte back, and one of six.
        let mut expected = std::vec![228, 0, 4, 0];
        expected.push(0xf4);
        expected.extend([0xf0; 226]);
        expected.push(0x30);
        expected.extend([1, 0x10, 0].repeat(114));
        expected.extend(b"\0xyza");
        assert_eq!(encoding(&page), expected);
    }

    #[test]
    fn garbage_is_corrupt_or_a_page() {
        let mut taken = 0;
        for (number, page) in pages().enumerate() {
            let encoding = encoding(&page);
            for flip in 0..20 {
                let mut garbage = encoding.clone();
                let at = (number * 7919 + flip * 104_729) % garbage.len();
                garbage[at] = garbage[at].rotate_left(1 + flip as u32 % 7);
                taken += u32::from(decode(&garbage, &mut PageBytes([0; PAGE_BYTES])).is_ok());
            }
            assert_eq!(decode(&encoding[..encoding.len() - 1], &mut PageBytes([0; PAGE_BYTES])), Err(Corrupt));
        }
        assert!(cfg!(miri) || taken > 100, "only {taken} were taken for encodings");
    }

    #[test]
    fn an_offset_to_before_the_page_is_corrupt() {
        let mut encoding = encoding(&core::array::from_fn(|at| b"pleat "[at % 6]));
        let offsets = HEADER_BYTES + usize::from(u16::from_le_bytes([encoding[0], encoding[1]]));
        let mut page = PageBytes([0; PAGE_BYTES]);
        assert_eq!(decode(&encoding, &mut page), Ok(()));
        for offset in [0, 4095_u16] {
            encoding[offsets..offsets + 2].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(decode(&encoding, &mut page), Err(Corrupt), "{offset}");
        }
    }
}
