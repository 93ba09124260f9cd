//! Cold times: encoding and page are somewhere in memory, in no cache, as when a program comes back to what it has not
//! touched for long.
//!
//! A pool of encodings of so many pages that no cache holds them, and as many frames: encodings are taken out at random,
//! each once, and decoded into a frame at random, each once.

use std::hint::black_box;

use page::{ByteCount, PAGE_BYTES, PageBytes};

use crate::clock::Clock;
use crate::run::WrongPage;
use crate::subjects::{ROOM_BYTES, Subject};

/// Decoded pages that are timed for each codec.
const SAMPLES_MAX: usize = 24_000;

/// A place in the pool.
#[derive(Clone, Copy)]
struct Kept {
    page: u32,
    offset: usize,
    /// `None`: not made smaller, kept as it is.
    length: Option<u32>,
}

/// The pool and the frames, used for one codec after the other.
pub(crate) struct Bench {
    bytes: Vec<u8>,
    kept: Vec<Kept>,
    frames: Vec<PageBytes>,
    clock: Clock,
}

impl Bench {
    /// `size` is what the pages take before they are encoded.
    pub(crate) fn new(size: ByteCount, clock: Clock) -> Self {
        let pages = (size.0 as usize / PAGE_BYTES).max(1);
        // Not zero, so that the kernel gives the memory now.
        Self { bytes: Vec::new(), kept: Vec::new(), frames: vec![PageBytes([1; PAGE_BYTES]); pages], clock }
    }

    /// Time of each decoded page in nanoseconds, with the number of the page.
    pub(crate) fn time(
        &mut self,
        subject: &mut dyn Subject,
        pages: &[&PageBytes],
    ) -> Result<Vec<(usize, u64)>, WrongPage> {
        self.fill_pool(subject, pages);
        // What was written last is in the caches; this takes its place.
        self.frames.iter_mut().for_each(|frame| frame.0.fill(1));
        let mut draw = Draw(self.kept.len() as u64);
        let mut places: Vec<usize> = (0..self.kept.len()).collect();
        let mut targets = places.clone();
        let samples = SAMPLES_MAX.min(places.len());
        let mut taken = Vec::with_capacity(samples);
        for at in 0..samples {
            draw.swap_in(&mut places, at);
            draw.swap_in(&mut targets, at);
            let Kept { page, offset, length } = self.kept[places[at]];
            let (frame, bytes) = (&mut self.frames[targets[at]], &self.bytes[offset..]);
            let (restored, ns) = match length {
                Some(length) => {
                    let encoding = &bytes[..length as usize];
                    self.clock.time(|| subject.decode(black_box(encoding), black_box(frame)).is_ok())
                }
                None => self.clock.time(|| {
                    black_box(frame).0.copy_from_slice(&black_box(bytes)[..PAGE_BYTES]);
                    true
                }),
            };
            if !restored {
                return Err(WrongPage { codec: subject.name() });
            }
            taken.push((page as usize, ns));
        }
        Ok(taken)
    }

    /// Encodes each page once and copies the encodings until there are as many as frames.
    fn fill_pool(&mut self, subject: &mut dyn Subject, pages: &[&PageBytes]) {
        self.bytes.clear();
        self.kept.clear();
        let mut out = Box::new([0; ROOM_BYTES]);
        for (page, bytes) in pages.iter().take(self.frames.len()).enumerate() {
            let offset = self.bytes.len();
            let length = subject.encode(bytes, &mut out);
            let encoding = length.map_or(&bytes.0[..], |length| &out[..length]);
            self.bytes.extend_from_slice(encoding);
            self.kept.push(Kept { page: page as u32, offset, length: length.map(|length| length as u32) });
        }
        let once = self.kept.len();
        for at in once..self.frames.len() {
            let first = self.kept[at % once];
            let offset = self.bytes.len();
            let length = first.length.map_or(PAGE_BYTES, |length| length as usize);
            self.bytes.extend_from_within(first.offset..first.offset + length);
            self.kept.push(Kept { offset, ..first });
        }
    }
}

/// Numbers that look random: Knuth's linear congruence.
struct Draw(u64);

impl Draw {
    /// One step of a shuffle: exchanges the item at `at` with one behind it, or with itself.
    fn swap_in(&mut self, items: &mut [usize], at: usize) {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let span = (items.len() - at) as u64;
        items.swap(at, at + ((self.0 >> 33) % span) as usize);
    }
}
