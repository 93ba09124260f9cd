//! Lines of text with their offsets, from anything that can be read.

use std::io::Read;

use crate::TraceError;
use crate::error::shown;
use crate::reader::read_full;

const BUFFER_BYTES: usize = 256 << 10;
/// No line of a trace is longer; what is has been taken for text by mistake.
const LINE_BYTES_MAX: usize = 4096;

/// Reads lines.
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Of `buffer[0]` in the file.
    base: u64,
    is_at_end: bool,
    /// Lines given so far.
    number: u64,
}

/// A line, without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) has_end: bool,
}

impl Line<'_> {
    /// What is wrong with it.
    pub(crate) fn error(&self, what: &'static str) -> TraceError {
        TraceError::Line { offset: self.offset, line: self.number, text: shown(self.bytes), what }
    }
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { input, buffer, at: 0, end: 0, base: 0, is_at_end: false, number: 0 }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        let length = loop {
            let found = self.buffer[self.at..self.end].iter().position(|&byte| byte == b'\n');
            match found {
                Some(length) => break Some(length),
                None if self.is_at_end => break None,
                None => self.refill()?,
            }
        };
        let start = self.at;
        let end = start + length.unwrap_or(self.end - start);
        if length.is_none() && end == start {
            return Ok(None);
        }
        self.at = end + usize::from(length.is_some());
        self.number += 1;
        let (offset, number) = (self.base + start as u64, self.number);
        let line = Line { bytes: &self.buffer[start..end], offset, number, has_end: length.is_some() };
        if line.bytes.len() > LINE_BYTES_MAX {
            Err(line.error("too long for a line of a trace"))
        } else {
            Ok(Some(line))
        }
    }

    /// Moves what is left to the front and reads on.
    fn refill(&mut self) -> Result<(), TraceError> {
        if self.end - self.at > LINE_BYTES_MAX {
            let (offset, number) = (self.base + self.at as u64, self.number + 1);
            let line = Line { bytes: &self.buffer[self.at..self.end], offset, number, has_end: false };
            return Err(line.error("too long for a line of a trace"));
        }
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        // Not until the buffer is full: a pipe gives what it has.
        let offset = self.base + self.end as u64;
        let count = loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::Io { offset, error }),
                Ok(count) => break count,
            }
        };
        self.end += count;
        self.is_at_end = count == 0;
        Ok(())
    }
}

/// The first bytes of an input, as far as it goes, at most `count`.
pub(crate) fn peek(input: &mut impl Read, count: usize) -> Result<Vec<u8>, TraceError> {
    let mut bytes = vec![0; count];
    let got = read_full(input, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}
