//! What every codec of the papers promises, and the pages on which it is asked.

use alloc::vec::Vec;

use page::{PAGE_BYTES, PageBytes};

use super::{Lzo1x1, Lzrw1, Lzrw1a, MxtLz1, PLAIN, Pbpm, PbpmSeparate, PbpmSingle, Wk4x4, Wkdm};
use crate::{Codec, Corrupt, Scratch};

/// In the order of their plain twins.
static PAPERS: [&dyn Codec; 9] = [&Wkdm, &Wk4x4, &Lzrw1, &Lzrw1a, &Lzo1x1, &Pbpm, &PbpmSeparate, &PbpmSingle, &MxtLz1];

const CORPUS: &[u8] = include_bytes!("../../testdata/corpus.pages");

/// A page of `words`, then zeros.
pub(super) fn page_of_words(words: &[u32]) -> PageBytes {
    let mut page = PageBytes::ZERO;
    for (out, word) in page.0.as_chunks_mut().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
    page
}

/// The encoding, however long.
pub(crate) fn encoding(codec: &dyn Codec, page: &PageBytes) -> Vec<u8> {
    let mut out = [0; 2 * PAGE_BYTES];
    let length = codec.encode(page, &mut Scratch::new(), &mut out).expect("twice the page is room for anything");
    out[..length].to_vec()
}

/// Numbers that look random and are the same in every run.
pub(crate) fn draws(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 24
    }
}

/// Words drawn from few, words that differ in some bits, runs, and noise: what steers word codecs and match finders.
fn drawn(seed: u64) -> PageBytes {
    let mut draw = draws(seed);
    let mut page = PageBytes::ZERO;
    let spread = 1 + draw() % 60;
    for word in page.0.as_chunks_mut::<4>().0 {
        let base = (draw() % spread).wrapping_mul(0x9e37_79b9);
        let change = if draw().is_multiple_of(4) { draw() & draw() & 0x00ff_03ff } else { 0 };
        *word = if draw().is_multiple_of(5) { 0 } else { (base ^ change) as u32 }.to_le_bytes();
    }
    for _ in 0..draw() % 12 {
        let (from, to, length) = (draw() as usize % 4000, draw() as usize % 4000, draw() as usize % 300);
        let length = length.min(PAGE_BYTES - from.max(to));
        page.0.copy_within(from..from + length, to);
    }
    page
}

/// Under Miri, which takes some thousand times as long, one page in so many does.
const EVERY: usize = if cfg!(miri) { 400 } else { 1 };
/// The same of draws within a test.
pub(crate) const fn few(count: u64) -> u64 {
    if cfg!(miri) { count.div_ceil(20) } else { count }
}

pub(crate) fn pages() -> impl Iterator<Item = PageBytes> {
    let real = CORPUS.as_chunks::<PAGE_BYTES>().0.iter().step_by(EVERY).map(|&bytes| PageBytes(bytes));
    let same = [0, 1, 0xff].into_iter().step_by(EVERY).map(|byte| PageBytes([byte; PAGE_BYTES]));
    let noise = (0..4).step_by(EVERY).map(|seed| {
        let mut draw = draws(seed);
        PageBytes(core::array::from_fn(|_| draw() as u8))
    });
    real.chain(same).chain(noise).chain((0..400).step_by(EVERY).map(drawn))
}

#[test]
fn pages_come_back() {
    for codec in PAPERS {
        for (number, page) in pages().enumerate() {
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            assert_eq!(codec.decode(&encoding(codec, &page), &mut decoded), Ok(()), "{} page {number}", codec.name());
            assert!(decoded.0 == page.0, "{} page {number}", codec.name());
        }
    }
}

/// Each codec with its plain twin.
fn twins() -> impl Iterator<Item = (&'static dyn Codec, &'static dyn Codec)> {
    let twins = PAPERS.into_iter().zip(PLAIN);
    twins.inspect(|(codec, plain)| assert_eq!(plain.name().strip_suffix("@plain"), Some(codec.name())))
}

#[test]
fn the_plain_twins_make_the_same_bytes() {
    for (codec, plain) in twins() {
        for (number, page) in pages().enumerate() {
            assert!(encoding(codec, &page) == encoding(plain, &page), "{} page {number}", codec.name());
        }
    }
}

#[test]
fn the_plain_twins_take_the_same_garbage() {
    for (codec, plain) in twins() {
        let (mut draw, mut taken) = (draws(13), 0);
        for page in pages().step_by(3) {
            let whole = encoding(codec, &page);
            for _ in 0..few(30) {
                let mut spoiled = whole.clone();
                for _ in 0..=draw() % 3 {
                    let at = draw() as usize % spoiled.len();
                    spoiled[at] = [spoiled[at] ^ 1 << (draw() % 8), draw() as u8][draw() as usize % 2];
                }
                let (mut fast, mut slow) = (PageBytes([0xee; PAGE_BYTES]), PageBytes([0xdd; PAGE_BYTES]));
                let result = plain.decode(&spoiled, &mut slow);
                assert_eq!(codec.decode(&spoiled, &mut fast), result, "{}: {spoiled:02x?}", codec.name());
                assert!(result.is_err() || fast.0 == slow.0, "{}: {spoiled:02x?}", codec.name());
                taken += u32::from(result.is_ok());
            }
        }
        assert!(cfg!(miri) || taken > 500, "{}: only {taken} were taken for encodings", codec.name());
    }
}

#[test]
fn no_beginning_of_an_encoding_is_one() {
    for codec in PAPERS {
        for page in pages().step_by(50) {
            let whole = encoding(codec, &page);
            for cut in (0..whole.len()).step_by(if cfg!(miri) { 97 } else { 1 }) {
                let result = codec.decode(&whole[..cut], &mut PageBytes::ZERO.clone());
                assert_eq!(result, Err(Corrupt), "{} cut to {cut}", codec.name());
            }
        }
    }
}

#[test]
fn spoiled_encodings_never_panic() {
    for codec in PAPERS {
        let mut draw = draws(7);
        for page in pages().step_by(3) {
            let whole = encoding(codec, &page);
            for _ in 0..few(60) {
                let mut spoiled = whole.clone();
                for _ in 0..=draw() % 4 {
                    let at = draw() as usize % spoiled.len();
                    spoiled[at] ^= 1 << (draw() % 8);
                }
                let _ = codec.decode(&spoiled, &mut PageBytes::ZERO.clone());
            }
        }
    }
}

#[test]
fn noise_never_panics() {
    for codec in PAPERS {
        let mut draw = draws(11);
        for _ in 0..few(3000) / if cfg!(miri) { 5 } else { 1 } {
            let length = draw() as usize % PAGE_BYTES;
            // Few set bits make short copies and small counts, which get further before they fail.
            let sparse = draw() % 3;
            let noise: Vec<u8> = (0..length).map(|_| (0..sparse).fold(draw(), |bits, _| bits & draw()) as u8).collect();
            let _ = codec.decode(&noise, &mut PageBytes::ZERO.clone());
        }
    }
}
