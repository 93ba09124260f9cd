//! Everything Linux: userfaultfd, mappings, clocks, cgroups.
//!
//! No other crate calls the kernel. The calls go straight to it (rustix without libc): the agent lives in somebody
//! else's program, on threads that libc does not know, and must never wait for a libc lock.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod action;
mod apart;
mod arch;

pub mod addresses;
pub mod area;
pub mod attach;
pub mod badge;
pub mod bytes;
pub mod clock;
pub mod confine;
pub mod copies;
pub mod detour;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod file;
mod futex;
pub mod handover;
pub mod host;
pub mod kept;
pub mod kernel;
pub mod linux;
pub mod locking;
pub mod maps;
pub mod moving;
mod page_range;
pub mod proc_files;
pub mod process;
pub mod raw_calls;
pub mod remap;
pub mod ring;
pub mod robust;
pub mod room;
mod spans;
pub mod sync;
pub mod thread;
pub mod thread_end;
pub mod uffd;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_user_mode.rs")]
pub mod user_mode;

pub use area::Area;
pub use rustix::fd::{AsFd, OwnedFd};
pub use rustix::io::Errno;
