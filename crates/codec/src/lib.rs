//! Turns a page into an encoding and back.
#![cfg_attr(not(test), no_std)]
