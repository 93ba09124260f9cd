//! What `valgrind --tool=lackey --trace-mem=yes` prints.

use std::io::Read;

use page::PageIndex;

use crate::lines::Lines;
use crate::text::hexadecimal;
use crate::{Access, Ending, Grain, Header, PAGES_END, Reference, Sample, TimeUnit, Trace, TraceError};

/// References in a batch, but for what one access across many pages adds.
const BATCH: usize = 16 << 10;
/// valgrind's largest access is far smaller.
const ACCESS_BYTES_MAX: u64 = 1 << 20;

/// Reads lackey's lines.
pub(crate) struct Lackey<R> {
    lines: Lines<R>,
    header: Header,
    instructions: u64,
    references: u64,
    ending: Ending,
}

/// A line of lackey's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parsed {
    Instruction,
    Data {
        access: Access,
        address: u64,
        bytes: u64,
    },
    /// valgrind's own words.
    Message,
}

impl<R: Read> Lackey<R> {
    pub(crate) fn new(input: R, grain: Grain) -> Self {
        let header = Header { grain, ..Header::new(TimeUnit::Instructions) };
        Self { lines: Lines::new(input), header, instructions: 0, references: 0, ending: Ending::Open }
    }
}

impl<R: Read> Trace for Lackey<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self, batch: &mut Vec<Reference>, samples: &mut Vec<Sample>) -> Result<(), TraceError> {
        batch.clear();
        samples.clear();
        let shift = self.header.grain.shift();
        while self.ending == Ending::Open && batch.len() < BATCH {
            let Some(line) = self.lines.next()? else {
                self.ending = Ending::Whole { references: self.references };
                break;
            };
            // lackey ends each line: what has no end is the front of one, and its size may lack a digit.
            if !line.has_end {
                self.ending = Ending::Truncated { offset: line.offset };
                break;
            }
            match parse(line.bytes) {
                Some(Parsed::Instruction) => self.instructions += 1,
                Some(Parsed::Message) => {}
                Some(Parsed::Data { access, address, bytes }) => {
                    let last = (address + bytes - 1) >> shift;
                    if last >= PAGES_END {
                        return Err(line.error("an address that no program has"));
                    }
                    for page in address >> shift..=last {
                        let page = PageIndex(page);
                        batch.push(Reference { page, time: self.instructions, thread: 0, access });
                        self.references += 1;
                    }
                }
                None => return Err(line.error("no line of lackey's (I, L, S or M, address,size)")),
            }
        }
        Ok(())
    }

    fn ending(&self) -> Ending {
        self.ending
    }
}

/// Whether a file that begins with this line is lackey's.
pub(crate) fn is_lackeys(line: &[u8]) -> bool {
    !line.trim_ascii().is_empty() && parse(line).is_some()
}

fn parse(line: &[u8]) -> Option<Parsed> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
        return Some(Parsed::Message);
    }
    let (letter, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', letter, b' ', rest @ ..] => (*letter, rest),
        _ => return None,
    };
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let address = hexadecimal(&rest[..comma])?;
    let bytes: u64 = str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    let is_possible = (1..=ACCESS_BYTES_MAX).contains(&bytes) && address.checked_add(bytes - 1).is_some();
    let access = match letter {
        b'I' => return is_possible.then_some(Parsed::Instruction),
        b'L' => Access::Read,
        b'S' | b'M' => Access::Write,
        _ => return None,
    };
    is_possible.then_some(Parsed::Data { access, address, bytes })
}
