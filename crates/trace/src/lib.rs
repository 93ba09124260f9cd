//! Page-reference traces: read, write, synthesise, import. Formats: docs/format/trace.md.
//!
//! A trace streams: [`open`] finds out which form it has, and [`Trace::read`] gives batch after batch, in bounded memory.
//! References are to pages, or, as [`open_lines`] gives them, to lines.
#![forbid(unsafe_code)]

use page::{PAGE_SHIFT, PageIndex};

mod block;
mod error;
mod lackey;
mod lines;
mod open;
mod random;
mod reader;
mod reduce;
pub mod synth;
mod text;
mod varint;
mod writer;

pub use error::TraceError;
pub use open::{open, open_lackey, open_lines};
pub use random::Random;
pub use reduce::Reducer;
pub use text::line as text_line;
pub use writer::Writer;

/// Pages that a trace can name: those of an address space of 64 bits.
pub const PAGES_END: u64 = 1 << 52;

/// How a page was referenced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Written, or read and written.
    Write,
}

/// What a trace's references are to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// Pages of 4 KiB.
    Page,
    /// Lines of 1 KiB: four to a page.
    Line,
}

impl Grain {
    /// Log2 of the bytes of one.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Page => PAGE_SHIFT,
            Self::Line => LINE_SHIFT,
        }
    }
}

/// Log2 of the bytes of a line.
const LINE_SHIFT: u32 = 10;

/// One reference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reference {
    /// To which page; in a trace of lines, the number of the line.
    pub page: PageIndex,
    /// When, in the trace's [`TimeUnit`].
    pub time: u64,
    /// By which thread.
    pub thread: u32,
    /// How.
    pub access: Access,
}

/// What a trace's times count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// References: a reference's time is its number.
    References,
    /// Nanoseconds.
    Nanoseconds,
    /// Instructions.
    Instructions,
}

/// What a trace says about itself at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What times count.
    pub unit: TimeUnit,
    /// What references are to. Samples are of pages always.
    pub grain: Grain,
    /// Memories of this many pages or more fault as on the trace before it was reduced; 0 if it was not.
    pub reduced_pages: u32,
    /// The codecs that sizes are sampled for.
    pub codecs: Vec<String>,
}

impl Header {
    /// Of a whole trace of pages without samples.
    pub const fn new(unit: TimeUnit) -> Self {
        Self { unit, grain: Grain::Page, reduced_pages: 0, codecs: Vec::new() }
    }
}

/// How small a page's content was at some point of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Which page.
    pub page: PageIndex,
    /// For each of the header's codecs the length of its encoding, in bytes: 4096 if that is not smaller than the page, 0 for
    /// a page of one repeated word.
    pub sizes: Vec<u16>,
}

/// How a trace ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// There is more to read.
    Open,
    /// All of it was there; so many references before it was reduced.
    Whole {
        /// As many as were read, if it was not reduced.
        references: u64,
    },
    /// The file stops inside a block or line, or before its end mark. What lies before `offset` was whole.
    Truncated {
        /// In bytes from the file's start.
        offset: u64,
    },
    /// Text whose last line has no line end: that line was taken as it stands.
    Unterminated {
        /// Where the line starts, in bytes from the file's start.
        offset: u64,
    },
}

/// A trace that is being read.
pub trait Trace {
    /// What it says about itself.
    fn header(&self) -> &Header;

    /// Puts the next references into `batch`, and what has been sampled since the last call into `samples`, clearing both
    /// first. None in `batch` is the end.
    fn read(&mut self, batch: &mut Vec<Reference>, samples: &mut Vec<Sample>) -> Result<(), TraceError>;

    /// How it ended.
    fn ending(&self) -> Ending;
}
