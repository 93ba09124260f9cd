//! Everything Linux: userfaultfd, mappings, clocks, cgroups.
//!
//! No other crate calls the kernel. The calls go straight to it (rustix without libc): the agent lives in somebody
//! else's program, on threads that libc does not know, and must never wait for a libc lock.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod area;
pub mod host;

pub use area::Area;
pub use rustix::io::Errno;
