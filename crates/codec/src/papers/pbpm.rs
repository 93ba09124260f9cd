//! `pbpm`, `pbpm-separate`, `pbpm-single`: words of 32 bits by the pattern of their bytes.
//!
//! The pattern-based partial match of `crames` ("PBPM Compression Algorithm", Table I, "Software Acceleration" and "Word
//! Alignment"). A word is four bytes, the highest first: `z` is zero, `m` matches an entry of the dictionary, `x` is
//! any. Frequent patterns have short codes, the rest goes through a two-way dictionary of sixteen words that a table
//! of random indices, looked up with the third byte, maps. Codes, indices and data go to tapes of their own; the three
//! codecs differ in how the tape of data is aligned.
//!
//! The format, and where the paper contradicts itself, is in docs/format/pbpm.md.
//!
//! Where there is AVX-512 all work in vectors, elsewhere as the plain twins do.

use page::PageBytes;

use super::plain::pbpm as plain;
use crate::{Codec, Corrupt, Scratch};

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod dictionary;
#[cfg(target_arch = "x86_64")]
mod tape;

#[cfg(target_arch = "x86_64")]
use super::vectors::Avx512;

/// PBPM whose data lie behind each other.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pbpm;

/// PBPM with a tape for data of each size: "separate aligned tapes".
#[derive(Clone, Copy, Default, Debug)]
pub struct PbpmSeparate;

/// PBPM with data of all sizes on a "single aligned tape".
#[derive(Clone, Copy, Default, Debug)]
pub struct PbpmSingle;

impl Codec for Pbpm {
    fn name(&self) -> &'static str {
        "pbpm"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::encode::<tape::NonAligned>(cpu, page, out);
        }
        plain::Pbpm.encode(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::decode::<tape::NonAligned>(cpu, encoding, page);
        }
        plain::Pbpm.decode(encoding, page)
    }
}

impl Codec for PbpmSeparate {
    fn name(&self) -> &'static str {
        "pbpm-separate"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::encode::<tape::Separate>(cpu, page, out);
        }
        plain::PbpmSeparate.encode(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::decode::<tape::Separate>(cpu, encoding, page);
        }
        plain::PbpmSeparate.decode(encoding, page)
    }
}

impl Codec for PbpmSingle {
    fn name(&self) -> &'static str {
        "pbpm-single"
    }

    fn encode(&self, page: &PageBytes, scratch: &mut Scratch, out: &mut [u8]) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::encode::<tape::Single>(cpu, page, out);
        }
        plain::PbpmSingle.encode(page, scratch, out)
    }

    fn decode(&self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = Avx512::new() {
            return avx512::decode::<tape::Single>(cpu, encoding, page);
        }
        plain::PbpmSingle.decode(encoding, page)
    }
}
