//! What is measured: pleat's codecs, and the references beside them.

use codec::{Codec, Corrupt, Scratch};
use page::{PAGE_BYTES, PageBytes};
use zstd_safe::{CCtx, DCtx};

/// Room for any encoding of a page, also for one that is longer than the page.
pub const ROOM_BYTES: usize = 2 * PAGE_BYTES;
/// The reference for time.
pub const MEMCPY: &str = "memcpy";
/// The reference for codecs: liblz4 in C.
pub const LZ4: &str = "lz4";

/// Something that makes pages smaller. Contexts are kept from page to page.
pub trait Subject {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// Encodes `page` into `out` and returns the length, or `None` if that is not shorter than a page.
    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize>;

    /// Restores the page.
    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt>;
}

/// All that can be measured, the references first.
pub fn all() -> Vec<Box<dyn Subject>> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Memcpy), Box::new(LibLz4), Box::new(Zstd::new())];
    for codec in codec::ALL {
        subjects.push(Box::new(Ours { codec, scratch: Scratch::new() }));
    }
    // The plain twins are measured where they are asked for.
    for codec in codec::PLAIN {
        subjects.push(Box::new(Ours { codec, scratch: Scratch::new() }));
    }
    subjects
}

/// Whether it is a plain twin, which `NAME@plain` names.
fn is_plain(name: &str) -> bool {
    name.contains('@')
}

/// The names of all.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|subject| subject.name()).collect()
}

/// Those named, in the order of [`all`], and the two references; all but plain twins if none is named. `Err` is a name that there is not.
pub fn choose(wanted: &[String]) -> Result<Vec<Box<dyn Subject>>, String> {
    let names = names();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(unknown.clone());
    }
    let is_wanted = |name: &str| {
        wanted.is_empty() && !is_plain(name) || [MEMCPY, LZ4].contains(&name) || wanted.iter().any(|one| one == name)
    };
    Ok(all().into_iter().filter(|subject| is_wanted(subject.name())).collect())
}

/// A copy: what nothing that moves a page can be faster than.
struct Memcpy;

impl Subject for Memcpy {
    fn name(&self) -> &'static str {
        MEMCPY
    }

    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
        out[..PAGE_BYTES].copy_from_slice(&page.0);
        None
    }

    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        page.0 = *encoding.as_array().ok_or(Corrupt)?;
        Ok(())
    }
}

/// liblz4 in C. pleat's own LZ4 is another implementation, in Rust.
struct LibLz4;

impl Subject for LibLz4 {
    fn name(&self) -> &'static str {
        LZ4
    }

    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
        lzzzz::lz4::compress(&page.0, out, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok().filter(|length| *length < PAGE_BYTES)
    }

    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match lzzzz::lz4::decompress(encoding, &mut page.0) {
            Ok(PAGE_BYTES) => Ok(()),
            Ok(_) | Err(_) => Err(Corrupt),
        }
    }
}

/// libzstd in C, level 1. Why the agent does not have it: docs/decisions/0015-zstd-in-the-bench-only.md.
struct Zstd {
    encoder: CCtx<'static>,
    decoder: DCtx<'static>,
}

impl Zstd {
    const LEVEL: i32 = 1;

    fn new() -> Self {
        Self { encoder: CCtx::create(), decoder: DCtx::create() }
    }
}

impl Subject for Zstd {
    fn name(&self) -> &'static str {
        "zstd-1"
    }

    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
        self.encoder.compress(&mut out[..], &page.0, Self::LEVEL).ok().filter(|length| *length < PAGE_BYTES)
    }

    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        match self.decoder.decompress(&mut page.0[..], encoding) {
            Ok(PAGE_BYTES) => Ok(()),
            Ok(_) | Err(_) => Err(Corrupt),
        }
    }
}

/// A codec of pleat's.
struct Ours {
    codec: &'static dyn Codec,
    scratch: Scratch,
}

impl Subject for Ours {
    fn name(&self) -> &'static str {
        // The name by itself means the reference.
        if self.codec.name() == LZ4 { "lz4-flex" } else { self.codec.name() }
    }

    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
        self.codec.encode(page, &mut self.scratch, &mut out[..PAGE_BYTES])
    }

    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        self.codec.decode(encoding, page)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        let names = names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        for needed in [
            "memcpy", "lz4", "zstd-1", "wkdm", "wk4x4", "lzrw1", "lzrw1-a", "pbpm", "mxt-lz1", "lzo1x-1", "fold",
            "auto",
        ] {
            assert!(names.contains(&needed), "{needed} is not measured");
        }
    }

    #[test]
    fn the_references_are_always_there() {
        let chosen = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
            choose(&wanted).map(|subjects| subjects.iter().map(|subject| subject.name()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["fold"]).unwrap(), ["memcpy", "lz4", "fold"]);
        assert_eq!(chosen(&["wkdm", "wkdm@plain"]).unwrap(), ["memcpy", "lz4", "wkdm", "wkdm@plain"]);
        assert_eq!(chosen(&[]).unwrap().len() + codec::PLAIN.len(), names().len());
        assert_eq!(chosen(&["fold", "gzip"]), Err("gzip".to_owned()));
    }
}
