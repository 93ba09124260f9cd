//! Keeps a program's anonymous memory inside a budget.
//!
//! Three threads drive it. The *server* reads the kernel's messages and brings missing pages ([`Server`]), and moves
//! some out where that is cheaper from its processor, or where room is short; the *reclaimer* keeps free room ahead of
//! need: it finds memory, moves cold pages out, encodes them, writes back, cleans and compacts ([`Reclaimer`]); the
//! *writer* waits for the device. Where the processes of a run work by turns, [`Turn`] says when the server serves nothing. All share one [`Pager`]: the state under one lock, which is held for microseconds,
//! never while encoding, decoding, or waiting for a device. Everything goes through [`sys::kernel::Kernel`], so that a
//! fake kernel drives the same code in tests.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod account;
mod announce;
mod area;
mod bell;
mod desk;
mod division;
mod eviction;
mod exhaustion;
mod fork;
mod idleness;
mod journal;
pub mod ledger;
mod order;
mod pager;
mod places;
mod readings;
mod reclaimer;
mod recording;
mod records;
mod regions;
mod scan;
mod server;
mod sharing;
mod state;
mod stock;
mod surrender;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

pub use fork::{FreshBacking, Inherited};
pub use pager::{Config, Pager};
pub use reclaimer::{Reclaimer, Rest};
pub use records::JOURNAL_BYTES;
pub use server::{Server, Stuck};
pub use turn::{Party, Standing, Turn};
