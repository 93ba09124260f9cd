//! Where in a line the bytes at a place were seen before. Hardware compares all at once; here pairs are chained.

use super::{LENGTH_MIN, LINE_BYTES, Line, PARTS, STEPS};

const CHAINS: usize = 1024;
/// The end of a chain: no place of a line.
const NONE: u16 = LINE_BYTES as u16;

/// The dictionary that all parts share: the places of the steps that were noted.
pub(super) struct Finder {
    /// For each hash of two bytes the last place where such bytes begin.
    first: [u16; CHAINS],
    /// For each place the one before it in its chain.
    next: [u16; LINE_BYTES],
}

impl Finder {
    pub(super) const START: Self = Self { first: [NONE; CHAINS], next: [NONE; LINE_BYTES] };

    /// The place and length of the longest copy for what comes at `at`, of equals the last noted.
    pub(super) fn longest(&self, line: &Line, at: usize) -> Option<(usize, usize)> {
        let whole = STEPS - at % STEPS;
        let (mut best, mut longest) = (0, LENGTH_MIN - 1);
        let mut from = self.first[chain(line, at)?];
        while from != NONE && longest < whole {
            let place = usize::from(from);
            // Only what has this byte too can be longer; most have not.
            if line[place + longest] == line[at + longest] {
                let length = match_length(line, place, at);
                if length > longest {
                    (best, longest) = (place, length);
                }
            }
            from = self.next[place];
        }
        (longest >= LENGTH_MIN).then_some((best, longest))
    }

    /// Takes in the bytes of all parts at `step`: later steps can copy from there.
    pub(super) fn note(&mut self, line: &Line, step: usize) {
        for at in (0..PARTS).map(|part| part * STEPS + step) {
            if let Some(chain) = chain(line, at) {
                self.next[at] = self.first[chain];
                self.first[chain] = at as u16;
            }
        }
    }
}

/// The chain of the two bytes at `at`; none for the last byte of a part.
fn chain(line: &Line, at: usize) -> Option<usize> {
    let is_last = at % STEPS == STEPS - 1;
    (!is_last).then(|| (usize::from(line[at]) << 2 ^ usize::from(line[at + 1])) % CHAINS)
}

/// How many bytes at `at` are those at `from`, which is of an earlier step: up to the end of the part of `at`.
pub(super) fn match_length(line: &Line, from: usize, at: usize) -> usize {
    let whole = STEPS - at % STEPS;
    let pairs = line[from..from + whole].iter().zip(&line[at..at + whole]);
    pairs.take_while(|(one, other)| one == other).count()
}
