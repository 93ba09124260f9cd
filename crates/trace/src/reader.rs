//! Reading the block format.

use std::io::{self, Read};

use page::PageIndex;
use zstd_safe::DCtx;

use crate::block::{self, BLOCK_HEAD_BYTES, CRC_BYTES, HEADER_BYTES, Head, Kind};
use crate::{Ending, Grain, Header, Reference, Sample, Trace, TraceError, varint};

/// Reads a trace in blocks.
pub(crate) struct Reader<R> {
    input: R,
    /// As the caller wants references: of a trace of lines it may be pages.
    header: Header,
    /// From numbers in the file to what the caller wants.
    shift: u32,
    /// Of the next block.
    offset: u64,
    references: u64,
    ending: Ending,
    context: DCtx<'static>,
    frame: Vec<u8>,
    payload: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads the header, which begins with the magic. References will be to what `wanted` says.
    pub(crate) fn new(mut input: R, wanted: Grain) -> Result<Self, TraceError> {
        let damaged = |what| TraceError::Damaged { offset: 0, what };
        let cut_off = "the file ends inside the header";
        let mut bytes = vec![0; HEADER_BYTES];
        if read_full(&mut input, &mut bytes, 0)? < HEADER_BYTES {
            return Err(damaged(cut_off));
        }
        let names = block::names_bytes(bytes[..].try_into().expect("as long as that"))?;
        bytes.resize(HEADER_BYTES + names + CRC_BYTES, 0);
        if read_full(&mut input, &mut bytes[HEADER_BYTES..], HEADER_BYTES as u64)? < names + CRC_BYTES {
            return Err(damaged(cut_off));
        }
        let header = block::parse_header(&bytes).map_err(damaged)?;
        let shift = wanted.shift().checked_sub(header.grain.shift()).ok_or(TraceError::Coarse)?;
        Ok(Self {
            input,
            header: Header { grain: wanted, ..header },
            shift,
            offset: bytes.len() as u64,
            references: 0,
            ending: Ending::Open,
            context: DCtx::create(),
            frame: Vec::new(),
            payload: Vec::new(),
        })
    }

    fn damaged(&self, what: &'static str) -> TraceError {
        TraceError::Damaged { offset: self.offset, what }
    }

    /// The head of the next block, with its payload unpacked; `None` where the file ends before that.
    fn next_block(&mut self) -> Result<Option<Head>, TraceError> {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        if read_full(&mut self.input, &mut bytes, self.offset)? < BLOCK_HEAD_BYTES {
            return Ok(None);
        }
        let head = Head::parse(&bytes).map_err(|what| self.damaged(what))?;
        if head.first != self.references {
            return Err(self.damaged("a block is missing before this one"));
        }
        self.frame.resize(head.frame_bytes, 0);
        if read_full(&mut self.input, &mut self.frame, self.offset + BLOCK_HEAD_BYTES as u64)? < head.frame_bytes {
            return Ok(None);
        }
        if crc32fast::hash(&self.frame) != head.frame_crc {
            return Err(self.damaged("the checksum of a block is wrong"));
        }
        self.payload.resize(head.payload_bytes, 0);
        match self.context.decompress(&mut self.payload[..], &self.frame) {
            Ok(bytes) if bytes == head.payload_bytes => Ok(Some(head)),
            _ => Err(self.damaged("a block cannot be unpacked")),
        }
    }

    fn end(&mut self) -> Result<Ending, TraceError> {
        let mut rest = &self.payload[..];
        let references = varint::take(&mut rest).filter(|_| rest.is_empty());
        let references = references.ok_or_else(|| self.damaged("the end block is not as it should be"))?;
        let is_possible =
            if self.header.reduced_pages == 0 { references == self.references } else { references >= self.references };
        if !is_possible {
            return Err(self.damaged("the end block counts other references than there are"));
        }
        let behind = self.offset + (BLOCK_HEAD_BYTES + self.frame.len()) as u64;
        if read_full(&mut self.input, &mut [0], behind)? > 0 {
            return Err(TraceError::Damaged { offset: behind, what: "there are bytes behind the end" });
        }
        Ok(Ending::Whole { references })
    }
}

impl<R: Read> Trace for Reader<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self, batch: &mut Vec<Reference>, samples: &mut Vec<Sample>) -> Result<(), TraceError> {
        batch.clear();
        samples.clear();
        while self.ending == Ending::Open && batch.is_empty() {
            let Some(head) = self.next_block()? else {
                self.ending = Ending::Truncated { offset: self.offset };
                break;
            };
            let taken = match head.kind {
                Kind::References => block::take_references(self.header.unit, &head, &self.payload, batch),
                Kind::Samples => block::take_samples(self.header.codecs.len(), &head, &self.payload, samples),
                Kind::End => {
                    self.ending = self.end()?;
                    Some(())
                }
            };
            taken.ok_or_else(|| self.damaged("a block's content is not as the format says"))?;
            for reference in batch.iter_mut() {
                reference.page = PageIndex(reference.page.0 >> self.shift);
            }
            self.references += batch.len() as u64;
            self.offset += (BLOCK_HEAD_BYTES + head.frame_bytes) as u64;
        }
        Ok(())
    }

    fn ending(&self) -> Ending {
        self.ending
    }
}

/// Fills `bytes` as far as the input goes; returns how far.
pub(crate) fn read_full(input: &mut impl Read, bytes: &mut [u8], offset: u64) -> Result<usize, TraceError> {
    let mut done = 0;
    while done < bytes.len() {
        match input.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::Io { offset: offset + done as u64, error }),
        }
    }
    Ok(done)
}
