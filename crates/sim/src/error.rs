//! What can be wrong with a trace.

use std::fmt;

use page::PageIndex;
use trace::TraceError;

/// Why a trace cannot be played on.
#[derive(Debug)]
pub enum PlayError {
    /// It cannot be read.
    Trace(TraceError),
    /// `pleat` has no such page.
    Beyond(PageIndex),
}

impl fmt::Display for PlayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(out),
            Self::Beyond(page) => {
                write!(out, "page {:#x} lies beyond 48 bits of address, where pleat has none", page.0)
            }
        }
    }
}

impl std::error::Error for PlayError {}

impl From<TraceError> for PlayError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}
