//! What is written is read; what is damaged is told, with its place.
#![forbid(unsafe_code)]

use page::PageIndex;
use pleat_trace::{
    Access, Ending, Grain, Header, Reference, Sample, TimeUnit, Trace, TraceError, Writer, open, open_lines, text_line,
};
use proptest::prelude::*;

type Read = (Vec<Reference>, Vec<Sample>, Ending);

fn read(bytes: &[u8]) -> Result<Read, TraceError> {
    read_all(open(bytes)?)
}

fn read_all(mut trace: Box<dyn Trace + '_>) -> Result<Read, TraceError> {
    let (mut references, mut samples) = (vec![], vec![]);
    let (mut batch, mut sampled) = (vec![], vec![]);
    while trace.ending() == Ending::Open {
        trace.read(&mut batch, &mut sampled)?;
        references.append(&mut batch);
        samples.append(&mut sampled);
    }
    Ok((references, samples, trace.ending()))
}

fn read_text(text: &str) -> Result<(Vec<(Access, u64)>, Ending), TraceError> {
    let (references, _, ending) = read(text.as_bytes())?;
    Ok((references.iter().map(|reference| (reference.access, reference.page.0)).collect(), ending))
}

fn reference(page: u64, time: u64, thread: u32, is_write: bool) -> Reference {
    let access = if is_write { Access::Write } else { Access::Read };
    Reference { page: PageIndex(page), time, thread, access }
}

fn header() -> Header {
    let codecs = vec!["fold".to_owned(), "lz4".to_owned()];
    Header { codecs, ..Header::new(TimeUnit::Nanoseconds) }
}

/// Two blocks of references with a sample between them.
fn small_file() -> Vec<u8> {
    let mut writer = Writer::new(vec![], header()).unwrap();
    for step in 0..20 {
        writer.push(reference(499 + step % 3, 1000 * step, (step / 7) as u32, step % 2 == 1)).unwrap();
    }
    writer.push_sample(Sample { page: PageIndex(500), sizes: vec![0, 1234] }).unwrap();
    for step in 20..40 {
        writer.push(reference(1 << 40, 1000 * step, 9, true)).unwrap();
    }
    writer.finish(None).unwrap()
}

#[test]
fn text_is_read_as_documented() {
    let text = "# all forms\n\nR 499\nW 0x1f3\r\n  r\t7  # why\nw 0XFf\n   \nR 4503599627370495\n";
    let (references, ending) = read_text(text).unwrap();
    let (r, w) = (Access::Read, Access::Write);
    assert_eq!(references, [(r, 499), (w, 0x1f3), (r, 7), (w, 255), (r, (1 << 52) - 1)]);
    assert_eq!(ending, Ending::Whole { references: 5 });
    assert_eq!(read_text("").unwrap(), (vec![], Ending::Whole { references: 0 }));
}

#[test]
fn a_bad_line_is_told_with_its_place() {
    for bad in ["X 5", "R", "R-5", "R -5", "R 5 6", "R 0x", "R 12a", "R 0xg", "R 4503599627370496", "R 1e3", "499"] {
        let text = format!("R 1\nW 2\n{bad}\nR 3\n");
        match read_text(&text) {
            Err(error @ TraceError::Line { offset: 8, line: 3, .. }) => {
                assert!(error.to_string().contains("at byte 8"), "{error}");
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
}

#[test]
fn the_end_of_a_text_is_judged() {
    let (references, ending) = read_text("R 1\nR 49").unwrap();
    assert_eq!((references.len(), ending), (2, Ending::Unterminated { offset: 4 }));
    let (references, ending) = read_text("R 1\nR ").unwrap();
    assert_eq!((references.len(), ending), (1, Ending::Truncated { offset: 4 }));
    assert!(matches!(read_text("R 1\nhello"), Err(TraceError::Line { offset: 4, .. })));
}

#[test]
fn foreign_files_are_told() {
    for foreign in
        [&b"\x7fELF\x02\x01\x01\0"[..], b"\x89PNG\r\n\x1a\n\0\0", b"hello world\n", b"{\"a\": 1}", &[0; 5000]]
    {
        let error = read(foreign).unwrap_err();
        assert!(matches!(error, TraceError::Foreign { .. }) && error.to_string().contains("byte 0"), "{error}");
    }
    assert!(matches!(read(&b"R".repeat(100_000)), Err(TraceError::Line { line: 1, offset: 0, .. })));
}

#[test]
fn lackey_is_imported() {
    let text = "==12== Lackey, an example Valgrind tool\n==12== \nI  04001000,3\n L 1ffe,4\nI  04001003,5\n S 3000,8\n M 4ff8,8\n";
    let (references, _, ending) = read(text.as_bytes()).unwrap();
    let expected =
        [reference(1, 1, 0, false), reference(2, 1, 0, false), reference(3, 2, 0, true), reference(4, 2, 0, true)];
    assert_eq!(references, expected);
    assert_eq!(ending, Ending::Whole { references: 4 });
    let (references, _, ending) = read(&text.as_bytes()[..text.len() - 1]).unwrap();
    assert_eq!((references.len(), ending), (3, Ending::Truncated { offset: text.len() as u64 - 10 }));
    let error = read(b"I  1000,3\n S zz,8\n").map(|_| ()).unwrap_err();
    assert!(matches!(error, TraceError::Line { offset: 10, line: 2, .. }), "{error}");
    assert!(read(b"I  1000,3\n S ffffffffffffffff,2\n").is_err());
}

/// A trace of lines is one of pages, too, but not the other way round.
#[test]
fn lines_are_read_as_lines_or_as_pages() {
    let lines = [4, 5, 7, 8, 4 << 40 | 3];
    let header = Header { grain: Grain::Line, codecs: vec!["x".to_owned()], ..Header::new(TimeUnit::References) };
    let mut writer = Writer::new(vec![], header.clone()).unwrap();
    for (at, &line) in lines.iter().enumerate() {
        writer.push(reference(line, at as u64, 0, at % 2 == 0)).unwrap();
    }
    writer.push_sample(Sample { page: PageIndex(2), sizes: vec![99] }).unwrap();
    let bytes = writer.finish(None).unwrap();
    assert_eq!(open_lines(&bytes[..]).unwrap().header(), &header);
    assert_eq!(open(&bytes[..]).unwrap().header().grain, Grain::Page);
    let numbers = |read: Read| (read.0.iter().map(|reference| reference.page.0).collect::<Vec<_>>(), read.1[0].page.0);
    assert_eq!(numbers(read_all(open_lines(&bytes[..]).unwrap()).unwrap()), (lines.to_vec(), 2));
    assert_eq!(numbers(read(&bytes).unwrap()), (vec![1, 1, 1, 2, 1 << 40], 2));
    assert!(matches!(open_lines(&small_file()[..]).err(), Some(TraceError::Coarse)));
    let text = "==1== lackey\n S 13ff,2\n L 2000,8\n";
    let (references, ..) = read_all(open_lines(text.as_bytes()).unwrap()).unwrap();
    assert_eq!(references, [reference(4, 0, 0, true), reference(5, 0, 0, true), reference(8, 0, 0, false)]);
    let (references, ..) = read_all(open_lines(&b"R 9\n"[..]).unwrap()).unwrap();
    assert_eq!(references, [reference(9, 0, 0, false)]);
    assert!(read_all(open_lines(&b" S fffffffffffffff0,8\n"[..]).unwrap()).is_err());
}

#[test]
fn a_flipped_bit_anywhere_is_an_error() {
    let good = small_file();
    assert_eq!(read(&good).unwrap().0.len(), 40);
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(read(&bad).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_truncated_file_gives_what_is_whole() {
    let good = small_file();
    let (all, samples, ending) = read(&good).unwrap();
    assert_eq!((samples.len(), ending), (1, Ending::Whole { references: 40 }));
    let mut counts = vec![];
    for length in 0..good.len() {
        match read(&good[..length]) {
            Ok((references, _, Ending::Truncated { offset })) => {
                assert!(offset as usize <= length);
                assert_eq!(references, all[..references.len()]);
                counts.push(references.len());
            }
            // No header, no trace; nothing at all is an empty text.
            Ok((references, ..)) => assert!(references.is_empty() && length == 0),
            Err(TraceError::Damaged { offset: 0, .. }) => assert!(counts.is_empty()),
            Err(other) => panic!("{length}: {other}"),
        }
    }
    counts.dedup();
    assert_eq!(counts, [0, 20, 40]);
}

#[test]
fn blocks_that_do_not_follow_each_other_are_told() {
    let good = small_file();
    let block = |at: usize| 32 + u32::from_le_bytes(good[at + 12..at + 16].try_into().unwrap()) as usize;
    let first = 20 + 5 + 4 + 4;
    let second = first + block(first);
    let without = [&good[..first], &good[second..]].concat();
    let error = read(&without).unwrap_err();
    assert!(matches!(error, TraceError::Damaged { offset, .. } if offset == first as u64), "{error}");
    let longer = [&good[..], b"x"].concat();
    assert!(matches!(read(&longer), Err(TraceError::Damaged { offset, .. }) if offset == good.len() as u64));
}

/// A file written once and kept: what is on people's disks must stay readable.
#[test]
fn the_golden_file_is_read() {
    let golden = include_bytes!("golden.trace");
    assert_eq!(read(golden).unwrap(), read(&small_file()).unwrap());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        steps in prop::collection::vec((0..1_u64 << 52, any::<u64>(), 0..3_u32, any::<bool>()), 0..300),
        sampled in prop::collection::vec(0..300_usize, 0..4),
        unit in prop::sample::select(vec![TimeUnit::References, TimeUnit::Nanoseconds, TimeUnit::Instructions]),
        repeat in 1..400_usize,
    ) {
        let header = Header { reduced_pages: 16, codecs: vec!["x".to_owned()], ..Header::new(unit) };
        let mut writer = Writer::new(vec![], header.clone()).unwrap();
        let (mut references, mut samples) = (vec![], vec![]);
        for (at, &(page, time, thread, is_write)) in steps.iter().cycle().take(steps.len() * repeat).enumerate() {
            let time = if unit == TimeUnit::References { at as u64 } else { time };
            references.push(reference(page, time, thread, is_write));
            writer.push(references[at]).unwrap();
            if sampled.contains(&at) {
                samples.push(Sample { page: PageIndex(page), sizes: vec![at as u16] });
                writer.push_sample(samples[samples.len() - 1].clone()).unwrap();
            }
        }
        let bytes = writer.finish(Some(1 << 40)).unwrap();
        let opened = open(&bytes[..]).unwrap();
        prop_assert_eq!(opened.header(), &header);
        prop_assert_eq!(read(&bytes).unwrap(), (references, samples, Ending::Whole { references: 1 << 40 }));
    }

    #[test]
    fn text_is_read_back(pages in prop::collection::vec((0..1_u64 << 52, any::<bool>()), 0..100)) {
        let written: Vec<_> = pages.iter().enumerate().map(|(at, &(page, is_write))| reference(page, at as u64, 0, is_write)).collect();
        let text: String = written.iter().map(text_line).collect();
        prop_assert_eq!(read(text.as_bytes()).unwrap().0, written);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..500), kind in 0..3_usize) {
        let start: &[u8] = [&b""[..], b"R 1\n", b"PLEATTRC\x01\0"][kind];
        let _ = read(&[start, &bytes].concat());
    }
}
