//! Decisions as pure state machines: which page to reclaim, how many, how far to fetch ahead;
//! and those of the papers: how large a compressed area is, what goes into it, what leaves it.
//!
//! Nothing here has a clock, a lock or I/O: the caller brings the numbers, so that a simulator can call it too.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod area;
pub mod drop_behind;
pub mod load_control;
pub mod prefetch;
pub mod replacement;
pub mod shares;
pub mod sizing;
pub mod write_back;
