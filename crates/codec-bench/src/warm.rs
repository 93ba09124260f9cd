//! Warm times: pages, encodings and tables are in the second-level cache, as in a program that folds and unfolds without
//! pause.
//!
//! Batches of 64 pages are gone through again and again, each call timed alone. The codecs take turns batch by batch, so
//! that what the machine does meanwhile meets all of them. A page's time is the median of its passes.

use std::hint::black_box;

use page::{PAGE_BYTES, PageBytes};

use crate::clock::Clock;
use crate::run::WrongPage;
use crate::subjects::{ROOM_BYTES, Subject};

/// Pages that are gone through again and again: with their encodings, a quarter of a second-level cache.
pub(crate) const BATCH_PAGES: usize = 64;
/// Timed passes over a batch, behind one that warms up and checks.
const PASSES: usize = 5;

/// What one page took.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Taken {
    pub(crate) encoded_bytes: usize,
    pub(crate) encode_ns: u64,
    pub(crate) decode_ns: u64,
}

/// Where encodings and decoded pages of a batch lie.
pub(crate) struct Bench {
    out: Box<[u8; ROOM_BYTES]>,
    encodings: Vec<PageBytes>,
    decoded: Vec<PageBytes>,
    clock: Clock,
}

impl Bench {
    pub(crate) fn new(clock: Clock) -> Self {
        let pages = || vec![PageBytes::ZERO; BATCH_PAGES];
        Self { out: Box::new([0; ROOM_BYTES]), encodings: pages(), decoded: pages(), clock }
    }

    /// Times a batch. Fails if a page does not come back.
    pub(crate) fn time(&mut self, subject: &mut dyn Subject, batch: &[&PageBytes]) -> Result<Vec<Taken>, WrongPage> {
        let lengths = self.encode_and_check(subject, batch)?;
        let Self { out, encodings, decoded, clock } = self;
        let encode_ns = medians(batch.len(), |at| {
            let page = black_box(batch[at]);
            clock.time(|| black_box(subject.encode(page, out))).1
        });
        let decode_ns = medians(batch.len(), |at| {
            let (encoding, page) = (&encodings[at].0, &mut decoded[at]);
            clock.time(|| black_box(restore(subject, encoding, lengths[at], page))).1
        });
        let taken = lengths.iter().zip(encode_ns).zip(decode_ns).map(|((length, encode_ns), decode_ns)| Taken {
            encoded_bytes: length.unwrap_or(PAGE_BYTES),
            encode_ns,
            decode_ns,
        });
        Ok(taken.collect())
    }

    /// Keeps the encodings, and looks whether each page comes back.
    fn encode_and_check(
        &mut self,
        subject: &mut dyn Subject,
        batch: &[&PageBytes],
    ) -> Result<Vec<Option<usize>>, WrongPage> {
        let mut lengths = Vec::new();
        for (at, page) in batch.iter().enumerate() {
            let length = subject.encode(page, &mut self.out);
            let kept = &mut self.encodings[at].0;
            match length {
                Some(length) => kept[..length].copy_from_slice(&self.out[..length]),
                None => *kept = page.0,
            }
            let decoded = &mut self.decoded[at];
            decoded.0.fill(0xee);
            if !restore(subject, kept, length, decoded) || decoded.0 != page.0 {
                return Err(WrongPage { codec: subject.name() });
            }
            lengths.push(length);
        }
        Ok(lengths)
    }
}

/// Decodes; a page that was not made smaller is kept as it is, and copied. Whether it was an encoding.
pub(crate) fn restore(
    subject: &mut dyn Subject,
    encoding: &[u8; PAGE_BYTES],
    length: Option<usize>,
    page: &mut PageBytes,
) -> bool {
    if let Some(length) = length {
        return subject.decode(&encoding[..length], page).is_ok();
    }
    page.0 = *black_box(encoding);
    true
}

/// Goes through the pages of a batch again and again; the median of what `call` says for each.
fn medians(pages: usize, mut call: impl FnMut(usize) -> u64) -> Vec<u64> {
    let mut taken = vec![[0; PASSES]; pages];
    for pass in 0..PASSES {
        for (at, ns) in taken.iter_mut().enumerate() {
            ns[pass] = call(at);
        }
    }
    let median = |mut ns: [u64; PASSES]| {
        ns.sort_unstable();
        ns[PASSES / 2]
    };
    taken.into_iter().map(median).collect()
}
