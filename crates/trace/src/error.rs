//! What can be wrong with a trace.

use std::fmt;
use std::io;

/// Why a trace cannot be read on. Offsets are in bytes from the file's start.
#[derive(Debug)]
pub enum TraceError {
    /// The system says so.
    Io {
        /// Where reading stopped.
        offset: u64,
        /// Why.
        error: io::Error,
    },
    /// The file is none of the forms that are known.
    Foreign {
        /// Its first bytes, readable.
        start: String,
    },
    /// A version that this program does not know.
    Version(u16),
    /// Lines are wanted, and it has only pages.
    Coarse,
    /// A header or a block is not as the format says.
    Damaged {
        /// Where it starts.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A line is no reference.
    Line {
        /// Where it starts.
        offset: u64,
        /// Its number, the first being 1.
        line: u64,
        /// The line, shortened.
        text: String,
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { offset, error } => write!(out, "cannot be read at byte {offset}: {error}"),
            Self::Foreign { start } => {
                write!(
                    out,
                    "no trace: at byte 0 there is \"{start}\", not `R PAGE`, `W PAGE`, lackey's lines or PLEATTRC"
                )
            }
            Self::Version(version) => {
                write!(out, "version {version} of the format, at byte 8; this pleat reads version 1")
            }
            Self::Coarse => {
                out.write_str("a trace of pages, where one of lines is needed: pleat record --lines makes some")
            }
            Self::Damaged { offset, what } => write!(out, "damaged at byte {offset}: {what}"),
            Self::Line { offset, line, text, what } => {
                write!(out, "line {line}, at byte {offset}: {what}: \"{text}\"")
            }
        }
    }
}

impl std::error::Error for TraceError {}

/// Bytes of a file for a message: readable, and not too many.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 40;
    let text = bytes[..bytes.len().min(BYTES_MAX)].escape_ascii().to_string();
    if bytes.len() > BYTES_MAX { text + "…" } else { text }
}
