//! Keeps a program's anonymous memory inside a budget.
#![cfg_attr(not(test), no_std)]

pub mod ledger;
