//! Measures page codecs: how much smaller they make pages, and how long that takes.
//!
//! [`pages`] gets pages out of files, [`subjects`] names the codecs and the references beside them, [`warm`] and [`cold`]
//! take the times, [`figures`] turns them into one [`report`], and [`plot`] draws that. What the numbers mean is told in
//! bench/README.md.
// Not forbidden: liblzo2 is C, and must not be linked.
#![deny(unsafe_code)]

mod clock;
mod cold;
mod figures;
#[allow(unsafe_code, reason = "a library that is opened at run time is called by pointers")]
mod liblzo2;
mod machine;
pub mod pages;
mod plot;
pub mod report;
mod run;
pub mod subjects;
mod warm;

pub use plot::plot;
pub use run::{Plan, Step, run};
