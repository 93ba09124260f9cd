//! Auto: fold, and LZ4 where fold gains too little.
//!
//! A word codec does nothing for text, and an LZ codec takes ten times as long for heaps. The first byte of an encoding
//! says which of the two made the rest.

use page::{PAGE_BYTES, PageBytes};

use crate::{Codec, Corrupt, Fold, Lz4, Scratch};

const FOLD: u8 = 0;
const LZ4: u8 = 1;
/// A folded page this long, 60 % of a page, is tried with LZ4 too: on the pages of real programs LZ4 wins seldom below.
const GOOD_BYTES: usize = PAGE_BYTES * 6 / 10;

/// The default codec.
#[derive(Clone, Copy, Default, Debug)]
pub struct Auto;

impl Codec for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        let Scratch { table, out: lz4, fold } = scratch;
        let folded: &[u8] = if Fold::is_fast() { Fold.encode_into(page, fold) } else { &[] };
        let is_folded = (1..GOOD_BYTES).contains(&folded.len());
        let matched: &[u8] = if is_folded { &[] } else { Lz4.encode_into(page, table, lz4) };
        let (kind, best) =
            if is_folded || (1..matched.len()).contains(&folded.len()) { (FOLD, folded) } else { (LZ4, matched) };
        if 1 + best.len() >= out.len() {
            return None;
        }
        out[0] = kind;
        out[1..=best.len()].copy_from_slice(best);
        Some(1 + best.len())
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match encoding.split_first() {
            Some((&FOLD, rest)) => Fold.decode(rest, page),
            Some((&LZ4, rest)) => Lz4.decode(rest, page),
            _ => Err(Corrupt),
        }
    }
}
