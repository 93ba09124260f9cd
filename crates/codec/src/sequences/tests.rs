use alloc::vec::Vec;
use std::vec;

use super::*;

const CORPUS: &[u8] = include_bytes!("../../testdata/corpus.pages");

fn encoding(page: &[u8; PAGE_BYTES]) -> Vec<u8> {
    let mut out = [0; 2 * PAGE_BYTES];
    let (mut workspace, mut bytes) = (Workspace::EMPTY, frequent::Workspace::EMPTY);
    let length = encode(&PageBytes(*page), &mut workspace, &mut bytes, &mut out).expect("there is room for any page");
    out[..length].to_vec()
}

/// An encoding of these tokens, offsets and literals, none of them coded.
fn by_hand(tokens: &[u8], offsets: &[u16], literals: &[u8]) -> Vec<u8> {
    assert_eq!(tokens.len(), offsets.len());
    let mut encoding = [(tokens.len() as u16).to_le_bytes(), (literals.len() as u16).to_le_bytes()].concat();
    encoding.push(0);
    encoding.extend(tokens);
    encoding.push(0);
    encoding.extend(offsets.iter().map(|offset| (offset >> 4) as u8));
    encoding
        .extend(offsets.chunks(2).map(|pair| (pair[0] & 15 | pair.get(1).map_or(0, |second| second & 15) << 4) as u8));
    encoding.push(0);
    encoding.extend(literals);
    encoding
}

/// Decodes with the best path and with the plain twin: what the first one says, and the page.
fn decode_twice(encoding: &[u8]) -> (Result<(), Corrupt>, [u8; PAGE_BYTES]) {
    let (mut fast, mut slow) = (PageBytes([0xee; PAGE_BYTES]), PageBytes([0xdd; PAGE_BYTES]));
    let result = decode(encoding, &mut fast);
    assert_eq!(decode_by(told::plain::put_together, encoding, &mut slow), result);
    assert!(result.is_err() || fast.0 == slow.0);
    (result, fast.0)
}

/// Under Miri, which takes some thousand times as long, one page in so many does.
const EVERY: usize = if cfg!(miri) { 60 } else { 1 };

fn pages() -> impl Iterator<Item = [u8; PAGE_BYTES]> {
    // Periods around the lengths of a literal run, of a match, and of what is copied at once.
    let periods = (1..70).step_by(EVERY).chain([255, 256, 1000, 2047, 4000]);
    let periodic = periods
        .map(|period| core::array::from_fn(|at| ((at % period) as u32 * 7).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]));
    CORPUS.as_chunks().0.iter().step_by(EVERY).copied().chain(periodic)
}

#[test]
fn pages_come_back() {
    for (number, page) in pages().enumerate() {
        let (result, decoded) = decode_twice(&encoding(&page));
        assert_eq!(result, Ok(()), "page {number}");
        assert!(decoded == page, "page {number}");
    }
}

#[test]
fn the_example_of_the_format_document() {
    let mut page = [b'a'; PAGE_BYTES];
    page[..3].copy_from_slice(b"xyz");
    // Four literals, 215 matches of 19, all one byte back, and one of seven.
    let mut expected = vec![216, 0, 4, 0];
    expected.extend([4, 3, 0x30, 0xf0, 0xf4, 0x12]);
    expected.extend([0x11; 106]);
    expected.push(0x01);
    expected.extend([4, 1, 0]);
    expected.extend([0; 108]);
    expected.extend([0x11; 108]);
    expected.extend(b"\0xyza");
    assert_eq!(encoding(&page), expected);
    assert_eq!(decode_twice(&expected), (Ok(()), page));
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
            taken += u32::from(decode_twice(&garbage).0.is_ok());
        }
        assert_eq!(decode_twice(&encoding[..encoding.len() - 1]).0, Err(Corrupt));
    }
    assert!(cfg!(miri) || taken > 100, "only {taken} were taken for encodings");
}

/// Each offset around what is copied at once with each length, against bytes that are copied one by one.
#[test]
fn matches_of_any_length_overlap_what_they_make() {
    for offset in (1..40_u16).step_by(if cfg!(miri) { 13 } else { 1 }) {
        for code in 1..16 {
            // Forty literals, the match, and literals to the end of the page; for each fifteen a token of its own.
            let length = usize::from(code) + MATCH_LESS;
            let bytes: Vec<u8> = (0..PAGE_BYTES - length).map(|at| (at * 89 / 7) as u8).collect();
            let (mut tokens, mut offsets) = (vec![15, 15, 10 + (code << 4)], vec![0, 0, offset]);
            let left = bytes.len() - 40;
            tokens.extend(vec![15; left / 15]);
            tokens.push((left % 15) as u8);
            offsets.resize(tokens.len(), 4095);
            let mut expected = bytes[..40].to_vec();
            for _ in 0..length {
                expected.push(expected[expected.len() - usize::from(offset)]);
            }
            expected.extend(&bytes[40..]);
            let (result, page) = decode_twice(&by_hand(&tokens, &offsets, &bytes));
            assert_eq!(result, Ok(()), "{offset} back, {length}");
            assert!(page[..] == expected, "{offset} back, {length}");
        }
    }
}

#[test]
fn an_offset_to_before_the_page_is_corrupt() {
    // Four literals, 584 matches of seven, and four literals.
    let tokens: Vec<u8> = [vec![4 | 3 << 4], vec![3 << 4; 583], vec![4]].concat();
    let result = |offset: u16, literals: &[u8]| {
        let offsets: Vec<u16> = [vec![offset], vec![4; 584]].concat();
        decode_twice(&by_hand(&tokens, &offsets, literals)).0
    };
    assert_eq!(result(4, b"pleatfol"), Ok(()));
    for offset in [0, 5, 4095] {
        assert_eq!(result(offset, b"pleatfol"), Err(Corrupt), "{offset}");
    }
    for literals in ["pleatfo", "pleatfold"] {
        assert_eq!(result(4, literals.as_bytes()), Err(Corrupt), "{literals}");
    }
}

#[test]
fn more_tokens_than_a_page_has_are_corrupt() {
    // Tokens of nothing between those that make the page.
    let of_nothing = |count: usize| {
        let tokens = [vec![15; 273], vec![1], vec![0; count]].concat();
        by_hand(&tokens, &vec![0; tokens.len()], &[7; PAGE_BYTES])
    };
    assert_eq!(decode_twice(&of_nothing(TOKENS_MAX - 274)), (Ok(()), [7; PAGE_BYTES]));
    assert_eq!(decode_twice(&of_nothing(TOKENS_MAX - 273)).0, Err(Corrupt));
}
