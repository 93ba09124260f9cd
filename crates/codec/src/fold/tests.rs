//! Every path against the plain twin, and the plain twin against the format document.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::format::{BITMAP_HEAD_BYTES, HEADER_BYTES, REPEATS};
use super::frequent::Path as _;
use super::scalar::Scalar;
use super::*;

const CORPUS: &[u8] = include_bytes!("../../testdata/corpus.pages");

fn pages() -> impl Iterator<Item = PageBytes> {
    let real = CORPUS.as_chunks::<PAGE_BYTES>().0.iter().map(|&bytes| PageBytes(bytes));
    // Words drawn from few, words that differ in some bytes, and noise: what steers the choices.
    let drawn = (0..600_u64).map(|seed| {
        let mut state = seed;
        let mut draw = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 24
        };
        let mut page = PageBytes::ZERO;
        let spread = 1 + draw() % 40;
        for word in page.0.as_chunks_mut::<8>().0 {
            let base = (draw() % spread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let change = if draw() % 4 == 0 { draw() & draw() & 0xff00_ff00_ffff } else { 0 };
            *word = if draw() % 5 == 0 { 0 } else { base ^ change }.to_le_bytes();
        }
        // Half of the pages have runs of a word.
        for at in 1..WORDS {
            if seed % 2 == 1 && draw() % 8 < seed % 8 {
                page.0.copy_within((at - 1) * 8..at * 8, at * 8);
            }
        }
        page
    });
    // Bytes of which some are more frequent than a count can say, and of which all occur.
    let skewed = (0..40_u32).map(|seed| {
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        PageBytes(core::array::from_fn(|_| {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let drawn = (state >> 8) as u8;
            if (state >> 16) % 40 < seed { drawn % 17 * 15 } else { drawn }
        }))
    });
    real.chain(drawn).chain(skewed).chain([noise()])
}

const LEVELS: [Level; 3] = [Level::Plain, Level::Deep, Level::Shortest];

fn encoding(path: impl Path, level: Level, page: &PageBytes, workspace: &mut Workspace) -> Vec<u8> {
    let mut out = [0; 2 * PAGE_BYTES];
    let length = encode(path, level, page, workspace, &mut out).expect("twice the page is room for anything");
    out[..length].to_vec()
}

/// Bytes that the path must write, and that come back; a copy of just these, so that what lies behind them is not ours.
fn assert_like_the_plain_twin(path: impl Path) {
    let (mut plain, mut vector) = (Box::new(Workspace::EMPTY), Box::new(Workspace::EMPTY));
    for (number, page) in pages().enumerate() {
        for level in LEVELS {
            let expected = encoding(Scalar, level, &page, &mut plain);
            assert!(encoding(path, level, &page, &mut vector) == expected, "page {number}, {level:?}");
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            let result = decode(path, &expected.into_boxed_slice(), &mut decoded);
            assert!(result.is_ok() && decoded.0 == page.0, "page {number}, {level:?}");
        }
    }
}

fn assert_garbage_like_the_plain_twin(path: impl Path) {
    let mut workspace = Box::new(Workspace::EMPTY);
    let mut taken = [0; LEVELS.len()];
    for (number, page) in pages().enumerate() {
        for (level, taken) in LEVELS.into_iter().zip(&mut taken) {
            let encoding = encoding(Scalar, level, &page, &mut workspace);
            for flip in 0..20 {
                // Two bits of the same area, so that some sums still agree.
                let mut garbage = encoding.clone().into_boxed_slice();
                let at = (number * 7919 + flip * 104_729) % garbage.len();
                garbage[at] = garbage[at].rotate_left(1 + flip as u32 % 7);
                let (mut plain, mut vector) = (PageBytes::ZERO, PageBytes::ZERO);
                let result = decode(Scalar, &garbage, &mut plain);
                assert_eq!(result, decode(path, &garbage, &mut vector), "page {number}, {level:?}");
                *taken += u32::from(result.is_ok());
                assert!(result.is_err() || plain.0 == vector.0, "page {number}, {level:?}");
            }
        }
    }
    assert!(taken.iter().all(|&taken| taken > 100), "only {taken:?} were taken for encodings");
}

/// Codes of each number of bits, in slices of just their length, with as many escapes as they take, more, and one less.
fn assert_codes_like_the_plain_twin(path: impl frequent::Path) {
    let mut state = 1_u32;
    let mut draw = move || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        (state >> 16) as u8
    };
    let table = core::array::from_fn(|_| draw());
    for (bits, count) in (1..=frequent::BITS_MAX).flat_map(|bits| (0..200).map(move |count| (bits, count))) {
        // Some have nearly only escapes, and some next to none.
        let all_ones = if count % 3 == 0 { 0xff } else { 0 };
        let codes: Box<[u8]> = (0..(count * bits).div_ceil(8)).map(|_| draw() | all_ones & draw()).collect();
        let mut plain = [0; 200 + VECTOR_BYTES];
        let mut vector = plain;
        let most: Box<[u8]> = (0..count).map(|_| draw()).collect();
        let used = Scalar.read_codes(&codes, bits, &table, &most, count, &mut plain).expect("there is one for each");
        for there in used.saturating_sub(1)..=count.min(used + 1) {
            let escapes: Box<[u8]> = most[..there].into();
            let result = path.read_codes(&codes, bits, &table, &escapes, count, &mut vector);
            assert_eq!(result, (there >= used).then_some(used), "{count} of {bits} bits, {there} escapes");
            assert!(there < used || vector[..count] == plain[..count], "{count} of {bits} bits, {there} escapes");
        }
    }
}

#[test]
fn the_example_of_the_format_document() {
    let mut page = PageBytes::ZERO;
    page.0[..8].copy_from_slice(&0x7f00_1122_3344_5566_u64.to_le_bytes());
    page.0[128..136].copy_from_slice(&0x7f00_0022_3344_5577_u64.to_le_bytes());
    let mut workspace = Box::new(Workspace::EMPTY);
    // Nothing before the only group is like it, so that the nearest places are as good as any.
    let mut expected = std::vec![2, 0, 14, 0, 24, 23, 22, 21, 20, 0b101, 0, 0, 0, 0, 0, 0, 0, 1, 1];
    // No mask leaves out both bytes of the second word that are zero.
    let literals = [0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x7f, 0x77, 0x55, 0x44, 0x33, 0x22, 0x00, 0x7f];
    let codes = [30 << 3, 29 << 3];
    expected.extend([&literals[..], &codes].concat());
    // Two codes are not worth a table, nor are 14 literals.
    for level in LEVELS {
        assert_eq!(encoding(Scalar, level, &page, &mut workspace), expected);
    }
    // As codes that are coded, by no bits, and with literals that are, too, behind them.
    for coded in [[&[0x10], &literals[..], &[0], &codes].concat(), [&[0x40, 0], &codes[..], &[0], &literals].concat()] {
        let mut encoding = [&expected[..HEADER_BYTES + BITMAP_HEAD_BYTES + 2], &coded[1..]].concat();
        encoding[1] = coded[0];
        let mut decoded = PageBytes([0xee; PAGE_BYTES]);
        assert_eq!(decode(Scalar, &encoding, &mut decoded), Ok(()));
        assert!(decoded.0 == page.0);
        encoding[1] = 0x50;
        assert_eq!(decode(Scalar, &encoding, &mut decoded), Err(Corrupt));
    }
}

/// Where it gains enough, which for literals is less often so; and wherever it gains anything.
#[test]
fn a_level_codes_what_pays_for_it() {
    let mut workspace = Box::new(Workspace::EMPTY);
    let mut forms = [[0; 3]; LEVELS.len()];
    let mut bytes = [0; LEVELS.len()];
    for page in pages() {
        for (at, level) in LEVELS.into_iter().enumerate() {
            let encoding = encoding(Scalar, level, &page, &mut workspace);
            bytes[at] += encoding.len();
            forms[at][match encoding[1] & 0x50 {
                0 => 0,
                0x10 => 1,
                _ => 2,
            }] += 1;
        }
    }
    let [plain, deep, shortest] = forms;
    assert_eq!(plain[1..], [0, 0]);
    assert!(deep[1] > 20 && deep[2] > 20 && shortest[1] > 20 && shortest[2] > deep[2], "{forms:?}");
    assert!(bytes[0] > bytes[1] && bytes[1] > bytes[2], "{bytes:?}");
}

#[test]
fn a_word_in_a_run_is_listed_once() {
    let mut page = PageBytes::ZERO;
    for word in page.0.as_chunks_mut::<8>().0.iter_mut().skip(40) {
        *word = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
    }
    let encoding = encoding(Scalar, Level::Plain, &page, &mut Box::new(Workspace::EMPTY));
    // A header, a byte of the bitmap, eight literals and a code.
    assert_eq!(encoding.len(), HEADER_BYTES + BITMAP_HEAD_BYTES + 1 + 8 + 1);
    assert_eq!(encoding[..2], (1 | REPEATS).to_le_bytes());
}

/// Noise, as a splitmix64 makes it.
fn noise() -> PageBytes {
    let mut page = PageBytes::ZERO;
    for (at, word) in page.0.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *word = (mixed ^ (mixed >> 31)).to_le_bytes();
    }
    page
}

#[test]
fn noise_is_stored_and_records_with_one_pointer_are_not() {
    let mut workspace = Box::new(Workspace::EMPTY);
    for level in LEVELS {
        let page = noise();
        let stored = encoding(Scalar, level, &page, &mut workspace);
        assert_eq!((stored.len(), &stored[..2]), (STORED_BYTES + PAGE_BYTES, &[0, 0x20][..]));
        assert!(stored[2..] == page.0);
        let mut decoded = PageBytes::ZERO;
        assert_eq!(decode(Scalar, &stored, &mut decoded), Ok(()));
        assert!(decoded.0 == page.0);
        assert_eq!(decode(Scalar, &stored[..=PAGE_BYTES], &mut decoded), Err(Corrupt));
        for words in 2..8 {
            let mut page = noise();
            for pointer in page.0.as_chunks_mut::<8>().0.iter_mut().step_by(words) {
                pointer[3..].copy_from_slice(&[0x55, 0x7f, 0x12, 0, 0]);
            }
            assert_ne!(encoding(Scalar, level, &page, &mut workspace)[1], 0x20, "records of {words} words");
        }
    }
}

#[test]
fn where_few_words_are_zero_all_are_listed() {
    let page_of = |words: usize| {
        let mut page = PageBytes::ZERO;
        for (at, word) in page.0.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // All over the page.
            let is_zero = at * (WORDS - words) % WORDS < WORDS - words;
            *word = if is_zero { 0 } else { 0x7f00_0000_0000 + at as u64 * 256 }.to_le_bytes();
        }
        page
    };
    let mut workspace = Box::new(Workspace::EMPTY);
    assert_eq!(encoding(Scalar, Level::Plain, &page_of(399), &mut workspace)[..2], 399_u16.to_le_bytes());
    let page = page_of(400);
    let mut encoding = encoding(Scalar, Level::Plain, &page, &mut workspace);
    assert_eq!(encoding[..2], 512_u16.to_le_bytes());
    let mut decoded = PageBytes::ZERO;
    assert_eq!(decode(Scalar, &encoding, &mut decoded), Ok(()));
    assert!(decoded.0 == page.0);
    // Words that repeat, where there are no others; and places behind the last and before the first.
    let place = encoding[8];
    for wrong in [0, 25] {
        encoding[8] = wrong;
        assert_eq!(decode(Scalar, &encoding, &mut decoded), Err(Corrupt));
    }
    encoding[8] = place;
    encoding[1] |= (REPEATS >> 8) as u8;
    assert_eq!(decode(Scalar, &encoding, &mut decoded), Err(Corrupt));
}

#[test]
fn the_plain_twin_brings_pages_back() {
    assert_like_the_plain_twin(Scalar);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx512_writes_and_reads_what_the_plain_twin_does() {
    let Some(path) = avx512::Avx512::new() else {
        std::println!("skipped: this processor has no AVX-512 with VBMI2 and BITALG");
        return;
    };
    assert_like_the_plain_twin(path);
    assert_garbage_like_the_plain_twin(path);
    assert_codes_like_the_plain_twin(path);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_writes_and_reads_what_the_plain_twin_does() {
    let Some(path) = avx2::Avx2::new() else {
        std::println!("skipped: this processor has no AVX2");
        return;
    };
    assert_like_the_plain_twin(path);
    assert_garbage_like_the_plain_twin(path);
    assert_codes_like_the_plain_twin(path);
}

#[cfg(target_arch = "aarch64")]
#[test]
fn neon_writes_and_reads_what_the_plain_twin_does() {
    assert_like_the_plain_twin(neon::Neon);
    assert_garbage_like_the_plain_twin(neon::Neon);
    assert_codes_like_the_plain_twin(neon::Neon);
}
