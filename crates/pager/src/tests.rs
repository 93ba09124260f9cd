//! The pager driven by a fake kernel: seeded schedules of a program, the server and the reclaimer, in which every byte
//! that the program reads is compared with a plain copy of its memory.

mod content;
mod exhaustive;
mod forks;
mod idle;
mod marks;
mod medium;
mod metadata;
mod named;
mod program;
mod replay;
mod schedules;
mod sharing;
mod surrender;
mod told;
mod world;

pub(crate) use world::between;
