//! `lzo1x-1` against its reference: streams that liblzo2 wrote once, and liblzo2 itself where it is installed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use page::{PAGE_BYTES, PageBytes};
use pleat_codec::{Codec as _, Lzo1x1, Scratch};

const CORPUS: &[u8] = include_bytes!("../testdata/corpus.pages");
/// See `testdata/README.md`.
const STREAMS: &[u8] = include_bytes!("../testdata/lzo1x.streams");
/// Every so many pages of the corpus have streams.
const STREAMS_STEP: usize = 24;
/// What the script says if there is no liblzo2.
const UNAVAILABLE: i32 = 3;

fn corpus() -> Vec<PageBytes> {
    CORPUS.as_chunks::<PAGE_BYTES>().0.iter().map(|&bytes| PageBytes(bytes)).collect()
}

/// Decodes two streams for each page, each with its length before it.
fn assert_streams_are_of(pages: &[PageBytes], mut streams: &[u8]) {
    for (number, page) in pages.iter().enumerate() {
        for level in ["lzo1x_1", "lzo1x_999"] {
            let (length, rest) = streams.split_first_chunk().expect("there are two streams for each page");
            let (stream, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            streams = rest;
            let mut decoded = PageBytes([0xee; PAGE_BYTES]);
            assert_eq!(Lzo1x1.decode(stream, &mut decoded), Ok(()), "{level} of page {number}");
            assert!(decoded.0 == page.0, "{level} of page {number}");
        }
    }
    assert!(streams.is_empty());
}

/// Each page and our encoding of it, as the script reads them.
fn with_encodings(pages: &[PageBytes]) -> Vec<u8> {
    let mut scratch = Scratch::new();
    let mut out = [0; 2 * PAGE_BYTES];
    let mut all = Vec::new();
    for page in pages {
        let length = Lzo1x1.encode(page, &mut scratch, &mut out).expect("twice the page is room for anything");
        all.extend(page.0);
        all.extend((length as u32).to_le_bytes());
        all.extend(&out[..length]);
    }
    all
}

#[test]
fn we_read_what_liblzo2_wrote() {
    let pages: Vec<_> = corpus().into_iter().step_by(STREAMS_STEP).collect();
    assert_streams_are_of(&pages, STREAMS);
}

#[test]
fn liblzo2_reads_what_we_write_and_we_what_it_writes() {
    let mut pages = corpus();
    pages.extend([0, 0xff].map(|byte| PageBytes([byte; PAGE_BYTES])));
    // Noise that repeats after a distance around the largest that has a short instruction, and around the first run.
    for distance in [3, 237, 238, 239, 255, 2047, 2048, 2049, 2050, 4090] {
        let noise = |at: usize| ((at as u64 % distance).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        pages.push(PageBytes(std::array::from_fn(noise)));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/liblzo2.py");
    let mut python = Command::new("python3");
    let Ok(mut child) = python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("skipped: python3 is not installed");
        return;
    };
    let mut input = child.stdin.take().expect("stdin is piped");
    let all = with_encodings(&pages);
    // A thread, because the script writes while it reads; without liblzo2 it does not read at all.
    let writer = std::thread::spawn(move || input.write_all(&all));
    let done = child.wait_with_output().expect("the script ends");
    let written = writer.join().expect("writing does not panic");
    if done.status.code() == Some(UNAVAILABLE) {
        println!("skipped: liblzo2 is not installed");
        return;
    }
    assert!(done.status.success(), "liblzo2 does not read what we write");
    written.expect("the script reads all");
    assert_streams_are_of(&pages, &done.stdout);
}
