//! What is special to `dense`: its format, its plain twin, and codes at their limits.

use std::vec::Vec;

use page::{PAGE_BYTES, PageBytes};

use super::code::{Counts, SYMBOLS, limited};
use super::decode::{ENCODING_BYTES_MAX, decode_by};
use super::filled::Plain;
use super::{Dense, FOLD, HEADER_BYTES, Header, SEQUENCES, code, decode, encode, parse, plain};
use crate::papers::tests::{draws, encoding, few, pages};
use crate::{Codec as _, Corrupt};

/// With Huffman codes, whether they are worth it or not.
fn coded(page: &PageBytes) -> Vec<u8> {
    let mut room = [0; ENCODING_BYTES_MAX];
    let bytes = encode::encode(page, &parse::parse(page), &mut room).expect("there is room for any page");
    room[..bytes].to_vec()
}

#[test]
fn the_example_of_the_format_document() {
    let mut page = PageBytes::ZERO;
    page.0[..11].copy_from_slice(b"abcdefghabc");
    let mut expected = std::vec![0x20, 0x25, 0x00, 0x01, 0x00];
    expected.extend([3, 3, 3, 0, 2, 1, 1, 1]);
    expected.extend(b"abcdefgh\0");
    // Tokens 0x80 and 0x1f, in one stream each, and distances 8 and 1.
    expected.extend([0xc0, 0x00, 0x28, 0x50, 0x40]);
    expected.extend([0xff, 0xfe, 0x20, 0x40]);
    assert_eq!(coded(&page), expected);
    let mut decoded = PageBytes([0xee; PAGE_BYTES]);
    assert_eq!(plain::decode(&expected, &mut decoded), Ok(()));
    assert!(decoded.0 == page.0);
}

#[test]
fn a_page_has_the_kind_that_is_worth_its_time() {
    let mut draw = draws(4);
    // An address now and then; words of which some come again; letters of which some are frequent, one by one.
    let words = core::array::from_fn(|at| {
        let word = if at / 8 % 5 == 0 { 0x7f12_3456_0000 + ((at as u64 / 8 * 0x4321) & 0xfff0) } else { 0 };
        word.to_le_bytes()[at % 8]
    });
    let mut text = Vec::new();
    while text.len() < PAGE_BYTES {
        let word = draw() % 40;
        text.extend(format!("{:.6} ", (word * 7919).to_string() + "pleats").bytes());
    }
    let letters = core::array::from_fn(|_| ((draw() as u32).leading_zeros() as u8 * 7) ^ (draw() % 3) as u8);
    for (page, kind) in [(words, Some(FOLD)), (*text.first_chunk().unwrap(), Some(SEQUENCES)), (letters, None)] {
        let page = PageBytes(page);
        let encoding = encoding(&Dense, &page);
        assert_eq!(Some(encoding[0]).filter(|first| [FOLD, SEQUENCES].contains(first)), kind);
        let mut decoded = PageBytes([0xee; PAGE_BYTES]);
        assert_eq!(Dense.decode(&encoding, &mut decoded), Ok(()));
        assert!(decoded.0 == page.0);
        assert!(kind.is_some() || encoding == coded(&page));
    }
}

#[test]
fn the_plain_twin_reads_what_is_written() {
    for (number, page) in pages().enumerate() {
        let encoding = coded(&page);
        let (mut fast, mut slow) = (PageBytes([0xee; PAGE_BYTES]), PageBytes([0xdd; PAGE_BYTES]));
        assert_eq!(decode::decode(&encoding, &mut fast), Ok(()), "page {number}");
        assert_eq!(plain::decode(&encoding, &mut slow), Ok(()), "page {number}");
        assert!(fast.0 == page.0 && slow.0 == page.0, "page {number}");
        assert_eq!(decode_by(Plain, &encoding, &mut slow), Ok(()), "page {number}, without vectors");
        assert!(slow.0 == page.0, "page {number}, without vectors");
    }
}

#[test]
fn both_take_the_same_garbage() {
    let mut draw = draws(3);
    let mut taken = 0;
    for (number, page) in pages().step_by(6).enumerate() {
        let whole = coded(&page);
        for _ in 0..10 {
            let mut spoiled = whole.clone();
            let at = draw() as usize % spoiled.len();
            spoiled[at] ^= 1 << (draw() % 8);
            let (mut fast, mut slow) = (PageBytes::ZERO, PageBytes::ZERO);
            let result = plain::decode(&spoiled, &mut slow);
            assert_eq!(decode::decode(&spoiled, &mut fast), result, "page {number}, byte {at}");
            assert!(result.is_err() || fast.0 == slow.0, "page {number}, byte {at}");
            assert_eq!(decode_by(Plain, &spoiled, &mut fast), result, "page {number}, byte {at}");
            taken += u32::from(result.is_ok());
            assert!(result.is_err() || fast.0 == slow.0, "page {number}, byte {at}");
        }
    }
    assert!(cfg!(miri) || taken > 20, "only {taken} were taken for encodings");
}

#[test]
fn headers_come_back_and_impossible_ones_are_corrupt() {
    let kinds = [code::Kind::Fixed, code::Kind::Plain, code::Kind::One];
    let header = Header { kinds, is_wide: true, literals: PAGE_BYTES, sequences: PAGE_BYTES / 3 };
    assert_eq!(Header::parse(header.to_bytes()), Ok(header));
    for wrong in [
        Header { literals: PAGE_BYTES + 1, ..header }.to_bytes(),
        Header { sequences: PAGE_BYTES / 3 + 1, ..header }.to_bytes(),
        [5, 0, 0, 0, 0],
        [0, 0, 0, 0, 4],
    ] {
        assert_eq!(Header::parse(wrong), Err(Corrupt), "{wrong:?}");
    }
}

/// Counts as steep as Fibonacci's numbers make the longest codes; equal ones the shortest.
#[test]
fn limited_codes_are_whole_and_near_the_best() {
    let (mut steep, mut one, mut next) = ([0; SYMBOLS], 1, 1);
    for count in steep.iter_mut().take(20) {
        *count = one;
        (one, next) = (next, one + next);
    }
    let mut lists: Vec<Counts> = vec![steep, [1; SYMBOLS]];
    for seed in 0..few(200) {
        let mut draw = draws(seed);
        let used = 4 + draw() as usize % (SYMBOLS - 3);
        let mut counts = [0; SYMBOLS];
        for count in counts.iter_mut().take(used) {
            *count = 1 + ((draw() % 400) >> (draw() % 9)) as u16;
        }
        lists.push(counts);
    }
    for counts in lists {
        for shortest in [1, 2] {
            // Two hundred and more symbols cannot all have codes of eight bits and fewer, and be whole with one of one bit.
            let lengths = limited(&counts, shortest);
            let share = |length: u8| 1_u32 << (9 - u32::from(length));
            let used = || counts.iter().zip(&lengths).filter(|(count, _)| **count > 0);
            assert_eq!(used().map(|(_, length)| share(*length)).sum::<u32>(), 512);
            assert!(used().all(|(_, length)| (shortest..shortest + 8).contains(&usize::from(*length))));
            assert!(counts.iter().zip(&lengths).all(|(count, length)| (*count == 0) == (*length == 0)));
            let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
            let best: f64 = used().map(|(count, _)| f64::from(*count) * (total / f64::from(*count)).log2()).sum();
            let bits: f64 = used().map(|(count, length)| f64::from(*count) * f64::from(*length)).sum();
            assert!(bits <= best * 1.1 + total * shortest as f64, "{bits} bits instead of {best}");
        }
    }
}

#[test]
fn noise_takes_hardly_more_than_a_page() {
    let mut draw = draws(9);
    let page = PageBytes(core::array::from_fn(|_| draw() as u8));
    assert!(coded(&page).len() <= PAGE_BYTES + HEADER_BYTES + 16);
    assert_eq!(Dense.encode(&page, &mut crate::Scratch::new(), &mut [0; PAGE_BYTES]), None);
}
