//! What is measured: pleat's codecs, and the references beside them.

use std::fmt;
use std::ops::Deref;

use codec::{Codec, Corrupt, Scratch};
use page::{PAGE_BYTES, PageBytes};
use zstd_safe::{CCtx, DCtx};

use crate::liblzo2::{self, LibLzo2};

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

/// Why a codec is not measured that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is none of this name.
    Unknown(String),
    /// It is a path of `fold` for another processor.
    Unable(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(out, "{name}: there is no such codec; there are {}", names().join(", ")),
            Self::Unable(name) => write!(out, "{name}: this processor has not the instructions that it needs"),
        }
    }
}

impl std::error::Error for Refused {}

/// All that can be measured here, the references first, and last the paths of `fold`.
pub fn all() -> Vec<Box<dyn Subject>> {
    let mut subjects = all_but_paths();
    for codec in codec::fold_paths().into_iter().filter_map(|(_, codec)| codec) {
        subjects.push(Box::new(Ours { codec, scratch: Scratch::new() }));
    }
    subjects
}

fn all_but_paths() -> Vec<Box<dyn Subject>> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Memcpy), Box::new(LibLz4), Box::new(Zstd::new())];
    for codec in codec::ALL.into_iter().chain(codec::PLAIN) {
        subjects.push(Box::new(Ours { codec, scratch: Scratch::new() }));
    }
    subjects
}

/// Whether it is a plain twin, `NAME@plain`, or one path of a codec, `NAME@PATH`. Those are measured where they are named.
fn is_part(name: &str) -> bool {
    name.contains('@')
}

/// The names of all, with those of the paths that this processor cannot run.
pub fn names() -> Vec<&'static str> {
    let paths = codec::fold_paths().into_iter().map(|(name, _)| name);
    all_but_paths().iter().map(|subject| subject.name()).chain([liblzo2::NAME]).chain(paths).collect()
}

/// What is measured.
#[expect(missing_debug_implementations, reason = "subjects have none")]
pub struct Chosen {
    /// In the order of [`all`].
    pub subjects: Vec<Box<dyn Subject>>,
    /// What was named and is left out, and why.
    pub skipped: Option<String>,
}

/// Those named, in the order of [`all`], and the two references; all but plain twins and paths if none is named. liblzo2 comes
/// last, if it is named and installed.
pub fn choose(wanted: &[String]) -> Result<Chosen, Refused> {
    let (known, subjects) = (names(), all());
    let (mut library, mut skipped) = (None, None);
    for name in wanted {
        if name == liblzo2::NAME {
            library = LibLzo2::open().map(|library| Box::new(library) as Box<dyn Subject>);
            skipped = library.is_none().then(|| format!("{name}: not installed (liblzo2.so.2); left out"));
            continue;
        }
        if !known.contains(&name.as_str()) {
            return Err(Refused::Unknown(name.clone()));
        }
        if !subjects.iter().any(|subject| subject.name() == name) {
            return Err(Refused::Unable(name.clone()));
        }
    }
    let is_wanted = |name: &str| {
        wanted.is_empty() && !is_part(name) || [MEMCPY, LZ4].contains(&name) || wanted.iter().any(|one| one == name)
    };
    let subjects = subjects.into_iter().filter(|subject| is_wanted(subject.name())).chain(library).collect();
    Ok(Chosen { subjects, skipped })
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
struct Ours<C> {
    codec: C,
    scratch: Scratch,
}

impl<C: Deref<Target = dyn Codec>> Subject for Ours<C> {
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
            choose(&wanted).map(|chosen| chosen.subjects.iter().map(|subject| subject.name()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["fold"]).unwrap(), ["memcpy", "lz4", "fold"]);
        assert_eq!(chosen(&["wkdm", "wkdm@plain"]).unwrap(), ["memcpy", "lz4", "wkdm", "wkdm@plain"]);
        assert_eq!(chosen(&["fold@scalar"]).unwrap(), ["memcpy", "lz4", "fold@scalar"]);
        assert!(chosen(&[]).unwrap().iter().all(|name| !name.contains('@') && *name != "liblzo2"));
        assert_eq!(chosen(&["fold", "gzip"]), Err(Refused::Unknown("gzip".to_owned())));
    }

    /// Installed or not, it is never an error, and never silently absent.
    #[test]
    fn liblzo2_is_there_or_it_is_said_why_not() {
        let chosen =
            choose(&["liblzo2".to_owned(), "lzo1x-1".to_owned()]).unwrap_or_else(|refused| panic!("{refused}"));
        let is_there = chosen.subjects.iter().any(|subject| subject.name() == "liblzo2");
        assert_eq!(is_there, chosen.skipped.is_none(), "{:?}", chosen.skipped);
        assert_eq!(chosen.subjects.len(), 3 + usize::from(is_there));
    }

    #[test]
    fn a_path_for_another_processor_is_refused() {
        let foreign = if cfg!(target_arch = "aarch64") { "fold-deep@avx2" } else { "fold-deep@neon" };
        assert!(names().contains(&foreign));
        let refused = choose(&[foreign.to_owned()]).err().expect("no processor has both");
        assert_eq!(refused, Refused::Unable(foreign.to_owned()));
        assert!(refused.to_string().starts_with(&format!("{foreign}: this processor")));
    }
}
