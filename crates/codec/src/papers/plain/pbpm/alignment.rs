//! Where data of one, two and four bytes lie on their tape: the three forms of `crames`, "Word Alignment".

use super::WORD_BYTES;

const HALF_BYTES: usize = WORD_BYTES / 2;

/// How many data there are of four, two and one byte.
pub(super) struct Counts {
    pub(super) words: usize,
    pub(super) halves: usize,
    pub(super) bytes: usize,
}

impl Counts {
    /// What they take without gaps.
    const fn sum(&self) -> usize {
        self.words * WORD_BYTES + self.halves * HALF_BYTES + self.bytes
    }
}

/// Places on the tape, in the order of the words. Encoder and decoder ask for the same sizes and get the same places.
pub(super) trait Alignment {
    /// The length of the tape.
    fn tape_bytes(counts: &Counts) -> usize;

    /// `counts` is all that will be asked for.
    fn start(counts: &Counts) -> Self;

    /// The place of the next datum of so many bytes: 0, 1, 2 or 4. It lies on the tape.
    fn place(&mut self, bytes: usize) -> usize;
}

/// Behind each other: the shortest, for processors that read words anywhere.
pub(super) struct NonAligned {
    end: usize,
}

impl Alignment for NonAligned {
    fn tape_bytes(counts: &Counts) -> usize {
        counts.sum()
    }

    fn start(_: &Counts) -> Self {
        Self { end: 0 }
    }

    fn place(&mut self, bytes: usize) -> usize {
        self.end += bytes;
        self.end - bytes
    }
}

/// A tape for each size, behind each other from the largest to the smallest. The paper fills them apart and copies two
/// of them to the end of the third; here the codes have been counted before, so that data go to their place at once.
pub(super) struct Separate {
    words: usize,
    halves: usize,
    bytes: usize,
}

impl Alignment for Separate {
    fn tape_bytes(counts: &Counts) -> usize {
        counts.sum()
    }

    fn start(counts: &Counts) -> Self {
        let halves = counts.words * WORD_BYTES;
        Self { words: 0, halves, bytes: halves + counts.halves * HALF_BYTES }
    }

    fn place(&mut self, bytes: usize) -> usize {
        let next = match bytes {
            WORD_BYTES => &mut self.words,
            HALF_BYTES => &mut self.halves,
            _ => &mut self.bytes,
        };
        *next += bytes;
        *next - bytes
    }
}

/// One tape of words. A byte or half that needs a new word leaves the rest of that to the next of its size, which the
/// paper's three pointers remember.
pub(super) struct Single {
    /// The next byte, if it is odd; else there is no half begun.
    byte: usize,
    /// The next half, if it is not at a word; else there is no word begun.
    half: usize,
    /// The next word.
    word: usize,
}

impl Alignment for Single {
    /// A half is filled before the next is begun, and a word too: at the end one of each can have a gap.
    fn tape_bytes(counts: &Counts) -> usize {
        let halves = counts.halves + counts.bytes.div_ceil(2);
        (counts.words + halves.div_ceil(2)) * WORD_BYTES
    }

    fn start(_: &Counts) -> Self {
        Self { byte: 0, half: 0, word: 0 }
    }

    fn place(&mut self, bytes: usize) -> usize {
        match bytes {
            WORD_BYTES => {
                self.word += WORD_BYTES;
                self.word - WORD_BYTES
            }
            HALF_BYTES => {
                if self.half.is_multiple_of(WORD_BYTES) {
                    self.half = self.place(WORD_BYTES);
                }
                self.half += HALF_BYTES;
                self.half - HALF_BYTES
            }
            1 => {
                if self.byte.is_multiple_of(HALF_BYTES) {
                    self.byte = self.place(HALF_BYTES);
                }
                self.byte += 1;
                self.byte - 1
            }
            _ => self.word,
        }
    }
}
