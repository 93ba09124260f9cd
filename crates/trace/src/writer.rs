//! Writing the block format.

use std::io::{self, Write};
use std::mem;

use zstd_safe::{CCtx, compress_bound};

use crate::block::{self, COUNT_MAX, Head, Kind};
use crate::{Header, PAGES_END, Reference, Sample};

/// Columns of small differences: a higher level gains little.
const LEVEL: i32 = 3;
/// What a reference takes at most: page and time ten bytes each, thread and run five and three, a bit. A block of
/// `COUNT_MAX` such stays below the bound of the format.
const _: () = assert!(COUNT_MAX * 29 < 4 << 20);

/// Writes a trace in blocks. Without [`Writer::finish`] it counts as truncated.
pub struct Writer<W> {
    out: W,
    header: Header,
    references: Vec<Reference>,
    samples: Vec<Sample>,
    /// References in blocks that are written.
    written: u64,
    context: CCtx<'static>,
    payload: Vec<u8>,
    frame: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut out: W, header: Header) -> io::Result<Self> {
        out.write_all(&block::header_bytes(&header))?;
        let context = CCtx::create();
        let (references, samples) = (Vec::with_capacity(COUNT_MAX), Vec::new());
        Ok(Self { out, header, references, samples, written: 0, context, payload: Vec::new(), frame: Vec::new() })
    }

    /// Appends a reference. Where times are numbers of references, its own is not kept.
    pub fn push(&mut self, reference: Reference) -> io::Result<()> {
        assert!(reference.page.0 < PAGES_END, "no address space has that page");
        if !self.samples.is_empty() {
            self.write_samples()?;
        }
        self.references.push(reference);
        if self.references.len() == COUNT_MAX { self.write_references() } else { Ok(()) }
    }

    /// Appends a sample, taken behind all references so far.
    pub fn push_sample(&mut self, sample: Sample) -> io::Result<()> {
        assert!(sample.page.0 < PAGES_END, "no address space has that page");
        assert!(sample.sizes.len() == self.header.codecs.len(), "a size for each codec");
        if !self.references.is_empty() {
            self.write_references()?;
        }
        self.samples.push(sample);
        if self.samples.len() == COUNT_MAX { self.write_samples() } else { Ok(()) }
    }

    /// Writes what is left and the end block. `original` is the number of references before reduction, if there was one.
    pub fn finish(mut self, original: Option<u64>) -> io::Result<W> {
        if !self.references.is_empty() {
            self.write_references()?;
        }
        if !self.samples.is_empty() {
            self.write_samples()?;
        }
        self.payload.clear();
        crate::varint::put(&mut self.payload, original.unwrap_or(self.written));
        self.write_block(Kind::End, 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_references(&mut self) -> io::Result<()> {
        let mut references = mem::take(&mut self.references);
        block::put_references(self.header.unit, &references, &mut self.payload);
        self.write_block(Kind::References, references.len())?;
        self.written += references.len() as u64;
        references.clear();
        self.references = references;
        Ok(())
    }

    fn write_samples(&mut self) -> io::Result<()> {
        block::put_samples(&self.samples, &mut self.payload);
        let count = self.samples.len();
        self.samples.clear();
        self.write_block(Kind::Samples, count)
    }

    fn write_block(&mut self, kind: Kind, count: usize) -> io::Result<()> {
        self.frame.resize(compress_bound(self.payload.len()), 0);
        let frame_bytes = self
            .context
            .compress(&mut self.frame[..], &self.payload, LEVEL)
            .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        let frame = &self.frame[..frame_bytes];
        let frame_crc = crc32fast::hash(frame);
        let head = Head { kind, count, payload_bytes: self.payload.len(), frame_bytes, first: self.written, frame_crc };
        self.out.write_all(&head.bytes())?;
        self.out.write_all(frame)
    }
}
