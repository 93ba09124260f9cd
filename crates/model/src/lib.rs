//! The code that synchronises without the pager's lock, under loom: all orders of its steps, and all that a load may
//! see under the orderings that it asks for.
//!
//! It is the code of the product, file by file; only `sys::futex`, what it is made of, is another one here. So nothing
//! of the product knows of loom. `tests/loom.rs` runs the scenarios.

extern crate alloc;
// So that the files find `sys::sync` here.
extern crate self as sys;

mod explore;
mod futex;
#[path = "../../sys/src/sync.rs"]
pub mod sync;

/// What the files have their constants from.
mod fork {
    pub(crate) const LOOK: core::time::Duration = core::time::Duration::from_millis(2);
}

#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../sys/src/page_range.rs"]
mod page_range;

/// As in pleat-sys, of which the rest needs Linux.
mod kernel {
    pub(crate) use crate::page_range::PageRange;
}

#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../pager/src/announce.rs"]
mod announce;
#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../pager/src/bell.rs"]
mod bell;
#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../pager/src/desk.rs"]
mod desk;
#[allow(dead_code, reason = "it is included for what is tested here")]
#[path = "../../sys/src/user_mode/moves.rs"]
mod moves;
#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../pager/src/places.rs"]
mod places;
#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../pager/src/readings.rs"]
mod readings;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "it is included for what is tested here")]
#[path = "../../pager/src/ledger/reference_log.rs"]
mod reference_log;
#[allow(dead_code, unreachable_pub, reason = "it is included for what is tested here")]
#[path = "../../agent/src/stages.rs"]
mod stages;

pub mod scenarios;
