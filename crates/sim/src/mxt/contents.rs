//! How small lines get when they are written back.

use std::collections::HashMap;

use codec::{Codec, MxtLz1, Scratch};
use page::{PAGE_BYTES, PageBytes};
use store::LINES;
use trace::{Header, Sample};

use super::cache::LINE_BYTES;

/// Shortest encoding that is made up.
const BYTES_MIN: f64 = 16.0;
const CODEC: &str = "mxt-lz1";

/// What a program writes.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Lines that shrink to this part of their size on average, each to between half and one and a half times that.
    Ratio(f64),
    /// Pages whose lines have these lengths, `mxt-lz1`'s. A page of the program's is always the same one of them.
    Pages(Vec<[u16; LINES]>),
}

impl Content {
    /// The content of these pages; there must be one.
    pub fn of_pages(pages: &[PageBytes]) -> Self {
        assert!(!pages.is_empty(), "content without pages");
        let (mut scratch, mut out) = (Scratch::new(), [0; PAGE_BYTES]);
        let lengths = |page| match MxtLz1.encode(page, &mut scratch, &mut out) {
            Some(length) => {
                MxtLz1::line_lengths(&out[..length]).expect("it has just been encoded").map(|line| line as u16)
            }
            None => [LINE_BYTES as u16; LINES],
        };
        Self::Pages(pages.iter().map(lengths).collect())
    }

    fn length(&self, page: u64, line: usize) -> u16 {
        match self {
            Self::Pages(pages) => pages[(mixed(page) % pages.len() as u64) as usize][line],
            Self::Ratio(ratio) if *ratio >= 1.0 => LINE_BYTES as u16,
            Self::Ratio(ratio) => {
                let part = f64::from(mixed(page * LINES as u64 + line as u64) as u32) / f64::from(u32::MAX);
                (LINE_BYTES as f64 * ratio * (0.5 + part)).clamp(BYTES_MIN, LINE_BYTES as f64) as u16
            }
        }
    }
}

/// Any number from another, always the same.
const fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Lengths of lines: as sampled, or by one content after the other.
#[derive(Debug)]
pub struct Contents<'a> {
    turns: &'a [Content],
    /// References for which each holds.
    references: u64,
    /// Which of a trace's codecs counts: MXT's, or the first.
    column: usize,
    sampled: HashMap<u64, u16>,
}

impl<'a> Contents<'a> {
    /// Each content holds for as many of `references`; there must be one.
    pub fn new(contents: &'a [Content], references: u64, header: &Header) -> Self {
        assert!(!contents.is_empty(), "no content");
        let references = references.div_ceil(contents.len() as u64).max(1);
        let column = header.codecs.iter().position(|name| name == CODEC).unwrap_or(0);
        Self { turns: contents, references, column, sampled: HashMap::new() }
    }

    /// Takes note of samples.
    pub(super) fn learn(&mut self, samples: &[Sample]) {
        let column = self.column;
        let size = |sample: &Sample| sample.sizes.get(column).map(|&size| (sample.page.0, size));
        self.sampled.extend(samples.iter().filter_map(size));
    }

    /// Of a line that reference number `at` writes. A sample is of a page: its lines share it evenly.
    pub(super) fn length(&self, page: u64, line: usize, at: u64) -> u16 {
        if let Some(size) = self.sampled.get(&page) {
            return size.div_ceil(LINES as u16);
        }
        let turn = (at / self.references) as usize;
        self.turns[turn.min(self.turns.len() - 1)].length(page, line)
    }
}

#[cfg(test)]
mod tests {
    use page::PageIndex;
    use trace::{Random, TimeUnit};

    use super::*;

    #[test]
    fn lines_are_as_long_as_the_codec_makes_them() {
        let mut random = Random::new(3);
        let mut noise = PageBytes::ZERO;
        noise.0.fill_with(|| random.draw() as u8);
        let mut half = noise.clone();
        half.0[PAGE_BYTES / 2..].fill(0);
        let content = Content::of_pages(&[noise, half, PageBytes::ZERO]);
        let Content::Pages(pages) = &content else { panic!("{content:?}") };
        assert_eq!((pages[0], pages[1][..2].to_vec()), ([1024; 4], vec![1024, 1024]));
        // "For cache lines that compress to less than 120 bits, for example a cache line full of zeros".
        assert!(pages[1][2..].iter().chain(&pages[2]).all(|&length| length < 15), "{pages:?}");
        let seen: std::collections::HashSet<_> = (0..50).map(|page| content.length(page, 3)).collect();
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn made_up_lines_have_the_ratio() {
        for ratio in [0.2, 0.4, 0.6] {
            let content = Content::Ratio(ratio);
            let sum: u64 = (0..10_000).map(|page| u64::from(content.length(page, 1))).sum();
            assert!((sum as f64 / 10_240_000.0 - ratio).abs() < 0.01, "{ratio}: {sum}");
        }
        assert_eq!(Content::Ratio(1.0).length(5, 0), 1024);
    }

    #[test]
    fn contents_take_turns_and_samples_go_first() {
        let header = Header { codecs: vec!["fold".into(), CODEC.into()], ..Header::new(TimeUnit::References) };
        let turns = [Content::Ratio(1.0), Content::Pages(vec![[1, 2, 3, 4]]), Content::Ratio(1.0)];
        let mut contents = Contents::new(&turns, 30, &header);
        assert_eq!([0, 9, 10, 19, 20, 99].map(|at| contents.length(7, 1, at)), [1024, 1024, 2, 2, 1024, 1024]);
        contents.learn(&[Sample { page: PageIndex(7), sizes: vec![4096, 2001] }]);
        assert_eq!((contents.length(7, 1, 10), contents.length(8, 1, 10)), (501, 2));
    }
}
