//! Auto: `fold` as short as it gets, and [`sequences`] of literals and matches where they have been seen to gain enough over it.
//!
//! A word codec does nothing for text, and looking for matches takes five times as long for heaps. How long a folded page is tells
//! much about what it holds, so what matches would have gained is learnt for each length, from a sample of the pages. Where fold
//! has no vectors it is LZ4. The first byte of an encoding says what made the rest.

use core::ops::RangeInclusive;

use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Fold, FoldDeep, Lz4, Scratch, fold, place_of, sequences};

const FOLD: u8 = 0;
const LZ4: u8 = 1;
const SEQUENCES: u8 = 2;

/// Lengths of folded pages that are learnt about together.
const STEP_BYTES: usize = 256;
/// One more than the longest that is of use: pages that do not fold.
const STEPS: usize = PAGE_BYTES / STEP_BYTES + 1;
/// What a token has to gain in bytes, for the 2 ns that it takes to decode. Without it `auto` would decode in a fifth more time, and make heaps 1.7 %
/// smaller.
const PRICE: usize = 2;
/// Matches are worth the time of looking for them where they gain this much besides.
const WORTH_BYTES: i32 = 32;
/// Of the pages where matches are not worth it, one in so many is tried all the same: the longer they have not been, the fewer.
const SAMPLES: RangeInclusive<u8> = 8..=32;
/// How much a page weighs against those seen before, as a divisor.
const MEMORY: i32 = 8;

/// The codec for programs of which nothing is known.
#[derive(Clone, Copy, Default, Debug)]
pub struct Auto;

/// What matches gain over fold, by the length of the folded page.
#[derive(Clone, Debug)]
pub(crate) struct Gains([Gain; STEPS]);

#[derive(Clone, Copy, Debug)]
struct Gain {
    /// Mean of what was gained in those that were tried, in bytes.
    bytes: i32,
    /// Pages until one is tried, and between this one and the next.
    until_tried: u8,
    sample: u8,
}

impl Gains {
    pub(crate) const NONE: Self = Self([Gain { bytes: WORTH_BYTES, until_tried: 0, sample: *SAMPLES.start() }; STEPS]);

    /// Whether to look for matches in a page that folds to `folded` bytes.
    fn wants_matches(&mut self, folded: usize) -> bool {
        let gain = &mut self.0[folded / STEP_BYTES];
        if gain.bytes >= WORTH_BYTES {
            return true;
        }
        gain.until_tried = gain.until_tried.checked_sub(1).unwrap_or(gain.sample - 1);
        gain.until_tried == 0
    }

    /// Matches have made `priced` bytes of such a page.
    fn learn(&mut self, folded: usize, priced: usize) {
        let gain = &mut self.0[folded / STEP_BYTES];
        let gained = folded.saturating_sub(priced) as i32;
        gain.bytes += (gained - gain.bytes) / MEMORY;
        let rarer = gain.sample.saturating_mul(2).min(*SAMPLES.end());
        gain.sample = if gained >= WORTH_BYTES { *SAMPLES.start() } else { rarer };
    }
}

impl Codec for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let Scratch { table, out: lz4, folded, matched, fold, sequences, gains } = scratch;
        if !Fold::is_fast() {
            return put(LZ4, Lz4.encode_into(page, table, lz4), out);
        }
        // Apart, so that what is learnt does not depend on the room in `out`.
        let folded_bytes =
            fold::Level::Shortest.encode(page, fold, &mut folded[..]).expect("there is room for any page");
        let folded = &folded[..folded_bytes];
        let length = folded_bytes.min(PAGE_BYTES);
        if !gains.wants_matches(length) {
            return put(FOLD, folded, out);
        }
        let told = sequences::encode(page, sequences, &mut fold.frequent, &mut matched[..length]);
        let priced = told.map_or(length, |told| told + PRICE * sequences::tokens(&matched[..told]));
        gains.learn(length, priced);
        match told {
            Some(told) if priced < length => put(SEQUENCES, &matched[..told], out),
            _ => put(FOLD, folded, out),
        }
    }

    fn maker(&self, encoding: &[u8]) -> usize {
        let name = match encoding.first() {
            Some(&FOLD) => FoldDeep.name(),
            Some(&LZ4) => Lz4.name(),
            _ => "sequences",
        };
        place_of(name)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match encoding.split_first() {
            Some((&FOLD, rest)) => Fold.decode(rest, page),
            Some((&LZ4, rest)) => Lz4.decode(rest, page),
            Some((&SEQUENCES, rest)) => sequences::decode(rest, page),
            _ => Err(Corrupt),
        }
    }
}

/// Writes the kind and the encoding; `None` if they do not fit.
fn put(kind: u8, encoding: &[u8], out: &mut [u8]) -> Option<usize> {
    if 1 + encoding.len() >= out.len() {
        return None;
    }
    out[0] = kind;
    out[1..=encoding.len()].copy_from_slice(encoding);
    Some(1 + encoding.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_what_has_made_an_encoding() {
        let (mut scratch, mut out) = (Scratch::new(), [0; PAGE_BYTES]);
        let text = b"It is a truth universally acknowledged, that a page in want of memory must be matched. ";
        // Shifted by one each time, so that words of eight bytes do not repeat.
        let text = core::array::from_fn(|at| text[(at + at / 90) % text.len()]);
        // Addresses.
        let words =
            core::array::from_fn(|at| (0x7f12_3456_0000 + ((at as u64 / 8 * 40503) & 0xffff)).to_le_bytes()[at % 8]);
        let maker = |bytes| {
            let length = Auto.encode(&PageBytes(bytes), &mut Scratch::new(), &mut out).unwrap();
            crate::MAKERS[Auto.maker(&out[..length])]
        };
        assert_eq!([words, text].map(maker), if Fold::is_fast() { ["fold-deep", "sequences"] } else { ["lz4"; 2] });
        let length = Lz4.encode(&PageBytes(words), &mut scratch, &mut out).unwrap();
        assert_eq!(crate::MAKERS[Lz4.maker(&out[..length])], "lz4");
        assert!(crate::ALL.iter().map(|codec| codec.name()).eq(crate::MAKERS[..crate::ALL.len()].iter().copied()));
    }

    #[test]
    fn where_matches_gain_they_are_looked_for_always_and_elsewhere_now_and_then() {
        let mut gains = Gains::NONE;
        let mut tried = [0; 2];
        for _ in 0..1600 {
            // Text, of which matches make half, and heap, of which they make as much as fold.
            for (tried, (folded, matched)) in tried.iter_mut().zip([(3500, 2000), (1000, 1000)]) {
                if gains.wants_matches(folded) {
                    *tried += 1;
                    gains.learn(folded, matched);
                }
            }
        }
        assert_eq!(tried[0], 1600);
        assert!((50..=60).contains(&tried[1]), "{}", tried[1]);
    }

    #[test]
    fn what_changes_is_learnt_anew() {
        let mut gains = Gains::NONE;
        let mut learn = |gained: usize, pages: usize| {
            (0..pages)
                .filter(|_| {
                    let tries = gains.wants_matches(1000);
                    if tries {
                        gains.learn(1000, 1000 - gained);
                    }
                    tries
                })
                .count()
        };
        learn(0, 100);
        assert!(learn(0, 160) <= 10);
        learn(400, 200);
        assert_eq!(learn(400, 160), 160);
    }
}
