//! A page from its tokens, offsets and literals.
//!
//! What a token says is known in advance, so lengths are checked all at once, and offsets while they are used. What is left is to copy: the less a
//! processor has to guess on the way, the faster. [`plain`] asks at each step what there is to do; `avx2` only whether a match overlaps
//! what it makes, which is rare.

use page::PAGE_BYTES;

use super::{LOW_BITS, LOW_MASK, MATCH_LESS, TOKENS_ROOM, VECTOR_BYTES};
use crate::Corrupt;
#[cfg(target_arch = "x86_64")]
use crate::copies::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(super) mod plain;

/// Literals of a page, and what is read behind the last.
pub(super) const LITERALS_ROOM: usize = PAGE_BYTES + VECTOR_BYTES;
/// A page, and what is written behind its end: a match as if it were of the longest.
pub(super) const PAGE_ROOM: usize = PAGE_BYTES + VECTOR_BYTES;

/// Literals and matches that make a page, if the offsets of the matches are right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    tokens: &'a [u8],
    /// Of each offset all but the lowest bits.
    highs: &'a [u8],
    /// Those of two offsets in each byte.
    lows: &'a [u8],
}

impl<'a> Told<'a> {
    /// Fails unless the first `count` tokens have so many literals and make a page. There are as many offsets.
    pub(super) fn check(
        tokens: &'a [u8; TOKENS_ROOM],
        highs: &'a [u8; TOKENS_ROOM],
        lows: &'a [u8],
        count: usize,
        literals: usize,
    ) -> Result<Self, Corrupt> {
        // The sums are in 16 bits.
        const { assert!(TOKENS_ROOM / 8 * 2 * (15 + MATCH_LESS) < 1 << 16) };
        let (tokens, highs) = (&tokens[..count], &highs[..count]);
        let (eights, rest) = tokens.as_chunks();
        let (mut literal_sums, mut match_sums) = (0, 0);
        for eight in eights {
            let (literals, matches) = lengths(*eight);
            literal_sums += in_pairs(literals);
            match_sums += in_pairs(matches);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let (last_literals, last_matches) = lengths(last);
        let literal_sum = sum(literal_sums + in_pairs(last_literals));
        if literal_sum == literals && literal_sum + sum(match_sums + in_pairs(last_matches)) == PAGE_BYTES {
            Ok(Self { tokens, highs, lows })
        } else {
            Err(Corrupt)
        }
    }

    /// Tokens with their offsets, as far as they come in pairs.
    #[inline(always)]
    fn pairs(self) -> impl Iterator<Item = [(u8, usize); 2]> {
        let (tokens, highs) = (self.tokens.as_chunks().0, self.highs.as_chunks().0);
        tokens.iter().zip(highs).zip(self.lows).map(|(([first, second], [first_high, second_high]), lows)| {
            [(*first, offset(*first_high, lows & LOW_MASK)), (*second, offset(*second_high, lows >> LOW_BITS))]
        })
    }

    /// The token that has no other.
    fn last(self) -> Option<(u8, usize)> {
        match (self.tokens.as_chunks::<2>().1, self.highs.last(), self.lows.last()) {
            (&[token], Some(high), Some(lows)) => Some((token, offset(*high, lows & LOW_MASK))),
            _ => None,
        }
    }
}

/// Copies the literals and matches to the first bytes of `out`, and anything behind them.
pub(super) fn put_together(
    told: Told<'_>,
    literals: &[u8; LITERALS_ROOM],
    out: &mut [u8; PAGE_ROOM],
) -> Result<(), Corrupt> {
    #[cfg(target_arch = "x86_64")]
    if let Some(path) = Avx2::new() {
        return avx2::put_together(path, told, literals, out);
    }
    plain::put_together(told, literals, out)
}

#[inline(always)]
fn offset(high: u8, low: u8) -> usize {
    usize::from(high) << LOW_BITS | usize::from(low)
}

/// The length of the match of a token.
#[inline(always)]
fn length(token: u8) -> u8 {
    LENGTHS[usize::from(token >> 4)]
}

/// By its code.
static LENGTHS: [u8; 16] = [0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];

/// Of eight tokens the literals, and the lengths of the matches, a byte for each. By calculation, so that they can be added all at once.
#[inline(always)]
fn lengths(tokens: [u8; 8]) -> (u64, u64) {
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    let tokens = u64::from_le_bytes(tokens);
    let codes = tokens >> 4 & LOW;
    let matches = (codes + LOW) >> 4 & (LOW & LOW >> 3);
    (tokens & LOW, codes + MATCH_LESS as u64 * matches)
}

/// The sums of two bytes each.
#[inline(always)]
fn in_pairs(bytes: u64) -> u64 {
    const LOW: u64 = 0x00ff_00ff_00ff_00ff;
    (bytes & LOW) + (bytes >> 8 & LOW)
}

/// Of the four numbers of 16 bits.
fn sum(pairs: u64) -> usize {
    (0..4).map(|lane| (pairs >> (16 * lane)) as usize & 0xffff).sum()
}
