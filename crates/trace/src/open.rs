//! Which form a trace has.

use std::io::{Cursor, Read};

use crate::block::MAGIC;
use crate::error::shown;
use crate::lackey::{Lackey, is_lackeys};
use crate::lines::peek;
use crate::reader::Reader;
use crate::text::{Text, parse};
use crate::{Grain, Trace, TraceError};

/// What is looked at to find out: no comment at the start of a file is much longer.
const PEEK_BYTES: usize = 64 << 10;

/// Opens a trace in any form, for its pages.
pub fn open<'a>(input: impl Read + 'a) -> Result<Box<dyn Trace + 'a>, TraceError> {
    open_by(input, Grain::Page)
}

/// Opens a trace in any form, for its lines. Numbers of a text are taken for lines; blocks say whether they are.
pub fn open_lines<'a>(input: impl Read + 'a) -> Result<Box<dyn Trace + 'a>, TraceError> {
    open_by(input, Grain::Line)
}

fn open_by<'a>(mut input: impl Read + 'a, grain: Grain) -> Result<Box<dyn Trace + 'a>, TraceError> {
    let start = peek(&mut input, MAGIC.len())?;
    if start == MAGIC {
        return Ok(Box::new(Reader::new(Cursor::new(start).chain(input), grain)?));
    }
    let is_magic_cut_off = !start.is_empty() && MAGIC.starts_with(&start);
    if is_magic_cut_off {
        return Err(TraceError::Damaged { offset: 0, what: "the file ends inside the header" });
    }
    let rest = peek(&mut input, PEEK_BYTES - start.len())?;
    let start = [start, rest].concat();
    let is_lackeys = match first_line(&start) {
        // Nothing but blank lines and comments.
        None => false,
        Some(line) if is_lackeys(line) => true,
        Some(line) if parse(line).is_ok() || looks_like_text(&start) => false,
        Some(_) => return Err(TraceError::Foreign { start: shown(&start) }),
    };
    let input = Cursor::new(start).chain(input);
    Ok(if is_lackeys { Box::new(Lackey::new(input, grain)) } else { Box::new(Text::new(input, grain)) })
}

/// Opens what lackey prints, as it comes.
pub fn open_lackey<'a>(input: impl Read + 'a, grain: Grain) -> Box<dyn Trace + 'a> {
    Box::new(Lackey::new(input, grain))
}

/// The first line that is neither blank nor a comment.
fn first_line(start: &[u8]) -> Option<&[u8]> {
    start.split(|&byte| byte == b'\n').find(|line| {
        let content = line.trim_ascii();
        !content.is_empty() && content[0] != b'#'
    })
}

/// Whether a file may be a text with a mistake in its first line, which is better told by line.
fn looks_like_text(start: &[u8]) -> bool {
    matches!(start.trim_ascii_start(), [b'R' | b'W' | b'r' | b'w' | b'#', ..])
        && start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}
