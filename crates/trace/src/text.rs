//! Plain text: `R 499`, `W 0x1f3`.

use std::io::Read;

use page::PageIndex;

use crate::lines::{Line, Lines};
use crate::{Access, Ending, Grain, Header, PAGES_END, Reference, Sample, TimeUnit, Trace, TraceError};

/// References in a batch.
const BATCH: usize = 16 << 10;

/// Reads plain text.
pub(crate) struct Text<R> {
    lines: Lines<R>,
    header: Header,
    references: u64,
    ending: Ending,
    /// Where the last line starts, if it has no line end.
    unterminated: Option<u64>,
}

impl<R: Read> Text<R> {
    pub(crate) fn new(input: R, grain: Grain) -> Self {
        let header = Header { grain, ..Header::new(TimeUnit::References) };
        Self { lines: Lines::new(input), header, references: 0, ending: Ending::Open, unterminated: None }
    }
}

impl<R: Read> Trace for Text<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self, batch: &mut Vec<Reference>, samples: &mut Vec<Sample>) -> Result<(), TraceError> {
        batch.clear();
        samples.clear();
        while self.ending == Ending::Open && batch.len() < BATCH {
            let Some(line) = self.lines.next()? else {
                let whole = Ending::Whole { references: self.references };
                self.ending = self.unterminated.map_or(whole, |offset| Ending::Unterminated { offset });
                break;
            };
            match parse(line.bytes) {
                Ok(None) => {}
                Ok(Some((access, page))) => {
                    batch.push(Reference { page, time: self.references, thread: 0, access });
                    self.references += 1;
                    self.unterminated = (!line.has_end).then_some(line.offset);
                }
                Err(_) if !line.has_end && is_start(line) => self.ending = Ending::Truncated { offset: line.offset },
                Err(what) => return Err(line.error(what)),
            }
        }
        Ok(())
    }

    fn ending(&self) -> Ending {
        self.ending
    }
}

/// Whether a line that is no reference could become one if it went on.
fn is_start(line: Line<'_>) -> bool {
    matches!(line.bytes.trim_ascii(), b"R" | b"W" | b"r" | b"w") || line.bytes.trim_ascii().ends_with(b"0x")
}

/// A line's reference; none if it is blank or a comment.
pub(crate) fn parse(line: &[u8]) -> Result<Option<(Access, PageIndex)>, &'static str> {
    // The common case first, in one look: a letter, a blank, a decimal number.
    if let [b'R' | b'W', b' ', digits @ ..] = line
        && let Some(page) = decimal(digits)
    {
        let access = if line[0] == b'W' { Access::Write } else { Access::Read };
        return Ok(Some((access, PageIndex(page))));
    }
    let content = line.iter().position(|&byte| byte == b'#').map_or(line, |at| &line[..at]).trim_ascii();
    let Some((letter, rest)) = content.split_first() else { return Ok(None) };
    let access = match letter {
        b'R' | b'r' => Access::Read,
        b'W' | b'w' => Access::Write,
        _ => return Err("a reference begins with R or W"),
    };
    if !rest.first().is_some_and(u8::is_ascii_whitespace) {
        return Err("behind R or W a blank and a page number are expected");
    }
    let number = rest.trim_ascii();
    let page = match number.strip_prefix(b"0x").or_else(|| number.strip_prefix(b"0X")) {
        Some(digits) => hexadecimal(digits).filter(|&page| page < PAGES_END),
        None => decimal(number),
    };
    page.map(|page| Some((access, PageIndex(page)))).ok_or("no page number below 2^52, decimal or hexadecimal with 0x")
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let mut page = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        page = page * 10 + u64::from(digit);
        if page >= PAGES_END {
            return None;
        }
    }
    (!digits.is_empty()).then_some(page)
}

/// A number of up to 16 hexadecimal digits.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let mut number = 0;
    for &byte in digits {
        let digit = (byte as char).to_digit(16)?;
        if number >> 60 != 0 {
            return None;
        }
        number = number << 4 | u64::from(digit);
    }
    (!digits.is_empty()).then_some(number)
}

/// A reference as a line, with its end.
pub fn line(reference: &Reference) -> String {
    let letter = if reference.access == Access::Write { 'W' } else { 'R' };
    format!("{letter} {}\n", reference.page.0)
}
