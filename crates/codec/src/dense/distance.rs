//! Distances of matches as symbols, with bits behind them where a symbol stands for several.

use page::PAGE_BYTES;

/// The distance of the match before.
pub(super) const REPEAT: u8 = 0;
/// Symbols: the repeat, near words one by one, far words by eight, all others by 64.
pub(super) const SYMBOLS: usize = OTHER as usize + (PAGE_BYTES >> OTHER_BITS);

/// Distances of whole words that have a symbol of their own: up to this.
const NEAR_WORDS: usize = 127;
/// The symbol of words from 128 on.
const FAR: u8 = 128;
const FAR_BITS: u32 = 3;
/// The symbol of distances from 0 on that are not of whole words.
const OTHER: u8 = FAR + ((PAGE_BYTES / WORD_BYTES - (NEAR_WORDS + 1)) >> FAR_BITS) as u8;
const OTHER_BITS: u32 = 6;
const WORD_BYTES: usize = 8;

/// What a symbol says: `(base + value of the bits) * scale`.
#[derive(Clone, Copy)]
pub(super) struct Meaning {
    pub(super) base: u16,
    /// Log2.
    pub(super) scale: u8,
    pub(super) bits: u8,
}

/// Of each symbol but [`REPEAT`]; zero, which is no distance, for those that there are not.
pub(super) static MEANINGS: [Meaning; 256] = meanings();

/// The symbol of a distance, and how many bits of which value follow.
pub(super) fn symbol(distance: usize) -> (u8, u32, u32) {
    let words = distance / WORD_BYTES;
    if !distance.is_multiple_of(WORD_BYTES) {
        return (OTHER + (distance >> OTHER_BITS) as u8, (distance % (1 << OTHER_BITS)) as u32, OTHER_BITS);
    }
    if words <= NEAR_WORDS {
        return (words as u8, 0, 0);
    }
    let far = words - (NEAR_WORDS + 1);
    (FAR + (far >> FAR_BITS) as u8, (far % (1 << FAR_BITS)) as u32, FAR_BITS)
}

const fn meanings() -> [Meaning; 256] {
    let mut meanings = [Meaning { base: 0, scale: 0, bits: 0 }; 256];
    let word_scale = WORD_BYTES.ilog2() as u8;
    let mut at = 1;
    while at < SYMBOLS {
        meanings[at] = if at <= NEAR_WORDS {
            Meaning { base: at as u16, scale: word_scale, bits: 0 }
        } else if at < OTHER as usize {
            let base = NEAR_WORDS + 1 + ((at - FAR as usize) << FAR_BITS);
            Meaning { base: base as u16, scale: word_scale, bits: FAR_BITS as u8 }
        } else {
            Meaning { base: ((at - OTHER as usize) << OTHER_BITS) as u16, scale: 0, bits: OTHER_BITS as u8 }
        };
        at += 1;
    }
    meanings
}

const _: () = assert!(SYMBOLS <= 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_has_a_symbol_that_means_it() {
        for distance in 1..PAGE_BYTES {
            let (symbol, value, bits) = symbol(distance);
            let meaning = MEANINGS[usize::from(symbol)];
            assert!(symbol != REPEAT && u32::from(meaning.bits) == bits && value >> bits == 0);
            assert_eq!((usize::from(meaning.base) + value as usize) << meaning.scale, distance);
        }
    }
}
