//! LZ4 in its block format, by `lz4_flex`.
//!
//! `lz4_flex` is built with its safe encoder and decoder. On 12,000 pages of real programs (ratio 0.456) its unsafe
//! code encodes in 7.8 µs instead of 8.7 and decodes in 2.35 µs instead of 2.5: too little to trust bytes from below
//! RAM to unchecked pointers inside somebody else's program.

use lz4_flex::block::{compress_into_with_table, decompress_into};
use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Scratch};

/// LZ4: fast in both directions, middling ratio. Its encodings have no header and no checksum.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lz4;

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        // The encoder refuses a buffer that could overflow (over 4.5 kB), however well the page shrinks; hence the
        // copy, which costs about 1 % of the encoding.
        let length = compress_into_with_table(&page.0, &mut scratch.out[..], &mut scratch.table).ok()?;
        if length >= out.len() {
            return None;
        }
        out[..length].copy_from_slice(&scratch.out[..length]);
        Some(length)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match decompress_into(encoding, &mut page.0) {
            Ok(PAGE_BYTES) => Ok(()),
            // A prefix of an encoding can be well-formed LZ4 of fewer bytes.
            Ok(_) | Err(_) => Err(Corrupt),
        }
    }
}
