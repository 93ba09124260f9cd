//! Simulates memory on page-reference traces, without a clock of the machine's and without the kernel.
//!
//! [`replacement`] counts misses of replacement policies at several memory sizes, in one pass over a trace. [`timed`]
//! tells how long a program takes inside some RAM, [`mxt`] under MXT's hardware. [`estimate`] tells how probable it is that memory does not shrink enough.
#![forbid(unsafe_code)]

mod error;
pub mod estimate;
pub mod live;
mod lowest;
pub mod mxt;
mod pages;
mod ranked;
pub mod replacement;
mod slots;
pub mod timed;

pub use error::PlayError;
