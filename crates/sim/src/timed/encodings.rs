//! Encodings of about any length, for stores that look into them.
//!
//! Traces have no content. Pages here are zeros with some noise at their end, encoded by the system's own codec: more
//! noise, a longer encoding. So what a store reads in an encoding is there, and what goes below as a page can be decoded.

use codec::{Codec, Scratch};
use page::{PAGE_BYTES, PageBytes};

/// Bytes of noise from one encoding to the next.
const STEP: usize = 32;

/// One codec's.
pub(super) struct Encodings {
    /// By length, each longer than the one before.
    by_length: Vec<Box<[u8]>>,
}

impl Encodings {
    pub(super) fn new(codec: &dyn Codec) -> Self {
        let mut scratch = Scratch::new();
        let mut out = [0; PAGE_BYTES];
        let mut by_length: Vec<Box<[u8]>> = Vec::new();
        for noise in (0..=PAGE_BYTES).step_by(STEP) {
            let Some(length) = codec.encode(&page(noise), &mut scratch, &mut out) else { break };
            if by_length.last().is_none_or(|last| last.len() < length) {
                by_length.push(out[..length].into());
            }
        }
        assert!(!by_length.is_empty(), "zeros can be encoded");
        Self { by_length }
    }

    /// The shortest that has `length` or more; none if no encoding is as long: then the page does not shrink.
    pub(super) fn of(&self, length: usize) -> Option<&[u8]> {
        let at = self.by_length.partition_point(|encoding| encoding.len() < length);
        self.by_length.get(at).map(|encoding| &encoding[..])
    }
}

/// Zeros, and `noise` bytes that nothing makes smaller.
fn page(noise: usize) -> PageBytes {
    let mut page = PageBytes::ZERO;
    let mut random = trace::Random::new(1);
    for byte in &mut page.0[PAGE_BYTES - noise..] {
        *byte = random.draw() as u8;
    }
    page
}

#[cfg(test)]
mod tests {
    use cache::system::{PRESETS, StoreName};

    use super::*;

    /// Of each codec of a named system there is one for every length up to nearly a page, and it is one.
    #[test]
    fn they_are_nearly_as_long_as_is_wanted() {
        for (name, parts) in PRESETS.into_iter().filter(|(_, parts)| parts.store != StoreName::Slabs) {
            let codec = super::super::codec_of(&parts);
            let encodings = Encodings::new(codec);
            let longest = encodings.by_length.last().unwrap().len();
            assert!(longest > PAGE_BYTES * 4 / 5, "{name}: {longest}");
            for length in (200..longest).step_by(50) {
                let found = encodings.of(length).unwrap();
                assert!((length..length + 1100).contains(&found.len()), "{name}: {} for {length}", found.len());
                codec.decode(found, &mut page(0)).unwrap();
            }
            assert_eq!(encodings.of(PAGE_BYTES), None);
        }
    }
}
