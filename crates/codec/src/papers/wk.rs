//! `wkdm` and `wk4x4`: a page as words of 32 bits, each told by a dictionary of sixteen words seen before it.
//!
//! The codecs of Wilson and Kaplan, made for memory and not for files: `tuduce-gross` section 4 (`WKdm` in all its
//! experiments, after trying `WK4x4` too) and `castro` section 4.3 and Table 2. Words of a heap are often zero, often
//! repeated, and often pointers or numbers that differ in their low bits alone. The dictionary of `wkdm` is direct
//! mapped: a word has one entry. That of `wk4x4` has four sets of four, which finds more and takes longer.
//!
//! The format is in docs/format/wk.md. Tags, indices, low bits and whole words go to areas of their own, packed by words.
//!
//! Where there is AVX-512 both work in vectors, elsewhere as the plain twin does.

use page::PageBytes;

use super::plain::wk as plain;
use crate::{Codec, Corrupt, Scratch};

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod dictionary;
#[cfg(target_arch = "x86_64")]
mod sets;

#[cfg(target_arch = "x86_64")]
use super::vectors::Avx512;

/// Wilson and Kaplan's direct-mapped codec.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wkdm;

/// Wilson and Kaplan's codec with four sets of four words.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wk4x4;

impl Codec for Wkdm {
    fn name(&self) -> &'static str {
        "wkdm"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::encode::<1>(cpu, page, out);
        }
        plain::Wkdm.encode(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::decode::<1>(cpu, encoding, page);
        }
        plain::Wkdm.decode(encoding, page)
    }
}

impl Codec for Wk4x4 {
    fn name(&self) -> &'static str {
        "wk4x4"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::encode::<4>(cpu, page, out);
        }
        plain::Wk4x4.encode(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::decode::<4>(cpu, encoding, page);
        }
        plain::Wk4x4.decode(encoding, page)
    }
}
