//! Turns a page into an encoding and back.
//!
//! A [`Codec`] sees one page at a time and keeps nothing between pages but what is worth trying, so that any encoding
//! can be decoded alone, in any order, on any thread. The page it is given must be ours (a frame), not managed memory:
//! the program could write to that meanwhile, and then the encoding would be of a page that never was.
//!
//! A page that is one word repeated needs no codec: see [`same_filled`](fn@same_filled).
#![cfg_attr(not(test), no_std)]

extern crate alloc;

use alloc::boxed::Box;

use lz4_flex::block::{CompressTable, get_maximum_output_size};
use page::{PAGE_BYTES, PageBytes};

mod auto;
#[cfg(target_arch = "x86_64")]
mod copies;
mod dense;
mod fold;
mod lz4;
mod papers;
mod same_filled;
mod sequences;

pub use auto::Auto;
pub use dense::Dense;
pub use fold::{Fold, FoldDeep, fold_paths};
pub use lz4::Lz4;
pub use papers::{Lzo1x1, Lzrw1, Lzrw1a, MxtLz1, PLAIN, Pbpm, PbpmSeparate, PbpmSingle, Wk4x4, Wkdm};
pub use same_filled::{fill, same_filled};

/// Every codec there is: ours, and those of the papers. A run tells its agents the place of its codec here.
pub static ALL: [&dyn Codec; 14] = [
    &Lz4,
    &Fold,
    &FoldDeep,
    &Auto,
    &Dense,
    &Wkdm,
    &Wk4x4,
    &Lzrw1,
    &Lzrw1a,
    &Lzo1x1,
    &Pbpm,
    &PbpmSeparate,
    &PbpmSingle,
    &MxtLz1,
];

/// The names of all that makes encodings: the codecs in their order, and what only `auto` uses.
pub static MAKERS: [&str; ALL.len() + 1] = [
    "lz4",
    "fold",
    "fold-deep",
    "auto",
    "dense",
    "wkdm",
    "wk4x4",
    "lzrw1",
    "lzrw1-a",
    "lzo1x-1",
    "pbpm",
    "pbpm-separate",
    "pbpm-single",
    "mxt-lz1",
    "sequences",
];

/// The codec of that name.
pub fn named(name: &str) -> Option<&'static dyn Codec> {
    ALL.into_iter().find(|codec| codec.name() == name)
}

/// The place of a name in [`MAKERS`].
fn place_of(name: &str) -> usize {
    MAKERS.iter().position(|maker| *maker == name).expect("every codec is in the list")
}

/// A way to make a page smaller.
pub trait Codec: Send + Sync {
    /// What users call it on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Writes an encoding of `page` to the start of `out` and returns its length, or `None` if the encoding would not
    /// be shorter than `out`; then the content of `out` means nothing.
    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize>;

    /// Restores the page that was encoded. On [`Corrupt`] the content of `page` means nothing.
    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt>;

    /// What has made an encoding of this codec, by its place in [`MAKERS`]: itself; of `auto` what it has chosen.
    fn maker(&self, _encoding: &[u8]) -> usize {
        place_of(self.name())
    }
}

/// The most that any codec here writes for one page before it knows that the page does not shrink.
const ENCODING_BYTES_MAX: usize = get_maximum_output_size(PAGE_BYTES);

/// Working memory for `encode`, about 81 KiB. Make one for each thread that encodes, at start: no codec allocates
/// while it works.
pub struct Scratch {
    /// Emptied by each `encode`, so it carries nothing from page to page.
    table: CompressTable,
    out: Box<[u8; ENCODING_BYTES_MAX]>,
    folded: Box<[u8; fold::ENCODING_BYTES_MAX]>,
    matched: Box<[u8; PAGE_BYTES]>,
    sequences: Box<sequences::Workspace>,
    fold: Box<fold::Workspace>,
    gains: auto::Gains,
}

impl Scratch {
    /// Allocates the working memory.
    pub fn new() -> Self {
        // Small: positions of 16 bits reach all of a page, in half the cache lines.
        Self {
            table: CompressTable::small(),
            out: Box::new([0; ENCODING_BYTES_MAX]),
            folded: Box::new([0; fold::ENCODING_BYTES_MAX]),
            matched: Box::new([0; PAGE_BYTES]),
            sequences: Box::new(sequences::Workspace::EMPTY),
            fold: Box::new(fold::Workspace::EMPTY),
            gains: auto::Gains::NONE,
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Scratch {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// These bytes are not the encoding of any page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

impl core::fmt::Display for Corrupt {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("the encoding is corrupt: it does not decode to exactly one page")
    }
}

impl core::error::Error for Corrupt {}
