//! The compressed cache: where each page is, and the only code that moves it between store and backing.
//!
//! A page is in exactly one place ([`Place`]). A front end asks where ([`Cache::look_up`]), brings the page to the
//! program by its own means, and then says so ([`Cache::settle`]); or it takes pages from the program
//! ([`Cache::leave`]), encodes them outside every lock, and hands the encodings in ([`Cache::publish`]). The methods
//! never wait and never touch a device: they run under the caller's lock. What takes time is handed out as a job.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod area;
mod cache;
pub mod ring;
mod slot;
mod sweep;
pub mod system;
mod table;
mod words;

pub use area::{AreaCounters, AreaKeeper, Memory, Rules};
pub use cache::{Beside, Cache, Census, Lookup, Outcome, Published};
pub use slot::{Place, Slot};
pub use sweep::{Hand, WrittenBack};
pub use words::WordIndex;
