//! Headers and payloads of the block format, docs/format/trace.md, without files.

use page::{PAGE_BYTES, PageIndex};

use crate::varint::{put, take, unzigzag, zigzag};
use crate::{Access, Grain, Header, PAGES_END, Reference, Sample, TimeUnit, TraceError};

pub(crate) const MAGIC: &[u8; 8] = b"PLEATTRC";
pub(crate) const VERSION: u16 = 1;
/// The header without names and checksum.
pub(crate) const HEADER_BYTES: usize = 20;
pub(crate) const CRC_BYTES: usize = 4;
pub(crate) const BLOCK_HEAD_BYTES: usize = 32;
/// References or samples in a block.
pub(crate) const COUNT_MAX: usize = 1 << 16;
const PAYLOAD_BYTES_MAX: usize = 4 << 20;
const FRAME_BYTES_MAX: usize = 5 << 20;
const CODECS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 32;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    References = 1,
    Samples = 2,
    End = 3,
}

/// The head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) frame_bytes: usize,
    /// References before it.
    pub(crate) first: u64,
    pub(crate) frame_crc: u32,
}

impl Head {
    pub(crate) fn bytes(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&(self.count as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.frame_bytes as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.frame_crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Result<Self, &'static str> {
        if crc32fast::hash(&bytes[..24]) != u32_at(bytes, 24) {
            return Err("the checksum of a block's head is wrong");
        }
        let kind = match bytes[0] {
            1 => Kind::References,
            2 => Kind::Samples,
            3 => Kind::End,
            _ => return Err("a block of an unknown kind"),
        };
        let sizes = [4, 8, 12].map(|at| u32_at(bytes, at) as usize);
        let [count, payload_bytes, frame_bytes] = sizes;
        let is_sound = match kind {
            Kind::End => count == 0,
            Kind::References | Kind::Samples => (1..=COUNT_MAX).contains(&count),
        };
        if !is_sound || bytes[1..4] != [0; 3] || payload_bytes > PAYLOAD_BYTES_MAX || frame_bytes > FRAME_BYTES_MAX {
            return Err("a block's head is out of bounds");
        }
        let first = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        Ok(Self { kind, count, payload_bytes, frame_bytes, first, frame_crc: u32_at(bytes, 28) })
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Whether the format can say it.
pub(crate) fn is_sound(header: &Header) -> bool {
    let is_name = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    header.codecs.len() <= CODECS_MAX && header.codecs.iter().all(is_name)
}

pub(crate) fn header_bytes(header: &Header) -> Vec<u8> {
    assert!(is_sound(header), "at most 16 codecs with names of 1 to 32 bytes");
    let mut names = Vec::new();
    for name in &header.codecs {
        names.push(name.len() as u8);
        names.extend_from_slice(name.as_bytes());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.push(match header.unit {
        TimeUnit::References => 0,
        TimeUnit::Nanoseconds => 1,
        TimeUnit::Instructions => 2,
    });
    bytes.push(header.codecs.len() as u8);
    bytes.extend_from_slice(&header.reduced_pages.to_le_bytes());
    bytes.extend_from_slice(&(names.len() as u16).to_le_bytes());
    bytes.push(match header.grain {
        Grain::Page => 0,
        Grain::Line => 1,
    });
    bytes.push(0);
    bytes.extend_from_slice(&names);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Bytes of names in a header that begins with `bytes`, after a look at magic and version.
pub(crate) fn names_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<usize, TraceError> {
    let version = u16_at(bytes, 8);
    if version != VERSION {
        return Err(TraceError::Version(version));
    }
    match u16_at(bytes, 16) as usize {
        names if names <= CODECS_MAX * (NAME_BYTES_MAX + 1) => Ok(names),
        _ => Err(TraceError::Damaged { offset: 0, what: "the header is out of bounds" }),
    }
}

/// A whole header, checksum included.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Header, &'static str> {
    let (body, crc) = bytes.split_at(bytes.len() - CRC_BYTES);
    if crc32fast::hash(body) != u32_at(crc, 0) {
        return Err("the checksum of the header is wrong");
    }
    let unit = match body[10] {
        0 => TimeUnit::References,
        1 => TimeUnit::Nanoseconds,
        2 => TimeUnit::Instructions,
        _ => return Err("an unknown unit of time"),
    };
    let grain = match body[18] {
        0 => Grain::Page,
        1 => Grain::Line,
        _ => return Err("references to neither pages nor lines"),
    };
    let mut rest = &body[HEADER_BYTES..];
    let mut codecs = Vec::new();
    while let Some((&length, behind)) = rest.split_first() {
        let name = behind.get(..length as usize).and_then(|name| str::from_utf8(name).ok());
        codecs.push(name.ok_or("a codec's name is no text")?.to_owned());
        rest = &behind[length as usize..];
    }
    let header = Header { unit, grain, reduced_pages: u32_at(body, 12), codecs };
    let is_consistent = header.codecs.len() == body[11] as usize && is_sound(&header) && body[19] == 0;
    if is_consistent { Ok(header) } else { Err("the header is out of bounds") }
}

/// The payload of references.
pub(crate) fn put_references(unit: TimeUnit, references: &[Reference], out: &mut Vec<u8>) {
    out.clear();
    let mut last = 0;
    for reference in references {
        put(out, zigzag(last, reference.page.0));
        last = reference.page.0;
    }
    for eight in references.chunks(8) {
        let bit = |(at, reference): (usize, &Reference)| u8::from(reference.access == Access::Write) << at;
        out.push(eight.iter().enumerate().map(bit).sum());
    }
    for run in references.chunk_by(|one, next| one.thread == next.thread) {
        put(out, u64::from(run[0].thread));
        put(out, run.len() as u64);
    }
    if unit == TimeUnit::References {
        return;
    }
    put(out, references[0].time);
    for pair in references.windows(2) {
        put(out, zigzag(pair[0].time, pair[1].time));
    }
}

/// Appends the references of a payload; `None` if it is not as it should be.
pub(crate) fn take_references(unit: TimeUnit, head: &Head, mut bytes: &[u8], out: &mut Vec<Reference>) -> Option<()> {
    let bytes = &mut bytes;
    let start = out.len();
    let mut page = 0;
    for at in 0..head.count {
        page = unzigzag(page, take(bytes)?);
        if page >= PAGES_END {
            return None;
        }
        let time = head.first + at as u64;
        out.push(Reference { page: PageIndex(page), time, thread: 0, access: Access::Read });
    }
    let references = &mut out[start..];
    let (bits, rest) = bytes.split_at_checked(head.count.div_ceil(8))?;
    *bytes = rest;
    for (eight, bits) in references.chunks_mut(8).zip(bits) {
        for (at, reference) in eight.iter_mut().enumerate() {
            // Looked up, not branched to: nobody can foretell which references write.
            reference.access = [Access::Read, Access::Write][usize::from(bits >> at & 1)];
        }
    }
    let mut at = 0;
    while at < references.len() {
        let (thread, count) = (take(bytes)?, take(bytes)?);
        let end = at.checked_add(usize::try_from(count).ok()?)?;
        let run = references.get_mut(at..end).filter(|run| !run.is_empty())?;
        let thread = u32::try_from(thread).ok()?;
        for reference in run {
            reference.thread = thread;
        }
        at = end;
    }
    if unit != TimeUnit::References {
        let mut time = take(bytes)?;
        references[0].time = time;
        for reference in &mut references[1..] {
            time = unzigzag(time, take(bytes)?);
            reference.time = time;
        }
    }
    bytes.is_empty().then_some(())
}

/// The payload of samples.
pub(crate) fn put_samples(samples: &[Sample], out: &mut Vec<u8>) {
    out.clear();
    let mut last = 0;
    for sample in samples {
        put(out, zigzag(last, sample.page.0));
        last = sample.page.0;
        out.extend(sample.sizes.iter().flat_map(|size| size.to_le_bytes()));
    }
}

/// Appends the samples of a payload; `None` if it is not as it should be.
pub(crate) fn take_samples(codecs: usize, head: &Head, mut bytes: &[u8], out: &mut Vec<Sample>) -> Option<()> {
    let bytes = &mut bytes;
    let mut page = 0;
    for _ in 0..head.count {
        page = unzigzag(page, take(bytes)?);
        let (sizes, rest) = bytes.split_at_checked(2 * codecs)?;
        *bytes = rest;
        let sizes: Vec<u16> = sizes.chunks(2).map(|two| u16_at(two, 0)).collect();
        if page >= PAGES_END || sizes.iter().any(|&size| size as usize > PAGE_BYTES) {
            return None;
        }
        out.push(Sample { page: PageIndex(page), sizes });
    }
    bytes.is_empty().then_some(())
}
