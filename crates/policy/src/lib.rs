//! Decisions as pure state machines: which page to reclaim, how many, how far to fetch ahead.
//!
//! Nothing here has a clock, a lock or I/O: the caller brings the numbers, so that a simulator can call it too.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod prefetch;
pub mod replacement;
pub mod sizing;
