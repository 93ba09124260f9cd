//! Sectors: against a plain twin, and each rule of IBM's MXT (Abali and others, 2000) by the sentence that states it.

use crate::common::{Random, any_step, assert_adds_up, bytes, churn, read, walk_all};
use codec::{Codec, MxtLz1, Scratch};
use page::{ByteCount, PAGE_BYTES, PageBytes, PageIndex};
use pleat_store::{Full, Resize, Sectors, Store, StoreKey, sectors_of};
use proptest::prelude::*;

const UNIT: usize = 16384;

/// For synthetic encodings: the first byte says how the rest divides, evenly or as unevenly as can be.
fn divide(encoding: &[u8]) -> Option<[usize; 4]> {
    let (&first, rest) = encoding.split_first()?;
    let mut left = rest.len();
    let mut lengths = [0; 4];
    for (line, length) in lengths.iter_mut().enumerate() {
        let share = if first % 2 == 0 { left.div_ceil(4 - line) } else { left };
        // What the lines behind cannot hold must go here.
        *length = share.clamp(left.saturating_sub(1024 * (3 - line)), left.min(1024));
        left -= *length;
    }
    (left == 0).then_some(lengths)
}

/// Encodings of four lines, whose lengths are in front, for the tests below.
fn divide_by_list(encoding: &[u8]) -> Option<[usize; 4]> {
    LINES.with_borrow(|lines| lines.get(usize::from(encoding[0])).copied())
}

thread_local! {
    static LINES: std::cell::RefCell<Vec<[usize; 4]>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn sectors(units: usize) -> Sectors {
    let mut sectors = Sectors::new(16 << 20, UNIT, divide_by_list).unwrap();
    for _ in 0..units {
        sectors.grow().unwrap();
    }
    sectors
}

/// Puts a page whose lines have these lengths.
fn put(sectors: &mut Sectors, lengths: [usize; 4]) -> StoreKey {
    let kind = LINES.with_borrow_mut(|lines| {
        lines.push(lengths);
        lines.len() as u8 - 1
    });
    let mut encoding = bytes(u64::from(kind), 1 + lengths.iter().sum::<usize>());
    encoding[0] = kind;
    let key = sectors.put(PageIndex(u64::from(kind)), &encoding).unwrap();
    sectors.check();
    assert_eq!(read(sectors, key), encoding);
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn sectors_do_what_a_map_does(steps in prop::collection::vec(any_step(PAGE_BYTES), 1..500), count in 1_usize..6) {
        walk_all(&mut Sectors::new(count * 8192, 8192, divide).unwrap(), &steps, true);
    }

    /// What the simulator counts is what the store takes.
    #[test]
    fn sectors_can_be_told_beforehand(lengths in prop::array::uniform4(prop_oneof![0_u16..20, 0_u16..=1024])) {
        LINES.with_borrow_mut(Vec::clear);
        let mut area = sectors(1);
        // An encoding as long as a page is the page as it is.
        prop_assume!(lengths.iter().map(|&length| usize::from(length)).sum::<usize>() + 1 < PAGE_BYTES);
        put(&mut area, lengths.map(usize::from));
        prop_assert_eq!(area.used(), sectors_of(lengths));
    }
}

/// "Depending on its compressibility, a 1 KB cache line may occupy 0 to 4 sectors in the compressed memory." "For example, a 1 KB
/// cache line, which compresses by 2:1, will occupy two sectors in the compressed memory (512 bytes)".
#[test]
fn a_line_takes_0_to_4_sectors() {
    let mut area = sectors(1);
    for (lengths, used) in
        [([0, 256, 512, 1024], 7), ([1024, 0, 1024, 1000], 12), ([400, 700, 900, 14], 9), ([512; 4], 8)]
    {
        let before = area.used();
        let key = put(&mut area, lengths);
        assert_eq!((area.used() - before, area.figures().sectors_shared), (used, 0), "{lengths:?}");
        area.remove(key);
    }
    assert_eq!(area.used(), 0);
}

/// "For cache lines that compress to less than 120 bits, for example a cache line full of zeros, a special CTT format called
/// trivial line format exists. In this format, the compressed data is stored entirely in the CTT entry replacing the four address
/// pointers."
#[test]
fn trivial_lines_are_in_the_table() {
    let mut area = sectors(1);
    put(&mut area, [14; 4]);
    assert_eq!((area.used(), area.figures().in_tables), (0, ByteCount(57)));
    put(&mut area, [15, 14, 14, 14]);
    assert_eq!(area.used(), 1);
}

/// "Therefore, a trivial line of 1 KB occupies only 16 bytes in the physical memory resulting in a compression ratio of 64:1."
/// And "Fills those freed pages with zeros to reduce physical memory utilization, since zero filled cache lines occupy only 1/64th
/// of their actual size in the physical memory."
#[test]
fn zeros_cost_a_64th() {
    let mut area = Sectors::new(16 << 20, UNIT, MxtLz1::line_lengths).unwrap();
    area.grow().unwrap();
    let mut encoding = [0; PAGE_BYTES];
    let length = MxtLz1.encode(&PageBytes::ZERO, &mut Scratch::default(), &mut encoding).unwrap();
    let table = |area: &Sectors| area.figures().metadata.0;
    area.put(PageIndex(0), &encoding[..length]).unwrap();
    let before = table(&area);
    let key = area.put(PageIndex(1), &encoding[..length]).unwrap();
    assert_eq!(read(&area, key), encoding[..length]);
    assert_eq!(area.used(), 0);
    // Beside the translation table: a page's owner, length and age.
    assert_eq!(table(&area) - before - 24, PAGE_BYTES as u64 / 64);
}

/// "Two cohorts may share a sector provided that space exists in the sector. For example, two cohorts each compressing to 100 bytes
/// may split and share a sector since their total size is less than the sector size of 256 bytes."
#[test]
fn cohorts_share_a_sector() {
    let mut area = sectors(1);
    for (lengths, used, shared) in [
        ([100, 100, 0, 0], 1, 1),
        ([100, 156, 0, 0], 1, 1),
        ([100, 157, 0, 0], 2, 0),
        // Two share, not three.
        ([60; 4], 2, 2),
        ([60, 60, 60, 0], 2, 1),
        // Rests of longer lines, too.
        ([1024 - 200, 200, 300, 513], 4 + 2 + 2, 2),
        ([400, 100, 1000, 80], 2 + 4 + 1, 1),
    ] {
        let (used_before, shared_before) = (area.used(), area.figures().sectors_shared);
        let key = put(&mut area, lengths);
        assert_eq!(
            (area.used() - used_before, area.figures().sectors_shared - shared_before),
            (used, shared),
            "{lengths:?}"
        );
        if used % 2 == 0 {
            area.remove(key);
        }
        area.check();
    }
}

/// "If two 1 KB cache lines are in the same 4 KB memory region they are called cohorts." Lines of two pages never share.
#[test]
fn lines_of_two_pages_do_not_share() {
    let mut area = sectors(1);
    for _ in 0..5 {
        put(&mut area, [100, 0, 0, 0]);
    }
    assert_eq!((area.used(), area.figures().sectors_shared), (5, 0));
}

/// "Each 1 KB cache line address maps to one entry in the CTT, and each CTT entry is 16 bytes long." "(16 bytes/cache line or 64
/// bytes/page)".
#[test]
fn the_table_takes_64_bytes_a_page() {
    let metadata = |pages: u64| {
        let mut area = Sectors::new(16 << 20, UNIT, divide).unwrap();
        area.grow().unwrap();
        for at in 0..pages {
            area.put(PageIndex(at), &[0; 40]).unwrap();
        }
        area.figures().metadata.0
    };
    // And 24 for owner, length and age.
    assert_eq!((metadata(30) - metadata(10)) / 20, 64 + 24);
}

/// Pages that the codec does not make smaller are four lines of four sectors.
#[test]
fn a_plain_page_takes_16_sectors() {
    let mut area = sectors(1);
    let key = area.put(PageIndex(3), &bytes(3, PAGE_BYTES)).unwrap();
    assert_eq!((area.used(), read(&area, key)), (16, bytes(3, PAGE_BYTES)));
    for at in 0..3 {
        area.put(PageIndex(at), &bytes(at, PAGE_BYTES)).unwrap();
    }
    let full = area.figures();
    assert_eq!(area.put(PageIndex(9), &bytes(9, PAGE_BYTES)), Err(Full));
    assert_eq!((area.figures(), full.external_waste()), (full, ByteCount::ZERO));
    area.check();
}

#[test]
fn a_unit_is_emptied_into_free_sectors() {
    let mut area = sectors(3);
    let keys: Vec<_> = [[100, 100, 700, 0], [1024, 300, 200, 40]]
        .into_iter()
        .cycle()
        .take(14)
        .map(|lengths| put(&mut area, lengths))
        .collect();
    let before: Vec<_> = keys.iter().map(|&key| read(&area, key)).collect();
    let figures = area.figures();
    while area.shrink(&mut |_, _, _| panic!("keys of sectors do not change")).is_ok() {
        area.check();
        assert!(keys.iter().zip(&before).all(|(&key, encoding)| &read(&area, key) == encoding));
    }
    assert!(area.figures().pool < figures.pool && area.figures().free.0 < UNIT as u64);
    assert_eq!(area.figures().rounding, figures.rounding);
}

/// Encodings of the codec itself, of pages with lines of all kinds.
#[test]
fn encodings_of_mxt_come_back() {
    let mut area = Sectors::new(16 << 20, UNIT, MxtLz1::line_lengths).unwrap();
    let mut random = Random(11);
    let mut kept = Vec::new();
    for at in 0..300 {
        let mut page = PageBytes::ZERO;
        for line in page.0.as_chunks_mut::<1024>().0 {
            let (kinds, share) = (1 + random.below(250), random.below(1025));
            line[..share].fill_with(|| random.below(kinds) as u8);
        }
        let mut encoding = [0; PAGE_BYTES];
        let encoding = match MxtLz1.encode(&page, &mut Scratch::default(), &mut encoding[..PAGE_BYTES - 1]) {
            Some(length) => encoding[..length].to_vec(),
            None => page.0.to_vec(),
        };
        let key = loop {
            match area.put(PageIndex(at), &encoding) {
                Ok(key) => break key,
                Err(Full) => area.grow().unwrap(),
            }
        };
        kept.push((key, encoding));
    }
    area.check();
    assert!(kept.iter().all(|(key, encoding)| &read(&area, *key) == encoding));
    assert!(area.figures().sectors_shared > 20, "{} shared", area.figures().sectors_shared);
    assert_adds_up(&area.figures());
}

#[test]
#[should_panic(expected = "nothing is stored")]
fn a_removed_key_is_a_bug() {
    let mut area = sectors(1);
    let key = put(&mut area, [100; 4]);
    area.remove(key);
    area.remove(key);
}

#[test]
fn churn_in_a_full_area_adds_up() {
    let mut area = Sectors::new(16 << 20, 64 << 10, divide).unwrap();
    let figures = churn(&mut area, 4 << 20, 20_000, |random| 300 + random.below(2200));
    println!("sectors: {} shared, {figures:?}", area.figures().sectors_shared);
    assert!(figures.stored.0 * 100 > figures.pool.0 * 75, "{figures:?}");
}
